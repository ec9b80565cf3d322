"""What a run shows: its result as one page, and its stages' progress."""

from __future__ import annotations

import io
import json
import math
import threading
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console

from flows import artifacts, progress
from flows.cli import summary, watch
from flows.progress import ProgressTable, Publisher, shard
from tasks.run.manifests import Change, CurvePoint, EvaluateManifest, Q0Manifest, ReportManifest

CHANGE = Change(
    before=0.145, after=0.628, difference=0.483, interval=(0.454, 0.514), p_value=0.0, better=60, worse=1, equal=3
)
POINTS = tuple(
    CurvePoint(k=k, value=value, low=0, high=1, step=step, policy_id=f"p{step}")
    for step, value in ((40, 0.628), (0, 0.145))
    for k in (1, 10)
)
EVALUATED = EvaluateManifest(sampling="", curve=POINTS, sets={}, comparison={"pass@1": CHANGE}, described="")


def test_the_result_is_one_page_with_pass_at_k_the_curve_and_the_way_to_the_report(tmp_path: Path) -> None:
    report = ReportManifest(page=tmp_path / "report.html", pictures={"learning_curve": tmp_path / "curve.png"})
    text = artifacts.page("tiny-3", {"evaluate": EVALUATED, "report": report})
    assert text is not None
    assert "| pass@1 | 14.5 | 62.8 | +48.3 | +45.4 to +51.4 |" in text
    assert f"step      0  {'█' * 6:<40}  14.5%" in text
    assert f"step     40  {'█' * 25:<40}  62.8%" in text
    assert f"({(tmp_path / 'report.html').as_uri()})" in text
    assert "base64" not in text


def test_an_interval_that_nobody_knows_is_called_unknown_wherever_a_result_is_shown() -> None:
    change = CHANGE.model_copy(update={"interval": (math.nan, math.nan)})
    evaluated = EVALUATED.model_copy(update={"comparison": {"pass@1": change}})
    evaluated = EvaluateManifest.model_validate_json(json.dumps(evaluated.model_dump(mode="json")))
    assert "| pass@1 | 14.5 | 62.8 | +48.3 | unknown |" in (artifacts.page("tiny-3", {"evaluate": evaluated}) or "")
    shown = io.StringIO()
    summary._pass_at_k(Console(file=shown), evaluated)
    assert "unknown" in shown.getvalue()
    assert "nan" not in shown.getvalue()


def test_a_set_that_training_resembles_is_told_of_with_its_unseen_part_or_with_none() -> None:
    part, whole = {"other": {"pass@1": CHANGE}}, EVALUATED.model_copy(update={"transfer_alike": {"other": 7}})
    text = artifacts.page("demo", {"evaluate": whole.model_copy(update={"transfer_unseen": part})}) or ""
    assert "Transfer to other, without the 7 problems that training problems of this run resemble:\n\n| |" in text
    text = artifacts.page("demo", {"evaluate": whole}) or ""
    assert "All 7 problems of other resemble training problems of this run: it shows no transfer." in text
    assert text.count("| | before |") == 1


def test_problems_that_were_left_out_of_transfer_sets_are_named_with_one_reason() -> None:
    unfit = {f"other/{number}": "its own solution is judged wrong_answer" for number in range(5)}
    text = artifacts.page("demo", {"evaluate": EVALUATED.model_copy(update={"transfer_unfit": unfit})}) or ""
    assert "5 problems left out, whose tests cannot be trusted: other/0, other/1, other/2 and 2 " in text
    assert "(other/0: its own solution is judged wrong_answer)" in text
    long = EVALUATED.model_copy(update={"transfer_too_long": ("other/5",)})
    text = artifacts.page("demo", {"evaluate": long}) or ""
    assert "1 problems left out, whose prompts are too long: other/5" in text
    assert "left out" not in (artifacts.page("demo", {"evaluate": EVALUATED}) or "")


def test_a_run_without_evaluation_and_report_has_no_page_and_its_last_stage_as_headline() -> None:
    manifests: dict[Any, Any] = {"q0": Q0Manifest(sampling="", summary="48 new samples")}
    assert artifacts.page("tiny-3", manifests) is None
    assert artifacts.headline("tiny-3", manifests) == "tiny-3: 48 new samples"
    evaluated = EVALUATED.model_copy(update={"summary": "pass@10 14.5% -> 62.8%"})
    assert artifacts.headline("tiny-3", {**manifests, "evaluate": evaluated}) == "tiny-3: pass@10 14.5% -> 62.8%"


def test_a_stage_that_is_tried_again_shows_when_and_why_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress.time, "time", lambda: 1000.0)
    logged: list[str] = []
    board = ProgressTable(["q0"], lambda _: None, logged.append)  # type: ignore[arg-type]
    board.start("q0")
    board.retry("q0", 30.0, "WarehouseBusy: the lock is held by process 7")
    line = board.lines["q0"]
    assert (line.state, line.retry_at) == ("retrying", 1030.0)
    assert logged[-1] == "q0: tried again in 30 s; WarehouseBusy: the lock is held by process 7"
    table = Console(width=200, record=True, file=io.StringIO())
    table.print(watch.render([line], "tiny-3"))
    assert "tried again in 30 s; WarehouseBusy: the lock is held by process 7" in table.export_text()
    board.progress("q0", 1, 10, "samples", "")
    assert (line.state, line.retry_at) == ("running", None)


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
