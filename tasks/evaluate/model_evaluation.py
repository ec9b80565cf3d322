"""Any model on any problems (`spo eval`): a checkpoint, a model behind a server, or programs that somebody sampled.

A run `eval-N` of its own, with one stage: its samples and verdicts are kept as those of every evaluation, so that they
are neither drawn nor judged twice, and it can be compared with any run that was evaluated on the same problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandbox import VERSION
from tasks.checkpoints import checkpoint, inspection, model_sources
from tasks.config import OtherModelConfig, SubjectConfig
from tasks.engines.positions import longest_prompt
from tasks.evaluate import eval_samples, outside_samples, sample_files, transfer
from tasks.evaluate.eval_samples import EvaluatedPolicy, Scores, TooFewSamples
from tasks.evaluate.sample_files import StoredSamples
from tasks.evaluate.stage import curve_points
from tasks.prepare.response_ends import require_end_of_turn
from tasks.problems.decontamination import Overlap, overlaps
from tasks.problems.problem import Problem, problems_from_rows
from tasks.problems.prompt import template_for
from tasks.problems.records import InvalidProblem
from tasks.run.identity import digest
from tasks.run.judged_again import judged_again_by
from tasks.run.manifests import CurvePoint, ModelEvaluation, PrepareManifest
from tasks.run.problem_lists import fingerprint, known_of
from tasks.run.prompt_set import read_prompts
from tasks.run.put_aside import put_aside
from tasks.run.sampling import open_sampler
from tasks.run.stage import Amount, Context, Outlook, Stage
from warehouse.queries import query


@dataclass(frozen=True, slots=True)
class Subject:
    """What is evaluated, found and identified."""

    policy_id: str
    title: str
    label: str
    """How its samples are drawn."""
    folder: Path | None = None
    stored: StoredSamples | None = None


def subject_of(context: Context, problems: Sequence[Problem]) -> Subject:
    """What the run's section `subject` names. Raises MissingModel and InvalidProblem."""
    asked = context.config.subject
    assert asked is not None
    if asked.kind == "samples":
        return _file(context, asked, problems)
    if asked.endpoint is not None:
        model = _asked(asked.endpoint, context)
        identity = digest(endpoint=model.endpoint, model=model.model, prompt=model.prompt)
        label = f"T={model.temperature:g} top_p={model.top_p:g} max={model.max_tokens}"
        return Subject(f"endpoint-{identity}", f"{model.model} at {model.endpoint}", label)
    folder = model_sources.resolve(context.config.reference, context.home / "models")
    label = eval_samples.label_of(context)
    return Subject(checkpoint.policy_id(folder), context.config.reference.model, label, folder)


def _file(context: Context, asked: SubjectConfig, problems: Sequence[Problem]) -> Subject:
    from tasks.corpus.files import content_hash

    path = Path(str(asked.path))
    stored = sample_files.read(path, {problem.problem_id: problem for problem in problems})
    few = {name: len(found) for name, found in stored.samples.items() if len(found) < max(context.config.evaluate.ks)}
    if few:
        name, number = min(few.items())
        strange = f" (it has some of {stored.unknown!r}, which is no problem of the set)" if stored.unknown else ""
        k = max(context.config.evaluate.ks)
        raise TooFewSamples(
            f"{path.name} has {number} samples of {name!r}{strange}, too few for pass@{k}; "
            f"{len(few)} of {len(problems)} problems lack some: lower --k, or take a set of those that have them"
        )
    label = f"as stored {stored.drawn}".strip()
    return Subject(f"samples-{content_hash(path)[:16]}", path.name, label, stored=stored)


def _asked(model: OtherModelConfig, context: Context) -> OtherModelConfig:
    return model.model_copy(update={"samples": context.config.evaluate.samples})


