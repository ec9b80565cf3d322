"""The section `problems`: where problems are read from, and how they are split."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from tasks.config.base import Count, Depth, PositiveInt, Section, Seed

Day: TypeAlias = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}$")]
BUILT_IN = ("miniature", "basics")
"""Sources that need no file."""


class ProblemFiles(Section):
    """Location and layout of a problem set."""

    source: Literal[
        "miniature",
        "basics",
        "jsonl",
        "codecontests",
        "taco",
        "apps",
        "livecodebench",
        "humaneval",
        "mbpp",
        "humanevalplus",
        "mbppplus",
        "kattis",
    ] = "miniature"
    """Layout of the set (docs/guides/problems.md). `miniature`, `basics`: built in. `jsonl`: the project's own.
    `kattis`: problem packages. The others are published sets (paper: `codecontests`)."""
    path: str | None = None
    """A `.jsonl`, `.jsonl.gz` or `.parquet` file, a folder of them, or a pattern such as `data/train-*.parquet`;
    `kattis`: a folder of packages. Relative paths start at the folder of `spo run`."""
    hub: str | None = None
    """Data set of the Hugging Face hub, instead of `path`, e.g. `deepmind/code_contests`."""
    hub_split: str = "train"
    """Split of the data set on the hub, e.g. `train` or `test`."""
    hub_config: str | None = None
    """Configuration of the data set on the hub. None: its only one."""
    hub_revision: str | None = None
    """Commit or branch on the hub. None: the newest, which may change."""

    only: str | None = None
    """Use only records whose field `split` has this value, e.g. `test`. None: all."""

    @property
    def place(self) -> str:
        """Where the problems come from: the path, the name on the hub, or the built-in set."""
        return self.path or self.hub or self.source

    @model_validator(mode="after")
    def _place_fits_source(self) -> Self:
        hub_settings = ("hub_split", "hub_config", "hub_revision")
        if self.source in BUILT_IN:
            reason = (
                f"source {self.source!r} is part of the project and read from nowhere; set `source`, e.g. to 'jsonl'"
            )
            self.refuse_ignored("path", "hub", "only", *hub_settings, reason=reason)
            return self
        if bool(self.path) == bool(self.hub):
            raise ValueError(f"source {self.source!r} needs `path`, or `hub` with the name of a data set")
        if self.hub and self.source in {"jsonl", "kattis"}:
            raise ValueError(f"source {self.source!r} is read from `path`, not from the hub")
        if self.source == "kattis":
            self.refuse_ignored("only", reason="problem packages are in no split")
        if self.path:
            self.refuse_ignored(*hub_settings, reason="the problems are read from `path`, not from the hub")
        return self


class EvaluationSet(ProblemFiles):
    """A problem set for evaluation."""

    most: PositiveInt | None = None
    """Most problems to use. None: all that can be judged."""
    since: Day | None = None
    """First release day, e.g. 2024-08-01 (`livecodebench`). None: no limit."""
    until: Day | None = None
    """Day after the last release day (`livecodebench`). None: no limit."""

    @model_validator(mode="after")
    def _days_are_known(self) -> Self:
        if self.source != "livecodebench":
            self.refuse_ignored("since", "until", reason="only livecodebench says when a problem was released")
        if self.since and self.until and self.since >= self.until:
            raise ValueError(f"since {self.since} is not before until {self.until}: no problem would be left")
        return self


class ProblemsConfig(ProblemFiles):
    """Problem files and their split."""

    evaluation_sets: tuple[EvaluationSet, ...] = ()
    """Sets for evaluation (paper: CodeContests test and TACO test). With them, every problem of `path` or `hub` is for
    training."""
    train: PositiveInt = 48
    """Training problems to generate, or the most to use from the file (paper: all 13,328 of CodeContests)."""
    evaluation: Count = 32
    """Evaluation problems, disjoint from training; 0: none. `evaluation_sets` replace it."""
    depth: Depth = None
    """Filters and maps per problem of the wide miniature vocabulary (docs/guides/problems.md). None: the small
    vocabulary."""
    seed: Seed = 0
    """Seed of the generator and of the split."""
    max_prompt_tokens: PositiveInt = 512
    """Longest prompt, in tokens; problems with longer ones are left out and reported."""
    accepted_tests: bool = True
    """Use the tests that `spo audit --accept` added."""

    def evaluation_problems(self) -> tuple[int, bool]:
        """How many are asked for, and whether there may be more: sets without `most` have as many as they have."""
        if not self.evaluation_sets:
            return self.evaluation, False
        return sum(one.most or 0 for one in self.evaluation_sets), any(one.most is None for one in self.evaluation_sets)

    @model_validator(mode="after")
    def _miniature_stays_alone(self) -> Self:
        if self.source == "miniature" and self.evaluation_sets:
            raise ValueError("source 'miniature' makes its own evaluation problems; leave evaluation_sets out")
        if self.source != "miniature":
            self.refuse_ignored("depth", reason=f"source {self.source!r} is not generated")
        if any(one.source == "miniature" for one in self.evaluation_sets):
            raise ValueError("an evaluation set is read from files or the hub, not 'miniature'")
        if self.evaluation_sets:
            reason = "the problems of `evaluation_sets` are evaluated on; `most` bounds each set"
            self.refuse_ignored("evaluation", reason=reason)
        return self
