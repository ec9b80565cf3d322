"""What a study does about arms that fail and recipes that change, without a server: stages are stood in for."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from flows import study
from flows.cli import study_command, watch
from flows.study_config import STUDIES, Study, load
from tasks import config as configuration
from tasks.q0.stage import NoUsablePrompt
from tasks.report import study as study_report
from tasks.report.study import ArmResult
from tasks.run.errors import StageInputMissing
from warehouse import Warehouse

CHECKED, COLLECTED = vars(study)["_check_problems"], vars(study)["_collected"]
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


class Board:
    """A table that nobody looks at."""

    def __init__(self, lines: Sequence[str], *_: Any) -> None:
        self.ended: dict[str, tuple[str, str]] = dict.fromkeys(lines, ("", ""))

    def start(self, line: str) -> None:
        """Nothing."""

    def end(self, line: str, state: str, note: str) -> None:
        """Keep how it ended."""
        self.ended[line] = (state, note)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[configuration.RunConfig]:
    """The configurations of the runs that a study makes; its runs are named by their number."""
    found: list[configuration.RunConfig] = []
    (tmp_path / "two.toml").write_text(STUDY, encoding="utf-8")
    (tmp_path / "mine.toml").write_text('base = "tiny"\n[train]\nsteps = 7\n', encoding="utf-8")

    def make(_name: str, _arm: str, config: configuration.RunConfig) -> str:
        found.append(config)
        return f"mine-{len(found)}"

    monkeypatch.setattr(study, "_run", make)
    monkeypatch.setattr(study, "_collected", lambda *_: {})
    monkeypatch.setattr(study, "_check_problems", lambda *_: None)
    monkeypatch.setattr(study, "_compare", lambda *_: None)
    monkeypatch.setattr(study, "ProgressTable", Board)
    monkeypatch.setattr(study, "kept_running", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(study, "get_run_context", lambda: SimpleNamespace(flow_run=SimpleNamespace(id=uuid4())))
    monkeypatch.chdir(tmp_path)
    return found


@pytest.mark.parametrize(
    "error", [NoUsablePrompt("none was solved"), StageInputMissing("it is gone"), configuration.InvalidConfig("no")]
)
def test_an_arm_that_cannot_work_leaves_the_others_their_turn_and_is_told_with_its_reason(
    error: Exception, made: list[configuration.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stages(_: Any, run_id: str, __: Any, **_settings: Any) -> None:
        if run_id == "mine-1":
            raise error

    monkeypatch.setattr(study, "execute_stages", stages)
    with pytest.raises(
        study.StudyIncomplete, match=rf"1 of 4 .* first 0 \(run mine-1: {type(error).__name__}: {error}\)"
    ):
        study.study.fn("two.toml")
    assert len(made) == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_not_about_one_arm_ends_the_study(
    error: type[BaseException], made: list[configuration.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stages(*_: Any, **_settings: Any) -> None:
        raise error

    monkeypatch.setattr(study, "execute_stages", stages)
    with pytest.raises(error):
        study.study.fn("two.toml")
    assert len(made) == 1


def test_a_recipe_that_is_edited_while_a_study_runs_does_not_change_it(
    made: list[configuration.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stages(*_: Any, **_settings: Any) -> None:
        Path("mine.toml").write_text('base = "tiny"\n[train]\nsteps = 9\n', encoding="utf-8")

    monkeypatch.setattr(study, "execute_stages", stages)
    study.study.fn("two.toml")
    assert [config.train.steps for config in made] == [7] * 4


def collected(definition: Study, found: Any, stopped: Any) -> dict[str, ArmResult]:
    """Results without a warehouse: what ended has nothing measured."""
    return {
        arm: ArmResult(
            definition.arms[arm].label, list(runs), *([[{}] * len(runs)] * 3), stopped[arm], [{}] * len(runs)
        )
        for arm, runs in found.items()
    }


def test_what_a_file_of_results_knows_is_not_run_and_what_is_run_joins_it(
    made: list[configuration.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load("two.toml").settings()
    assert settings["first"] != settings["second"]
    known = {"arm": "first", "seed": 1, "settings": settings["first"], "stopped": True}
    Path("results.jsonl").write_text(json.dumps(known) + "\n", encoding="utf-8")
    monkeypatch.setattr(study, "execute_stages", lambda *_, **__: None)
    monkeypatch.setattr(study, "_collected", collected)
    study.study.fn("two.toml", folder=str(Path.cwd()), results="results.jsonl")
    assert [(config.seed, config.q0.samples) for config in made] == [(0, 200), (0, 8), (1, 8)]
    lines = [json.loads(line) for line in Path("results.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(line["arm"], line["seed"]) for line in lines] == [("first", 1), ("first", 0), ("second", 0), ("second", 1)]
    study.study.fn("two.toml", folder=str(Path.cwd()), results="results.jsonl")
    assert len(made) == 3


def test_a_run_of_other_problems_than_the_file_has_ends_after_its_first_stage(
    made: list[configuration.RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 0 of the second arm stands in the file, evaluated on other problems than this machine has."""
    settings, ran = load("two.toml").settings(), list[tuple[str, list[str]]]()
    known = {"arm": "second", "seed": 0, "settings": settings["second"], "stopped": True}
    known["problems"] = {"train": "t0", "evaluation": "e0"}
    Path("results.jsonl").write_text(json.dumps(known) + "\n", encoding="utf-8")
    monkeypatch.setattr(study, "_check_problems", CHECKED)
    monkeypatch.setattr(Warehouse, "open", lambda *_, **__: io.StringIO())
    monkeypatch.setattr(study_report, "problem_digests", lambda *_: {"train": "t0", "evaluation": "e1"})
    monkeypatch.setattr(study, "execute_stages", lambda stages, run_id, _, **__: ran.append((run_id, list(stages))))
    with pytest.raises(study.StudyIncomplete, match=r"3 of 3 .* first 0 .* other problems \(evaluation\) .* 'second'"):
        study.study.fn("two.toml", folder=str(Path.cwd()), results="results.jsonl")
    assert len(made) == 3
    assert ran == [("mine-1", ["prepare"]), ("mine-2", ["prepare"]), ("mine-3", ["prepare"])]