def inputs(context: Context) -> dict[str, Any]:
    """The model, the problems, the training problems they are compared with, what was judged again or put aside."""
    problems = transfer.problems(context.config)
    subject = subject_of(context, problems)
    return {
        "policy_id": subject.policy_id,
        "label": subject.label,
        "problems": fingerprint(problems),
        "known": known_of(problems),
        "max_prompt_tokens": context.config.problems.max_prompt_tokens,
        "training_problems": fingerprint(training_problems(context)),
        "solutions_judged_by": VERSION,
        **(_prompting(context, subject.folder) if subject.folder is not None else {}),
        **judged_again_by(context, (problem.suite_hash for problem in problems)),
        **put_aside(context, eval_samples.batches_of(subject.policy_id)),
    }


def _prompting(context: Context, folder: Path) -> dict[str, Any]:
    """What makes prompts of the problems: the template, a chat template with its text, the tokenizer, the room."""
    template = template_for(context.config.reference, checkpoint.load_tokenizer(folder))
    made = {"template": template.template_id, "tokenizer": checkpoint.tokenizer_hash(folder)}
    return made | {"room": longest_prompt(context.config, folder)[0]}


def body(context: Context) -> ModelEvaluation:
    """Draw and judge what is missing; pass@k, by set, and without what was trained on here."""
    problems, unfit = transfer.fit(context, transfer.problems(context.config))
    if not problems:
        of_own = (
            f": of {len(unfit)} have tests that cannot be trusted, first {min(unfit)!r}: {unfit[min(unfit)]}"
            if unfit
            else ""
        )
        raise InvalidProblem(f"no problem of the set can be judged{of_own}, so there is nothing to evaluate on")
    subject = subject_of(context, problems)
    prompts, new = _sampled(context, subject, problems)
    scores = outside_samples.scores(context, prompts.prompts, subject.policy_id, subject.label)
    eval_samples.require_enough(scores, prompts.prompts, max(context.config.evaluate.ks))
    found = overlaps(training_problems(context), problems)
    left_out = {"transfer_unfit": unfit, "transfer_too_long": transfer.too_long(problems, prompts.prompts)}
    return _manifest(context, subject, prompts, new, scores, found).model_copy(update=left_out)


def _sampled(context: Context, subject: Subject, problems: Sequence[Problem]) -> tuple[_Prompts, int]:
    asked = context.config.subject
    if subject.folder is not None:
        return _drawn(context, subject, subject.folder, problems)
    stored = outside_samples.store_prompts(context, problems)
    if subject.stored is not None:
        new = outside_samples.judge_stored(context, stored.prompts, subject.policy_id, subject.label, subject.stored)
    else:
        assert asked is not None
        assert asked.endpoint is not None
        model = _asked(asked.endpoint, context)
        new = outside_samples.ask(context, stored.prompts, subject.policy_id, subject.label, model)
    return stored, new


_Prompts = outside_samples.StoredPrompts


def _drawn(context: Context, subject: Subject, folder: Path, problems: Sequence[Problem]) -> tuple[_Prompts, int]:
    """Samples of a checkpoint, drawn as every evaluation draws them."""
    tokenizer = checkpoint.load_tokenizer(folder)
    template = template_for(context.config.reference, tokenizer)
    require_end_of_turn(folder, tokenizer, template)
    _store_policy(context, subject.policy_id, folder)
    prepared = PrepareManifest(
        problems_batch="",
        prompts_batch="",
        policy_id=subject.policy_id,
        reference=folder,
        template_id=template.template_id,
    )
    context = replace(context, manifests={"prepare": prepared})
    prompts = transfer.load(context, problems)
    if prompts is None or not prompts.prompts:
        most, why = longest_prompt(context.config, folder)
        advice = why or f": set e.g. `-s problems.max_prompt_tokens={2 * most}`"
        raise InvalidProblem(f"every prompt is longer than {most} tokens{advice}")
    total = sum(eval_samples.missing(context, prompts, subject.policy_id).values())
    trained = context.warehouse.value(query(__name__, "trained_steps"), [subject.policy_id])
    policy = EvaluatedPolicy(subject.policy_id, folder, trained or 0)
    if total:
        with open_sampler(context, folder, context.config.evaluate.behaviour) as sampler:
            eval_samples.sample_missing(
                context, prompts, policy, sampler, progress=lambda n: context.progress(n, total, "samples", "")
            )
    kept = prompts.problems
    batch = transfer.prompts_batch(kept, template.template_id, folder)
    return _Prompts(prompts.prompts, prompts.problems_batch, batch), total


