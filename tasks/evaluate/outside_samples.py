"""Evaluation samples that no engine of ours drew: programs in a file, answers of a server. Judged and kept alike.

They have no tokens; their problems are kept with the statement as the prompt. What is kept is not kept again, whichever
problems were asked for then: an evaluation that was stopped, or one of more problems, goes on where the last one was.
What the sandbox failed on is not kept, so that the next evaluation judges it, or asks for it, again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox import Judge, Judgement, Submission, Suite, Verdict
from tasks.config import OtherModelConfig
from tasks.corpus import other_models
from tasks.corpus.other_models import Answer, Question
from tasks.engines.randomness import derived_seed
from tasks.evaluate.eval_samples import COUNTS, Scores, batches_of, most_samples
from tasks.evaluate.sample_files import StoredSamples
from tasks.problems import problem as problems_module
from tasks.problems.problem import Problem
from tasks.programs.extraction import extract_program, normal_hash, program_hash
from tasks.run.identity import digest
from tasks.run.problem_lists import fingerprint, problems_batch
from tasks.run.prompt_set import PromptedProblem
from tasks.run.sampling import in_shards, retry_batch_id, scored
from tasks.run.stage import Context
from tasks.sampling.known_verdicts import KnownVerdicts
from tasks.sampling.sampler import Judged, Row, outcome, unjudged, verdict_row
from warehouse.queries import query

PROBLEMS_PER_BATCH = 8
TEMPLATE = "statement"

KEPT = query(__name__, "kept")

Prompted = Mapping[str, PromptedProblem]
_Key = tuple[str, str]
"""Program and suite."""


@dataclass(frozen=True, slots=True)
class StoredPrompts:
    """Problems with their prompts, and the batches that hold them."""

    prompts: Prompted
    problems_batch: str
    prompts_batch: str


@dataclass(frozen=True, slots=True)
class OutsideSample:
    """A program to be judged."""

    problem_id: str
    number: int
    text: str
    program: str
    finished: bool = True
    seed: int | None = None


def store_prompts(context: Context, problems: Sequence[Problem]) -> StoredPrompts:
    """The problems in the warehouse, with their statements as prompts."""
    batch = problems_batch(problems)
    context.warehouse.append(batch, problems_module.rows(problems), run_id=context.run_id)
    rows: list[Row] = [
        {
            "prompt_id": hashlib.sha256(problem.statement.encode("utf-8", "surrogatepass")).hexdigest()[:32],
            "problem_id": problem.problem_id,
            "template_id": TEMPLATE,
            "token_ids": [],
            "text": problem.statement,
        }
        for problem in problems
    ]
    prompts_batch = f"prompts/{fingerprint(problems)}/{TEMPLATE}"
    context.warehouse.append(prompts_batch, {"prompts": rows}, run_id=context.run_id)
    prompts = {
        problem.problem_id: PromptedProblem(problem, str(row["prompt_id"]), ())
        for problem, row in zip(problems, rows, strict=True)
    }
    return StoredPrompts(prompts, batch, prompts_batch)


def scores(context: Context, prompts: Prompted, policy_id: str, label: str) -> Scores:
    """Samples that count and successes by problem, per problem set; problems without a sample are left out."""
    wanted = _wanted(prompts, policy_id, label) | {"most": most_samples(context.config)}
    found = context.warehouse.rows(COUNTS, wanted)
    rows = {row["problem_id"]: (int(row["n"]), int(row["k"])) for row in found}
    sets: Scores = {}
    for name in sorted(rows.keys() & prompts.keys(), key=lambda p: (prompts[p].problem.problem_set, p)):
        if rows[name][0]:
            sets.setdefault(prompts[name].problem.problem_set, {})[name] = rows[name]
    return sets


def judge_stored(context: Context, prompts: Prompted, policy_id: str, label: str, stored: StoredSamples) -> int:
    """Judge and keep a file's samples; the number of those that were not kept before."""
    total = sum(map(len, stored.samples.values()))
    done = new = 0
    with Judge(**context.config.sandbox.judge_arguments()) as judge:
        keeper = _Keeper(context, prompts, policy_id, label, judge)
        for shard in in_shards(sorted(stored.samples), PROBLEMS_PER_BATCH):
            samples = [
                OutsideSample(name, number, one.program, one.program)
                for name in shard
                for number, one in enumerate(stored.samples[name])
            ]
            new += keeper.keep(samples)
            done += len(samples)
            context.progress(done, total, "samples", "judged")
    return new


def ask(context: Context, prompts: Prompted, policy_id: str, label: str, model: OtherModelConfig) -> int:
    """Ask the server for what is missing, judge and keep it, some problems at a time; the number of answers kept."""
    kept = {
        (row["problem_id"], row["sample"]) for row in context.warehouse.rows(KEPT, _wanted(prompts, policy_id, label))
    }
    lacking = {p: [n for n in range(model.samples) if (p, n) not in kept] for p in sorted(prompts)}
    missing = {problem_id: numbers for problem_id, numbers in lacking.items() if numbers}
    total, done, new = sum(map(len, missing.values())), 0, 0
    if not missing:
        return 0
    with (
        Judge(**context.config.sandbox.judge_arguments()) as judge,
        other_models.opened(model, context.config, context.home / "models") as answers,
    ):
        keeper = _Keeper(context, prompts, policy_id, label, judge)
        for shard in in_shards(list(missing), PROBLEMS_PER_BATCH):
            unit = [(name, number) for name in shard for number in missing[name]]
            questions = [Question(prompts[p].problem, derived_seed(policy_id, p, number)) for p, number in unit]
            found = zip(unit, questions, answers(questions), strict=True)
            new += keeper.keep([_answered(name, n, answer, question.seed) for (name, n), question, answer in found])
            done += len(unit)
            context.progress(done, total, "answers", "asked and judged")
    return new


