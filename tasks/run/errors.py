"""What a stage cannot do.

StageError
    StageInputMissing     an earlier stage has not produced what this one reads
    TrainingHasBegun      what the run's batches were drawn from is recorded, and stands
    OtherWeights          the folder of pi_0 holds other weights than those that the run was prepared with
    Oversubscribed        training wants more GPUs than this machine has
"""

from __future__ import annotations

from tasks.errors import CodedError


class StageError(CodedError):
    """A stage cannot do its work; the message says what is missing and what to run."""


class StageInputMissing(StageError):
    """An earlier stage has not produced what this one reads."""


class TrainingHasBegun(StageError):
    """What the run's batches were drawn from is recorded, and stands."""


class OtherWeights(StageError):
    """The folder of pi_0 holds other weights than those that the run was prepared with."""


class Oversubscribed(StageError):
    """Training wants more GPUs than this machine has."""