def _store_policy(context: Context, policy_id: str, folder: Path) -> None:
    """Tell where the weights are, unless a run or an evaluation has told what they are.

    The batch is not the one in which `prepare` says that they are a run's reference, which may come to be.
    """
    if context.warehouse.value("SELECT count(*) FROM policies WHERE policy_id = ?", [policy_id]):
        return
    row = {
        "policy_id": policy_id,
        "kind": "evaluated",
        "path": str(folder),
        "step": 0,
        "tokenizer_hash": checkpoint.tokenizer_hash(folder),
        "parameters": inspection.parameter_count(folder),
    }
    context.warehouse.append(f"policy/{policy_id}/evaluated", {"policies": [row]}, run_id=context.run_id)


def training_problems(context: Context) -> list[Problem]:
    """Every problem in the warehouse that runs train on, in each of its versions."""
    rows = context.warehouse.rows(query(__name__, "training_problems"))
    wanted = [[row["problem_id"], row["suite_hash"]] for row in rows]
    tests = context.warehouse.rows(query(__name__, "tests"), [[suite for _, suite in wanted]])
    return problems_from_rows(rows, tests)


def _manifest(
    context: Context, subject: Subject, prompts: _Prompts, new: int, scores: Scores, found: Sequence[Overlap]
) -> ModelEvaluation:
    ks = context.config.evaluate.ks
    trained = {pair.evaluation_id for pair in found}
    rest = {s: {p: c for p, c in own.items() if p not in trained} for s, own in scores.items()}
    rest = {name: own for name, own in rest.items() if own} if trained else {}
    samples = sum(n for own in scores.values() for n, _ in own.values())
    number = sum(map(len, scores.values()))
    curve = _curve(subject, scores, ks)
    told = ", ".join(
        f"pass@{one.k} {100 * one.value:.1f}% [{100 * one.low:.1f}, {100 * one.high:.1f}]" for one in curve
    )
    compared = outside_samples.compared(context, prompts.prompts, subject.policy_id, subject.label, subject.stored)
    return ModelEvaluation(
        rows=new,
        sampling=subject.label,
        curve=curve,
        sets={name: curve_points({name: own}, ks) for name, own in scores.items()},
        comparison={},
        described=f"{number} problems, {samples} samples, {subject.label}",
        reused=f"{samples - new} samples of earlier evaluations" if samples > new else "",
        summary=told,
        policy_id=subject.policy_id,
        title=subject.title,
        problems_batch=prompts.problems_batch,
        prompts_batch=prompts.prompts_batch,
        overlaps=tuple(found),
        clean=_curve(subject, rest, ks) if rest else (),
        left_out=dict(subject.stored.left_out) if subject.stored else {},
        disagreeing=compared[0],
        claimed=compared[1],
    )


def _curve(subject: Subject, scores: Scores, ks: Sequence[int]) -> tuple[CurvePoint, ...]:
    points = curve_points(scores, ks)
    return tuple(CurvePoint(step=0, policy_id=subject.policy_id, **point.model_dump()) for point in points)


def amount(outlook: Outlook) -> Amount:
    """Samples that are wanted at most."""
    return Amount(len(transfer.problems(outlook.config)) * outlook.config.evaluate.samples, "samples")


def evaluated_scores(context: Context, manifest: ModelEvaluation) -> Scores:
    """What is known of the evaluated model on its problems now."""
    prompts: Mapping[str, Any] = read_prompts(
        context.warehouse, manifest.problems_batch, manifest.prompts_batch, "evaluation"
    )
    return outside_samples.scores(context, prompts, manifest.policy_id, manifest.sampling)


STAGE = Stage(
    manifest=ModelEvaluation,
    version=1,
    sections=("evaluate", "sandbox", "reference.dtype", "subject"),
    inputs=inputs,
    body=body,
    amount=amount,
)
