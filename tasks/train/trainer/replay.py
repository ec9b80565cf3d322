"""Which trajectories make up each batch: the mix of sources, drawn so that a resumed run draws the same.

Offline sources go through their trajectories in an order that (seed, source, epoch) decides. Online trajectories are
followed in the warehouse and used exactly once, in order of arrival; steps that an earlier, killed process already
recorded are drawn again exactly as recorded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tasks.config import SourceName
from tasks.run.epoch_order import EpochOrder
from tasks.scoring.example import Example
from tasks.train.shared.errors import Interrupted, NothingToTrainOn
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.state import ReplayState
from warehouse import Warehouse
from warehouse.queries import query

POLL_S = 0.1
BLOCK = 16
"""Batches of an offline source fetched at a time."""

CORPUS = query(__name__, "corpus")

PIVOTAL = query(__name__, "pivotal")

PIVOTAL_ROLLOUTS = query(__name__, "pivotal_rollouts")

RECORDED = query(__name__, "recorded")

VISIBLE = query(__name__, "visible")


class OnlineQueue:
    """This run's online trajectories, in order of arrival, each handed out once."""

    def __init__(self, examples: Examples, state: ReplayState, recorded: dict[int, list[str]]) -> None:
        self.examples = examples
        self.run_id = examples.job.run_id
        self.watermark = state.watermark
        self.recorded = recorded
        self._claimed = {identity for ids in recorded.values() for identity in ids}
        self._claimed_rows = examples.present(sorted(self._claimed), "online")
        known = examples.present(state.waiting, "online")
        self._waiting: deque[Example] = deque()
        self._admit([known[identity] for identity in state.waiting if identity in known])

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
        rows, self.watermark = self.examples.warehouse.follow(
            "trajectories", self.watermark, where="run_id = ? AND source = 'online'", parameters=(self.run_id,)
        )
        rows.sort(key=lambda row: (str(row["batch_id"]), str(row["trajectory_id"])))
        new = self.examples.build(rows, "online")
        self._admit(new)
        return len(new)

    def revalue(self, values: Mapping[str, float]) -> None:
        """Give the waiting examples the soft value (nats) of their problem in `values`."""
        self._waiting = deque(_revalued(example, values) for example in self._waiting)
        self._claimed_rows = {name: _revalued(example, values) for name, example in self._claimed_rows.items()}

    def _admit(self, examples: Sequence[Example]) -> None:
        self._waiting.extend(example for example in examples if example.trajectory_id not in self._claimed)


class Replay:
    """Draws the batches of a run. `after` is the last step that the given state has behind it."""

    def __init__(self, examples: Examples, state: ReplayState, *, after: int) -> None:
        self.examples = examples
        self.job = examples.job
        train = self.job.train
        self.counts: dict[SourceName, int] = {
            name: round(source.share * train.batch_size) for name, source in train.sources.items() if source.share > 0
        }
        self.orders = {name: self._order(name, state) for name in self.counts if name != "online"}
        self._fetched: dict[tuple[str, str], Example] = {}
        self.online: OnlineQueue | None = None
        if "online" in self.counts:
            recorded = _recorded(examples.warehouse, self.job.run_id, after)
            self.online = OnlineQueue(examples, state, recorded)

    def next(self, step: int, stopped: Callable[[], bool] = lambda: False) -> list[Example]:
        """The batch of `step` (steps must be asked for in order), sources in the recipe's order."""
        batch: list[Example] = []
        for name, count in self.counts.items():
            if name == "online":
                assert self.online is not None
                batch += self.online.take(step, count, stopped)
            else:
                batch += self._take(name, count)
        return batch

    def revalue(self, values: Mapping[str, float]) -> None:
        """Give every example that is still to come the soft value (nats) of its problem in `values`."""
        self.examples.values = values
        self._fetched.clear()
        if self.online is not None:
            self.online.revalue(values)

    def state(self) -> ReplayState:
        """What to save so that the next batch comes out the same."""
        return ReplayState(
            cursors={name: (order.epoch, order.used) for name, order in self.orders.items()},
            watermark=0 if self.online is None else self.online.watermark,
            waiting=() if self.online is None else self.online.ids(),
        )

    def _order(self, name: SourceName, state: ReplayState) -> EpochOrder:
        ids = self._candidates(name)
        if not ids:
            raise NothingToTrainOn(
                f"source {name!r} of the mix has no trajectories for problems with a soft value; "
                f"fill it (stage {'corpus' if name == 'offline' else 'pivotal'}) or set its share to 0"
            )
        epoch, used = state.cursors.get(name, (0, 0))
        return EpochOrder(ids, seed=self.job.config.seed, source=name, epoch=epoch, used=used)

    def _candidates(self, name: SourceName) -> list[str]:
        problems = sorted(self.examples.values)
        reference, search = self.job.counts.reference, self.job.search_id
        query = {
            "offline": (CORPUS, (self.job.corpus_id, problems)),
            "pivotal": (PIVOTAL, (reference, search, search, problems)),
            "pivotal_rollouts": (PIVOTAL_ROLLOUTS, (reference, problems)),
        }[name]
        return [str(row["trajectory_id"]) for row in self.examples.warehouse.rows(*query)]

    def _take(self, name: SourceName, count: int) -> list[Example]:
        order = self.orders[name]
        ahead = order.upcoming(BLOCK * count)
        ids = order.take(count)
        missing = [identity for identity in ids if (name, identity) not in self._fetched]
        if missing:
            wanted = sorted({*missing, *ahead})
            kept = {key: example for key, example in self._fetched.items() if key[0] != name or key[1] in ids}
            fresh = self.examples.fetch(wanted, name)
            self._fetched = kept | {(name, identity): example for identity, example in fresh.items()}
        return [self._fetched[name, identity] for identity in ids]


def _revalued(example: Example, values: Mapping[str, float]) -> Example:
    return replace(example, y0=values[example.problem_id])


def _recorded(warehouse: Warehouse, run_id: str, after: int) -> dict[int, list[str]]:
    """Online trajectories by step, for the steps after `after` that were recorded and can be repeated.

    A step that used something quarantined since is drawn anew: what is left of it waits like everything else.
    """
    steps = {
        int(row["step"]): [
            str(identity)
            for identity, source in zip(row["trajectory_ids"], row["sources"], strict=True)
            if source == "online"
        ]
        for row in warehouse.rows(RECORDED, (run_id, after))
    }
    wanted = sorted({identity for ids in steps.values() for identity in ids})
    visible = {str(row["trajectory_id"]) for row in warehouse.rows(VISIBLE, (run_id, wanted))}
    return {step: ids for step, ids in steps.items() if visible.issuperset(ids)}
