"""Programs whose responses are in the warehouse, judged by stored suites; each verdict is a row of `verdicts`.

For what looks back at stored responses: judging again after a change of the sandbox, and judging by suites that an
audit has extended. Broken off at any moment, what was committed is known and is not judged again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sandbox
from sandbox import Judge, Submission, Verdict
from tasks.config import SandboxConfig
from tasks.problems.problem import Problem
from tasks.run.identity import digest
from tasks.run.stored_suites import Packages
from tasks.sampling.sampler import Row, verdict_row
from warehouse import Warehouse

AT_ONCE = 256
"""Programs judged between two commits."""

Told = Callable[[int, int, str, str], None]
"""Called as (done, total, unit, note)."""


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A program without a verdict by a suite."""

    program: str
    program_hash: str
    suite_hash: str


@dataclass(frozen=True, slots=True)
class StoredJudging:
    """Where verdicts go: batches named `name`/..., appended by `run_id`; `note` is what the progress says of them."""

    store: Warehouse
    name: str
    run_id: str
    note: str
    tell: Told

    def judge(
        self, todo: Sequence[Unjudged], problems: Mapping[str, Problem], settings: Mapping[Packages, SandboxConfig]
    ) -> tuple[int, int]:
        """Judge and store; (programs judged, those of them that failed).

        `problems` by suite. Programs whose packages have no `settings` are left out. What the sandbox itself failed on
        has no verdict. Raises SandboxError when the sandbox cannot be had.
        """
        done = failing = 0
        for packages, config in sorted(settings.items()):
            ours = [one for one in todo if problems[one.suite_hash].packages == packages]
            if not ours:
                continue
            with Judge(**config.judge_arguments()) as judge:
                for start in range(0, len(ours), AT_ONCE):
                    some = ours[start : start + AT_ONCE]
                    failing += sum(
                        row["verdict"] != Verdict.accepted for row in self._judge_some(some, problems, judge)
                    )
                    done += len(some)
                    self.tell(done, len(todo), "programs", self.note)
        return done, failing

    def _judge_some(self, some: Sequence[Unjudged], problems: Mapping[str, Problem], judge: Judge) -> list[Row]:
        suites = [problems[one.suite_hash].suite() for one in some]
        asked = [Submission(one.program, suite) for one, suite in zip(some, suites, strict=True)]
        rows = [
            verdict_row(one.program_hash, suite, judgement)
            for one, suite, judgement in zip(some, suites, judge.judge(asked), strict=True)
            if judgement.verdict != Verdict.infra
        ]
        if rows:
            programs = [[row["program_hash"], row["suite_hash"]] for row in rows]
            unit = digest(version=sandbox.VERSION, programs=programs)
            self.store.append(f"{self.name}/{unit}", {"verdicts": rows}, run_id=self.run_id)
        return rows
