"""Which online trajectories of the run are trained on again: a function of the seed, the step, and the uses so far.

The uses are what `train_batches` records, so a resumed run begins with the buffer that the killed one had, and the
rules draw from it as they would have. Where responses to a prompt are compared, whole groups are drawn, each by its
first member, and used alike. Weighted rules draw without replacement: everyone gets the key u^(1/w), u being a
uniform number that seed, step and trajectory decide, and the largest keys are taken (Efraimidis and Spirakis 2006).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.config import ReplayConfig
from tasks.engines.randomness import derived_seed
from tasks.scoring.example import Example
from warehouse import Warehouse
from warehouse.queries import query

USES = query(__name__, "uses")
FIRST_USED = query(__name__, "first_used")
_SEEDS = 1 << 63


@dataclass(frozen=True, slots=True)
class Uses:
    """When a trajectory was trained on, in optimizer steps, and how often."""

    first: int
    last: int
    count: int


@dataclass(frozen=True, slots=True)
class Used:
    """A trajectory with what became of it."""

    example: Example
    uses: Uses


class ReplayBuffer:
    """The trajectories that can be drawn again; they leave it once they are used up or too old."""

    def __init__(self, config: ReplayConfig, seed: int, known: Iterable[Used] = (), *, group_size: int = 1) -> None:
        self.config = config
        self.seed = seed
        self.group_size = group_size
        self._held = {used.example.trajectory_id: used for used in known}

    def draw(self, step: int, count: int) -> list[Example]:
        """The trajectories that are used again in `step`: `count` different ones, or all there are, in whole groups."""
        groups: dict[str, list[Used]] = {}
        for used in self._held.values():
            if self._can_be_drawn(used, step):
                groups.setdefault(_group(used), []).append(used)
        ranked = sorted(_ranks([members[0] for members in groups.values()], self.config, self.seed, step))
        drawn = [groups[first] for _, first in ranked[: count // self.group_size]]
        return self._examples(used.example.trajectory_id for members in drawn for used in members)

    def repeat(self, ids: Sequence[str]) -> list[Example] | None:
        """The trajectories that were drawn before, as recorded; None when one of them is there no more."""
        return self._examples(ids) if all(identity in self._held for identity in ids) else None

    def use(self, step: int, batch: Iterable[Example]) -> None:
        """Note what the batch of `step` took: new trajectories come in with it."""
        for example in batch:
            name = example.trajectory_id
            if example.source == "online":
                self._held[name] = Used(example, Uses(step, step, 1))
            elif example.source == "replay":
                uses = self._held[name].uses
                self._held[name] = replace(self._held[name], uses=Uses(uses.first, step, uses.count + 1))
        self._held = {name: used for name, used in self._held.items() if self._can_be_drawn(used, step + 1)}

    def ids(self) -> tuple[str, ...]:
        """The trajectories that are held."""
        return tuple(self._held)

    def keep(self, there: Collection[str]) -> None:
        """Let go of what is not `there` any more, with its group."""
        gone = {_group(used) for name, used in self._held.items() if name not in there}
        self._held = {name: used for name, used in self._held.items() if _group(used) not in gone}

    def revalue(self, values: Mapping[str, float]) -> None:
        """Give every trajectory the soft value (nats) of its problem in `values`."""
        self._held = {
            name: replace(used, example=replace(used.example, y0=values[used.example.problem_id]))
            for name, used in self._held.items()
        }

    def _can_be_drawn(self, used: Used, step: int) -> bool:
        return used.uses.count < self.config.uses and step - used.uses.first <= self.config.window

    def _examples(self, ids: Iterable[str]) -> list[Example]:
        return [replace(self._held[identity].example, source="replay") for identity in ids]


def recorded_uses(warehouse: Warehouse, run_id: str, config: ReplayConfig, *, after: int) -> dict[str, Uses]:
    """What the run had used up to step `after` and can draw again after it, by trajectory; from `train_batches`."""
    wanted = {"run": run_id, "after": after, "window": config.window, "uses": config.uses}
    return {
        str(row["trajectory_id"]): Uses(int(row["first"]), int(row["last"]), int(row["uses"]))
        for row in warehouse.rows(USES, wanted)
    }


def first_used(warehouse: Warehouse, run_id: str, config: ReplayConfig, *, after: int) -> list[str]:
    """The online trajectories that the run took first in the window before `after`, in the order of its batches."""
    rows = warehouse.rows(FIRST_USED, {"run": run_id, "after": after, "window": config.window})
    pairs = [pair for row in rows for pair in zip(row["trajectory_ids"], row["sources"], strict=True)]
    return [str(identity) for identity, source in pairs if source == "online"]


def _ranks(there: Sequence[Used], config: ReplayConfig, seed: int, step: int) -> Iterable[tuple[float, str]]:
    """(rank, id) of each: the lowest ranks are drawn."""
    if config.rule == "first_in_first_out":
        return [(used.uses.last, used.example.trajectory_id) for used in there]
    weights = _weights(there, config, step)
    ids = [used.example.trajectory_id for used in there]
    uniform = [(derived_seed(seed, "replay", step, identity) + 0.5) / _SEEDS for identity in ids]
    return [(-math.log(u) / w, identity) for u, w, identity in zip(uniform, weights, ids, strict=True)]


def _weights(there: Sequence[Used], config: ReplayConfig, step: int) -> list[float]:
    if config.rule == "recent":
        return [1 - (step - used.uses.first - 1) / config.window for used in there]
    if config.rule == "positive":
        return [config.positive_weight if _passed(used) else 1.0 for used in there]
    if config.rule == "balanced":
        problems = Counter(used.example.problem_id for used in there)
        classes = Counter((used.example.problem_id, _passed(used)) for used in there)
        kinds = Counter(problem for problem, _ in classes)
        return [
            problems[p] / (kinds[p] * classes[p, _passed(used)]) for used in there for p in [used.example.problem_id]
        ]
    return [1.0] * len(there)


def _group(used: Used) -> str:
    """What is drawn and let go of together with a trajectory: by the group's name, else by its own."""
    return used.example.group or used.example.trajectory_id


def _passed(used: Used) -> bool:
    return used.example.terminal == 0
