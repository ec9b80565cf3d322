"""Stage `corpus`: the offline trajectories a run may learn from (section 5).

Samples of the reference policy, online trajectories of earlier runs, answers of other models, known human programs and
files that a user brings; judged, one per distinct program, correct ones only (switchable), capped per problem. The
selection is stored row by row, and the manifest says what became of every response.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sandbox import Judge
from tasks import imports, other_models, reference_scores, runs
from tasks import material as materials
from tasks.config import OtherModelConfig
from tasks.engines import checkpoint as checkpoints
from tasks.engines.randomness import derived_seed
from tasks.ingestion import TOO_LONG, Foreign, Ingested, Ingestion
from tasks.material import Material
from tasks.other_models import Answer, Question
from tasks.problems.programs import extract_program
from tasks.rollout import sampling_label, tables
from tasks.selection import Candidate, choose
from tasks.stage import Context, Stage

SELECTION = (Path(__file__).parent / "corpus_selection.sql").read_text(encoding="utf-8")
OTHER_PROMPTS = (Path(__file__).parent / "corpus_retokenized.sql").read_text(encoding="utf-8")
PYTHON = {"python", "python3", "py"}
PROBLEMS_PER_BATCH = 16
PROBLEMS_PER_SELECTION = 256
FROM_RUNS = {"online", "pivotal_rollout"}
"""Sources that grow with every run; a run's corpus takes those of other runs alone."""
FROM_ELSEWHERE = {"prior_spo", "prior_ppo", "other_model"}
"""Sources of responses that somebody imported."""

EARLIER = """
-- Which responses of other runs could join this run's corpus?
SELECT count(*) AS n, CAST(bit_xor(hash(trajectory_id)) AS VARCHAR) AS content FROM trajectories
WHERE list_contains(?, source) AND run_id <> ? AND (list_contains(?, prompt_id) OR list_contains(?, suite_hash))
"""
DRAWN = """
-- How many samples of the reference policy were drawn for the corpus, per problem?
SELECT problem_id, count(*) AS n FROM trajectories
WHERE starts_with(batch_id, ?) AND list_contains(?, prompt_id) AND list_contains(?, suite_hash) GROUP BY problem_id
"""
ANSWERED = """
-- How many answers of another model are there, per problem?
SELECT problem_id, count(DISTINCT seed) AS n FROM trajectories
WHERE engine = ? AND list_contains(?, prompt_id) AND list_contains(?, suite_hash) GROUP BY problem_id
"""


def inputs(context: Context) -> dict[str, Any]:
    """Prompts and reference; Q0's samples; what earlier runs brought; the files' content; who computes log pi_0."""
    manifest = context.manifest("prepare")
    material = materials.load(context, "train")
    sources = sorted(FROM_ELSEWHERE | (FROM_RUNS & {"online", *context.config.corpus.sources}))
    earlier = context.warehouse.rows(
        EARLIER, [sources, context.run_id, material.prompt_ids, material.suites], snapshot=context.pin
    )
    return {
        "prompts_batch": manifest["prompts_batch"],
        "policy_id": manifest["policy_id"],
        "q0_samples": context.config.q0.samples,
        "max_response_tokens": context.config.engine.max_response_tokens,
        "earlier": [earlier[0]["n"], earlier[0]["content"]],
        "files": [imports.content_hash(Path(path)) for path in context.config.corpus.files],
        "scored": reference_scores.identity(context, material),
    }


def body(context: Context) -> dict[str, Any]:
    """Collect what is missing, select, and compute log pi_0 of what training will draw."""
    material = materials.load(context, "train")
    added, left_out = collect(context, material)
    members, flow = select(context, material)
    corpus_id = hashlib.sha256("\n".join(row["trajectory_id"] for row in members).encode()).hexdigest()[:24]
    rows = [row | {"corpus_id": corpus_id} for row in members]
    context.warehouse.append(f"corpus/{corpus_id}", {"corpus": rows}, run_id=context.run_id)
    scored = reference_scores.store(context, material, rows)
    per_source = Counter(row["source"] for row in members)
    covered = len({row["problem_id"] for row in members})
    mix = ", ".join(f"{count} {source}" for source, count in sorted(per_source.items()))
    return {
        "rows": sum(added.values()) + len(members),
        "corpus_id": corpus_id,
        "added": added,
        "per_source": dict(per_source),
        "flow": flow,
        "left_out": left_out,
        "scored": scored,
        "reused": "" if any(added.values()) else "every sample and verdict of earlier runs",
        "summary": f"{len(members)} trajectories of {covered} problems ({mix or 'none'})",
    }


