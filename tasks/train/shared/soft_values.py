"""The soft value of every prompt that may be trained on, from stored samples of the reference policy."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

from tasks.estimators import soft_value, soft_value_of_rewards
from tasks.sampling.reference_counts import counted
from tasks.train.shared import atomic
from tasks.train.shared.errors import MissingReferenceValues
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query

FRACTIONAL = query(__name__, "fractional")


def prompt_values(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    """y_0 in nats per training problem. Problems without a success are dropped or smoothed, as `q0` says;
    fractional rewards give every problem with samples one.

    Raises MissingReferenceValues when no problem has one.
    """
    values = _fractional(warehouse, job) if job.train.reward == "fractional" else _binary(warehouse, job)
    if not values:
        kept = (
            "" if job.train.reward == "fractional" else ', or set q0.zero_successes = "keep" when no sample succeeded'
        )
        raise MissingReferenceValues(
            f"no training problem has a usable soft value under reference {job.counts.reference!r}, sampling "
            f"{job.counts.sampling!r}, template {job.counts.template_id!r}; run the stage q0{kept}"
        )
    return values


def frozen_values(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    """The run's y_0 per training problem: as whoever of the run asked first found them, however often it is resumed.

    Other runs add samples of pi_0 meanwhile; taking them in would change the losses of a resumed run.
    """
    return _frozen(job.run_dir / "soft-values.json", lambda: prompt_values(warehouse, job))


def verdicts_until(warehouse: Warehouse, job: TrainJob) -> int:
    """The snapshot up to which `spo rejudge` changes what the run trains on: the one that training began at.

    With other rewards beside the same y_0, a resumed run would learn from something else than the run that went on.
    """
    began = _frozen(job.run_dir / "verdicts-until.json", lambda: {"snapshot": warehouse.snapshot()})
    return int(began["snapshot"])


def mean_return(warehouse: Warehouse, job: TrainJob) -> float:
    """Mean return of pi_0 over the run's training problems, -1 to 0, however often the run is resumed.

    Raises MissingReferenceValues.
    """
    values = frozen_values(warehouse, job)
    if job.train.reward == "binary":
        return statistics.fmean(success_rates(values, job.train.beta).values()) - 1
    returns = _frozen(job.run_dir / "mean-rewards.json", lambda: _mean_rewards(warehouse, job))
    return statistics.fmean(returns[problem] for problem in values)


def success_rates(values: Mapping[str, float], beta: float) -> dict[str, float]:
    """The success rate S behind each soft value y_0 = ln(S + (1 - S) exp(-1/beta)) of binary rewards, in [0, 1]."""
    least = math.exp(-1 / beta)
    return {name: min(1.0, max(0.0, (math.exp(value) - least) / (1 - least))) for name, value in values.items()}


def smoothed_value(n: int, k: int, job: TrainJob, known: float | None = None) -> float | None:
    """y_0 of `k` successes in `n` samples; None when the prompt is to be dropped.

    `known`: the probability that pi_0 gives the correct programs that are known.
    """
    fate = job.config.q0.zero_successes
    if k == 0 and fate == "drop":
        return None
    return soft_value(n, k, job.train.beta, prior=job.config.q0.prior, known=known if fate == "corpus" else None)


def _frozen(kept: Path, found: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Numbers by problem that the file holds; those that are `found` are written there first, where it is missing."""
    if not kept.is_file():
        atomic.write_once(kept, json.dumps(found(), sort_keys=True))
    return {str(problem): float(value) for problem, value in json.loads(kept.read_text(encoding="utf-8")).items()}


def _binary(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    counts, known = counted(warehouse, job.counts), job.known_shares
    values = {problem: smoothed_value(n, k, job, known.get(problem)) for problem, (n, k) in counts.items() if n > 0}
    return {problem: value for problem, value in values.items() if value is not None}


def _fractional(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    rewards = _rewards(warehouse, job)
    return {problem: soft_value_of_rewards(found, job.train.beta) for problem, found in rewards.items()}


def _mean_rewards(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    return {problem: statistics.fmean(found) for problem, found in _rewards(warehouse, job).items()}


def _rewards(warehouse: Warehouse, job: TrainJob) -> dict[str, list[float]]:
    """The rewards of Q0's samples by training problem, shares of tests passed - 1."""
    wanted = {
        "reference": job.counts.reference,
        "left_out": job.counts.left_out,
        "until": job.counts.until,
        "max_response_tokens": job.config.engine.max_response_tokens,
        "prompts_batch": job.prompts_batch,
        "problems_batch": job.problems_batch,
    }
    return {str(row["problem_id"]): row["rewards"] for row in warehouse.rows(FRACTIONAL, wanted)}
