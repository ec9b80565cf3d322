"""What is asked of an engine for a problem, and a response on its way to its verdict."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox import Suite
from tasks.engines.protocol import Completion, Request
from tasks.problems.problem import Problem


@dataclass(frozen=True, slots=True)
class Assignment:
    """`n` responses wanted for one problem.

    `prompt_ids` is the prompt alone. `prefix_ids` is the beginning of a response to be continued (of trajectory
    `parent_trajectory_id`); it counts towards the length limit. `seed` decides seeds and temperatures of the samples:
    asking again with the same seed, policy and prompt returns the same responses, so callers that want further ones
    choose another. `entropies`: the policy's entropy along the responses is wanted, too.
    """

    problem: Problem
    prompt_id: str
    prompt_ids: tuple[int, ...]
    n: int
    seed: int
    prefix_ids: tuple[int, ...] = ()
    parent_trajectory_id: str | None = None
    entropies: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """A response that was asked of the engine, and under which policy."""

    batch: int
    number: int
    """Of the assignment in its batch."""
    assignment: Assignment
    sample: int
    suite: Suite
    request: Request
    policy: str
    step: int | None


@dataclass(frozen=True, slots=True)
class SampledDraft:
    """A sampled response before its verdict."""

    asked: Asked
    completion: Completion
    policy: str
    """That of the engine when the response was finished."""
    token_ids: tuple[int, ...]
    text: str
    program: str
    program_hash: str

    @property
    def suite(self) -> Suite:
        """What judges it."""
        return self.asked.suite

    @property
    def key(self) -> tuple[str, str]:
        """Program and suite: what the verdict is about."""
        return self.program_hash, self.suite.suite_id
