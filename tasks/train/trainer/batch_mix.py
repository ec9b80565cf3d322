"""Which trajectories make up each batch: the mix of sources, drawn so that a resumed run draws the same.

Offline sources go through their trajectories in an order that (seed, source, epoch) decides. Online trajectories are
followed in the warehouse and come in order of arrival, each once; `replay` draws them again (replay_buffer). Where an
objective compares the responses to a prompt, they arrive and come again as whole groups (groups). Steps that an
earlier, killed process already recorded are drawn again exactly as recorded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tasks.config import SourceName
from tasks.run.epoch_order import EpochOrder
from tasks.sampling.reference_counts import rollout_batches
from tasks.scoring.example import Example
from tasks.train.shared.errors import Interrupted, NothingToTrainOn
from tasks.train.shared.job import TrainJob
from tasks.train.trainer.earlier import selected
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.groups import arrived, kept_together
from tasks.train.trainer.pairs import Pairs
from tasks.train.trainer.replay_buffer import ReplayBuffer, Used, first_used, recorded_uses
from tasks.train.trainer.state import MixState
from warehouse import Warehouse
from warehouse.queries import query
from warehouse.reading.following import RunFollower
from warehouse.rows import trajectory_rows

POLL_S = 0.02
BLOCK = 16
"""Batches of an offline source fetched at a time, at least."""
AHEAD_TOKENS = 500_000
"""Short responses are fetched further ahead, up to so many tokens: a fetch costs as much as the warehouse is large."""

CORPUS = query(__name__, "corpus")

PIVOTAL = query(__name__, "pivotal")

PIVOTAL_ROLLOUTS = query(__name__, "pivotal_rollouts")

RECORDED = query(__name__, "recorded")

VISIBLE = query(__name__, "visible")

LEFT_OUT = query(__name__, "left_out")


Recorded = dict[int, dict[str, list[str]]]
"""Step -> source -> the trajectories that it gave."""
AGAIN = ("online", "replay")
"""Sources whose recorded draws are repeated instead of drawn anew."""


class OnlineQueue:
    """This run's online trajectories, in order of arrival, each handed out once."""

    def __init__(self, examples: Examples, state: MixState, recorded: Recorded) -> None:
        self.examples = examples
        self.run_id = examples.job.run_id
        self.group_size = examples.job.train.group_size
        self._arrivals = RunFollower(
            examples.warehouse,
            "trajectories",
            self.run_id,
            since=state.watermark,
            batches=rollout_batches(self.run_id),  # its Q0 and corpus may be millions
        )
        self.recorded = {step: sources.get("online", []) for step, sources in recorded.items()}
        self._claimed = {identity for ids in self.recorded.values() for identity in ids}
        found = examples.present(sorted(self._claimed), "online")
        grouped = [kept_together(ids, found, self.group_size) for ids in self.recorded.values()]
        self._claimed_rows = {example.trajectory_id: example for step in grouped for example in step}
        known = examples.present(state.waiting, "online")
        self._waiting: deque[Example] = deque()
        self._admit(kept_together(state.waiting, known, self.group_size))

    @property
    def watermark(self) -> int:
        """Snapshot up to which everything that arrived has been read."""
        return self._arrivals.since

    def ids(self) -> tuple[str, ...]:
        """The trajectories that wait, in order."""
        return tuple(example.trajectory_id for example in self._waiting)

    def take(self, step: int, count: int, stopped: Callable[[], bool]) -> list[Example]:
        """`count` trajectories for `step`, waiting for the workers if need be. Raises Interrupted when stopped."""
        ids = self.recorded.get(step)
        if ids is not None:
            return [self._claimed_rows.pop(identity) for identity in ids]
        while len(self._waiting) < count:
            if stopped():
                raise Interrupted(f"stopped while waiting for online trajectories for step {step}")
            if not self.refill():
                self.examples.warehouse.commit()  # the workers' back-pressure counts the steps recorded so far
                time.sleep(POLL_S)
        return [self._waiting.popleft() for _ in range(count)]

    def refill(self) -> int:
        """Read what arrived since; returns how many."""
        rows = [row for row in self._arrivals.read() if row["source"] == "online"]
        rows.sort(key=lambda row: (str(row["batch_id"]), str(row["trajectory_id"])))
        new = self.examples.build(trajectory_rows(rows), "online")
        batches = {str(row["trajectory_id"]): str(row["batch_id"]) for row in rows}
        self._admit(arrived(new, batches, self.group_size))
        return len(new)

    def revalue(self, values: Mapping[str, float]) -> None:
        """Give the waiting examples the soft value (nats) of their problem in `values`."""
        self._waiting = deque(_revalued(example, values) for example in self._waiting)
        self._claimed_rows = {name: _revalued(example, values) for name, example in self._claimed_rows.items()}

    def keep(self, there: Collection[str]) -> None:
        """Let go of what waits and is not `there` any more, with its group."""
        found = {example.trajectory_id: example for example in self._waiting if example.trajectory_id in there}
        self._waiting = deque(kept_together(self.ids(), found, self.group_size))

    def _admit(self, examples: Sequence[Example]) -> None:
        self._waiting.extend(example for example in examples if example.trajectory_id not in self._claimed)


