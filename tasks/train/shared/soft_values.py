"""The soft value of every prompt that may be trained on, from stored samples of the reference policy."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping

from tasks.estimators import soft_value, soft_value_of_rewards
from tasks.sampling.reference_counts import counted
from tasks.train.shared import atomic
from tasks.train.shared.errors import MissingReferenceValues
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query

FRACTIONAL = query(__name__, "fractional")


def prompt_values(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    """y_0 in nats per training problem. Problems without a success are dropped or smoothed, as `q0` says.

    Raises MissingReferenceValues when no problem has one.
    """
    values = _fractional(warehouse, job) if job.train.reward == "fractional" else _binary(warehouse, job)
    if not values:
        raise MissingReferenceValues(
            f"no training problem has a usable soft value under reference {job.counts.reference!r}, sampling "
            f"{job.counts.sampling!r}, template {job.counts.template_id!r}; run the stage q0, or set "
            f'q0.zero_successes = "keep" when no sample succeeded'
        )
    return values


def frozen_values(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    """The run's y_0 per training problem: as whoever of the run asked first found them, however often it is resumed.

    Other runs add samples of pi_0 meanwhile; taking them in would change the losses of a resumed run.
    """
    kept = job.run_dir / "soft-values.json"
    if not kept.is_file():
        atomic.write_once(kept, json.dumps(prompt_values(warehouse, job), sort_keys=True))
    return {str(problem): float(value) for problem, value in json.loads(kept.read_text(encoding="utf-8")).items()}


def mean_return(warehouse: Warehouse, job: TrainJob) -> float:
    """Mean return of pi_0 over the run's training problems, -1 to 0, however often the run is resumed."""
    return statistics.fmean(success_rates(frozen_values(warehouse, job), job.train.beta).values()) - 1


def success_rates(values: Mapping[str, float], beta: float) -> dict[str, float]:
    """The success rate S behind each soft value y_0 = ln(S + (1 - S) exp(-1/beta)), in [0, 1]."""
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


def _binary(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    counts, known = counted(warehouse, job.counts), job.known_shares
    values = {problem: smoothed_value(n, k, job, known.get(problem)) for problem, (n, k) in counts.items() if n > 0}
    return {problem: value for problem, value in values.items() if value is not None}


def _fractional(warehouse: Warehouse, job: TrainJob) -> dict[str, float]:
    wanted = {
        "reference": job.counts.reference,
        "left_out": job.counts.left_out,
        "until": job.counts.until,
        "max_response_tokens": job.config.engine.max_response_tokens,
        "prompts_batch": job.prompts_batch,
        "problems_batch": job.problems_batch,
    }
    rows = warehouse.rows(FRACTIONAL, wanted)
    return {str(row["problem_id"]): soft_value_of_rewards(row["rewards"], job.train.beta) for row in rows}
