"""Pairs of a success and a failure of pi_0 on one prompt, for preference learning: the source `pairs`.

As with trajectories of earlier runs, the selection is fixed when training begins: it is written beside the run's soft
values, and its identity is part of the stage's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tasks.config import PairsConfig
from tasks.train.shared import atomic
from tasks.train.shared.errors import NothingToTrainOn
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query

if TYPE_CHECKING:
    from tasks.scoring.example import Example
    from tasks.train.trainer.examples import Examples

SELECTION = query(__name__, "selection")
THERE = query(__name__, "there")


@dataclass(frozen=True, slots=True)
class Selection:
    """(success, failure) trajectories, sorted by success."""

    pairs: tuple[tuple[str, str], ...]

    def digest(self) -> str:
        """24 hexadecimal digits that identify the selection."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:24]


@dataclass(frozen=True, slots=True)
class Pairs:
    """The run's pairs: the failure that belongs to each success."""

    failures: Mapping[str, str]

    @property
    def ids(self) -> list[str]:
        """A name per pair: that of its success."""
        return list(self.failures)

    @classmethod
    def of(cls, examples: Examples) -> Pairs:
        """The run's pairs as they were when training began, on problems with a soft value, without what was
        quarantined since. Raises NothingToTrainOn when there is none.
        """
        warehouse, selection = examples.warehouse, _frozen(examples.warehouse, examples.job)
        asked = [identity for pair in selection.pairs for identity in pair]
        rows = warehouse.rows(THERE, {"ids": asked, "problems": sorted(examples.values)})
        there = {str(row["trajectory_id"]) for row in rows}
        kept = {success: failure for success, failure in selection.pairs if {success, failure} <= there}
        if not kept:
            raise NothingToTrainOn(
                "source 'pairs' has nothing: among pi_0's samples that the run may see, no problem has both a success "
                "and a failure; start a run that draws more (q0.samples), takes other problems, or leaves it out"
            )
        return cls(kept)

    def fetch(self, examples: Examples, names: Sequence[str]) -> list[Example]:
        """The examples of these pairs, every success before its failure."""
        from tasks.train.trainer.groups import named

        ids = [identity for name in names for identity in (name, self.failures[name])]
        found = examples.fetch(sorted(set(ids)), "pairs")
        return [one for name in names for one in named([found[name], found[self.failures[name]]])]


def select(store: Warehouse, config: PairsConfig, **run: Any) -> Selection:
    """What is there for a run: its reference, a snapshot, a limit in tokens, its batches of prompts and problems."""
    rows = store.rows(SELECTION, config.model_dump() | run)
    return Selection(tuple((str(row["success"]), str(row["failure"])) for row in rows))


def _frozen(store: Warehouse, job: TrainJob) -> Selection:
    kept: Path = job.run_dir / "pairs.json"
    if not kept.is_file():
        found = select(
            store,
            job.train.pairs,
            reference=job.counts.reference,
            **job.selection_bounds | {"until": job.pairs_until},
        )
        if not found.pairs:
            return found  # nothing to hold on to: resumed, the run looks again
        atomic.write_once(kept, json.dumps(asdict(found)))
    read = json.loads(kept.read_text(encoding="utf-8"))
    return Selection(tuple((success, failure) for success, failure in read["pairs"]))
