"""What samples of pi_0 say of the prompts' soft values: counts (n, k), whichever stage or worker drew the samples.

They are appended in one batch with the samples. What a run's own workers draw from pi_0 while it trains counts for
later runs only: it must not change what the run was trained on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.config import BehaviourConfig, RunConfig
from tasks.problems.problem import Split
from tasks.sampling.sampler import Judged, sampling_label
from warehouse import Warehouse
from warehouse.queries import query

REFERENCE_BEHAVIOUR = BehaviourConfig(weights="reference", temperature=(1.0, 1.0), top_p=1.0)
"""pi_0 itself (section 3.1.3): temperature 1, the whole vocabulary. Anything else estimates another policy's value."""

ROLLOUTS = "rollout/"
"""Prefix of the batches of all rollout workers."""


COUNTED = query(__name__, "counted")
DRAWN_BEFORE = query(__name__, "drawn_before")


class CountsFilter(BaseModel):
    """Which samples of pi_0 say what the soft values of a run's prompts are."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    reference: str
    """Policy id of pi_0."""
    sampling: str
    """Label of the way of sampling (`reference_sampling`)."""
    template_id: str
    """Prompt template."""
    problems_batch: str
    """Warehouse batch of the run's problems: only counts under their present tests are used."""
    prompts_batch: str
    """Warehouse batch of the run's prompts: only counts of these are used, and those that do not say of which."""
    split: Split = "train"
    left_out: str | None
    """Prefix of the batches whose counts are not used (`not_counted`); None: all are."""
    until: int | None = None
    """Snapshot after which counts are not read; None: the newest are."""
    only: str | None = None
    """Prefix of the batches whose counts are used; None: of all."""


def counted(warehouse: Warehouse, wanted: CountsFilter) -> dict[str, tuple[int, int]]:
    """(samples, successes) of every problem that has samples, over all runs, by problem id."""
    rows = warehouse.rows(COUNTED, wanted.model_dump())
    return {str(row["problem_id"]): (int(row["n"]), int(row["k"])) for row in rows}


def reference_sampling(max_response_tokens: int) -> str:
    """Label of Q0's way of sampling, part of the identity of its counts."""
    return sampling_label(REFERENCE_BEHAVIOUR, max_response_tokens)


def reference_counts(
    judged: Iterable[Judged], *, reference: str, template_id: str, max_response_tokens: int
) -> list[dict[str, Any]]:
    """Rows of `reference_counts` for what was drawn from policy `reference` in Q0's way; nothing for anything else."""
    wanted = (reference, 1.0, 1.0, max_response_tokens, 0)
    tally: dict[tuple[str, str, str | None], list[int]] = {}
    for item in judged:
        row = item.row
        drawn = tuple(
            row[name] for name in ("policy_start", "temperature", "top_p", "max_response_tokens", "prefix_tokens")
        )
        if row["reward"] is not None and drawn == wanted:
            n_k = tally.setdefault((row["problem_id"], row["suite_hash"], row["prompt_id"]), [0, 0])
            n_k[0] += 1
            n_k[1] += row["reward"] == 0
    return [
        {
            "problem_id": problem_id,
            "reference": reference,
            "sampling": reference_sampling(max_response_tokens),
            "template_id": template_id,
            "suite_hash": suite_hash,
            "prompt_id": prompt_id,
            "n": n,
            "k": k,
        }
        for (problem_id, suite_hash, prompt_id), (n, k) in tally.items()
    ]


def drawn_first(warehouse: Warehouse, batch: str, judged: Iterable[Judged], *, reference: str) -> list[Judged]:
    """Those of `judged`, of batch `batch`, that policy `reference` drew and that no other batch has, judged alike.

    Runs that draw side by side draw the same responses where they start at the same sample; these count once.
    """
    drawn = [item for item in judged if item.row["policy_start"] == reference]
    asked = {"ids": [item.row["trajectory_id"] for item in drawn], "reference": reference, "batch": batch}
    rows = warehouse.rows(DRAWN_BEFORE, asked) if drawn else []
    before = {(row["trajectory_id"], row["suite_hash"]) for row in rows}
    first = {(item.row["trajectory_id"], item.row["suite_hash"]): item for item in drawn}
    return [item for key, item in first.items() if key not in before]


def rollout_batches(run_id: str) -> str:
    """Prefix of the batches that the rollout workers of a run append."""
    return f"{ROLLOUTS}{run_id}/"


def not_counted(config: RunConfig, run_id: str) -> str:
    """Prefix of the batches whose counts the run does not use: its own workers', or all workers'.

    All of them, too, where rewards are shares of tests: soft values are then of Q0's samples themselves.
    """
    counted = config.q0.count_rollouts and config.train.reward == "binary"
    return rollout_batches(run_id) if counted else ROLLOUTS
