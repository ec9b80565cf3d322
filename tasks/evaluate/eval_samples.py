"""What is known of a policy on the evaluation problems: samples kept in `eval_samples`, and counts from them.

A policy is sampled once, whoever asks first: the evaluator beside training, the stage `evaluate`, or another run. All
draw the same shards with the same seeds, so that it does not matter who did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from tasks.config import RunConfig
from tasks.estimators import Counts, Estimate, average_pass_at_k
from tasks.run.errors import StageError
from tasks.run.identity import digest
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import in_shards, retry_batch_id, rows_of_counts, scored
from tasks.run.stage import Context
from tasks.sampling.assignment import Assignment
from tasks.sampling.sampler import Judged, Sampler, eval_sample_row, sampling_label
from warehouse.queries import query

PROBLEMS_PER_BATCH = 32
ROUNDS = 2
"""How often what is missing is drawn: samples that the sandbox failed on are drawn once more."""

Scores: TypeAlias = dict[str, dict[str, Counts]]
"""Samples and successes per problem, per problem set."""

COUNTS = query(__name__, "counts")
DRAWN = query(__name__, "drawn")


class TooFewSamples(StageError):
    """There are fewer samples of a problem than pass@k needs."""


@dataclass(frozen=True, slots=True)
class EvaluatedPolicy:
    """A policy to be evaluated."""

    policy_id: str
    folder: Path
    step: int


def batches_of(policy_id: str) -> str:
    """Prefix of the batches of a policy's samples."""
    return f"eval/{policy_id}/"


def label_of(context: Context) -> str:
    """How evaluation samples are drawn in this run; samples drawn otherwise do not count."""
    return sampling_label(context.config.evaluate.behaviour, context.config.engine.max_response_tokens)


def counts(context: Context, prompts: PromptSet, policy_id: str) -> dict[str, Counts]:
    """Samples that count and successes of every evaluation problem so far; (0, 0) where there are none."""
    rows = context.warehouse.rows(COUNTS, _wanted(context, prompts, policy_id) | {"most": most_samples(context.config)})
    found = {row["problem_id"]: (int(row["n"]), int(row["k"])) for row in rows}
    return {problem_id: found.get(problem_id, (0, 0)) for problem_id in prompts.prompts}


def drawn(context: Context, prompts: PromptSet, policy_id: str) -> dict[str, int]:
    """Samples of every evaluation problem that were drawn so far: the number of the next one."""
    rows = context.warehouse.rows(DRAWN, _wanted(context, prompts, policy_id))
    found = {row["problem_id"]: int(row["n"]) for row in rows}
    return {problem_id: found.get(problem_id, 0) for problem_id in prompts.prompts}


def most_samples(config: RunConfig) -> int | None:
    """How many samples of a problem count: the first `evaluate.samples`, whoever drew more; of a file all (None)."""
    return None if config.subject is not None and config.subject.kind == "samples" else config.evaluate.samples


def _wanted(context: Context, prompts: PromptSet, policy_id: str) -> dict[str, object]:
    return {
        "policy": policy_id,
        "sampling": label_of(context),
        "suites": prompts.suites,
        "prompts": prompts.prompt_ids,
    }


def samples_text(scores: Scores) -> str:
    """How many samples stand behind the counts: `20 samples each`, or `10 to 20 samples each`."""
    numbers = {n for found in scores.values() for n, _ in found.values()}
    few, many = min(numbers), max(numbers)
    return f"{few} samples each" if few == many else f"{few} to {many} samples each"


def by_set(prompts: PromptSet, found: Mapping[str, Counts]) -> Scores:
    """The counts by problem set, sets and problems in alphabetical order."""
    sets: Scores = {}
    for problem_id in sorted(found, key=lambda p: (prompts.prompts[p].problem.problem_set, p)):
        sets.setdefault(prompts.prompts[problem_id].problem.problem_set, {})[problem_id] = found[problem_id]
    return sets


def policy_pass_at_k(scores: Scores, k: int) -> Estimate:
    """pass@k of a policy with its interval, averaged over the problem sets."""
    return average_pass_at_k({name: list(found.values()) for name, found in scores.items()}, k)


