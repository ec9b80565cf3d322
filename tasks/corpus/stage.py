"""Stage `corpus`: the offline trajectories a run may learn from (section 5).

Samples of the reference policy, online trajectories of earlier runs, answers of other models, known human programs and
files that a user brings; judged, one per distinct program, correct ones only (switchable), capped per problem. The
selection is stored row by row, and the manifest says what became of every response.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import Judge
from tasks.checkpoints import checkpoint as checkpoints
from tasks.config import OtherModelConfig
from tasks.corpus import files, known_programs, other_models, reference_logprobs, work_ahead
from tasks.corpus.ingestion import TOO_LONG, ExternalResponse, Ingested, Ingestion
from tasks.corpus.other_models import Answer, Question
from tasks.corpus.selection import CorpusCandidate, choose
from tasks.programs import fences
from tasks.programs.extraction import extract_program
from tasks.run import prompt_set, runs
from tasks.run.identity import digest
from tasks.run.judged_again import judged_again
from tasks.run.manifests import CorpusManifest, PrepareManifest
from tasks.run.problem_lists import known_of
from tasks.run.prompt_set import PromptSet
from tasks.run.put_aside import drawn_and_put_aside, end_put_aside, put_aside
from tasks.run.sampling import counts_filter, in_shards, open_sampler, retry_batch_id, rows_of_counts, scored
from tasks.run.stage import Amount, Context, Outlook, Stage
from tasks.sampling.assignment import Assignment
from tasks.sampling.reference_counts import drawn_first
from tasks.sampling.sampler import sampling_label, tables
from warehouse.queries import query

SELECTION = query(__name__, "selection")
OTHER_PROMPTS = query(__name__, "retokenized")
CORPUS = "corpus/"
"""Prefix of the stage's batches."""
PROBLEMS_PER_BATCH = 16
SAMPLES_PER_BATCH = 256
"""Of pi_0, at least that many are drawn in one go where problems get few each: an engine's batch wants to be full."""
PROBLEMS_PER_SELECTION = 256
FROM_OTHERS = {"prior_spo", "prior_ppo", "other_model", "pivotal_rollout"}
"""Sources of what other runs, or people, bring."""

EARLIER = query(__name__, "earlier")
REFERENCE = query(__name__, "reference")
DRAWN = query(__name__, "drawn")
KNOWN = query(__name__, "known")


def inputs(context: Context) -> dict[str, Any]:
    """Prompts and reference; Q0's samples; what earlier runs brought; the files' content; who computes log pi_0."""
    manifest = context.manifest(PrepareManifest)
    prompts = prompt_set.load(context, "train")
    (earlier,) = context.warehouse.rows(EARLIER, _earlier(context, prompts))
    (reference,) = context.warehouse.rows(REFERENCE, _reference(context, prompts))
    return {
        "prompts_batch": manifest.prompts_batch,
        "policy_id": manifest.policy_id,
        "max_response_tokens": context.config.engine.max_response_tokens,
        "earlier": [earlier["n"], earlier["content"]],
        "reference": [reference["n"], reference["content"]] if "reference" in context.config.corpus.sources else None,
        **_known(context, prompts),
        "files": [files.content_hash(Path(path)) for path in context.config.corpus.files],
        "scored": reference_logprobs.identity(context, prompts),
        **judged_again(context, "train"),
        **put_aside(context, _prefix(context, prompts)),
        **end_put_aside(context, "corpus", CORPUS, "corpus_id"),
        **({} if context.config.corpus.correct_only else {"cut_off": "at this limit"}),  # at any, in earlier versions
    }


def body(context: Context) -> CorpusManifest:
    """Collect what is missing, select, and compute log pi_0 of what training will draw."""
    prompts = prompt_set.load(context, "train")
    collected = collect(context, prompts)
    added, left_out = collected.added, collected.left_out
    members, flow = select(context, prompts, collected)
    corpus_id = hashlib.sha256("\n".join(row["trajectory_id"] for row in members).encode()).hexdigest()[:24]
    rows = [row | {"corpus_id": corpus_id} for row in members]
    batch = retry_batch_id(context, f"{CORPUS}{corpus_id}")
    context.warehouse.append(batch, {"corpus": rows}, run_id=context.run_id)
    scored = reference_logprobs.store(context, prompts, rows)
    per_source = Counter(row["source"] for row in members)
    covered = len({row["problem_id"] for row in members})
    mix = ", ".join(f"{count} {source}" for source, count in sorted(per_source.items()))
    return CorpusManifest(
        rows=sum(added.values()) + len(members),
        corpus_id=corpus_id,
        snapshot=context.warehouse.snapshot(),
        added=added,
        per_source=dict(per_source),
        flow=flow,
        left_out=left_out,
        scored=scored,
        known_shares=reference_logprobs.known_shares(context, prompts, rows),
        reused="" if any(added.values()) else "every sample and verdict of earlier runs",
        summary=f"{len(members)} trajectories of {covered} problems ({mix or 'none'})",
    )