@pytest.mark.usefixtures("made")
def test_a_run_of_other_problems_than_the_runs_before_it_began_with_ends_after_its_first_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a file of results, too: the set has grown between the second arm's first run and its second."""
    digests = {f"mine-{number}": {"train": "t0", "evaluation": "e0"} for number in (1, 2, 3)}
    digests["mine-4"] = {"train": "t0", "evaluation": "e1"}
    ran: list[tuple[str, int]] = []
    monkeypatch.setattr(study, "_check_problems", CHECKED)
    monkeypatch.setattr(Warehouse, "open", lambda *_, **__: io.StringIO())
    monkeypatch.setattr(study_report, "problem_digests", lambda _, run_id: digests[run_id])
    monkeypatch.setattr(study, "execute_stages", lambda stages, run_id, _, **__: ran.append((run_id, len(stages))))
    told = r"1 of 4 .* second 1 .* other problems \(evaluation\) than arm 'first', seed 0, began with here"
    with pytest.raises(study.StudyIncomplete, match=told):
        study.study.fn("two.toml")
    assert ran == [
        ("mine-1", 1),
        ("mine-1", 5),
        ("mine-2", 1),
        ("mine-2", 5),
        ("mine-3", 1),
        ("mine-3", 5),
        ("mine-4", 1),
    ]


def test_results_that_are_all_in_the_file_are_compared_without_a_warehouse(
    made: list[configuration.RunConfig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compared: list[dict[str, ArmResult]] = []
    monkeypatch.setattr(study, "warehouse_location", lambda: str(tmp_path / "nowhere"))
    monkeypatch.setattr(study, "_compare", lambda _definition, _name, here, *_: compared.append(here))
    monkeypatch.setattr(study, "_collected", COLLECTED)
    settings, curve = load("two.toml").settings(), {"pass@1": {"0": 0.1, "4": 0.5}}
    measures = {"pass@1": 0.5, "pass@1 of pi_0": 0.1}
    lines = [
        {"arm": arm, "seed": seed, "settings": settings[arm], "label": arm, "curve": curve, "measures": measures}
        for arm in ("first", "second")
        for seed in (0, 1)
    ]
    Path("results.jsonl").write_text("".join(json.dumps(line | {"spent": {}}) + "\n" for line in lines))
    study.study.fn("two.toml", folder=str(Path.cwd()), results="results.jsonl")
    assert made == []
    assert [(name, list(arm.seeds)) for arms in compared for name, arm in arms.items()] == [
        ("first", []),
        ("second", []),
    ]
    assert not (tmp_path / "nowhere").exists()


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
    own = shipped.arms[arm].model_copy(
        update={
            "overrides": {**shipped.arms[arm].overrides, "train.earlier.run_ids": list(runs.values())},
        }
    )
    named = shipped.model_copy(update={"arms": {**shipped.arms, arm: own}}).config(arm, 2)
    assert configuration.absolute(drawing, STUDIES) == configuration.absolute(named, STUDIES)
    assert drawing.model_dump_json() == named.model_dump_json()


@pytest.mark.usefixtures("made")
def test_the_result_of_an_earlier_time_is_not_shown_as_that_of_a_study_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path))
    result = tmp_path / "studies" / "two" / "study.json"
    result.parent.mkdir(parents=True)
    result.write_text(json.dumps({"groups": []}), encoding="utf-8")
    shown: list[Any] = []
    monkeypatch.setattr(study_command, "_show", shown.append)
    monkeypatch.setattr(study_command, "_check", lambda *_: None)
    monkeypatch.setattr("flows.server.embedded.ready", lambda _: None)
    monkeypatch.setattr(watch, "submit", lambda *_: uuid4())
    ended = watch.Look("FAILED", "study", "StudyIncomplete: first 0 (run mine-1: NoUsablePrompt)", [])
    monkeypatch.setattr(watch, "watch", lambda *_: ended)
    with pytest.raises(study_command.StudyFailed, match=r"first 0 .*NoUsablePrompt\)\nthe same command"):
        study_command.study("two.toml", None, None, None)
    assert shown == []
    ended = watch.Look("COMPLETED", "study", "", [])

    def writes(*_: Any) -> watch.Look:
        result.write_text(json.dumps({"groups": ["new"]}), encoding="utf-8")
        return ended

    monkeypatch.setattr(watch, "watch", writes)
    study_command.study("two.toml", None, None, None)
    assert shown == [{"groups": ["new"]}]