def require_enough(scores: Scores, prompts: Iterable[str], k: int) -> None:
    """Raises TooFewSamples where the sandbox failed on so many samples of a problem that pass@k cannot be told."""
    judged = {problem_id: n for own in scores.values() for problem_id, (n, _) in own.items()}
    few = {problem_id: n for problem_id in sorted(prompts) if (n := judged.get(problem_id, 0)) < k}
    if few:
        told = ", ".join(f"{problem_id!r} ({n})" for problem_id, n in list(few.items())[:5])
        raise TooFewSamples(
            f"pass@{k} needs {k} samples of each problem, and the sandbox could not judge all of {len(few)} problems: "
            f"{told}; the others are kept: look at `spo doctor`, then run the same again, or ask for a smaller k"
        )


def missing(context: Context, prompts: PromptSet, policy_id: str) -> dict[str, int]:
    """Samples that each problem still lacks."""
    wanted = context.config.evaluate.samples
    return {p: wanted - n for p, (n, _) in counts(context, prompts, policy_id).items() if n < wanted}


def sample_missing(
    context: Context,
    prompts: PromptSet,
    candidate: EvaluatedPolicy,
    sampler: Sampler,
    *,
    progress: Callable[[int], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Draw what `candidate` lacks, shard by shard, until done or told to stop; samples drawn that were judged.

    A shard is one batch. `progress` is told how many samples are done so far. Loads the candidate's weights when
    `sampler` has others. What the sandbox failed on is drawn once more, and may be missing still.
    """
    kept = 0
    for _ in range(ROUNDS):
        work = missing(context, prompts, candidate.policy_id)
        if work and sampler.engine.policy_id != candidate.policy_id:
            sampler.engine.refresh(candidate.folder)

        def told(n: int, start: int = kept) -> None:
            progress(start + n)

        new = sum(_drawn(context, prompts, candidate, sampler, work, told, stop))
        kept += new
        if new == sum(work.values()) or stop():
            break
    return kept


def _drawn(
    context: Context,
    prompts: PromptSet,
    candidate: EvaluatedPolicy,
    sampler: Sampler,
    work: Mapping[str, int],
    progress: Callable[[int], None],
    stop: Callable[[], bool],
) -> Iterator[int]:
    """Draw and store as many samples of each problem as `work` says; of each shard how many were judged."""
    label, first = label_of(context), drawn(context, prompts, candidate.policy_id)
    begun: deque[list[Assignment]] = deque()

    def shards() -> Iterator[list[Assignment]]:
        for shard in in_shards(sorted(work), PROBLEMS_PER_BATCH):
            if stop():
                return
            made = [prompts.assignment(p, work[p], "evaluate", candidate.policy_id, label, first[p]) for p in shard]
            asked = [replace(assignment, entropies=True) for assignment in made]
            begun.append(asked)
            yield asked

    for judged in sampler.roll(shards(), source="online", step=lambda: candidate.step, progress=progress):
        found = scored(judged)
        _append(context, prompts, candidate, begun.popleft(), first, found)
        yield sum(item.row["reward"] is not None for item in found)


def _append(
    context: Context,
    prompts: PromptSet,
    candidate: EvaluatedPolicy,
    asked: list[Assignment],
    first: Mapping[str, int],
    judged: list[Judged],
) -> None:
    """One batch, named by what was drawn; `first` is the number of each problem's first sample."""
    label = label_of(context)
    rows = [
        eval_sample_row(item, problem, label, first=first[problem.problem_id])
        for item in judged
        for problem in (asked[item.assignment].problem,)
    ]
    verdicts = [item.verdict_row for item in judged if item.verdict_row is not None]
    work = [(a.prompt_id, a.problem.suite_hash, first[a.problem.problem_id], a.n) for a in asked]
    unit = digest(prompts_suites_start_samples=work)
    batch = retry_batch_id(context, f"{batches_of(candidate.policy_id)}{label}/{unit}")
    counts = rows_of_counts(context, prompts, judged)
    context.warehouse.append(
        batch, {"eval_samples": rows, "verdicts": verdicts, "reference_counts": counts}, run_id=context.run_id
    )
