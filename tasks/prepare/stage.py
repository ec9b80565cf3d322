"""Stage `prepare`: the problems are in the warehouse, the reference policy is on disk, and both are fingerprinted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from sandbox import VERSION
from tasks.checkpoints import checkpoint, inspection, model_sources, packaged_models
from tasks.config import BUILT_IN, RunConfig
from tasks.engines.positions import engine_positions, longest_prompt
from tasks.prepare import pretrain, reference_solutions, response_ends
from tasks.problems import problem as problems_module
from tasks.problems.decontamination import Overlap, decontaminate
from tasks.problems.problem import Problem
from tasks.problems.prompt import Template, template_for, version_of
from tasks.problems.sources import Objection, ReadReport, read
from tasks.problems.suite_versions import Added, added_tests, extended, version_row
from tasks.run.errors import OtherWeights, StageError
from tasks.run.manifests import PrepareManifest
from tasks.run.problem_lists import fingerprint, known_of, problems_batch
from tasks.run.provenance import training_began_with
from tasks.run.stage import Amount, Context, Outlook, Stage
from tasks.run.stored_suites import offered
from warehouse.queries import query


class NoUsableProblems(StageError):
    """Nothing is left to train or evaluate on."""


def inputs(context: Context) -> dict[str, Any]:
    """The problems' content and the name of the reference; a file is read here so that an edit is noticed."""
    config = context.config
    report = read(config.problems)
    extent = {"every_test": True} if _fractional(config) else {}
    miniature = config.problems.source == "miniature"
    shown = {} if miniature else {"solutions_judged_by": VERSION} | version_of(config.reference)
    packages = offered(config.sandbox)
    installed = {"packages": packages} if packages else {}
    added = _added(context)
    versions = [(problem, extended(problem, added)[-1]) for problem in (*report.problems, *report.spare)]
    grown = [new for old, new in versions if new is not old]
    accepted = {"accepted_tests": fingerprint(grown)} if grown else {}
    found = [*report.problems, *report.unjudgeable]
    spare = {"spare": [fingerprint(report.spare), known_of(report.spare)]} if report.spare else {}
    room = {"room": [engine_positions(config), config.engine.max_response_tokens]}
    own = extent | shown | installed | accepted | spare | room
    return {"problems": fingerprint(found), "known": known_of(found), **own}


def body(context: Context) -> PrepareManifest:
    """Ingest, resolve, encode every prompt once; once training has begun, what it began with."""
    return _begun_with(context) or _prepared(context)


def _begun_with(context: Context) -> PrepareManifest | None:
    """What the run's training began with, none where it has not begun. Raises OtherWeights."""
    if not training_began_with(context.warehouse, context.run_id):
        return None
    before = context.manifest(PrepareManifest)
    folder = before.reference if checkpoint.is_complete(before.reference) else reference_folder(context)
    if not checkpoint.is_policy(folder, before.policy_id):
        raise OtherWeights(
            f"{folder} holds policy {checkpoint.policy_id(folder)}, but the training of run {context.run_id!r} began "
            f"with policy {before.policy_id}: put that model back, or start a new run"
        )
    return before.model_copy(update={"reference": folder})


