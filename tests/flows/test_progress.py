"""The stage table: states, rates and remaining time, and how it gets to the server."""

from __future__ import annotations

import pickle
import threading
from typing import Any
from uuid import uuid4

import pytest

from flows import progress
from flows.progress import NestedProgress, ProgressTable, Publisher, StageRow


class Clock:
    """Time that stands still until it is set."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1000.0


class Watched:
    """A table of two stages; what it publishes and logs, and the time by which it goes."""

    def __init__(self) -> None:
        self.clock, self.published, self.logged = Clock(), list[Any](), list[str]()
        self.table = ProgressTable(["q0", "train"], self.published.append, self.logged.append, self.clock)
        self.line = self.table.lines["q0"]
        self.table.start("q0")

    def at(self, second: float, done: int, total: int = 1000, note: str = "") -> None:
        """Report so much progress, so long after the beginning."""
        self.clock.now = 100 + second
        self.table.progress("q0", done, total, "samples", note)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_rate_and_remaining_time_come_from_the_last_minute(watched: Watched) -> None:
    for second in range(0, 121, 10):
        watched.at(second, second if second <= 60 else 60 + 3 * (second - 60))
    assert watched.line.rate == pytest.approx(3.0)
    assert watched.line.remaining_s == pytest.approx((1000 - 240) / 3)
    assert watched.published[-1][0]["done"] == 240


def test_reports_in_bursts_are_not_taken_for_the_rate(watched: Watched) -> None:
    for minute in range(0, 21, 10):
        for sample in range(100):
            watched.at(60 * minute + 0.1 * sample, 10 * minute + sample)
    assert watched.line.rate == pytest.approx(100 / 600)


def test_the_first_report_after_a_pause_is_not_taken_for_the_rate(watched: Watched) -> None:
    """Sixty-four responses that were decoded together, three minutes, and the first of the next sixty-four."""
    for second, done in ((0, 1), (20, 65), (200, 66)):
        watched.at(second, done, 1640)
    assert watched.line.rate == pytest.approx(65 / 200)


def test_a_count_that_starts_again_does_not_give_a_negative_rate(watched: Watched) -> None:
    for second, done in ((0, 90), (5, 1), (10, 11)):
        watched.at(second, done)
    assert watched.line.rate == pytest.approx(2.0)


def test_what_a_run_of_a_study_finds_done_is_not_taken_for_its_rate(watched: Watched) -> None:
    """A training that goes on at step 168 of 480, half a minute after its stage began."""
    line = NestedProgress(watched.table, "q0", "smollm-1")
    line.progress("pivotal", 40, 40, "trajectories", "")
    line.start("train")
    assert (watched.line.done, watched.line.remaining_s) == (0, None)
    for second, done in ((40, 168), (55, 169), (70, 170)):
        watched.clock.now = 100 + second
        line.progress("train", done, 480, "steps", "")
    assert watched.line.rate == pytest.approx(1 / 15)
    assert watched.line.remaining_s == pytest.approx(310 * 15)


def test_the_end_of_a_stage_is_published_at_once_with_its_mean_rate_and_logged(watched: Watched) -> None:
    watched.at(2, 10, 70)
    watched.at(3.00049, 70, 70)
    watched.table.end("q0", "done", "70 samples")
    ended, waiting = watched.published[-1]
    assert (ended["state"], ended["rate"], ended["seconds"], waiting["state"]) == ("done", 23.3, 3.0, "waiting")
    assert len(watched.logged) == 2


def test_a_stage_that_is_tried_again_shows_when_and_why_until_it_works(watched: Watched) -> None:
    watched.table.retry("q0", 30.0, "WarehouseBusy: the lock is held by process 7")
    assert (watched.line.state, watched.line.retry_at) == ("retrying", 1030.0)
    assert watched.published[-1][0]["note"] == "WarehouseBusy: the lock is held by process 7"
    watched.at(1, 1)
    assert (watched.line.state, watched.line.retry_at) == ("running", None)


def test_publishing_is_throttled_and_every_shard_gets_a_line_in_the_log(watched: Watched) -> None:
    for done in range(1, 41):
        watched.at(0.1 * done, done, 40, f"shard {1 + done // 21} of 2")
    assert len(watched.published) <= 4
    assert watched.logged[1:] == ["q0: 21/40 samples, 10.0/s, 1.9 s left (shard 2 of 2)"]


def test_progress_does_not_wait_for_the_server_and_a_change_of_state_does() -> None:
    answered, sent = threading.Event(), list[tuple[str, int]]()

    def send(lines: list[dict[str, Any]]) -> None:
        if lines[0]["state"] == "running" and lines[0]["done"] == 1:
            assert answered.wait(10)
        sent.append((lines[0]["state"], lines[0]["done"]))

    publisher = Publisher(uuid4(), "run tiny-1", send)
    publisher([{"state": "running", "done": 0}])
    assert sent == [("running", 0)]
    for done in range(1, 5):
        publisher([{"state": "running", "done": done}])
    assert sent == [("running", 0)]
    answered.set()
    publisher([{"state": "done", "done": 5}])
    assert sent[-1] == ("done", 5)
    assert len(sent) == 3


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (StageRow("q0", done=800, total=6400, unit="samples", rate=53.1, remaining_s=105), "53.1/s, 1 min 45 s left"),
        (
            StageRow("train", done=5, total=30, unit="steps", rate=1 / 40.2, remaining_s=7800),
            "40 s each, 2 h 10 min left",
        ),
    ],
)
def test_rates_and_durations_are_for_people(line: StageRow, text: str) -> None:
    assert progress.describe(line).endswith(text)


def test_a_board_stays_behind_when_prefect_sends_a_tasks_arguments_to_another_machine(watched: Watched) -> None:
    assert pickle.loads(pickle.dumps({"board": watched.table, "stage": "q0"})) == {"board": None, "stage": "q0"}
