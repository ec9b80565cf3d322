"""log pi_0 of the corpus's responses, computed once and stored under the fingerprint of what computed it.

The same code as the trainer's, so the trainer finds them and computes only what is new: its online trajectories. Of
prompts that pi_0 never solves they also say how likely it would be to (`known_shares`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tasks.run.identity import digest
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import counts, retry_batch_id
from tasks.run.stage import Context
from warehouse.queries import query

STORED = query(__name__, "stored")
CORRECT = query(__name__, "correct")
RESPONSES = query(__name__, "responses")
SEQUENCES_PER_BATCH = 512


def identity(context: Context, prompts: PromptSet) -> list[Any] | None:
    """What decides which log-probabilities are stored; None when none are."""
    count, train, unsolved = _offline_sequences(context), context.config.train, _unsolved(context, prompts)
    if not count and not unsolved:
        return None
    drawn = [prompts.policy_id, context.config.reference.dtype, train.packing, count * train.steps, context.config.seed]
    return [*drawn, sorted(unsolved)] if unsolved else drawn


def store(context: Context, prompts: PromptSet, members: Sequence[dict[str, Any]]) -> int:
    """Compute and store what is missing for the members that training will draw; the number of them."""
    wanted = _drawn(context, prompts, members)
    if not wanted:
        return 0
    fingerprint = _fingerprint(context, prompts)
    known = {row["trajectory_id"] for row in context.warehouse.rows(STORED, [fingerprint, wanted])}
    missing = [identity for identity in wanted if identity not in known]
    if not missing:
        return 0
    with _scorer(context, prompts) as score:
        for start in range(0, len(missing), SEQUENCES_PER_BATCH):
            rows = context.warehouse.rows(RESPONSES, [missing[start : start + SEQUENCES_PER_BATCH]])
            context.progress(start, len(missing), "responses", "scored by pi_0")
            table = [
                {"trajectory_id": identity, "fingerprint": fingerprint, "logprobs": logprobs}
                for identity, logprobs in sorted(score(rows).items())
            ]
            unit = digest(trajectories=[row["trajectory_id"] for row in table])
            batch = retry_batch_id(context, f"scores/{fingerprint}/{unit}")
            context.warehouse.append(batch, {"reference_logprobs": table}, run_id=context.run_id)
    return len(missing)


def known_shares(context: Context, prompts: PromptSet, members: Sequence[dict[str, Any]]) -> dict[str, float]:
    """For problems that pi_0 never solved: the probability that it gives the members' correct responses, in all.

    A lower bound of its chance of success S, since the responses are different ones. Empty unless
    `q0.zero_successes` is 'corpus'.
    """
    ids = _of(members, _unsolved(context, prompts))
    shares: dict[str, list[float]] = {}
    for row in context.warehouse.rows(CORRECT, [_fingerprint(context, prompts), ids]) if ids else ():
        shares.setdefault(row["problem_id"], []).append(math.exp(math.fsum(row["logprobs"])))
    return {problem: min(1.0, math.fsum(parts)) for problem, parts in shares.items()}


def _unsolved(context: Context, prompts: PromptSet) -> set[str]:
    """Problems of which the corpus has to say how likely pi_0 solves them: none of its samples does."""
    if context.config.q0.zero_successes != "corpus":
        return set()
    return {problem for problem, (n, k) in counts(context, prompts).items() if n and not k}


def _of(members: Sequence[dict[str, Any]], problems: Container[str]) -> list[str]:
    return sorted(row["trajectory_id"] for row in members if row["problem_id"] in problems)


def _offline_sequences(context: Context) -> int:
    """Offline sequences in a training batch."""
    offline = context.config.train.sources.get("offline")
    if offline is None or not context.config.corpus.reference_logprobs:
        return 0
    return round(offline.share * context.config.train.batch_size)


def _drawn(context: Context, prompts: PromptSet, members: Sequence[dict[str, Any]]) -> list[str]:
    """The members that training will draw, as many as its batches need of problems with a soft value, and those that
    say what the soft value is.
    """
    from tasks.run.epoch_order import EpochOrder

    keep = context.config.q0.zero_successes != "drop" or context.config.train.reward == "fractional"
    known = counts(context, prompts)
    ids = [row["trajectory_id"] for row in members if known[row["problem_id"]][0 if keep else 1] > 0]
    count = min(_offline_sequences(context) * context.config.train.steps, len(ids))
    drawn = EpochOrder(ids, seed=context.config.seed, source="offline").take(count) if count else []
    return sorted({*drawn, *_of(members, _unsolved(context, prompts))})


def _fingerprint(context: Context, prompts: PromptSet) -> str:
    import torch

    from tasks.scoring.reference import fingerprint

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return fingerprint(prompts.reference, context.config.train, context.config.reference.dtype, device)


@contextmanager
def _scorer(
    context: Context, prompts: PromptSet
) -> Generator[Callable[[Sequence[dict[str, Any]]], dict[str, list[float]]]]:
    """What computes log pi_0 of rows of `trajectories`; its weights are gone when the block ends, before training."""
    import torch

    from tasks.scoring.example import Example
    from tasks.scoring.packing import lay_out, plan
    from tasks.scoring.reference import load_reference

    train, dtype = context.config.train, context.config.reference.dtype
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reference = load_reference(prompts.reference, train, dtype, device)

    def score(rows: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
        examples = [
            Example(
                trajectory_id=row["trajectory_id"],
                problem_id=row["problem_id"],
                source="offline",
                prompt_ids=prompts.prompts[row["problem_id"]].token_ids,
                response_ids=tuple(row["token_ids"]),
                terminal=0.0,
                y0=0.0,
                stopped=True,
                behaviour_logprobs=None,
            )
            for row in rows
        ]
        found: dict[str, list[float]] = {}
        for group in plan(examples, train.packing, most_tokens=train.micro_batch_tokens):
            pack = lay_out([examples[index] for index in group], train.packing).to(device)
            found |= reference.logprobs(pack, {})[1]
        return found

    try:
        yield score
    finally:
        reference.close()
