"""The page of one searched trajectory of a real run, with the trained policy's own values."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tasks.estimators import soft_value
from tasks.report import trajectory
from tasks.report.trajectory import CannotShow
from tasks.report.trajectory_page import trajectory_page
from tests.tasks.conftest import Lab

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def test_estimates_are_those_of_the_search_between_the_prompt_and_the_end(finished: Lab) -> None:
    with finished.store() as store:
        listed = trajectory.searched(store)[0]
        shown = trajectory.gather(store, listed["trajectory"], values=False)
        rows = store.rows(
            "SELECT position, n, k FROM token_values WHERE starts_with(trajectory_id, ?) AND "
            "search_id LIKE 'annotation/%' ORDER BY position",
            [listed["trajectory"]],
        )
        text = store.value("SELECT text FROM trajectories WHERE trajectory_id = ? LIMIT 1", [shown.trajectory_id])
    inside = [(e.position, e.n, e.k) for e in shown.estimates[1:-1]]
    assert inside == [(row["position"], row["n"], row["k"]) for row in rows]
    assert shown.estimates[0].n == 24
    assert (shown.estimates[-1].position, shown.estimates[-1].share) == (len(shown.tokens), 1.0)
    assert "".join(shown.tokens) == text
    assert shown.policy_values == []


def test_own_values_begin_at_the_prompts_and_the_reference_adds_nothing(finished: Lab) -> None:
    with finished.store() as store:
        identity = trajectory.searched(store)[0]["trajectory"]
        reference = store.value("SELECT policy_id FROM policies WHERE kind = 'reference'")
        trained = trajectory.gather(store, identity)
        untrained = trajectory.gather(store, identity, policy=reference)
    start = trained.estimates[0]
    y0 = soft_value(start.n, start.k, trained.beta, prior=0.5)
    assert untrained.policy_values == pytest.approx([y0] * len(trained.tokens))
    assert trained.policy == "micro-1 step 4"
    assert max(abs(y - y0) for y in trained.policy_values) > 1e-3
    assert all(math.isfinite(y) for y in trained.policy_values)


def test_a_failed_trajectory_can_be_shown_too(finished: Lab) -> None:
    with finished.store() as store:
        failed = store.value("SELECT trajectory_id FROM trajectories WHERE reward = -1 AND source = 'online' LIMIT 1")
        shown = trajectory.gather(store, failed, values=False)
    assert [(e.position, e.share) for e in shown.estimates[1:]] == [(len(shown.tokens), 0.0)]


@pytest.mark.parametrize(
    "changes, author",
    [
        ({"source": "human"}, "a person"),
        ({"engine": "some/model"}, "some/model"),
        ({}, "another model"),
        ({"policy_start": "abc"}, "abc"),
    ],
)
def test_only_what_people_wrote_is_called_a_persons(changes: dict[str, str], author: str) -> None:
    row = {"problem_id": "p", "verdict": "accepted", "source": "other_model", "engine": None, "temperature": None}
    assert trajectory._facts(row | {"policy_start": None} | changes)[-1] == ("written by", author)


def test_what_cannot_be_shown_says_why(finished: Lab) -> None:
    with finished.store() as store:
        with pytest.raises(CannotShow, match="no trajectory begins with 'zz'"):
            trajectory.gather(store, "zz")
        with pytest.raises(CannotShow, match="more trajectories begin with ''"):
            trajectory.gather(store, "")
        with pytest.raises(CannotShow, match="no policy begins with 'zz'"):
            trajectory.gather(store, trajectory.searched(store)[0]["trajectory"], policy="zz")


def test_characters_of_several_tokens_appear_once_with_the_last() -> None:
    class Bytes:
        def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
            assert skip_special_tokens
            return bytes(ids).decode("utf-8", errors="replace")

    ids = list("aé€".encode())
    texts = trajectory.token_texts(Bytes(), ids)
    assert texts == ["a", "", "é", "", "", "€"]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_page_opens_in_a_real_browser_without_console_messages(finished: Lab, tmp_path: Path) -> None:
    with finished.store() as store:
        shown = trajectory.gather(store, trajectory.searched(store)[0]["trajectory"])
    page = tmp_path / "page.html"
    page.write_text(trajectory_page(shown), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-sync "
    flags += f"--disable-component-update --enable-logging=stderr --user-data-dir={tmp_path / 'profile'}"
    command = [str(BROWSER), *flags.split(), "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    assert '<figure id="chart-values"><svg' in done.stdout
    assert len(re.findall(r'<span[^>]* style="--s: \d+"', done.stdout)) == len(shown.tokens)
