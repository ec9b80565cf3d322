"""Random pairs of runs, killed, interleaved and resumed: what the warehouse says of each afterwards is what happened.

A schedule is a function of its seed: two recipes, and whose turn it is until what blow. The processes of training are
forked (tests/tasks/forked_training.py); all else runs in this process, where a blow is an exception at a point of the
commit protocol that goes on being raised, as nothing is written by who is dead.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from tasks.run.stage_names import STAGE_NAMES
from tests.shared_folder import copy_home
from tests.tasks.conftest import Lab
from tests.tasks.forked_training import KILL, kill_trainings
from warehouse import Warehouse
from warehouse.commit.failpoints import failpoint_hooks

TRAINED = STAGE_NAMES[: STAGE_NAMES.index("evaluate")]
MEASURED = STAGE_NAMES[: STAGE_NAMES.index("report")]
SOURCES = (
    {"online": 0.5, "offline": 0.5},
    {"online": 0.25, "offline": 0.5, "pivotal": 0.25},
    {"online": 0.25, "offline": 0.25, "pivotal_rollouts": 0.5},
    {"online": 0.25, "offline": 0.5, "replay": 0.25},
    {"online": 0.25, "offline": 0.5, "earlier": 0.25},
)


class Killed(BaseException):
    """The process was killed."""


@dataclass(frozen=True, slots=True)
class Blow:
    """What ends a turn: a kill at the `at`th point of the commit protocol, at an optimizer step, or of one process."""

    kind: Literal["none", "commit", "step", "trainer", "rollout_worker.worker", "evaluator"]
    at: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Two recipes, and the turns."""

    recipes: tuple[dict[str, Any], dict[str, Any]]
    turns: tuple[tuple[int, Blow], ...]

    @classmethod
    def drawn(cls, seed: int) -> Schedule:
        """The schedule of that seed: some blows, then both to their end."""
        chance = random.Random(seed)
        blows = [(chance.randrange(2), _blow(chance)) for _ in range(chance.randint(2, 4))]
        ends = chance.sample([(0, Blow("none")), (1, Blow("none"))], 2)
        return cls((_recipe(chance), _recipe(chance)), (*blows, *ends))


def _recipe(chance: random.Random) -> dict[str, Any]:
    shares = chance.choice(SOURCES)
    return {
        "seed": chance.randrange(2),
        "q0": {"samples": chance.choice([24, 30])},
        "corpus": {"reference_samples": chance.choice([6, 9])},
        "pivotal": {"rollouts": chance.choice([4, 6]), "max_nodes": 4},
        "train": {
            "steps": chance.randint(3, 5),
            "batch_size": 8,
            "sources": {name: {"share": shares.get(name, 0.0)} for name in ("online", "offline", *shares)},
        },
        "evaluate": {"samples": chance.choice([2, 4]), "ks": [1, 2], "during_training": chance.random() < 0.5},
    }


def _blow(chance: random.Random) -> Blow:
    kind = chance.choice(["commit", "commit", "step", "step", "trainer", "rollout_worker.worker", "evaluator"])
    return Blow(kind, {"commit": chance.randint(1, 150), "step": chance.randint(1, 4)}.get(kind, chance.randint(1, 60)))


@contextmanager
def struck(blow: Blow, folder: Path) -> Generator[Callable[[int], None]]:
    """Strike as `blow` says; yields what is told of optimizer steps. Swallows the death of this process."""
    reached, dead = 0, False

    def die() -> None:
        nonlocal dead
        dead = True
        kill_trainings()
        raise Killed

    def commit(_: str) -> None:
        nonlocal reached
        reached += 1
        if dead or (blow.kind == "commit" and reached == blow.at):
            die()

    def step(done: int) -> None:
        if blow.kind == "step" and done >= blow.at:
            die()

    with pytest.MonkeyPatch.context() as patch:
        if blow.kind in ("trainer", "rollout_worker.worker", "evaluator"):
            patch.setenv(KILL, f"{blow.kind}:{blow.at}:{folder / f'struck-{time.time_ns()}'}")
        failpoint_hooks.append(commit)
        try:
            yield step
        except Killed:
            pass
        finally:
            failpoint_hooks.remove(commit)