class BatchMix:
    """Draws the batches of a run. `after` is the last step that the given state has behind it."""

    def __init__(self, examples: Examples, state: MixState, *, after: int) -> None:
        self.examples = examples
        self.job = examples.job
        used = self.job.train.learnt_from
        self.orders: dict[str, EpochOrder] = {
            name: self._order(name, state) for name in used if name not in {*AGAIN, "earlier", "pairs"}
        }
        self._fetched: dict[tuple[str, str], Example] = {}
        self._left_out = self._quarantined()
        self._take: dict[SourceName, Callable[[int, int, Callable[[], bool]], list[Example]]] = {
            name: partial(self._take_offline, name) for name in used if name in self.orders
        }
        self.online: OnlineQueue | None = None
        self.buffer: ReplayBuffer | None = None
        self._recorded: Recorded = {}
        if "online" in used:
            self._recorded = _recorded(examples.warehouse, self.job.run_id, after)
            self.online = OnlineQueue(examples, state, self._recorded)
            self._take["online"] = self.online.take
        if "earlier" in used:
            self.orders |= self._orders_of_earlier(state)
            self._take["earlier"] = self._take_earlier
        if "pairs" in used:
            pairs = Pairs.of(examples)
            self.orders["pairs"] = self._continued("pairs", pairs.ids, state)
            self._take["pairs"] = partial(self._take_pairs, pairs)
        if "replay" in used:
            self.buffer = _buffer(examples, after)
            self._take["replay"] = partial(self._take_again, self.buffer)

    def next(self, step: int, stopped: Callable[[], bool] = lambda: False) -> list[Example]:
        """The batch of `step` (steps must be asked for in order), sources in the recipe's order.

        Raises NothingToTrainOn when no source has anything.
        """
        if step % BLOCK == 0 and (left_out := self._quarantined()) != self._left_out:
            self._left_out = left_out
            self._fetched.clear()
            self._let_go()
        counts = self.job.train.counts(step)
        batch = [example for name, count in counts.items() for example in self._take[name](step, count, stopped)]
        if not batch:
            raise NothingToTrainOn(f"no source of the mix ({', '.join(counts)}) has a trajectory for step {step}")
        if self.buffer is not None:
            self.buffer.use(step, batch)
        return batch

    def ahead(self) -> Iterable[Example]:
        """Examples that were fetched before they are drawn."""
        return self._fetched.values()

    def revalue(self, values: Mapping[str, float]) -> None:
        """Give every example that is still to come the soft value (nats) of its problem in `values`."""
        self.examples.values = values
        self._fetched.clear()
        if self.online is not None:
            self.online.revalue(values)
        if self.buffer is not None:
            self.buffer.revalue(values)

    def shortages(self) -> dict[str, str]:
        """A line for each source that has nothing at all to give, by its kind."""
        if "earlier" not in self._take or any(name.startswith("earlier") for name in self.orders):
            return {}
        return {
            "earlier": (
                "source 'earlier' has nothing: no other run has trained on these problems, under these prompts and "
                "tests, that fits train.earlier; every batch is smaller by its share"
            )
        }

    def state(self) -> MixState:
        """What to save so that the next batch comes out the same."""
        return MixState(
            cursors={name: (order.epoch, order.used) for name, order in self.orders.items()},
            watermark=0 if self.online is None else self.online.watermark,
            waiting=() if self.online is None else self.online.ids(),
        )

    def _order(self, name: SourceName, state: MixState) -> EpochOrder:
        ids = self._candidates(name)
        if not ids:
            raise NothingToTrainOn(
                f"source {name!r} of the mix has no trajectories for problems with a soft value; "
                f"fill it (stage {'corpus' if name == 'offline' else 'pivotal'}) or set its share to 0"
            )
        return self._continued(name, ids, state)

    def _continued(self, name: str, ids: Sequence[str], state: MixState) -> EpochOrder:
        epoch, used = state.cursors.get(name, (0, 0))
        return EpochOrder(ids, seed=self.job.config.seed, source=name, epoch=epoch, used=used)

    def _orders_of_earlier(self, state: MixState) -> dict[str, EpochOrder]:
        """One order per reward class where the classes are balanced, else one of all; none of what there is nothing."""
        found = selected(self.examples.warehouse, self.job, self.examples.values)
        classes = {"earlier": [*found.successes, *found.failures]}
        if self.job.train.earlier.classes == "balanced":
            classes = {"earlier/successes": [*found.successes], "earlier/failures": [*found.failures]}
        return {name: self._continued(name, ids, state) for name, ids in classes.items() if ids}

    def _take_earlier(self, step: int, count: int, _stopped: Callable[[], bool]) -> list[Example]:
        """At most `count`; half of each class where they are balanced, the odd one in turns.

        One comes twice only where a pass over its class ends within the batch and the next begins with it.
        """
        wanted = {"earlier": count, "earlier/successes": (count + step % 2) // 2}
        wanted["earlier/failures"] = count - wanted["earlier/successes"]
        orders = [(order, wanted[name]) for name, order in self.orders.items() if name in wanted]
        return [e for order, number in orders for e in self._draw(order, "earlier", min(number, len(order.ids)))]

    def _take_pairs(self, pairs: Pairs, _step: int, count: int, _stopped: Callable[[], bool]) -> list[Example]:
        """At most `count` sequences, every success before its failure."""
        order = self.orders["pairs"]
        return pairs.fetch(self.examples, order.take(min(count // 2, len(order.ids))))

    def _candidates(self, name: SourceName) -> list[str]:
        problems = sorted(self.examples.values)
        reference, search = self.job.counts.reference, self.job.search_id
        rollouts = {"reference": reference, "problems": problems}
        query = {
            "offline": (CORPUS, (self.job.corpus_id, problems)),
            "pivotal": (PIVOTAL, (reference, search, search, problems)),
            "pivotal_rollouts": (
                PIVOTAL_ROLLOUTS,
                self.job.selection_bounds | rollouts | {"until": self.job.rollouts_until},
            ),
        }[name]
        return [str(row["trajectory_id"]) for row in self.examples.warehouse.rows(*query)]

    def _take_again(self, buffer: ReplayBuffer, step: int, count: int, _stopped: Callable[[], bool]) -> list[Example]:
        ids = self._recorded.get(step, {}).get("replay")
        repeated = None if ids is None else buffer.repeat(ids)
        return buffer.draw(step, count) if repeated is None else repeated

    def _take_offline(self, name: SourceName, _step: int, count: int, _stopped: Callable[[], bool]) -> list[Example]:
        return self._draw(self.orders[name], name, count)

    def _draw(self, order: EpochOrder, source: SourceName, count: int) -> list[Example]:
        """The next `count` of the order; what comes next is fetched with what is missing."""
        key = order.source
        ids = order.take(count)
        missing = [identity for identity in ids if (key, identity) not in self._fetched]
        if missing:
            wanted = sorted({*missing, *self._upcoming(order, count)})
            kept = {at: example for at, example in self._fetched.items() if at[0] != key or at[1] in ids}
            fresh = self.examples.fetch(wanted, source)
            self._fetched = kept | {(key, identity): example for identity, example in fresh.items()}
        return [self._fetched[key, identity] for identity in ids]

    def _upcoming(self, order: EpochOrder, count: int) -> list[str]:
        """What to fetch beside the `count` just taken: all of the order where it is small enough."""
        tokens = [len(example.response_ids) for (key, _), example in self._fetched.items() if key == order.source]
        ahead = max(BLOCK * count, AHEAD_TOKENS * len(tokens) // max(1, sum(tokens)))
        return order.ids if len(order.ids) <= ahead else order.upcoming(ahead)

    def _let_go(self) -> None:
        """Neither take nor draw again what this run sampled and is in quarantine by now."""
        held = [*(self.online.ids() if self.online else ()), *(self.buffer.ids() if self.buffer else ())]
        there = _visible(self.examples.warehouse, self.job.run_id, held)
        if self.online is not None:
            self.online.keep(there)
        if self.buffer is not None:
            self.buffer.keep(there)

    def _quarantined(self) -> int:
        """How many batches have been left out of the warehouse so far."""
        return int(self.examples.warehouse.rows(LEFT_OUT)[0]["n"])


def _revalued(example: Example, values: Mapping[str, float]) -> Example:
    return replace(example, y0=values[example.problem_id])


def _buffer(examples: Examples, after: int) -> ReplayBuffer:
    """What the run can draw again after step `after`; what was quarantined since is left out, with its group."""
    job, size = examples.job, examples.job.train.group_size
    uses = recorded_uses(examples.warehouse, job.run_id, job.train.replay, after=after)
    found = examples.present(list(uses), "online")
    order = list(uses) if size == 1 else first_used(examples.warehouse, job.run_id, job.train.replay, after=after)
    known = [Used(example, uses[example.trajectory_id]) for example in kept_together(order, found, size)]
    return ReplayBuffer(job.train.replay, job.config.seed, known, group_size=size)


def first_lost(warehouse: Warehouse, job: TrainJob, after: int) -> int | None:
    """The first step after `after` that was recorded and cannot be repeated: something it used was quarantined since.

    It and all after it are drawn anew; what is left of theirs waits like everything else. None when all can be.
    """
    steps = _recorded(warehouse, job.run_id, after)
    wanted = sorted({identity for sources in steps.values() for ids in sources.values() for identity in ids})
    visible = _visible(warehouse, job.run_id, wanted)
    lost = (step for step, sources in steps.items() if not all(visible.issuperset(ids) for ids in sources.values()))
    return next(lost, None)


def _visible(warehouse: Warehouse, run_id: str, ids: Sequence[str]) -> set[str]:
    return {str(row["trajectory_id"]) for row in warehouse.rows(VISIBLE, (run_id, ids))}


def _recorded(warehouse: Warehouse, run_id: str, after: int) -> Recorded:
    """What the run took of sampled trajectories in the steps after `after` that were recorded, in order."""
    steps: Recorded = {}
    for row in warehouse.rows(RECORDED, (run_id, after)):
        sources = steps.setdefault(int(row["step"]), {name: [] for name in AGAIN})
        for identity, source in zip(row["trajectory_ids"], row["sources"], strict=True):
            if source in AGAIN:
                sources[source].append(str(identity))
    return steps
