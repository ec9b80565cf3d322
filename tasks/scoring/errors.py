"""What scoring cannot do.

ScoringError
    UnsupportedModel             the packed pass would compute something else than the model does
    AdaptersImpossible           the recipe's low-rank adapters do not fit, or their package is missing
    StoredLogprobsMismatch       what is stored of a trajectory cannot be its log-probabilities
"""

from __future__ import annotations

from tasks.errors import CodedError


class ScoringError(CodedError):
    """Log-probabilities of given tokens cannot be computed; the message says why and what to do."""


class UnsupportedModel(ScoringError):
    """The packed pass would compute something else than the model does."""


class AdaptersImpossible(ScoringError):
    """The recipe's low-rank adapters do not fit this model, or the package that makes them is missing."""


class StoredLogprobsMismatch(ScoringError):
    """What is stored under a trajectory's id cannot be its reference log-probabilities."""

    def __init__(self, trajectory_id: str, message: str) -> None:
        super().__init__(message)
        self.trajectory_id = trajectory_id
