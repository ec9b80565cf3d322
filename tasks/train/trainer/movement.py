"""How far a step moves the policy: `y_T_change`, the figure by which steps are called large or small."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from tasks.scoring.example import Example
from tasks.train.trainer.guards import CHECKED
from tasks.train.trainer.metrics import Figures
from tasks.train.trainer.session import Session

EVERY = 10
"""Steps between two measurements, which take two forward passes over a few sequences each."""


@contextmanager
def measured(session: Session, batch: Sequence[Example], step: int) -> Generator[Figures]:
    """Holds, after the update within it, the step's `y_T_change`; nothing between measurements. Collective.

    It is mean |y_T after - y_T before|, nats, over a few sequences of the batch itself, of all its sources. y_0 and
    log pi_0 stay, so that it is the change of log pi_theta of the response.
    """
    moved: Figures = {}
    if step > 1 and step % EVERY:
        yield moved
        return
    few: list[Example] = session.engine.share(spread(batch) if session.rank_zero is not None else None)
    before = session.scored(few)
    yield moved
    after = session.scored(few)
    changes = [abs(float((new - old).sum())) for old, new in zip(before, after, strict=True)]
    moved["y_T_change"] = sum(changes) / len(changes)


def spread(batch: Sequence[Example]) -> list[Example]:
    """A few of the batch, evenly spaced: sources stand in it one after the other."""
    most = min(CHECKED, len(batch))
    return [batch[place * len(batch) // most] for place in range(most)]
