"""What the trainer refuses or stops for.

TrainerError
    MissingReferenceValues   problems without samples for their soft value
    NothingToTrainOn         a source of the mix has no trajectories
    GuardTripped             training stopped before it could do harm
        NonFinite            a loss or gradient is NaN or infinite
        ReferenceDrift       policy and reference disagree where they must not
    ResumeImpossible         the checkpoint does not fit this job
    JudgingImpossible        the sandbox is down; nothing more is sampled
    DiskFull                 there is no room for a checkpoint
    PublishingFailed         weights could not be published beside training
    Interrupted              asked to stop; a checkpoint was written
    ProcessDied              a trainer or worker process ended and cannot be restarted
        Refused              the trainer itself said why it does not go on; trying again would not help
            StoppedByGuards  a guard tripped: what this way of training came to
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from tasks.errors import CodedError

STOPPED = 3
"""Exit status of a trainer that was asked to stop and wrote a checkpoint."""
CANNOT_GO_ON = 2
"""Exit status of a worker that starting again would not help."""


class TrainerError(CodedError):
    """Training cannot start or go on; the message says why and what to do."""


class MissingReferenceValues(TrainerError):
    """Problems without samples for their soft value."""


class NothingToTrainOn(TrainerError):
    """A source of the mix has no trajectories."""


class GuardTripped(TrainerError):
    """Training stopped before it could do harm."""

    trajectory_ids: tuple[str, ...] = ()
    """The trajectories it is about, if any."""

    @classmethod
    def over(cls, trajectory_ids: Iterable[str], message: str) -> Self:
        """The error about these trajectories."""
        error = cls(message)
        error.trajectory_ids = tuple(trajectory_ids)
        return error


class NonFinite(GuardTripped):
    """A loss or a gradient is NaN or infinite."""


class ReferenceDrift(GuardTripped):
    """Policy and reference disagree where they must not."""


class ResumeImpossible(TrainerError):
    """The checkpoint does not fit this job."""


class JudgingImpossible(TrainerError):
    """The sandbox is down; nothing more is sampled."""


class DiskFull(TrainerError):
    """There is no room for a checkpoint."""


class PublishingFailed(TrainerError):
    """Weights could not be published beside training."""


class Interrupted(TrainerError):
    """Asked to stop; a checkpoint was written."""


class ProcessDied(TrainerError):
    """A trainer or worker process ended and cannot be restarted."""


class Refused(ProcessDied):
    """The trainer itself said why it does not go on; trying again would not help."""


class StoppedByGuards(Refused):
    """The trainer's process ended with `GuardTripped`: what this way of training came to, no fault of the machine."""


def is_guard(kind: str) -> bool:
    """Whether the error class of this name is one of the guards'."""
    return kind in {found.__name__ for found in (GuardTripped, *GuardTripped.__subclasses__())}
