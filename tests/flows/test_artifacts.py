"""The result of a run as Prefect and the terminal show it."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console

from flows import artifacts
from flows.cli import summary
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


def page(**changed: Any) -> str:
    """The page of an evaluation with these fields changed."""
    return artifacts.page("demo", {"evaluate": EVALUATED.model_copy(update=changed)}) or ""


def test_the_result_is_one_page_with_pass_at_k_the_curve_and_the_way_to_the_report(tmp_path: Path) -> None:
    report = ReportManifest(page=tmp_path / "report.html", pictures={"learning_curve": tmp_path / "curve.png"})
    text = artifacts.page("tiny-3", {"evaluate": EVALUATED, "report": report}) or ""
    assert "| pass@1 | 14.5 | 62.8 | +48.3 | +45.4 to +51.4 |" in text
    assert f"step      0  {'█' * 6:<40}  14.5%" in text
    assert f"step     40  {'█' * 25:<40}  62.8%" in text
    assert f"({(tmp_path / 'report.html').as_uri()})" in text
    assert "base64" not in text


def test_an_interval_that_nobody_knows_is_called_unknown_wherever_a_result_is_shown() -> None:
    change = CHANGE.model_copy(update={"interval": (math.nan, math.nan)})
    evaluated = EVALUATED.model_copy(update={"comparison": {"pass@1": change}})
    evaluated = EvaluateManifest.model_validate_json(json.dumps(evaluated.model_dump(mode="json")))
    shown = io.StringIO()
    summary.show_pass_at_k(Console(file=shown), evaluated)
    for text in (artifacts.page("tiny-3", {"evaluate": evaluated}) or "", shown.getvalue()):
        assert "unknown" in text
        assert "nan" not in text


def test_a_set_that_training_resembles_is_shown_with_its_unseen_part_or_without_one() -> None:
    tables = "| | before |"
    unseen = page(transfer_alike={"other": 7}, transfer_unseen={"other": {"pass@1": CHANGE}})
    assert (unseen.count(tables), page(transfer_alike={"other": 7}).count(tables)) == (2, 1)
    assert all("7 problems" in text for text in (unseen, page(transfer_alike={"other": 7})))


def test_problems_that_were_left_out_of_transfer_sets_are_named_with_one_reason() -> None:
    text = page(transfer_unfit={f"other/{number}": "its own solution is judged wrong_answer" for number in range(5)})
    assert "other/0, other/1, other/2 and 2 " in text
    assert text.count("its own solution is judged wrong_answer") == 1
    assert "other/5" in page(transfer_too_long=("other/5",))
    assert "other/" not in page()


def test_a_run_without_evaluation_and_report_has_no_page_and_its_last_stage_as_headline() -> None:
    manifests: dict[Any, Any] = {"q0": Q0Manifest(sampling="", summary="48 new samples")}
    assert artifacts.page("tiny-3", manifests) is None
    assert artifacts.headline("tiny-3", manifests) == "tiny-3: 48 new samples"
    evaluated = EVALUATED.model_copy(update={"summary": "pass@10 14.5% -> 62.8%"})
    assert artifacts.headline("tiny-3", {**manifests, "evaluate": evaluated}) == "tiny-3: pass@10 14.5% -> 62.8%"