def _prepared(context: Context) -> PrepareManifest:
    """What the run's problems, prompts and reference policy are now."""
    config, added = context.config, _added(context)
    folder = reference_folder(context)
    tokenizer = checkpoint.load_tokenizer(folder)
    template = template_for(config.reference, tokenizer)
    response_ends.require_end_of_turn(folder, tokenizer, template)  # before the other, whose advice is only half of it
    response_ends.require_own_end(folder, tokenizer, template)
    report = read(config.problems, _too_long(template, tokenizer, config, folder))
    left_out = dict(report.left_out)
    kept, prompts = _encode(report, template, tokenizer, config)
    chains = {problem.problem_id: extended(problem, added) for problem in kept}
    kept = [chains[problem.problem_id][-1] for problem in kept]
    pairs: list[Overlap] = []
    if config.problems.source not in BUILT_IN or config.problems.evaluation_sets:  # theirs are disjoint by construction
        kept, prompts, pairs = _decontaminated(kept, prompts, report, left_out)
        kept, prompts, report = _with_good_tests(context, kept, prompts, report, left_out)
    _check(kept, report, left_out, config)
    store = context.warehouse
    written = [*kept, *report.unjudgeable]
    batch = problems_batch(written)
    store.append(batch, problems_module.rows(written), run_id=context.run_id)
    grown = {problem.problem_id: chains[problem.problem_id] for problem in kept if len(chains[problem.problem_id]) > 1}
    _append_versions(context, grown.values())
    policy = checkpoint.policy_id(folder)
    tokenizer_hash = checkpoint.tokenizer_hash(folder)
    prompt_batch = f"prompts/{fingerprint(kept)}/{template.template_id}/{tokenizer_hash}"
    store.append(prompt_batch, {"prompts": prompts}, run_id=context.run_id)
    parameters = inspection.parameter_count(folder)
    policy_row = {
        "policy_id": policy,
        "kind": "reference",
        "path": str(folder),
        "step": 0,
        "tokenizer_hash": tokenizer_hash,
        "parameters": parameters,
    }
    store.append(f"policy/{policy}", {"policies": [policy_row]}, run_id=context.run_id)
    train = sum(problem.split == "train" for problem in kept)
    gone = sum(left_out.values())
    return PrepareManifest(
        problems_batch=batch,
        prompts_batch=prompt_batch,
        policy_id=policy,
        reference=folder,
        template_id=template.template_id,
        made_of=checkpoint.made_of(config.reference, folder),
        left_out=left_out,
        overlaps=tuple(pairs),
        suite_versions={name: len(chain) for name, chain in grown.items()},
        rows=len(kept),
        summary=f"{train} training and {len(kept) - train} evaluation problems"
        + (f", {gone} left out" if gone else "")
        + (f", {len(grown)} with tests that audits added" if grown else "")
        + f"; reference policy {policy[:8]}, {parameters / 1e6:.2f} M parameters",
    )


def _added(context: Context) -> Added:
    """What audits added to problems' tests, as far as the run reads; nothing when the recipe does not want it."""
    if not context.config.problems.accepted_tests:
        return {}
    return added_tests(context.warehouse.rows(query(__name__, "suite_versions"), {"pin": context.pin}))


def _append_versions(context: Context, chains: Iterable[Sequence[Problem]]) -> None:
    """Say which suite each of these suites extends: with a recipe's limits they may be new ones."""
    for chain in chains:
        for number, (old, new) in enumerate(pairwise(chain), start=2):
            row = version_row(old, new, number, ())
            batch = f"suite/{new.problem_id}/{new.suite_hash}"
            context.warehouse.append(batch, {"suite_versions": [row]}, run_id=context.run_id)


def amount(outlook: Outlook) -> Amount:
    """The problems that the recipe asks for."""
    train, (evaluation, at_least) = outlook.config.problems.train, outlook.config.problems.evaluation_problems()
    least = "at least " if at_least else ""
    return Amount(train + evaluation, "problems", f"{train} to train on, {least}{evaluation} to evaluate")


def reference_folder(context: Context) -> Path:
    """Ordinary checkpoint folder of pi_0: made (miniature), converted (GGUF), or found."""
    models = context.home / "models"
    if context.config.reference.model == "miniature":
        return pretrain.miniature_policy(
            context.config.reference.pretrain,
            models,
            lambda step, steps, loss: context.progress(
                step, steps, "pretraining steps", f"making the reference policy, loss {loss:.2f}"
            ),
        )
    if context.config.reference.model in packaged_models.PACKAGED:
        title = packaged_models.PACKAGED[context.config.reference.model].title
        context.progress(0, 1, "checkpoints", f"{title}: from its package, converted on first use")
    return model_sources.resolve(context.config.reference, models)


def _too_long(template: Template, tokenizer: Any, config: RunConfig, reference: Path) -> Objection:
    most, why = longest_prompt(config, reference)

    def objection(problem: Problem) -> str | None:
        fits = len(template.encode(tokenizer, problem)) <= most
        return None if fits else f"prompt longer than {most} tokens{why}"

    return objection


