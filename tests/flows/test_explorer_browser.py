"""The pages in a real browser: clicks, a live run, hostile programs, two widths, light and dark, the keyboard."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import BROWSER
from tests.tasks.conftest import Lab
from tests.warehouse.conftest import trajectory
from warehouse import Warehouse

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed (Debian: apt-get install chromium)")
HOSTILE = (
    "</pre><script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">\n"
    "x = '\u202egnirts\u2066'  # \x1b]0;owned\x07 \u200b{{ 7 * 7 }}\n" + "y = '" + "a" * 1_000_000 + "'\n"
)

SAMPLE = "/sample?of=%3Cb%3E&problem=p0&n=0&seed=1"


@pytest.fixture(scope="module")
def open_page() -> Iterator[Callable[..., Any]]:
    """Opens an address in Chromium, in one tab for each kind of window; its list `said` is what its console says."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (the extra `dev`)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])

        @functools.cache
        def tab(width: int, dark: bool, script: bool) -> Any:
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme="dark" if dark else "light",
                java_script_enabled=script,
            )
            context.set_default_timeout(60_000)
            page = context.new_page()
            page.said = []
            page.on("console", lambda message: page.said.append(message.text))
            page.on("pageerror", lambda error: page.said.append(str(error)))
            return page

        def opened(address: str, *, width: int = 1280, dark: bool = False, script: bool = True) -> Any:
            page = tab(width, dark, script)
            page.said.clear()
            page.goto(address)
            return page

        yield opened
        browser.close()


