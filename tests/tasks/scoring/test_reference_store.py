"""What is kept of log pi_0 does not grow with the run, and nothing depends on how much that is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tasks.scoring.example import Example
from tasks.scoring.reference import SCORED_BY, ReferenceStore
from warehouse import Warehouse

STEPS, BATCH, CORPUS = 1000, 8, 400
TOKENS = 250
"""With what an entry takes beside its numbers 1.2 kB: 833 trajectories a megabyte."""


class Stored:
    """Stands for the warehouse: what was appended is read back."""

    def __init__(self) -> None:
        self.logprobs: dict[str, list[float]] = {}
        self.questions = 0

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        self.logprobs |= {row["trajectory_id"]: row["logprobs"] for row in rows}

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[dict[str, Any]]:
        assert "reference_logprobs" in sql
        if sql == SCORED_BY:
            return [{"trajectory_id": identity} for identity in self.logprobs]
        self.questions += 1
        found = [identity for identity in parameters[1] if identity in self.logprobs]
        return [{"trajectory_id": identity, "logprobs": self.logprobs[identity]} for identity in found]


def example(identity: str) -> Example:
    return Example(identity, "p", "offline", (2,), (3,) * TOKENS, 0.0, 0.0, stopped=True)


def logprobs_of(identity: str) -> list[float]:
    """What pi_0 would be computed to say: a function of the trajectory, in float32."""
    chance = random.Random(identity)
    return torch.tensor([chance.uniform(-5, 0) for _ in range(TOKENS)]).tolist()


def scripted(most_mb: int) -> tuple[list[dict[str, list[float]]], list[int], Stored]:
    """1,000 steps of four online trajectories, new in each, and four of a corpus that comes again: what each step is
    given of log pi_0, how much is in memory after it, and the warehouse.
    """
    warehouse, draws = Stored(), random.Random(0)
    store = ReferenceStore(warehouse, "f", most_mb=most_mb, unseen=2 * BATCH)
    given: list[dict[str, list[float]]] = []
    sizes: list[int] = []
    for step in range(STEPS):
        ids = [f"online-{step}-{i}" for i in range(4)] + [f"corpus-{draws.randrange(CORPUS)}" for _ in range(4)]
        stored = store.lookup([example(identity) for identity in ids])
        computed = {identity: logprobs_of(identity) for identity in ids if identity not in stored}
        warehouse.append(store.add(computed))
        given.append({identity: list(stored.get(identity, computed.get(identity, []))) for identity in ids})
        sizes.append(store.count)
        assert store.memory_bytes <= max(most_mb * 1_000_000, 2 * BATCH * 1200)
    return given, sizes, warehouse


def test_memory_is_flat_over_a_thousand_steps_and_every_value_comes_out_the_same() -> None:
    bounded, sizes, warehouse = scripted(1)
    unbounded, growing, _ = scripted(1000)
    assert bounded == unbounded
    assert max(sizes) == sizes[-1] == 1_000_000 // 1200
    assert growing[-1] == 4 * STEPS + CORPUS
    assert len(warehouse.logprobs) == growing[-1], "everything is in the warehouse once"


def test_what_may_not_be_visible_yet_is_never_forgotten() -> None:
    store = ReferenceStore(Stored(), "f", most_mb=1, unseen=1000)
    store.add({str(number): [0.0] * TOKENS for number in range(1000)})
    assert store.count == 1000
    assert len(store.lookup([example("0"), example("999")])) == 2


def test_what_the_run_samples_is_asked_for_only_where_it_was_scored_before_or_forgotten() -> None:
    own = [replace(example(str(number)), sampled_step=0) for number in range(1000)]
    warehouse = Stored()
    store = ReferenceStore(warehouse, "f", run_id="run", most_mb=1)
    assert store.lookup(own[:2]) == {}
    assert warehouse.questions == 0
    warehouse.append(store.add({one.trajectory_id: logprobs_of(one.trajectory_id) for one in own[:10]}))
    resumed = ReferenceStore(warehouse, "f", run_id="run", most_mb=1)
    assert len(resumed.lookup(own[:10])) == 10
    assert resumed.lookup(own[10:20]) == {}
    assert warehouse.questions == 1, "of what it had not scored when it was stopped nothing is stored"
    warehouse.append(resumed.add({one.trajectory_id: logprobs_of(one.trajectory_id) for one in own}))
    assert resumed.count < len(own)
    assert len(resumed.lookup([own[0], own[-1]])) == 2, "the first one was forgotten and is read again"
    asked = warehouse.questions
    assert resumed.lookup([replace(example(f"new {n}"), sampled_step=1) for n in range(8)]) == {}
    assert warehouse.questions == asked, "what was never scored is not asked for, however full the store is"


def test_what_comes_soon_is_read_with_what_is_missing_and_what_is_not_there_is_asked_for_once() -> None:
    warehouse = Stored()
    corpus = [example(str(number)) for number in range(100)]
    warehouse.append([{"trajectory_id": str(number), "logprobs": logprobs_of(str(number))} for number in range(90)])
    store = ReferenceStore(warehouse, "f")
    for first in range(0, 100, 10):
        batch = corpus[first : first + 10]
        found = store.lookup(batch, ahead=corpus)
        assert {one: list(known) for one, known in found.items()} == {
            one.trajectory_id: logprobs_of(one.trajectory_id) for one in batch if int(one.trajectory_id) < 90
        }
    assert warehouse.questions == 1
    assert store.lookup(corpus[90:], ahead=corpus) == {}
    store.add({str(number): logprobs_of(str(number)) for number in range(90, 100)})
    assert len(store.lookup(corpus, ahead=corpus)) == 100
    assert warehouse.questions == 1


def test_no_more_than_half_of_the_memory_is_filled_with_what_comes_soon() -> None:
    warehouse = Stored()
    corpus = [example(str(number)) for number in range(3000)]
    warehouse.append([{"trajectory_id": one.trajectory_id, "logprobs": [0.0] * TOKENS} for one in corpus])
    store = ReferenceStore(warehouse, "f", most_mb=1)
    assert len(store.lookup(corpus[:10], ahead=corpus)) == 10
    assert 300 < store.count < 500
    for first in range(0, 3000, 10):
        assert len(store.lookup(corpus[first : first + 10], ahead=corpus[first:])) == 10
        assert store.memory_bytes <= 1_000_000


def test_what_was_forgotten_is_read_from_a_real_warehouse_bit_for_bit(tmp_path: Path) -> None:
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        store = ReferenceStore(warehouse, "f", most_mb=1)
        ids = [str(number) for number in range(1000)]
        rows = store.add({identity: logprobs_of(identity) for identity in ids})
        warehouse.append("scores", {"reference_logprobs": rows}, run_id="setup")
        assert store.count < 1000
        found = store.lookup([example("0"), example("999")])
    assert [list(found["0"]), list(found["999"])] == [logprobs_of("0"), logprobs_of("999")]
    assert torch.equal(torch.tensor(found["0"]), torch.tensor(logprobs_of("0")))


def test_of_runs_that_scored_the_same_the_own_one_holds_and_else_the_first_to_arrive(tmp_path: Path) -> None:
    ids = [str(number) for number in range(500)]
    with Warehouse.open(tmp_path / "warehouse") as warehouse:
        for run, asked in (("b", ids[::2]), ("a", ids), ("c", ids)):
            rows = [{"trajectory_id": one, "fingerprint": "f", "logprobs": logprobs_of(run + one)} for one in asked]
            warehouse.append(f"scores-{run}", {"reference_logprobs": rows}, run_id=run)
        found = ReferenceStore(warehouse, "f").lookup([example(one) for one in ids])
        of_a = ReferenceStore(warehouse, "f", run_id="a").lookup([example(one) for one in ids])
        of_b = ReferenceStore(warehouse, "f", run_id="b").lookup([example(one) for one in ids])
    assert {one: list(found[one]) for one in ids} == {
        one: logprobs_of(("a" if number % 2 else "b") + one) for number, one in enumerate(ids)
    }
    assert {one: list(of_a[one]) for one in ids} == {one: logprobs_of("a" + one) for one in ids}
    assert {one: list(of_b[one]) for one in ids} == {one: list(found[one]) for one in ids}
