"""The flows beside the pipeline, by their commands, on the session's server: study, eval, audit, rejudge, one stage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flows import pipeline, study_config
from flows.cli.study_command import StudyFailed
from tasks.config import InvalidConfig, RunConfig, changed
from tasks.extras.audit.audits import NothingToAudit
from tasks.run import runs
from tasks.scoring.reference import fingerprint
from tests.flows.conftest import Server
from tests.tasks.audit.conftest import ALSO_RIGHT, PROBLEM, RIGHT, WRONG, Shelf
from tests.tasks.conftest import MICRO
from tests.tasks.test_rejudge import spoil
from warehouse import Warehouse
from warehouse.upkeep import maintenance

pytestmark = [pytest.mark.xdist_group("server"), pytest.mark.timeout(600)]
STUDY = f"""
title = "Packings, one of them poisoned"
seeds = 1
[arms.calm]
recipe = "{MICRO}"
label = "calm"
[arms.wild]
recipe = "{MICRO}"
label = "wild"
overrides = {{ train = {{ packing = "padded" }}, pivotal = {{ trajectories = 0 }} }}
[[groups]]
title = "Packings"
arms = ["calm", "wild"]
"""
ADDITION = {
    "task_id": "Human/0",
    "prompt": 'def double(x):\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}


def poison(store: Warehouse, config: RunConfig) -> None:
    """Store log-probabilities of no response's length for every trajectory, as trained on with these settings."""
    (prepared,) = store.rows("SELECT path FROM policies WHERE kind = 'reference' ORDER BY created_at LIMIT 1")
    name = fingerprint(Path(prepared["path"]), config.train, config.reference.dtype, "cpu")
    ids = [row["trajectory_id"] for row in store.rows("SELECT DISTINCT trajectory_id FROM trajectories")]
    rows = [{"trajectory_id": identity, "fingerprint": name, "logprobs": [0.0] * 999} for identity in ids]
    store.append("poison", {"reference_logprobs": rows}, run_id="poison")


def test_a_study_compares_its_arms_keeps_what_the_guards_stopped_and_does_nothing_twice(
    at_once: Server, tmp_path: Path
) -> None:
    """The calm arm has been run: the finished run is told to be that of an earlier study of this name."""
    path, results = tmp_path / "rates.toml", tmp_path / "results.jsonl"
    path.write_text(STUDY, encoding="utf-8")
    definition = study_config.load(str(path))
    with Warehouse.open(at_once.home / "warehouse") as store:
        calm = study_config.origin("rates", "calm", definition.config("calm", 0))
        runs.note(store, "micro-1", stage="", kind="created", message=calm)
        poison(store, definition.config("wild", 0))
    at_once.told("study", str(path), "--results", str(results))
    folder = at_once.home / "studies" / "rates"
    (group,) = json.loads((folder / "study.json").read_text(encoding="utf-8"))["groups"]
    print(group["tables"][0])
    assert (folder / "report.html").is_file()
    known = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [(line["arm"], line["seed"], "stopped" in line) for line in known] == [("calm", 0, False), ("wild", 0, True)]

    facts = "SELECT (SELECT count(*) FROM trajectories), (SELECT count(*) FROM stages WHERE status = 'completed')"
    before, table = at_once.rows(facts), (folder / "study.md").read_text(encoding="utf-8")
    at_once.told("study", str(path), "--results", str(results))
    assert at_once.rows(facts) == before
    assert (folder / "study.md").read_text(encoding="utf-8") == table


def test_a_study_one_of_whose_arms_cannot_work_fails_with_its_reason(at_once: Server, tmp_path: Path) -> None:
    path = tmp_path / "hopeless.toml"
    arms = STUDY.replace('train = { packing = "padded" }', 'q0 = { samples = 1, zero_successes = "drop" }')
    path.write_text(arms, encoding="utf-8")
    with pytest.raises(StudyFailed, match="NoUsablePrompt"):
        at_once.told("study", str(path), "--arm", "wild")


