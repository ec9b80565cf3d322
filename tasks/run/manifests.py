"""What each stage leaves for the stages after it: small facts and names, never rows. Stored as JSON in table `stages`.

A field that a later version adds needs a default, so that what earlier runs stored can still be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from tasks.problems.decontamination import Overlap
from tasks.run.stage_names import StageName


class Manifest(BaseModel):
    """What every stage leaves."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_attribute_docstrings=True)

    stage: ClassVar[StageName]

    rows: int = 0
    """Rows of work that were added to the warehouse: samples, rollouts, trajectories."""
    summary: str = ""
    """The result in one line, for people."""
    reused: str = ""
    """What of earlier runs was used again, for people: `6400 samples of earlier runs`."""


class PrepareManifest(Manifest):
    """Where problems, prompts and the reference policy are."""

    stage = "prepare"

    problems_batch: str
    """Warehouse batch of problems, tests and solutions: `problems/4f1c...`."""
    prompts_batch: str
    """Warehouse batch of the encoded prompts."""
    policy_id: str
    """Identity of the reference policy's weights."""
    reference: Path
    """Checkpoint folder of the reference policy pi_0."""
    template_id: str
    """Prompt template."""
    made_of: dict[str, tuple[int, int]] = {}
    """Size (bytes) and time of the last change (ns) of the files that pi_0 is made of, by path; empty in what earlier
    versions left."""
    left_out: dict[str, int] = {}
    """Reason -> problems that cannot be used for it: `{"prompt longer than 512 tokens": 3}`."""
    overlaps: tuple[Overlap, ...] = ()
    """Training problems that are evaluation problems in other words."""
    suite_versions: dict[str, int] = {}
    """Problem -> version of its suite, of those to which tests were added that audits found: `{"miniature/a.b": 2}`."""


class Q0Manifest(Manifest):
    """How often the reference policy solves the prompts."""

    stage = "q0"

    sampling: str
    """Label of the way of sampling."""
    snapshot: int = 0
    """Snapshot that shows the last of the samples: counts are read until then, or until a later pin."""
    without_success: tuple[str, ...] = ()
    """Problems that it never solved."""
    mean_share: float = 0.0
    """Mean over the prompts of the share of correct samples."""
    median_width_nats: float = 0.0
    """Median width of the soft values' 95% intervals."""


class CorpusManifest(Manifest):
    """Which offline trajectories there are, and what became of every response."""

    stage = "corpus"

    corpus_id: str
    """Identity of the selection, a hash of its trajectories: rows of table `corpus`."""
    snapshot: int = 0
    """Snapshot that shows the last response that was taken in."""
    added: dict[str, int] = {}
    """Kind of source -> responses that were added."""
    per_source: dict[str, int] = {}
    """Source -> members of the corpus."""
    flow: dict[str, dict[str, int]] = {}
    """Source -> fate -> responses: `{"human": {"came in": 9, "kept": 7, "not correct": 2}}`."""
    left_out: dict[str, int] = {}
    """Reason -> responses that could not be taken in."""
    scored: int = 0
    """Responses whose reference log-probabilities were computed."""
    known_shares: dict[str, float] = {}
    """Problem that pi_0 never solved -> the probability that it gives the corpus's correct programs, all together;
    empty unless `q0.zero_successes` is 'corpus'."""


class PivotalManifest(Manifest):
    """Which search for pivotal tokens this run uses."""

    stage = "pivotal"

    search_id: str | None
    """Rows of table `token_values`; None when no trajectory was searched."""
    pivots: int = 0
    """Pivotal tokens that were found."""
    snapshot: int | None = None
    """Snapshot that shows the last of the search's rollouts; None in what version 0.1 left."""


class KeptPolicy(BaseModel):
    """Weights that outlast the training run."""

    model_config = ConfigDict(frozen=True)

    policy_id: str
    path: Path
    """Checkpoint folder."""
    step: int


class TrainManifest(Manifest):
    """The policies kept along training, the last one being the result."""

    stage = "train"

    policies: tuple[KeptPolicy, ...]


class PassAtK(BaseModel):
    """An estimate of pass@k with its 95% interval."""

    model_config = ConfigDict(frozen=True)

    k: int
    value: float
    low: float
    high: float


class CurvePoint(PassAtK):
    """pass@k of one policy along training."""

    step: int
    policy_id: str


class Change(BaseModel):
    """pass@k before and after training, compared problem by problem."""

    model_config = ConfigDict(frozen=True)

    before: float
    after: float
    difference: float
    interval: tuple[float, float]
    """95% interval of the difference."""
    p_value: float | None
    better: int
    """Problems that the trained policy solves more often."""
    worse: int
    equal: int


class EvaluateManifest(Manifest):
    """pass@k of the reference policy, of the kept policies, and of the last one."""

    stage = "evaluate"

    sampling: str
    """Label of the way of sampling."""
    curve: tuple[CurvePoint, ...]
    sets: dict[str, tuple[PassAtK, ...]]
    """Problem set -> pass@k of the last policy."""
    comparison: dict[str, Change]
    """`pass@10` -> reference policy against last policy."""
    transfer: dict[str, dict[str, Change]] = {}
    """Set of `evaluate.transfer` -> the same comparison on its problems."""
    transfer_unseen: dict[str, dict[str, Change]] = {}
    """The same without the problems that one of the run's training problems resembles; sets that have such ones."""
    transfer_alike: dict[str, int] = {}
    """Set of `evaluate.transfer` -> how many of its problems a training problem of the run resembles, if any."""
    transfer_unfit: dict[str, str] = {}
    """Problem of `evaluate.transfer` -> why its tests cannot be trusted. It was left out."""
    transfer_too_long: tuple[str, ...] = ()
    """Problems of `evaluate.transfer` left out since their prompts are too long (`positions.longest_prompt`)."""
    described: str
    """How many problems and samples stand behind the figures, for people."""

    @property
    def unfit(self) -> str:
        """One line on the problems of sets that were left out, for people; empty where there are none."""
        told: list[str] = []
        if names := sorted(self.transfer_unfit):
            why = f"{names[0]}: {self.transfer_unfit[names[0]]}"
            told.append(f"{len(names)} problems left out, whose tests cannot be trusted: {_first(names)} ({why})")
        if names := sorted(self.transfer_too_long):
            told.append(f"{len(names)} problems left out, whose prompts are too long: {_first(names)}")
        return "; ".join(told)


def _first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class ModelEvaluation(EvaluateManifest):
    """What one model achieved."""

    policy_id: str
    """Identity of the model: of its weights, of the file of samples, or of address and name on a server."""
    title: str
    """What was evaluated, for people."""
    problems_batch: str
    prompts_batch: str
    overlaps: tuple[Overlap, ...] = ()
    """Training problems in the warehouse that are problems of the sets in other words."""
    clean: tuple[CurvePoint, ...] = ()
    """pass@k without the problems that are training problems here; empty when there are none, or no others."""
    left_out: dict[str, int] = {}
    """Samples of a file that were not judged, by reason."""
    disagreeing: int = 0
    """Samples of a file whose verdict here is not the file's."""
    claimed: int = 0
    """Samples of a file that it gives a verdict for."""


class ReportManifest(Manifest):
    """Where the report is."""

    stage = "report"

    page: Path
    pictures: Mapping[str, Path] = {}
    """Name -> PNG file: `{"learning_curve": ".../report/learning_curve.png"}`."""
