"""The stage table: states, rates and remaining time."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from flows import progress as progress
from flows.progress import NestedProgress, ProgressTable, StageRow


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def make(published: list[Any], logged: list[str]) -> ProgressTable:
    return ProgressTable(["q0", "train"], published.append, logged.append)  # type: ignore[arg-type]


def test_rate_and_remaining_time_come_from_the_last_minute(clock: list[float]) -> None:
    published: list[Any] = []
    board = make(published, [])
    board.start("q0")
    for second in range(0, 121, 10):
        clock[0] = 100 + second
        board.progress("q0", second if second <= 60 else 60 + 3 * (second - 60), 1000, "samples", "")
    line = board.lines["q0"]
    assert line.rate == pytest.approx(3.0)
    assert line.remaining_s == pytest.approx((1000 - 240) / 3)
    assert published[-1][0]["done"] == 240


def test_reports_in_bursts_are_not_taken_for_the_rate(clock: list[float]) -> None:
    board = ProgressTable(["evaluate"], lambda _: None, lambda _: None)  # type: ignore[arg-type]
    board.start("evaluate")
    for minute in range(0, 21, 10):
        for sample in range(100):
            clock[0] = 100 + 60 * minute + 0.1 * sample
            board.progress("evaluate", 10 * minute + sample, 1000, "samples", "")
    assert board.lines["evaluate"].rate == pytest.approx(100 / 600)


def test_the_first_report_after_a_pause_is_not_taken_for_the_rate(clock: list[float]) -> None:
    """Sixty-four responses that were decoded together, three minutes, and the first of the next sixty-four."""
    board = ProgressTable(["evaluate"], lambda _: None, lambda _: None)  # type: ignore[arg-type]
    board.start("evaluate")
    for second, done in ((0, 1), (20, 65), (200, 66)):
        clock[0] = 100 + second
        board.progress("evaluate", done, 1640, "samples", "")
    assert board.lines["evaluate"].rate == pytest.approx(65 / 200)


def test_a_count_that_starts_again_does_not_give_a_negative_rate(clock: list[float]) -> None:
    board = make([], [])
    board.start("q0")
    board.progress("q0", 90, 100, "samples", "")
    clock[0] += 5
    board.progress("q0", 1, 50, "programs", "")
    clock[0] += 5
    board.progress("q0", 11, 50, "programs", "")
    assert board.lines["q0"].rate == pytest.approx(2.0)


def test_what_a_run_of_a_study_finds_done_is_not_taken_for_its_rate(clock: list[float]) -> None:
    """A training that goes on at step 168 of 480, half a minute after its stage began."""
    board = ProgressTable(["recipe 1"], lambda _: None, lambda _: None)  # type: ignore[arg-type]
    board.start("recipe 1")
    line = NestedProgress(board, "recipe 1", "smollm-1")
    line.progress("pivotal", 40, 40, "trajectories", "")
    line.start("train")
    assert (board.lines["recipe 1"].done, board.lines["recipe 1"].remaining_s) == (0, None)
    for second, done in ((40, 168), (55, 169), (70, 170)):
        clock[0] = 100 + second
        line.progress("train", done, 480, "steps", "")
    assert board.lines["recipe 1"].rate == pytest.approx(1 / 15)
    assert board.lines["recipe 1"].remaining_s == pytest.approx(310 * 15)


def test_the_end_of_a_stage_is_published_at_once_and_logged(clock: list[float]) -> None:
    published: list[Any] = []
    logged: list[str] = []
    board = make(published, logged)
    board.start("q0")
    clock[0] += 0.1
    board.end("q0", "skipped", "done before")
    assert published[-1][0]["state"] == "skipped"
    assert published[-1][1]["state"] == "waiting"
    assert logged == ["q0: skipped in 0.1 s; done before"]


def test_an_ended_stage_shows_its_mean_rate_and_figures_for_people(clock: list[float]) -> None:
    published: list[Any] = []
    logged: list[str] = []
    board = make(published, logged)
    board.start("q0")
    clock[0] += 2
    board.progress("q0", 10, 70, "samples", "")
    clock[0] += 1.00049
    board.progress("q0", 70, 70, "samples", "")
    board.end("q0", "done", "70 samples")
    assert (published[-1][0]["rate"], published[-1][0]["seconds"]) == (23.3, 3.0)
    assert logged[0] == "q0: 10/70 samples"


def test_publishing_is_throttled(clock: list[float]) -> None:
    published: list[Any] = []
    board = make(published, [])
    board.start("q0")
    for done in range(100):
        clock[0] += 0.01
        board.progress("q0", done, 100, "samples", "")
    assert len(published) <= 2


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2 s"), (45.2, "45 s"), (59.9, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert progress.duration(seconds) == text


def test_a_line_describes_itself() -> None:
    line = StageRow("q0", done=800, total=6400, unit="samples", rate=53.1, remaining_s=105)
    assert progress.describe(line) == "q0: 800/6400 samples, 53.1/s, 1 min 45 s left"


def test_a_line_of_a_slow_stage_says_what_each_unit_takes() -> None:
    line = StageRow("train", done=5, total=30, unit="steps", rate=1 / 40.2, remaining_s=1005)
    assert progress.describe(line) == "train: 5/30 steps, 40 s each, 16 min 45 s left"


def test_a_board_stays_behind_when_prefect_sends_a_tasks_arguments_to_another_machine() -> None:
    assert pickle.loads(pickle.dumps({"board": make([], []), "stage": "q0"})) == {"board": None, "stage": "q0"}
