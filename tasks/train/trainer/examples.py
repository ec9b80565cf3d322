"""Rows of the warehouse -> examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tasks.config import SourceName
from tasks.estimators import soft_value
from tasks.scoring.example import Example
from tasks.train.shared.errors import NothingToTrainOn
from tasks.train.shared.job import TrainJob
from warehouse import Warehouse
from warehouse.queries import query
from warehouse.rows import TrajectoryRow, trajectory_rows

BY_ID = query(__name__, "by_id")

PROMPT_TOKENS = query(__name__, "prompt_tokens")

VALUES = query(__name__, "values")


class Examples:
    """Builds examples; remembers prompts. `values` is y_0 (nats) per problem."""

    def __init__(self, warehouse: Warehouse, job: TrainJob, values: Mapping[str, float]) -> None:
        self.warehouse = warehouse
        self.job = job
        self.values = values
        self._prompts: dict[str, tuple[int, ...]] = {}

    def fetch(self, ids: Sequence[str], source: SourceName) -> dict[str, Example]:
        """The examples of these trajectories. Raises NothingToTrainOn for ids that do not exist."""
        found = self.present(ids, source)
        missing = sorted(set(ids) - set(found))
        if missing:
            raise NothingToTrainOn(
                f"{len(missing)} trajectories of source {source!r} are gone, first {missing[0]!r}; were they "
                f"quarantined while the run was using them? Resume it: what is gone is then left out"
            )
        return found

    def present(self, ids: Sequence[str], source: SourceName) -> dict[str, Example]:
        """The examples of those of these trajectories that are there and usable."""
        asked = {"ids": list(ids), "run": self.job.run_id, "problems_batch": self.job.problems_batch}
        rows = trajectory_rows(self.warehouse.rows(BY_ID, asked))
        return {example.trajectory_id: example for example in self.build(rows, source)}

    def build(self, rows: Sequence[TrajectoryRow], source: SourceName) -> list[Example]:
        """One example per row, in order; rows without a reward (infrastructure) or a value are left out."""
        usable = [row for row in rows if row["reward"] is not None and row["problem_id"] in self.values]
        self._load_prompts({str(row["prompt_id"]) for row in usable})
        values = self._token_values([str(row["trajectory_id"]) for row in usable]) if source == "pivotal" else {}
        return [self._example(row, source, values.get(str(row["trajectory_id"]), ())) for row in usable]

    def _example(self, row: TrajectoryRow, source: SourceName, values: tuple[tuple[int, float], ...]) -> Example:
        behaviour = _behaviour(row)
        own = row["source"] == "online" and row["run_id"] == self.job.run_id
        return Example(
            trajectory_id=str(row["trajectory_id"]),
            problem_id=str(row["problem_id"]),
            source=source,
            prompt_ids=self._prompts[str(row["prompt_id"])],
            response_ids=tuple(row["token_ids"]),
            terminal=reward_of(row, fractional=self.job.train.reward == "fractional") / self.job.train.beta,
            y0=self.values[str(row["problem_id"])],
            stopped=row["finish_reason"] == "stop",
            behaviour_logprobs=behaviour,
            sampled_logp=math.fsum(behaviour) if behaviour and row["logprob_kind"] == "raw" else None,
            sampled_step=row["step"] if own else None,
            token_values=values,
        )

    def _load_prompts(self, prompt_ids: set[str]) -> None:
        missing = sorted(prompt_ids - set(self._prompts))
        if not missing:
            return
        all_of_the_run = None if self._prompts else self.job.prompts_batch
        for row in self.warehouse.rows(PROMPT_TOKENS, (missing, all_of_the_run)):
            self._prompts[str(row["prompt_id"])] = tuple(row["token_ids"])
        lost = [prompt for prompt in missing if prompt not in self._prompts]
        if lost:
            raise NothingToTrainOn(f"{len(lost)} prompts of trajectories are not in `prompts`, first {lost[0]!r}")

    def _token_values(self, ids: list[str]) -> dict[str, tuple[tuple[int, float], ...]]:
        """Logarithms of the unbiased estimates S + (1 - S) exp(-1/beta) of E[exp(r/beta)], S = k/n. Paper: 3.1.3."""
        search = self.job.search_id
        found: dict[str, tuple[tuple[int, float], ...]] = {}
        for row in self.warehouse.rows(VALUES, (self.job.counts.reference, search, search, ids)):
            log_x = soft_value(int(row["n"]), int(row["k"]), self.job.train.beta)
            identity = str(row["trajectory_id"])
            found[identity] = (*found.get(identity, ()), (int(row["position"]), log_x))
        return found


def reward_of(row: TrajectoryRow, *, fractional: bool) -> float:
    """r of a scored trajectory, in [-1, 0]; `fractional` is the share of tests passed - 1, and -1 when cut off.

    Raises ValueError for one that was not scored.
    """
    passed, total, reward = row["tests_passed"], row["tests_total"], row["reward"]
    if reward is None:
        raise ValueError(f"trajectory {row['trajectory_id']!r} was not scored")
    if not fractional or row["verdict"] == "cut_off" or not total or passed is None:
        return reward
    return passed / total - 1


def _behaviour(row: TrajectoryRow) -> tuple[float, ...] | None:
    logprobs = row["sampled_logprobs"] or []
    known = tuple(value for value in logprobs if value is not None)
    return known if known and len(known) == len(logprobs) and row["logprob_kind"] != "none" else None