def follow(schedule: Schedule, lab: Lab) -> list[str]:
    """Take the turns of the schedule; names of its runs."""
    names = [lab.start(f"of {number}", recipe) for number, recipe in enumerate(schedule.recipes)]
    for whose, blow in schedule.turns:
        with struck(blow, lab.home) as step:
            told = lambda done, _total, unit, _note, step=step: step(done) if unit == "steps" else None  # noqa: E731
            lab.run(names[whose], *MEASURED, progress=told)
    return names


TRAINED_BUT_NOT_RECORDED = """
SELECT t.step, t.id, t.source FROM (
    SELECT step, unnest(trajectory_ids) AS id, unnest(sources) AS source FROM train_batches WHERE run_id = $run
) t
WHERE source = 'offline' AND id NOT IN (SELECT trajectory_id FROM corpus WHERE corpus_id = $corpus)
   OR source = 'pivotal' AND id NOT IN (SELECT trajectory_id FROM token_values WHERE search_id = $search)
   OR source = 'pivotal_rollouts' AND id NOT IN (
       SELECT trajectory_id FROM trajectories WHERE source = 'pivotal_rollout' AND snapshot_id <= $rollouts)
   OR source = 'online' AND id NOT IN (SELECT trajectory_id FROM trajectories WHERE run_id = $run)
   OR source = 'earlier' AND id NOT IN (
       SELECT trajectory_id FROM trajectories WHERE source = 'online' AND run_id <> $run AND snapshot_id <= $read)
   OR source = 'replay' AND (step, id) IN (
       SELECT step, trajectory_id FROM uses WHERE run_id = $run AND (steps_since_first = 0 OR use > 4))
"""
NEWEST = """
SELECT stage, arg_max(key, arrival) AS key, arg_max(manifest_json, arrival) AS manifest,
       arg_max(snapshot_in, arrival) AS snapshot_in
FROM stages WHERE run_id = ? GROUP BY stage
"""
DOUBLED = """
SELECT 'step' AS what, CAST(step AS VARCHAR) AS which FROM train_batches WHERE run_id = $run GROUP BY step
HAVING count(*) > 1
UNION ALL
SELECT 'online trajectory', id FROM (
    SELECT unnest(trajectory_ids) AS id, unnest(sources) AS source FROM train_batches WHERE run_id = $run)
WHERE source = 'online' GROUP BY id HAVING count(*) > 1
UNION ALL
SELECT 'figure', format('{} of step {}', name, step) FROM train_steps
WHERE run_id = $run AND name = 'loss' GROUP BY name, step HAVING count(*) > 1
UNION ALL
SELECT 'stage', stage FROM stages WHERE run_id = $run AND status = 'completed' GROUP BY stage, key
HAVING count(*) > 1
UNION ALL
SELECT 'sample of evaluation', format('{} {} {}', policy_id, problem_id, sample) FROM eval_samples
GROUP BY policy_id, problem_id, sample, sampling HAVING count(*) > 1
UNION ALL
SELECT 'trajectory', trajectory_id FROM trajectories WHERE run_id = $run AND source <> 'human' GROUP BY trajectory_id
HAVING count(*) > 1
UNION ALL
SELECT 'verdict', format('{} {}', program_hash, suite_hash) FROM verdicts GROUP BY program_hash, suite_hash
HAVING count(*) > 1
"""
OFFLINE = """
SELECT step, list(id ORDER BY place) AS ids FROM (
    SELECT step, unnest(trajectory_ids) AS id, unnest(sources) AS source, generate_subscripts(sources, 1) AS place
    FROM train_batches WHERE run_id = ?
) WHERE source NOT IN ('online', 'replay') GROUP BY step ORDER BY step
"""


def stages_of(store: Warehouse, run: str) -> dict[str, dict[str, Any]]:
    """Key, manifest and snapshot that each stage of the run ended with last."""
    rows = store.rows(NEWEST, [run])
    return {row["stage"]: row | {"manifest": json.loads(row["manifest"])} for row in rows}