def collect(context: Context, material: Material) -> tuple[dict[str, int], dict[str, int]]:
    """Responses added per kind, and what could not be taken in, counted by reason."""
    config, added, left_out = context.config, {"reference": 0}, Counter[str]()
    wanted = config.corpus.sources
    if "reference" in wanted:
        added["reference"] = sample_reference(context, material)
    with Judge(**config.sandbox.judge_arguments()) as judge:
        ingestion = Ingestion(context, material, judge)
        if "human" in wanted:
            items, skipped = human_solutions(material)
            left_out.update(skipped)
            added["human"] = _ingest(context, ingestion, "human", items).added
        for path in config.corpus.files:
            name = Path(path).name
            read = imports.read(Path(path), material.prompts, checkpoints.tokenizer_hash(material.reference))
            left_out.update(read.left_out)
            _say_retokenized(context, read.retokenized, f"of {name}")
            added[name] = _ingest(context, ingestion, f"file/{name}", read.items).added
        if "other_model" in wanted:
            for model in config.corpus.other_models:
                added[model.name] = ask(context, material, ingestion, model)
        items = _retokenized(context, material)
        _say_retokenized(context, len(items), "of runs with another tokenizer or template")
        added["retokenized"] = _ingest(context, ingestion, "retokenized", items).added
    return added, dict(left_out)


def sample_reference(context: Context, material: Material) -> int:
    """Samples of pi_0 at the corpus's behaviour, topped up to `reference_samples`; their number."""
    config = context.config.corpus
    label = sampling_label(config.behaviour, context.config.engine.max_response_tokens)
    prefix = f"corpus/reference/{material.policy_id}/{label}/"
    rows = context.warehouse.rows(DRAWN, [prefix, material.prompt_ids, material.suites])
    drawn = Counter({str(row["problem_id"]): int(row["n"]) for row in rows})
    missing = {p: config.reference_samples - drawn[p] for p in material.prompts if drawn[p] < config.reference_samples}
    total, done = sum(missing.values()), 0
    if missing:
        with materials.open_sampler(context, material.reference, config.behaviour) as sampler:
            shards = materials.shards(sorted(missing), PROBLEMS_PER_BATCH)
            for number, ids in enumerate(shards, start=1):
                asked = [material.assignment(p, missing[p], "corpus", label, drawn[p]) for p in ids]
                progress = _progress(context, done, total, "samples", f"shard {number} of {len(shards)}, of pi_0")
                judged = materials.scored(sampler.run(asked, source="reference", step=0, progress=progress))
                done += len(judged)
                work = [(a.prompt_id, a.problem.suite_hash, drawn[p], a.n) for p, a in zip(ids, asked, strict=True)]
                unit = hashlib.sha256(repr(work).encode()).hexdigest()[:24]
                counts = materials.evidence(context, material, judged)
                batch = {"reference_counts": counts, **tables(judged)}
                context.warehouse.append(materials.unspoilt(context, prefix + unit), batch, run_id=context.run_id)
    return done


def human_solutions(material: Material) -> tuple[list[Foreign], dict[str, int]]:
    """Known Python programs of the training problems, and the number of those in other languages."""
    items: list[Foreign] = []
    skipped: Counter[str] = Counter()
    for problem_id, prompt in material.prompts.items():
        for solution in prompt.problem.solutions:
            if solution.language in PYTHON:
                items.append(Foreign(problem_id, "human", "human", solution.program))
            else:
                skipped["human: not Python"] += 1
    return items, dict(skipped)


