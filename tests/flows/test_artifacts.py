"""What a finished stage shows: its results as artifacts, and progress bars that are redrawn seldom."""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from flows import artifacts, progress
from flows.progress import ProgressTable, Publisher, shard, slug
from tasks.run.manifests import Change, EvaluateManifest, ReportManifest

CHANGE = Change(
    before=0.145, after=0.628, difference=0.483, interval=(0.454, 0.514), p_value=0.0, better=60, worse=1, equal=3
)
EVALUATED = EvaluateManifest(sampling="", curve=(), sets={}, comparison={"pass@1": CHANGE}, described="")


def test_pass_at_k_is_shown_in_per_cent_with_its_interval() -> None:
    assert artifacts.comparison(EVALUATED) == [
        {"metric": "pass@1", "before": 14.5, "after": 62.8, "difference": 48.3, "95% interval": "+45.4 to +51.4"}
    ]


def test_only_pictures_that_exist_and_are_small_become_artifacts(tmp_path: Path) -> None:
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    small.write_bytes(b"picture")
    large.write_bytes(bytes(artifacts.PICTURE_LIMIT_BYTES + 1))
    pictures = {"learning_curve": small, "other": large, "gone": tmp_path / "gone.png"}
    manifest = ReportManifest(page=tmp_path / "report.html", pictures=pictures)
    assert artifacts.small_pictures(manifest) == {"learning-curve": small}
    kind, content = artifacts.data_address(small).split(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(content) == b"picture"


def test_the_key_of_an_artifact_has_small_letters_digits_and_dashes() -> None:
    assert slug("SPO half online, 0") == "spo-half-online-0"


def test_a_bar_is_redrawn_now_and_then_and_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    publisher = Publisher(uuid4(), "run tiny-1")

    def moved(state: str, done: int, total: int = 200) -> list[tuple[str, float]]:
        return publisher._moved([{"stage": "q0", "state": state, "done": done, "total": total}])

    assert moved("running", 0, total=0) == []
    assert moved("running", 10) == [("q0", 5.0)]
    now[0] += 1
    assert moved("running", 20) == []
    now[0] += progress.BAR_EVERY_S
    assert moved("running", 20) == [("q0", 10.0)]
    assert moved("done", 150) == [("q0", 100.0)]
    assert moved("done", 150) == []


def test_progress_does_not_wait_for_the_server_and_a_change_of_state_does(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, sent = threading.Event(), list[tuple[str, int]]()

    def send(_: Publisher, lines: list[dict[str, Any]]) -> None:
        if lines[0]["state"] == "running" and lines[0]["done"] == 1:
            assert answered.wait(10)
        sent.append((lines[0]["state"], lines[0]["done"]))

    monkeypatch.setattr(Publisher, "_send", send)
    publisher = Publisher(uuid4(), "run tiny-1")
    publisher([{"state": "running", "done": 0}])
    assert sent == [("running", 0)]
    for done in range(1, 5):
        publisher([{"state": "running", "done": done}])
    assert sent == [("running", 0)]
    answered.set()
    publisher([{"state": "done", "done": 5}])
    assert sent[-1] == ("done", 5)
    assert len(sent) == 3


def test_every_shard_gets_a_line_in_the_log_and_other_progress_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    logged: list[str] = []
    board = ProgressTable(["q0"], lambda _: None, logged.append)  # type: ignore[arg-type]
    board.start("q0")
    board.progress("q0", 0, 40, "samples", "shard 1 of 2")
    logged.clear()
    for done in range(1, 41):
        now[0] += 0.1
        board.progress("q0", done, 40, "samples", f"shard {1 + done // 21} of 2")
    assert logged == ["q0: 21/40 samples, 10.0/s, 1.9 s left (shard 2 of 2)"]
    assert shard("making the reference policy, loss 2.31") is None
    assert shard("wave 3, 40 rollouts") == "wave 3, 40 rollouts"
