"""A study with failing arms, changed recipes and known results; stages are stood in for."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from flows import study
from flows.study_config import STUDIES, Study, load
from tasks import config as configuration
from tasks.q0.stage import NoUsablePrompt
from tasks.report import study as study_report
from tasks.report.arms import ArmResult
from tasks.run.errors import StageInputMissing
from warehouse import Warehouse

STUDY = """
title = "Two"
seeds = 2
[arms.first]
recipe = "mine.toml"
label = "first"
[arms.second]
recipe = "mine.toml"
label = "second"
overrides = { q0 = { samples = 8 } }
[[groups]]
title = "Two"
arms = ["first", "second"]
"""
SAME = {"train": "t0", "evaluation": "e0"}


@dataclass
class Laboratory:
    """What a study asks of the rest of the program, answered from here: runs are named by their number."""

    made: list[configuration.RunConfig] = field(default_factory=list[configuration.RunConfig])
    ran: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Runs, and how many stages of theirs at a time."""
    compared: list[dict[str, ArmResult]] = field(default_factory=list[dict[str, ArmResult]])
    problems: Callable[[str], dict[str, str]] = lambda _: SAME
    stage: Callable[[str], None] = lambda _: None

    def make(self, _name: str, _arm: str, config: configuration.RunConfig) -> str:
        self.made.append(config)
        return f"mine-{len(self.made)}"

    def execute(self, stages: Sequence[str], run_id: str, _board: Any, **_settings: Any) -> None:
        self.ran.append((run_id, len(stages)))
        self.stage(run_id)

    def go(self, **parameters: Any) -> None:
        study.study.fn("two.toml", folder=str(Path.cwd()), **parameters)

    def results(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in Path("results.jsonl").read_text(encoding="utf-8").splitlines()]


def collected(definition: Study, found: Any, stopped: Any) -> dict[str, ArmResult]:
    """Results without a warehouse: what ended has nothing measured."""
    return {
        arm: ArmResult(definition.arms[arm].label, list(ran), *([[{}] * len(ran)] * 3), stopped[arm], [{}] * len(ran))
        for arm, ran in found.items()
    }


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    found = Laboratory()
    (tmp_path / "two.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "mine.toml").write_text('base = "tiny"\n[train]\nsteps = 7\n', encoding="utf-8")
    instead = {
        "_run": found.make,
        "_collected": collected,
        "_compare": lambda _definition, _name, here, *_: found.compared.append(here),
        "execute_stages": found.execute,
        "Publisher": lambda *_: lambda _lines: None,
        "Log": lambda: lambda _line: None,
        "kept_running": lambda _: contextlib.nullcontext(),
        "get_run_context": lambda: SimpleNamespace(flow_run=SimpleNamespace(id=uuid4())),
        "warehouse_location": lambda: str(tmp_path / "nowhere"),
    }
    for name, value in instead.items():
        monkeypatch.setattr(study, name, value)
    monkeypatch.setattr(Warehouse, "open", lambda *_, **__: io.StringIO())
    monkeypatch.setattr(study_report, "problem_digests", lambda _, run_id: found.problems(run_id))
    monkeypatch.chdir(tmp_path)
    return found


def known(*lines: dict[str, Any]) -> None:
    """A file of results in which these lines stand."""
    settings = load("two.toml").settings()
    rows = [json.dumps(line | {"settings": settings[line["arm"]]}) for line in lines]
    Path("results.jsonl").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize(
    "error", [NoUsablePrompt("none was solved"), StageInputMissing("it is gone"), configuration.InvalidConfig("no")]
)
def test_an_arm_that_cannot_work_leaves_the_others_their_turn_and_is_told_with_its_reason(
    error: Exception, lab: Laboratory
) -> None:
    def stage(run_id: str) -> None:
        if run_id == "mine-1":
            raise error

    lab.stage = stage
    with pytest.raises(study.StudyIncomplete, match=rf"first 0 \(run mine-1: {type(error).__name__}: {error}\)"):
        lab.go()
    assert lab.ran == [("mine-1", 1), *[(f"mine-{run}", stages) for run in (2, 3, 4) for stages in (1, 5)]]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_not_about_one_arm_ends_the_study(error: type[BaseException], lab: Laboratory) -> None:
    def stage(_: str) -> None:
        raise error

    lab.stage = stage
    with pytest.raises(error):
        lab.go()
    assert len(lab.made) == 1


def test_a_recipe_that_is_edited_while_a_study_runs_does_not_change_it(lab: Laboratory) -> None:
    lab.stage = lambda _: Path("mine.toml").write_text('base = "tiny"\n[train]\nsteps = 9\n', encoding="utf-8") and None
    lab.go()
    assert [config.train.steps for config in lab.made] == [7] * 4


def test_what_a_file_of_results_knows_is_not_run_and_what_is_run_joins_it(lab: Laboratory) -> None:
    known({"arm": "first", "seed": 1, "stopped": True})
    lab.go(results="results.jsonl")
    assert [(config.seed, config.q0.samples) for config in lab.made] == [(0, 200), (0, 8), (1, 8)]
    assert [(line["arm"], line["seed"]) for line in lab.results()] == [
        *[("first", 1), ("first", 0)],
        *[("second", 0), ("second", 1)],
    ]
    lab.go(results="results.jsonl")
    assert len(lab.made) == 3
    assert [sorted(arms) for arms in lab.compared] == [["first", "second"]] * 2


def test_a_run_of_other_problems_than_those_it_is_compared_with_ends_after_its_first_stage(lab: Laboratory) -> None:
    """Than the file of results has; or, without one, than the runs before it began with: the set has grown."""
    known({"arm": "second", "seed": 0, "stopped": True, "problems": SAME})
    lab.problems = lambda run_id: SAME if run_id in ("mine-4", "mine-5", "mine-6") else {**SAME, "evaluation": "e1"}
    with pytest.raises(study.StudyIncomplete):
        lab.go(results="results.jsonl")
    assert lab.ran == [(f"mine-{run}", 1) for run in (1, 2, 3)]
    lab.ran.clear()
    with pytest.raises(study.StudyIncomplete, match=r"second 1 .*\(evaluation\)"):
        lab.go()
    assert lab.ran == [*[(f"mine-{run}", stages) for run in (4, 5, 6) for stages in (1, 5)], ("mine-7", 1)]


def test_settings_are_the_same_whatever_the_seed_and_a_new_default() -> None:
    shipped = load("replay")
    again = shipped.model_copy(update={"first_seed": 7})
    assert shipped.settings() == again.settings()
    spelled = shipped.model_copy(update={"overrides": {**shipped.overrides, "evaluate": {"samples": 20}}})
    assert spelled.settings() == shipped.settings()  # 20 is the default


def test_runs_that_draw_on_earlier_ones_are_configured_as_if_the_recipe_named_them() -> None:
    shipped = load("earlier")
    (arm, before), *_ = [(name, arm.after) for name, arm in shipped.arms.items() if arm.after]
    runs = {name: f"{name}-3" for name in before}
    drawing = shipped.drawing_on(runs, arm, shipped.config(arm, 2))
    overrides = {**shipped.arms[arm].overrides, "train.earlier.run_ids": list(runs.values())}
    own = shipped.arms[arm].model_copy(update={"overrides": overrides})
    named = shipped.model_copy(update={"arms": {**shipped.arms, arm: own}}).config(arm, 2)
    assert configuration.absolute(drawing, STUDIES) == configuration.absolute(named, STUDIES)
    assert drawing.model_dump_json() == named.model_dump_json()