def ask(context: Context, material: Material, ingestion: Ingestion, model: OtherModelConfig) -> int:
    """Answers of another model, topped up to `samples` per problem; stored some problems at a time."""
    origin = f"other_model/{model.name}"
    rows = context.warehouse.rows(ANSWERED, [origin, material.prompt_ids, material.suites])
    have = Counter({str(row["problem_id"]): int(row["n"]) for row in rows})
    missing = [(p, number) for p in sorted(material.prompts) for number in range(have[p], model.samples)]
    added = 0
    if missing:
        with other_models.opened(model, context.config, context.home / "models") as answers:
            for start in range(0, len(missing), PROBLEMS_PER_BATCH * model.samples):
                unit = missing[start : start + PROBLEMS_PER_BATCH * model.samples]
                questions = [
                    Question(material.prompts[p].problem, derived_seed(origin, p, number)) for p, number in unit
                ]
                context.progress(start, len(missing), "answers", f"of {model.name}")
                found = zip(unit, questions, answers(questions), strict=True)
                items = [_answer(model, origin, p, n, question, answer) for (p, n), question, answer in found]
                added += ingestion.run(origin, items, lambda *_: None).added
    return added


def _answer(
    model: OtherModelConfig, origin: str, problem_id: str, number: int, question: Question, answer: Answer
) -> Foreign:
    finished, program = answer.finish_reason == "stop", model.keep == "program"
    content = extract_program(answer.text) if program else answer.text
    return Foreign(
        problem_id, "other_model", origin, content, is_program=program, finished=finished, number=number,
        seed=question.seed,
    )  # fmt: skip


def _retokenized(context: Context, material: Material) -> list[Foreign]:
    """Correct programs for these problems from runs whose prompts had other tokens."""
    parameters = {
        "prompt_ids": material.prompt_ids,
        "suite_hashes": material.suites,
        "run_id": context.run_id,
        "sources": list(context.config.corpus.sources),
        "pin": context.pin,
    }
    rows = context.warehouse.rows(OTHER_PROMPTS, parameters)
    return [
        Foreign(
            row["problem_id"], row["source"], "retokenized", extract_program(row["text"]),
            parent_trajectory_id=row["trajectory_id"],
        )
        for row in rows
        if row["problem_id"] in material.prompts
    ]  # fmt: skip


def _ingest(context: Context, ingestion: Ingestion, kind: str, items: Sequence[Foreign]) -> Ingested:
    def progress(done: int, total: int) -> None:
        context.progress(done, total, "responses", f"{kind}, judged")

    return ingestion.run(kind, items, progress)


def _say_retokenized(context: Context, number: int, whose: str) -> None:
    if number:
        message = f"{number} responses {whose} were put into the policy's tokens"
        runs.note(context.warehouse, context.run_id, stage="corpus", kind="retokenized", message=message)


def select(context: Context, material: Material) -> tuple[list[dict[str, Any]], dict[str, dict[str, int]]]:
    """Members of the corpus (trajectory_id, problem_id, source), and per source what became of its responses."""
    config = context.config.corpus
    flow: dict[str, Counter[str]] = {}
    members: list[dict[str, Any]] = []
    for ids in materials.shards(sorted(material.prompts), PROBLEMS_PER_SELECTION):
        candidates: dict[str, list[Candidate]] = {}
        source_of: dict[str, str] = {}
        for row in context.warehouse.rows(SELECTION, _parameters(context, material, ids)):
            fates = flow.setdefault(row["source"], Counter())
            fates["came in"] += 1
            fates["judged"] += row["reward"] is not None
            fates["correct"] += row["reward"] == 0
            if row["status"] != "candidate":
                fates[row["status"]] += 1
                continue
            source_of[row["trajectory_id"]] = row["source"]
            candidate = Candidate(
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


def _parameters(context: Context, material: Material, problem_ids: Sequence[str]) -> dict[str, Any]:
    config, limit = context.config.corpus, context.config.engine.max_response_tokens
    prompts = [material.prompts[problem_id] for problem_id in problem_ids]
    return {
        "prompt_ids": [prompt.prompt_id for prompt in prompts],
        "suite_hashes": sorted({prompt.problem.suite_hash for prompt in prompts}),
        "correct_only": config.correct_only,
        "run_id": context.run_id,
        "policy_id": material.policy_id,
        "sources": list(config.sources),
        "limit": limit,
        "max_tokens": config.max_tokens or limit,
        "too_long": TOO_LONG,
        "pin": context.pin,
    }


def _progress(context: Context, start: int, total: int, unit: str, note: str) -> Callable[[int, int], None]:
    return lambda done, _: context.progress(start + done, total, unit, note)


STAGE = Stage(name="corpus", version=2, sections=("corpus", "sandbox"), inputs=inputs, body=body)