def serve(home: Path) -> tuple[subprocess.Popen[str], str]:
    """`spo ui` as people start it, and its address."""
    environment = {**os.environ, "SPO_HOME": str(home)}
    environment.pop("SPO_WAREHOUSE", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "flows.cli.main", "ui", "--port", "0", "--time-limit", "120"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        if found:
            _until_filled(found[0])
            return process, found[0]
    raise AssertionError("spo ui ended without an address")


def _until_filled(address: str) -> None:
    """Wait until the server has read the responses once: until then pages that need them answer 503."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(address + "/problems", timeout=60).close()
            return
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.5)
    raise TimeoutError(f"{address} has not read the responses in time")


@pytest.fixture(scope="module")
def address(finished: Lab) -> Iterator[str]:
    process, found = serve(finished.home)
    yield found
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Warehouse]]:
    """The address of a small warehouse with a hostile program, and the warehouse, to write more."""
    home = tmp_path_factory.mktemp("hostile")
    with Warehouse.open(home / "warehouse") as store:
        problem = {"problem_id": "p0", "split": "train", "title": "<b>Title</b>\u202e", "statement": HOSTILE[:300]}
        problem["suite_hash"] = "s"
        rows = {
            "problems": [problem],
            "runs": [{"recipe": "<i>recipe</i>", "config_json": "{}"}],
            "run_events": [{"stage": "train", "kind": "started", "message": HOSTILE[:300]}],
            "trajectories": [
                trajectory(0, text=HOSTILE, program_hash="h", suite_hash="s"),
                trajectory(1, text="print(1)"),
            ],
            **judged_and_audited(),
        }
        store.append("first", rows, run_id="tiny-<1>")
        process, address = serve(home)
        yield address, store
        process.terminate()
        process.wait(30)


def judged_and_audited() -> dict[str, list[dict[str, Any]]]:
    """What the sandbox, an audit and an evaluation left of hostile programs."""
    text = HOSTILE[:300]
    finding = {"audit_id": "a", "problem_id": "p0", "suite_hash": "s", "position": 0, "basis": "majority", "groups": 2}
    audit = {"audit_id": "a", "problem_id": "p0", "suite_hash": "s", "programs": ["h", "i"], "solutions": []}
    audit |= {"inputs": 9, "discarded": 0, "behaviours": 2, "disagreeing": 1, "unstable": []}
    verdict = {"program_hash": "h", "suite_hash": "s", "verdict": "wrong_answer", "outcomes": "aw" + "." * 30}
    sample = {"policy_id": "<b>", "problem_id": "p0", "sample": 0, "seed": 1, "token_ids": [1], "text": HOSTILE}
    test = {"problem_id": "p0", "suite_hash": "s", "position": 1, "input": text, "expected": text, "hidden": True}
    return {
        "verdicts": [verdict | {"tests_total": 32, "detail": f"test 2: {text}", "output": text}],
        "tests": [test],
        "audits": [audit],
        "audit_findings": [finding | {"input": text, "expected": text, "dissenters": ["h"]}],
        "eval_samples": [sample | {"sampling": text, "program_hash": "h", "suite_hash": "s", "normal_hash": "e"}],
    }


def test_a_newcomer_finds_a_program_that_only_training_found_in_three_clicks(
    address: str,
    open_page: Callable[..., Any],
    finished: Lab,
) -> None:
    page = open_page(address)
    page.locator(".facts .strong a").click()
    page.wait_for_url("**/problems?kind=found")
    found = finished.value("SELECT count(DISTINCT problem_id) FROM new_solutions")
    assert page.locator("tbody tr").count() == found
    if found:
        page.locator("tbody td:last-child a").first.click()
        assert page.locator(".tag.new").first.inner_text() == "found by training"
        program = page.locator(".card pre").first.inner_text()
        assert program.strip()
    assert page.said == []


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_every_page_fits_the_window_and_is_silent(
    address: str, open_page: Callable[..., Any], width: int, dark: bool
) -> None:
    page = open_page(address, width=width, dark=dark)
    paths = ["/", "/run?id=micro-1", "/step?run=micro-1&step=1", "/problems", "/sandbox", "/studies", "/searched"]
    for path in [*paths, "/ask?sql=SELECT+run_id,+step,+pass_at_1+FROM+learning_curve&view=chart"]:
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert page.locator("h1").count() == 1
    assert page.said == []


def test_two_programs_are_ticked_and_stand_side_by_side(address: str, open_page: Callable[..., Any]) -> None:
    page = open_page(address + "/problems?order=programs")
    page.locator("tbody td.name a").first.click()
    page.wait_for_url("**/problem?*")
    button = page.get_by_role("button", name="Compare two ticked programs")
    assert button.is_disabled()
    boxes = page.locator("input[name=p]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    assert boxes.nth(2).is_disabled()
    button.click()
    page.wait_for_url("**/programs?*")
    assert page.locator("table.diff tr.other").count() > 0
    assert page.said == []


def test_a_point_of_the_curve_leads_to_its_step_and_on_to_a_trajectorys_tokens(
    address: str, open_page: Callable[..., Any]
) -> None:
    page = open_page(address + "/run?id=micro-1")
    page.locator(".plot a").last.dispatch_event("click")
    page.wait_for_url("**/step?*")
    page.locator("tbody code a").first.click()
    page.wait_for_url("**/trajectory?*")
    page.locator("[data-tokens] .t").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("[data-hint]").inner_text().startswith("token 2")
    assert page.said == []


def test_the_slider_moves_through_training(address: str, open_page: Callable[..., Any], finished: Lab) -> None:
    problem = finished.value("SELECT problem_id FROM trajectories WHERE source = 'online' ORDER BY ALL LIMIT 1")
    page = open_page(f"{address}/prompt?id={problem}")
    slider = page.locator("input[type=range]")
    slider.evaluate("s => { s.value = s.min; s.dispatchEvent(new Event('change')); }")
    page.wait_for_url("**step=*")
    assert page.locator(".facts dd").first.inner_text() == slider.get_attribute("min")
    assert page.said == []


def test_a_question_is_asked_with_the_keyboard_and_without_scripts(address: str, open_page: Callable[..., Any]) -> None:
    page = open_page(address + "/ask")
    page.locator("textarea").fill("SELECT 6 * 7 AS answer")
    page.keyboard.press("Control+Enter")
    page.wait_for_url("**sql=*")
    assert page.locator("tbody td").inner_text() == "42"
    plain = open_page(address + "/ask", script=False)
    plain.locator("textarea").fill("SELECT 6 * 7 AS answer")
    plain.get_by_role("button", name="Table").click()
    assert plain.locator("tbody td").inner_text() == "42"


def test_the_first_thing_the_keyboard_reaches_leads_to_the_content(address: str, open_page: Callable[..., Any]) -> None:
    page = open_page(address + "/problems")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#content"


def test_a_hostile_program_is_shown_harmlessly(hostile: tuple[str, Warehouse], open_page: Callable[..., Any]) -> None:
    page = open_page(hostile[0] + "/problem?id=p0")
    paths = (
        "/problem?id=p0",
        "/problem?id=p0&by=suspect",
        "/",
        "/problems",
        "/trajectory?id=t0",
        SAMPLE,
        "/prompt?id=p0",
    )
    for path in (*paths, "/ask?sql=SELECT+text+FROM+trajectories"):
        page.goto(hostile[0] + path)
        assert "owned" not in page.title()
        assert page.locator("main script, main img, main b b, h1 b, h1 i").count() == 0
        assert "\u202e" not in page.content()
        assert len(page.content()) < 400_000
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        page.locator("body").wait_for()
    page.goto(hostile[0] + "/problem?id=p0")
    shown = page.locator(".card pre.program").filter(has_text="<script>").first.inner_text()
    assert "</pre><script>document.title = 'owned'</script>" in shown
    assert "U+202E" in shown
    assert "{{ 7 * 7 }}" in shown
    assert page.get_by_text("characters are not shown").count() == 2
    assert page.said == []


def test_verdicts_per_test_audits_and_outputs_fit_the_window_and_can_be_read_aloud(
    hostile: tuple[str, Warehouse], open_page: Callable[..., Any]
) -> None:
    width = 390
    page = open_page(hostile[0] + "/problem?id=p0", width=width, dark=True)
    marks = page.locator(".outcomes").first
    assert marks.get_attribute("aria-label") == "tests 1 accepted, 2 wrong answer, 3 to 32 not run"
    assert marks.locator("span").count() == 32
    page.get_by_text("Inputs on which they part").click()
    page.get_by_role("link", name="1 program likely wrong").click()
    page.wait_for_url("**by=suspect*")
    page.get_by_role("link", name="its tokens").first.click()
    page.get_by_text("printed", exact=True).wait_for()
    for path in ("/problem?id=p0", "/trajectory?id=t0", SAMPLE):
        page.goto(hostile[0] + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert page.get_by_role("heading", name="Test 2").count() == 1
    assert page.said == []


def test_a_page_of_a_growing_run_follows_it(hostile: tuple[str, Warehouse], open_page: Callable[..., Any]) -> None:
    address, store = hostile
    page = open_page(address)
    assert page.locator(".pulse").inner_text() == "live"
    before = page.locator(".facts dd").first.inner_text()
    store.append("grown", {"trajectories": [trajectory(n) for n in range(100, 110)]}, run_id="tiny-<1>")
    page.wait_for_function("n => document.querySelector('.facts dd').innerText == n", arg=str(int(before) + 10))
    store.append("new", {"runs": [{"recipe": "other", "config_json": "{}"}]}, run_id="other-1")
    page.get_by_role("link", name="other-1").wait_for()
    assert page.said == []