def amount(outlook: Outlook) -> Amount:
    """The responses that the corpus lacks, as far as they can be counted before they are drawn or read."""
    if outlook.context is None:
        return work_ahead.of_recipe(outlook.config)
    prompts = prompt_set.load(outlook.context, "train")
    return work_ahead.of_prompts(outlook.context, prompts, drawn_for_corpus(outlook.context, prompts))


@dataclass(frozen=True, slots=True)
class Collected:
    """What a run's corpus took in before the selection."""

    added: dict[str, int]
    """Kind -> responses that are new in the warehouse."""
    left_out: dict[str, int]
    """Reason -> responses that could not be taken in."""
    batches: list[str]
    """Batches of what was taken in, those that another run had stored among them."""
    found: Mapping[str, Collection[str]]
    """By problem: trajectories that were to be taken in and stand in batches that another run cut otherwise."""
    end: int | None
    """The token that ends what is taken in, where that is another one than the tokenizer's own end."""


def collect(context: Context, prompts: PromptSet) -> Collected:
    """Sample and take in what the recipe asks for and the warehouse lacks."""
    config, added, left_out = context.config, Counter({"reference": 0}), Counter[str]()
    drawn: list[str] = []
    wanted = config.corpus.sources
    if "reference" in wanted:
        added["reference"], drawn = sample_reference(context, prompts)
    with Judge(**config.sandbox.judge_arguments()) as judge:
        ingestion = Ingestion(context, prompts, judge)
        if "human" in wanted:
            added["human"], unused = _take_in_known(context, prompts, ingestion)
            left_out.update(unused)
        for path in config.corpus.files:
            name = Path(path).name
            read = files.read(Path(path), prompts.prompts, checkpoints.tokenizer_hash(prompts.reference))
            left_out.update(read.left_out)
            _say_retokenized(context, read.retokenized, f"of {name}")
            added[name] += _ingest(context, ingestion, f"file/{name}", read.items).added
        if "other_model" in wanted:
            for model in config.corpus.other_models:
                added[model.name] += ask(context, prompts, ingestion, model)
        items = _retokenized(context, prompts)
        _say_retokenized(context, len(items), "of runs with another tokenizer or template")
        added["retokenized"] += _ingest(context, ingestion, "retokenized", items).added
    return Collected(dict(added), dict(left_out), sorted({*drawn, *ingestion.batches}), ingestion.found, ingestion.end)


def drawn_for_corpus(context: Context, prompts: PromptSet) -> Counter[str]:
    """Samples of pi_0 drawn for the corpus until the pin, by problem; they were judged by the present tests."""
    wanted = [_prefix(context, prompts), prompts.prompt_ids, prompts.suites, context.pin, context.pin, context.pin]
    rows = context.warehouse.rows(DRAWN, wanted)
    return Counter({str(row["problem_id"]): int(row["n"]) for row in rows})


def _label(context: Context) -> str:
    return sampling_label(context.config.corpus.behaviour, context.config.engine.max_response_tokens)


def _prefix(context: Context, prompts: PromptSet) -> str:
    """Prefix of the batches of pi_0's samples for the corpus."""
    return f"corpus/reference/{prompts.policy_id}/{_label(context)}/"


def sample_reference(context: Context, prompts: PromptSet) -> tuple[int, list[str]]:
    """Samples of pi_0 at the corpus's behaviour, topped up to `reference_samples`: how many are new, and the batches
    of all that were topped up. A batch is named by what is drawn, so that a pinned run finds what others drew for it.
    """
    units = _units(context, prompts)
    there = context.warehouse.committed_under(_prefix(context, prompts)) if units else set[str]()
    todo = {batch: asked for batch, asked in units.items() if batch not in there}
    total, done, stored = sum(a.n for asked in todo.values() for a in asked), 0, 0

    def progress(sampled: int) -> None:
        context.progress(sampled, total, "samples", f"shard {stored + 1} of {len(todo)}, of pi_0")

    if todo:
        with open_sampler(context, prompts.reference, context.config.corpus.behaviour) as sampler:
            sampler.expect(prompts.problems)
            found = sampler.roll(todo.values(), source="reference", step=lambda: 0, progress=progress)
            for batch, judged in zip(todo, found, strict=True):
                judged = scored(judged)
                done += len(judged)
                stored += 1
                first = drawn_first(context.warehouse, batch, judged, reference=prompts.policy_id)
                rows = {"reference_counts": rows_of_counts(context, prompts, first), **tables(judged)}
                context.warehouse.append(batch, rows, run_id=context.run_id)
    return done, list(units)