def test_a_file_of_samples_is_evaluated_and_compared(at_once: Server, tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text(json.dumps(ADDITION) + "\n")
    for name, answers in (("a", ["x + x", "x"]), ("b", ["x + x", "2 * x"])):
        rows = [{"task_id": "Human/0", "completion": f"    return {answer}\n", "passed": True} for answer in answers]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = ["--set", str(problems), "--k", "1", "--k", "2"]
    for name in ("a", "b", "a"):
        at_once.told("eval", str(tmp_path / f"{name}.jsonl"), *asked)
    stored = at_once.rows("SELECT status, manifest_json FROM stages WHERE run_id LIKE 'eval-%' ORDER BY created_at")
    assert [row["status"] for row in stored] == ["completed", "completed", "skipped"]
    first = json.loads(stored[0]["manifest_json"])
    assert [point["value"] for point in first["sets"]["problems"]] == [0.5, 1.0]
    assert (first["claimed"], first["disagreeing"], first["overlaps"]) == (2, 1, [])
    compared = at_once.told("eval", "--compare", "eval-1", "eval-2")
    assert {"50.0%", "100.0%"} <= set(compared.split())
    assert Path(at_once.told("report", "eval-1", "eval-2").splitlines()[0]).is_file()
    (run,) = at_once.flow_runs("eval-1")
    assert run["state"]["message"].startswith("eval-1: pass@1 50.0%")


def test_a_survivor_of_weak_tests_is_found_accepted_as_a_test_and_told_no_more(at_once: Server) -> None:
    Shelf(str(at_once.home / "warehouse")).put(PROBLEM, [WRONG, ALSO_RIGHT], [RIGHT])
    with pytest.raises(NothingToAudit, match="nobody/knows"):
        at_once.told("audit", "nobody/knows")
    audit = ("audit", PROBLEM.problem_id, "--inputs", "30", "--json")
    for _ in range(2):
        (row,) = map(json.loads, at_once.told(*audit).splitlines())
        assert (row["programs"], row["disagreeing"], len(row["survivors"])) == (3, 1, 1)
        assert at_once.value("SELECT count(*) FROM audits") == 1
    at_once.told("audit", "--accept", PROBLEM.problem_id)
    (row,) = map(json.loads, at_once.told(*audit).splitlines())
    assert row["disagreeing"] == 0
    by_now = "SELECT count(*) FROM rejudged WHERE verdict_then = 'accepted' AND verdict = 'wrong_answer'"
    assert at_once.value(by_now) == 1


def test_a_home_of_an_older_sandbox_is_judged_again_by_one_command(at_once: Server) -> None:
    maintenance.rewrite(str(at_once.home / "warehouse"), spoil)
    wrong = """SELECT count(*) FROM (SELECT verdict FROM trajectories UNION ALL SELECT verdict FROM eval_samples)
               WHERE verdict = 'compile_error'"""
    spoilt = at_once.value(wrong)
    at_once.told("rejudge")
    assert at_once.value(wrong) == spoilt
    at_once.told("rejudge", "--apply")
    assert at_once.value(wrong) < spoilt
    ended = len(at_once.flow_runs("rejudge"))
    at_once.told("rejudge", "--apply")
    assert len(at_once.flow_runs("rejudge")) == ended


def test_a_new_run_like_another_has_its_settings_and_one_that_cannot_be_leaves_none_behind(at_once: Server) -> None:
    at_once.told("run", "--like", "micro-1", "--stage", "prepare", "--set", "q0.samples=80")
    with Warehouse.open(at_once.home / "warehouse", read_only=True) as store:
        made = runs.latest(store)
        assert runs.load_config(store, made) == changed(runs.load_config(store, "micro-1"), {"q0.samples": 80})
    assert at_once.rows(f"SELECT stage FROM stages WHERE run_id = '{made}'") == [{"stage": "prepare"}]
    for wrong in ({"recipe": MICRO, "overrides": {"train": {"batch_size": 7}}}, {"recipe": "tiny", "like": "micro-1"}):
        with at_once.here(), pytest.raises(InvalidConfig):
            pipeline.full_pipeline(**wrong)
    with Warehouse.open(at_once.home / "warehouse", read_only=True) as store:
        assert runs.latest(store) == made
