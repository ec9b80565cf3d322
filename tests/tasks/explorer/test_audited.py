"""A problem's page says what its tests missed, which suite judged, and what came of each test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.explorer.pages import Explorer
from tests.tasks.explorer.conftest import Pages
from tests.tasks.explorer.test_planted import programs, response
from warehouse import Warehouse
from warehouse.reading.readers import Readers

AUDIT = {
    "audit_id": "audit",
    "problem_id": "p",
    "suite_hash": "s",
    "programs": ["right", "doubtful"],
    "solutions": ["right"],
    "inputs": 40,
    "discarded": 3,
    "behaviours": 2,
    "disagreeing": 1,
    "unstable": [],
}
FINDING = {
    "audit_id": "audit",
    "problem_id": "p",
    "suite_hash": "s",
    "position": 0,
    "input": "0 <b>zero</b>\u202e",
    "expected": "0",
    "basis": "reference",
    "groups": 2,
    "dissenters": ["doubtful"],
}
VERSION = {
    "problem_id": "p",
    "suite_hash": "s2",
    "parent_suite_hash": "s",
    "parent_tests_hash": "tests",
    "version": 2,
    "added": [{"input": "0", "output": "0"}],
    "audit_ids": ["audit"],
}


def judged(program: str, suite: str, verdict: str, **more: Any) -> dict[str, Any]:
    return {
        "program_hash": program,
        "suite_hash": suite,
        "verdict": verdict,
        "tests_total": 3,
        "tests_passed": 2,
        **more,
    }


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """`right` passes; `doubtful` passes the first suite and fails the second, made of an audit; `old` is unrecorded."""
    folder = tmp_path_factory.mktemp("audited")
    with Warehouse.open(folder / "warehouse") as store:
        problem = {"problem_id": "p", "split": "train", "title": "Planted", "suite_hash": "s"}
        rows = [response(0, "right", "reference"), response(1, "doubtful", "online", step=1)]
        rows += [response(2, "old", "online", passed=False, step=1)]
        for row in rows:
            row["suite_hash"] = "s"
        verdicts = [
            judged("right", "s", "accepted", outcomes="aaa"),
            judged("doubtful", "s", "accepted", outcomes="aaa"),
        ]
        verdicts += [judged("old", "s", "wrong_answer", detail="test 2: differs")]
        test = {"problem_id": "p", "suite_hash": "s", "input": "x", "expected": "e"}
        tests = [test | {"position": n, "hidden": n > 0} for n in range(3)]
        tables = {"problems": [problem], "trajectories": rows, "verdicts": verdicts, "tests": tests}
        store.append("a", tables, run_id="one")
        store.append("b", {"audits": [AUDIT], "audit_findings": [FINDING]}, run_id="audit")
        failed = judged("doubtful", "s2", "wrong_answer", outcomes="aa.w", detail="test 4: differs")
        verdicts = [judged("right", "s2", "accepted", outcomes="aaaa"), failed]
        store.append("c", {"suite_versions": [VERSION], "verdicts": verdicts}, run_id="audit")
        with Readers.open(folder / "warehouse") as readers:
            readers.fill()
            yield Pages(Explorer(readers, folder, asked_s=300), store)


def before_acceptance(pages: Pages) -> int:
    return pages.value("SELECT max(snapshot_id) FROM audits")


def card(page: str, program: str) -> str:
    return next(one for one in page.split("<article")[1:] if f'string">{program}</span>' in one)


def test_programs_that_are_likely_wrong_are_marked_and_can_be_chosen(audited: Pages) -> None:
    at = before_acceptance(audited)
    page = audited.html("/problem", id="p", at=at)
    assert "likely wrong</span>" in card(page, "doubtful")
    assert "likely wrong</span>" not in card(page, "right")
    assert "on 1 of 40 new inputs" in card(page, "doubtful")
    chosen = audited.html("/problem", id="p", by="suspect", at=at)
    assert programs(chosen) == ["doubtful"]


def test_the_suite_that_counts_judges_and_older_verdicts_say_which_suite_gave_them(audited: Pages) -> None:
    page = audited.html("/problem", id="p")
    assert re.search(r"<code>s2</code> <span class=\"tag\">counts now</span>", page)
    assert 'aria-label="tests 1 to 2 accepted, 3 not run, 4 wrong answer"' in card(page, "doubtful")
    assert "of the suite</span>" not in card(page, "doubtful")
    assert "by version 1 of the suite" in card(page, "old")


def test_what_a_program_printed_on_the_test_that_it_failed_stands_beside_what_was_expected(audited: Pages) -> None:
    with Readers.open(audited.store.location.folder) as readers:
        readers.fill()
        pages = Pages(Explorer(readers, Path(audited.store.location.folder).parent, asked_s=300), audited.store)
        failed = judged(
            "doubtful", "s", "wrong_answer", outcomes="aw.", detail="test 2: differs", output="<i>7</i>\u202e"
        )
        audited.store.append("d", {"verdicts": [failed]}, run_id="one")
        page = pages.html("/trajectory", id="t1")
    assert '<p class="quiet">printed</p><pre>&lt;i&gt;7&lt;/i&gt;' in page
    assert '<p class="quiet">expected</p><pre>e</pre>' in page
    assert 'aria-label="tests 1 to 1 accepted' not in page
    assert 'aria-label="tests 1 accepted, 2 wrong answer, 3 not run"' in page


def test_a_sample_of_an_evaluation_has_a_page_of_its_own(audited: Pages) -> None:
    sample = {
        "policy_id": "trained/1",
        "problem_id": "p",
        "suite_hash": "s",
        "sample": 3,
        "seed": 11,
        "step": 20,
        "sampling": "T=1 top_p=1 max=64",
        "token_ids": [1, 2],
        "text": "print('fresh <b>')",
        "normal_hash": "fresh",
        "program_hash": "fresh",
        "reward": 0.0,
        "verdict": "accepted",
        "entropy": 0.25,
    }
    reworded, cooler = (
        sample | changed | {"text": f"print('{text}')", "normal_hash": text, "program_hash": text}
        for text, changed in (("stale", {"prompt_id": "older"}), ("cool", {"sampling": "T=0.2"}))
    )
    sample["prompt_id"] = "newer"
    policy = {"policy_id": "trained/1", "kind": "final", "path": "/nowhere"}
    for batch, one in (("0", reworded), ("1", cooler), ("2", sample)):
        audited.store.append(batch, {"eval_samples": [one], "policies": [policy]}, run_id="one")
    page = audited.html("/problem", id="p", by="evaluation")
    links = re.findall(r'href="(/sample\?[^"]+)">its tokens', page)
    replies = [audited.explorer.reply("/sample", link.partition("?")[2].replace("&amp;", "&")) for link in links]
    assert [reply.status for reply in replies] == [200] * 3
    for text in ("cool", "stale"):
        assert sum(f"&#39;{text}&#39;" in reply.body for reply in replies) == 1
    (found,) = (reply for reply in replies if "fresh &lt;b&gt;" in reply.body)
    assert "Sample 3 of an evaluation of policy <code>trained/1</code>" in found.body
    assert "T=1 top_p=1 max=64" in found.body
    assert "mean entropy 0.25 nats a token" in found.body
    assert "fresh &lt;b&gt;" in found.body
    assert audited.reply("/sample", of="trained/1", problem="p", n=4, seed=11).status == 404
    assert audited.reply("/sample", of="trained/1").status == 400