def _answered(problem_id: str, number: int, answer: Answer, seed: int) -> OutsideSample:
    program, finished = extract_program(answer.text), answer.finish_reason == "stop"
    return OutsideSample(problem_id, number, answer.text, program, finished, seed)


def compared(
    context: Context, prompts: Prompted, policy_id: str, label: str, stored: StoredSamples | None
) -> tuple[int, int]:
    """Samples of a file that were judged otherwise than it says, and those that it says something of."""
    if stored is None:
        return 0, 0
    rows = context.warehouse.rows(KEPT, _wanted(prompts, policy_id, label))
    rewards = {(row["problem_id"], row["sample"]): row["reward"] for row in rows}
    claims = [
        (one.passed, rewards.get((name, number)))
        for name, found in stored.samples.items()
        for number, one in enumerate(found)
        if one.passed is not None
    ]
    known = [(passed, reward == 0) for passed, reward in claims if reward is not None]
    return sum(passed != own for passed, own in known), len(known)


class _Keeper:
    """Judges samples and appends them as batches."""

    def __init__(self, context: Context, prompts: Prompted, policy_id: str, label: str, judge: Judge) -> None:
        self._context, self._prompts, self._judge = context, prompts, judge
        self._policy_id, self._label = policy_id, label
        self._known = KnownVerdicts(context.warehouse, most_mb=context.config.sandbox.known_verdicts_mb)
        rows = context.warehouse.rows(KEPT, _wanted(prompts, policy_id, label))
        self._kept = {(row["problem_id"], row["sample"], row["seed"]) for row in rows}

    def keep(self, asked: Sequence[OutsideSample]) -> int:
        """Judge what is not kept and has no verdict, and append it as one batch; the number appended.

        Raises SandboxFailing where too many stay without a verdict; nothing of them is appended then.
        """
        samples = [one for one in asked if (one.problem_id, one.number, one.seed) not in self._kept]
        if not samples:
            return 0
        suites = {one.problem_id: self._prompts[one.problem_id].problem.suite() for one in samples}
        shown = {name: [self._prompts[name].prompt_id, suite.suite_id] for name, suite in suites.items()}
        content = [[one.problem_id, *shown[one.problem_id], one.number, one.text] for one in samples]
        unit = digest(scored=content)
        batch = retry_batch_id(self._context, f"{batches_of(self._policy_id)}{self._label}/{unit}")
        if self._context.warehouse.committed([batch]):  # another evaluation has kept it meanwhile
            return 0
        fresh = self._judged(samples, suites)
        judged = scored(self._item(one, suites[one.problem_id], fresh) for one in samples)
        rows = [item.row for item in judged if item.row["reward"] is not None]
        by_id = {suite.suite_id: suite for suite in suites.values()}
        verdicts = [
            verdict_row(program, by_id[suite_id], judgement)
            for (program, suite_id), judgement in fresh.items()
            if judgement.verdict != Verdict.infra
        ]
        self._context.warehouse.append(batch, {"eval_samples": rows, "verdicts": verdicts}, run_id=self._context.run_id)
        return len(rows)

    def _judged(self, samples: Sequence[OutsideSample], suites: Mapping[str, Suite]) -> dict[_Key, Judgement]:
        """Judgements made now."""
        self._known.read(suite.suite_id for suite in suites.values())
        missing: dict[_Key, Submission] = {}
        for one in samples:
            key = program_hash(one.program), suites[one.problem_id].suite_id
            if one.finished and self._known.get(key) is None:
                missing[key] = Submission(one.program, suites[one.problem_id])
        fresh = dict(zip(missing, self._judge.judge(list(missing.values())), strict=True))
        for key, judgement in fresh.items():
            self._known.put(key, judgement)
        return fresh

    def _item(self, one: OutsideSample, suite: Suite, fresh: Mapping[_Key, Judgement]) -> Judged:
        key = program_hash(one.program), suite.suite_id
        judgement = (fresh.get(key) or self._known.get(key)) if one.finished else None
        judged = outcome(judgement, tests_total=len(suite.tests))
        prompted = self._prompts[one.problem_id]
        row: Row = {
            "policy_id": self._policy_id,
            "step": 0,
            "problem_set": prompted.problem.problem_set,
            "problem_id": one.problem_id,
            "suite_hash": suite.suite_id,
            "prompt_id": prompted.prompt_id,
            "sampling": self._label,
            "sample": one.number,
            "seed": one.seed,
            "token_ids": [],
            "text": one.text,
            "program_hash": key[0],
            "normal_hash": normal_hash(one.program),
            "finish_reason": "stop" if one.finished else "length",
            "verdict": judged["verdict"],
            "reward": judged["reward"],
        }
        return Judged(0, one.number, row, None, unjudged(judgement))


def _wanted(prompts: Prompted, policy_id: str, label: str) -> dict[str, object]:
    """What COUNTS and KEPT are asked with."""
    return {
        "policy": policy_id,
        "sampling": label,
        "suites": sorted({one.problem.suite_hash for one in prompts.values()}),
        "prompts": sorted(one.prompt_id for one in prompts.values()),
    }