def _encode(
    report: ReadReport, template: Template, tokenizer: Any, config: RunConfig
) -> tuple[list[Problem], list[dict[str, Any]]]:
    kept = [limited(problem, config) for problem in report.problems]
    prompts: list[dict[str, Any]] = []
    for problem in kept:
        ids = template.encode(tokenizer, problem)
        prompts.append(
            {
                "prompt_id": prompt_id(ids),
                "problem_id": problem.problem_id,
                "template_id": template.template_id,
                "token_ids": ids,
                "text": template.render(problem),
            }
        )
    return kept, prompts


def _decontaminated(
    kept: list[Problem], prompts: list[dict[str, Any]], report: ReadReport, left_out: dict[str, int]
) -> tuple[list[Problem], list[dict[str, Any]], list[Overlap]]:
    """Without the training problems that are evaluation problems in other words, and the pairs that were found.

    Evaluation problems count even if they cannot be judged: their statements are known to be tested elsewhere.
    """
    train = [problem for problem in kept if problem.split == "train"]
    evaluation = [problem for problem in kept if problem.split == "evaluation"]
    unjudged = [problem for problem in report.unjudgeable if problem.split == "evaluation"]
    clean, pairs = decontaminate(train, [*evaluation, *unjudged])
    names = {problem.problem_id for problem in [*clean, *evaluation]}
    if len(clean) < len(train):
        left_out["training problem that is an evaluation problem"] = len(train) - len(clean)
    return (
        [problem for problem in kept if problem.problem_id in names],
        [row for row in prompts if row["problem_id"] in names],
        pairs,
    )


def _with_good_tests(
    context: Context, kept: list[Problem], prompts: list[dict[str, Any]], report: ReadReport, left_out: dict[str, int]
) -> tuple[list[Problem], list[dict[str, Any]], ReadReport]:
    """Without the problems whose tests cannot be trusted, which the report then has as unjudgeable."""
    refused = reference_solutions.refused_of(context, kept)
    unfit = [replace(p, unjudgeable_reason=refused[p.problem_id]) for p in kept if p.problem_id in refused]
    for problem in unfit:
        reason = str(problem.unjudgeable_reason).partition(" (")[0]
        left_out[reason] = left_out.get(reason, 0) + 1
    return (
        [problem for problem in kept if problem.problem_id not in refused],
        [row for row in prompts if row["problem_id"] not in refused],
        replace(report, unjudgeable=(*report.unjudgeable, *unfit)),
    )


def limited(problem: Problem, config: RunConfig) -> Problem:
    """The problem judged as the recipe says: limits, packages, every test when rewards of training problems are shares.

    All are part of the suite's identity: verdicts and counts of another way of judging are not mixed in.
    """
    cpu_s = config.sandbox.cpu_limit_s or problem.limits.cpu_s
    memory = config.sandbox.memory_limit_mb
    memory_bytes = memory << 20 if memory else problem.limits.memory_bytes
    limits = replace(problem.limits, cpu_s=cpu_s, memory_bytes=memory_bytes)
    every_test = _fractional(config) and problem.split == "train"
    return replace(problem, limits=limits, every_test=every_test, packages=offered(config.sandbox))


def _fractional(config: RunConfig) -> bool:
    return config.train.reward == "fractional"


def prompt_id(token_ids: list[int]) -> str:
    """Identity of a prompt's token ids."""
    return hashlib.sha256(",".join(map(str, token_ids)).encode()).hexdigest()[:32]


def _check(kept: list[Problem], report: ReadReport, left_out: dict[str, int], config: RunConfig) -> None:
    for split in ("train", "evaluation") if config.problems.evaluation else ("train",):
        if not any(problem.split == split for problem in kept):
            reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items()) or "none left out"
            raise NoUsableProblems(
                f"no {split} problem is left of {len(report.problems)} read ({reasons}); "
                f"check problems.train, problems.evaluation and problems.max_prompt_tokens"
            )


def _usable(manifest: PrepareManifest) -> bool:
    """Whether pi_0 is there, of the same files as then. An adapter merged in its base's own type is merged anew."""
    folder = manifest.reference
    if not (folder / "config.json").is_file() or folder.name == f"merged-{manifest.policy_id}":
        return False
    return not manifest.made_of or checkpoint.unchanged(manifest.made_of)


STAGE = Stage(
    manifest=PrepareManifest,
    version=2,
    sections=("problems", "reference", "sandbox"),
    inputs=inputs,
    body=body,
    amount=amount,
    usable=_usable,
)