def _units(context: Context, prompts: PromptSet) -> dict[str, list[Assignment]]:
    """What the corpus lacks of pi_0's samples, by the batch that it makes; they start behind all that was drawn."""
    drawn, most, label = drawn_for_corpus(context, prompts), context.config.corpus.reference_samples, _label(context)
    missing = {p: most - drawn[p] for p in prompts.prompts if drawn[p] < most}
    start = drawn + drawn_and_put_aside(context, _prefix(context, prompts)) if missing else drawn
    found: dict[str, list[Assignment]] = {}
    for ids in in_shards(sorted(missing), max(PROBLEMS_PER_BATCH, SAMPLES_PER_BATCH // max(1, most))):
        asked = [prompts.assignment(p, missing[p], "corpus", label, start[p]) for p in ids]
        work = [(a.prompt_id, a.problem.suite_hash, start[p], a.n) for p, a in zip(ids, asked, strict=True)]
        unit = digest(prompts_suites_start_samples=work)
        found[retry_batch_id(context, _prefix(context, prompts) + unit)] = asked
    return found


def _known(context: Context, prompts: PromptSet) -> dict[str, str]:
    """The programs shipped with the problems, where they may join the corpus."""
    wanted = "human" in context.config.corpus.sources and any(problem.solutions for problem in prompts.problems)
    return {"known": known_of(prompts.problems)} if wanted else {}


def _earlier(context: Context, prompts: PromptSet) -> dict[str, Any]:
    """Which responses of other runs, or that were imported, may join the corpus: those of its sources."""
    wanted = set(context.config.corpus.sources)
    online = {"online"} if wanted & {"prior_spo", "prior_ppo"} else set[str]()
    return {
        "sources": sorted(wanted & FROM_OTHERS | online),
        "human": "human" in wanted,
        "other_models": "other_model" in wanted,
        **_of_others(context, prompts),
    }


def _of_others(context: Context, prompts: PromptSet) -> dict[str, Any]:
    """Which rows to look among: those of other runs until the pin, for these prompts and suites."""
    return {
        "prompt_ids": prompts.prompt_ids,
        "suite_hashes": prompts.suites,
        "run_id": context.run_id,
        "pin": context.pin,
    }


def _reference(context: Context, prompts: PromptSet) -> dict[str, Any]:
    """Which samples of pi_0, and of other reference policies, that were not drawn for the corpus may join it."""
    return {
        "prompt_ids": prompts.prompt_ids,
        "suite_hashes": prompts.suites,
        "drawn": _prefix(context, prompts),
        "until": counts_filter(context, prompts).until,
    }


def _take_in_known(context: Context, prompts: PromptSet, ingestion: Ingestion) -> tuple[int, Counter[str]]:
    """Judge as many of the known programs as the corpus needs: how many are new, and what was left out."""
    programs, left_out = known_programs.of_problems(prompts.problems)
    most = context.config.corpus.max_tokens or context.config.engine.max_response_tokens
    added = 0

    def judge(items: Sequence[ExternalResponse]) -> dict[str, list[CorpusCandidate]]:
        nonlocal added
        added += _ingest(context, ingestion, "human", items).added
        found: dict[str, list[CorpusCandidate]] = {}
        ids = [ingestion.trajectory_id(item) for item in items]
        for row in context.warehouse.rows(KNOWN, [ids, most, not context.config.corpus.correct_only]):
            candidate = CorpusCandidate(row["trajectory_id"], "human", row["reward"] == 0, extract_program(row["text"]))
            found.setdefault(row["problem_id"], []).append(candidate)
        return found

    unneeded = known_programs.take_in(programs, context.config.corpus, judge)
    left_out["human: not judged, enough others were kept"] = unneeded
    return added, +left_out


def ask(context: Context, prompts: PromptSet, ingestion: Ingestion, model: OtherModelConfig) -> int:
    """The first `samples` answers of another model per problem that are not there; stored some problems at a time."""
    origin, missing = other_models.origin(model), other_models.unanswered(context, prompts, model, ingestion.end)
    added = 0
    if missing:
        with other_models.opened(model, context.config, context.home / "models") as answers:
            for start in range(0, len(missing), PROBLEMS_PER_BATCH * model.samples):
                unit = missing[start : start + PROBLEMS_PER_BATCH * model.samples]
                questions = [_question(prompts, model, p, number) for p, number in unit]
                context.progress(start, len(missing), "answers", f"of {model.name}")
                found = zip(unit, questions, answers(questions), strict=True)
                items = [_answer(model, origin, p, n, question, answer) for (p, n), question, answer in found]
                added += ingestion.run(origin, items, lambda *_: None).added
    return added


def _question(prompts: PromptSet, model: OtherModelConfig, problem_id: str, number: int) -> Question:
    return Question(prompts.prompts[problem_id].problem, other_models.seed_of(model, problem_id, number))


def _answer(
    model: OtherModelConfig, origin: str, problem_id: str, number: int, question: Question, answer: Answer
) -> ExternalResponse:
    finished, program = answer.finish_reason == "stop", model.keep == "program"
    content = extract_program(answer.text) if program else answer.text
    if program and not finished:  # it may have been cut off behind its program, in the prose
        program = any(one.closed and one.body.strip("\n").rstrip() == content for one in fences.blocks(answer.text))
        finished, content = program, content if program else answer.text
    return ExternalResponse(
        problem_id, "other_model", origin, content, is_program=program, finished=finished, number=number,
        seed=question.seed,
    )  # fmt: skip


def _retokenized(context: Context, prompts: PromptSet) -> list[ExternalResponse]:
    """Correct programs for these problems from runs whose prompts had other tokens."""
    wanted = {"sources": list(context.config.corpus.sources), **_of_others(context, prompts)}
    rows = context.warehouse.rows(OTHER_PROMPTS, wanted)
    return [
        ExternalResponse(
            row["problem_id"], row["source"], "retokenized", extract_program(row["text"]),
            parent_trajectory_id=row["trajectory_id"],
        )
        for row in rows
        if row["problem_id"] in prompts.prompts
    ]  # fmt: skip


def _ingest(context: Context, ingestion: Ingestion, kind: str, items: Sequence[ExternalResponse]) -> Ingested:
    def progress(done: int, total: int) -> None:
        context.progress(done, total, "responses", f"{kind}, judged")

    return ingestion.run(kind, items, progress)


def _say_retokenized(context: Context, number: int, whose: str) -> None:
    if number:
        message = f"{number} responses {whose} were put into the policy's tokens"
        runs.note(context.warehouse, context.run_id, stage="corpus", kind="retokenized", message=message)


def select(
    context: Context, prompts: PromptSet, collected: Collected
) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """Members of the corpus (trajectory_id, problem_id, source), and per source what became of its responses."""
    config = context.config.corpus
    flow: dict[str, Counter[str]] = {}
    members: list[dict[str, Any]] = []
    for ids in in_shards(sorted(prompts.prompts), PROBLEMS_PER_SELECTION):
        candidates: dict[str, list[CorpusCandidate]] = {}
        source_of: dict[str, str] = {}
        asked = _parameters(context, prompts, ids) | {"ingested": collected.batches, "end": collected.end}
        asked["found"] = [one for problem_id in ids for one in collected.found.get(problem_id, ())]
        for row in context.warehouse.rows(SELECTION, asked):
            fates = flow.setdefault(row["source"], Counter())
            fates["came in"] += 1
            fates["judged"] += row["reward"] is not None
            fates["correct"] += row["reward"] == 0
            if row["status"] != "candidate":
                fates[row["status"]] += 1
                continue
            source_of[row["trajectory_id"]] = row["source"]
            candidate = CorpusCandidate(
                row["trajectory_id"], row["source"], row["reward"] == 0, extract_program(row["text"] or "")
            )
            candidates.setdefault(row["problem_id"], []).append(candidate)
        for problem_id, found in sorted(candidates.items()):
            chosen = choose(found, threshold=config.near_duplicates, cap=config.per_problem)
            for trajectory_id, fate in sorted(chosen.items()):
                flow[source_of[trajectory_id]][fate] += 1
                if fate == "kept":
                    row = {"trajectory_id": trajectory_id, "problem_id": problem_id}
                    members.append(row | {"source": source_of[trajectory_id]})
    return members, {source: dict(fates) for source, fates in sorted(flow.items())}


def _parameters(context: Context, prompts: PromptSet, problem_ids: Sequence[str]) -> dict[str, Any]:
    config, limit = context.config.corpus, context.config.engine.max_response_tokens
    chosen = [prompts.prompts[problem_id] for problem_id in problem_ids]
    return {
        "prompt_ids": [prompt.prompt_id for prompt in chosen],
        "suite_hashes": sorted({prompt.problem.suite_hash for prompt in chosen}),
        "correct_only": config.correct_only,
        "run_id": context.run_id,
        "policy_id": prompts.policy_id,
        "sources": list(config.sources),
        "limit": limit,
        "max_tokens": config.max_tokens or limit,
        "too_long": TOO_LONG,
        "pin": context.pin,
        "until": counts_filter(context, prompts).until,
        "asked": [
            other_models.seed_of(m, p, n) for m in config.other_models for p in problem_ids for n in range(m.samples)
        ],
    }


STAGE = Stage(
    manifest=CorpusManifest,
    amount=amount,
    version=3,
    sections=("corpus", "sandbox", "reference.dtype"),
    inputs=inputs,
    body=body,
)