def assert_true(lab: Lab, run: str) -> None:
    """What is recorded of a run is what it did, and all was done and counted once."""
    with lab.store() as store:
        found = stages_of(store, run)
        recorded = {
            "run": run,
            "corpus": found["corpus"]["manifest"]["corpus_id"],
            "search": found["pivotal"]["manifest"]["search_id"],
            "rollouts": found["pivotal"]["manifest"].get("snapshot"),
            "read": found["corpus"]["snapshot_in"],
        }
        assert store.rows(TRAINED_BUT_NOT_RECORDED, recorded) == []
        assert store.rows(DOUBLED, {"run": run}) == []
        began = store.value("SELECT payload_json FROM run_events WHERE run_id = ? AND kind = 'begun'", [run])
        assert json.loads(began)["keys"] == {name: found[name]["key"] for name in TRAINED}
        steps = store.value("SELECT list(DISTINCT step ORDER BY step) FROM train_batches WHERE run_id = ?", [run])
        costs = store.rows("SELECT stage, rows FROM cost_by_stage WHERE run_id = ?", [run])
        online = store.value("SELECT count(*) FROM trajectories WHERE run_id = ? AND source = 'online'", [run])
    job = json.loads((lab.home / "runs" / run / "train" / "job.json").read_text(encoding="utf-8"))
    assert (job["corpus_id"], job["search_id"]) == (recorded["corpus"], recorded["search"])
    assert steps == list(range(1, job["config"]["train"]["steps"] + 1))
    assert {row["stage"]: row["rows"] for row in costs}["train"] == online


def assert_repeatable(lab: Lab, run: str, recipe: dict[str, Any]) -> None:
    """A new run of the recipe, pinned to what the run read, reads the same and draws the same offline batches."""
    with lab.store() as store:
        found = stages_of(store, run)
    again, pin = lab.start(f"{run} again", recipe), found["corpus"]["snapshot_in"]
    results = lab.run(again, *TRAINED[:-1], pin=pin)
    assert results["corpus"].manifest.corpus_id == found["corpus"]["manifest"]["corpus_id"]
    assert results["pivotal"].manifest.search_id == found["pivotal"]["manifest"]["search_id"]
    lab.run(again, "train", pin=pin, force=True)
    with lab.store() as store:
        repeated = stages_of(store, again)
        assert {name: repeated[name]["key"] for name in TRAINED} == {name: found[name]["key"] for name in TRAINED}
        assert store.rows(OFFLINE, [again]) == store.rows(OFFLINE, [run])


SMALL = {
    "engine": {"kind": "scripted"},
    "q0": {"samples": 24},
    "pivotal": {"rollouts": 4, "max_nodes": 4},
    "train": {"steps": 3, "batch_size": 8},
    "evaluate": {"samples": 2, "ks": [1, 2]},
}


def small(number: int, **changes: Any) -> dict[str, Any]:
    """A recipe that takes seconds, with that mix of sources."""
    shares = {name: {"share": share} for name, share in SOURCES[number].items()}
    return SMALL | {"train": SMALL["train"] | {"sources": shares}} | changes


ORDINARY = Schedule(
    (small(1), small(4, evaluate=SMALL["evaluate"] | {"during_training": True})),
    ((0, Blow("step", 2)), (1, Blow("trainer", 20)), (0, Blow("none"))),
)
"""One run dies as it trains, another one goes on though its trainer dies, then the first is resumed."""


@pytest.fixture(scope="module", params=[ORDINARY, *(pytest.param(n, marks=pytest.mark.slow) for n in range(40))])
def followed(
    request: pytest.FixtureRequest, finished: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Lab, Schedule, list[str]]]:
    """A home in which a schedule was followed, and the names of its runs."""
    schedule = request.param if isinstance(request.param, Schedule) else Schedule.drawn(request.param)
    home = tmp_path_factory.mktemp("schedule")
    lab = Lab(copy_home(finished.home, home))
    yield lab, schedule, follow(schedule, lab)
    shutil.rmtree(home)


@pytest.mark.timeout(900)
def test_whatever_befalls_two_runs_what_is_recorded_of_them_is_true(followed: tuple[Lab, Schedule, list[str]]) -> None:
    lab, _, names = followed
    for run in names:
        assert_true(lab, run)


@pytest.mark.timeout(900)
def test_a_new_run_pinned_to_what_one_read_draws_the_same_batches(followed: tuple[Lab, Schedule, list[str]]) -> None:
    lab, schedule, names = followed
    for run, recipe in list(zip(names, schedule.recipes, strict=True))[: 1 if schedule is ORDINARY else 2]:
        assert_repeatable(lab, run, recipe)
