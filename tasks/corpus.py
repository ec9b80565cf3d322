"""Stage `corpus`: the offline trajectories a run may learn from (section 5).

Samples of the reference policy, known human programs, and the online trajectories of earlier runs; judged, one per
distinct program, correct ones only (switchable), capped per problem. The selection is stored row by row.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sandbox import Judge, Submission
from tasks import material as materials
from tasks.engines import checkpoint as checkpoints
from tasks.material import Material, Prompt
from tasks.problems.problem import Solution
from tasks.problems.programs import extract_program, normal_hash, program_hash
from tasks.problems.prompt import Template, encode_response, template_for
from tasks.rollout import outcome, sampling_label, tables
from tasks.stage import Context, Stage

SELECTION = (Path(__file__).parent / "corpus_selection.sql").read_text(encoding="utf-8")
PYTHON = {"python", "python3", "py"}
PROBLEMS_PER_BATCH = 16
FROM_RUNS = {"online", "pivotal_rollout"}
"""Sources that grow with every run; a run's corpus takes those of other runs alone."""


def inputs(context: Context) -> dict[str, Any]:
    """Prompts and reference; Q0's samples; what earlier runs sampled."""
    manifest = context.manifest("prepare")
    material = materials.load(context, "train")
    earlier = context.warehouse.rows(
        "SELECT count(*) AS n, CAST(bit_xor(hash(trajectory_id)) AS VARCHAR) AS content FROM trajectories "
        "WHERE list_contains(?, source) AND run_id <> ? AND list_contains(?, prompt_id)",
        [sorted(FROM_RUNS & {"online", *context.config.corpus.sources}), context.run_id, material.prompt_ids],
        snapshot=context.pin,
    )
    return {
        "prompts_batch": manifest["prompts_batch"],
        "policy_id": manifest["policy_id"],
        "q0_samples": context.config.q0.samples,
        "max_response_tokens": context.config.engine.max_response_tokens,
        "earlier": [earlier[0]["n"], earlier[0]["content"]],
    }


def body(context: Context) -> dict[str, Any]:
    """Collect what is missing, then select."""
    material = materials.load(context, "train")
    added = {"reference": 0, "human": 0}
    if "reference" in context.config.corpus.sources:
        added["reference"] = sample_reference(context, material)
    if "human" in context.config.corpus.sources:
        added["human"] = ingest_solutions(context, material)
    members = select(context, material)
    corpus_id = hashlib.sha256("\n".join(row["trajectory_id"] for row in members).encode()).hexdigest()[:24]
    rows = [row | {"corpus_id": corpus_id} for row in members]
    context.warehouse.append(f"corpus/{corpus_id}", {"corpus": rows}, run_id=context.run_id)
    per_source: dict[str, int] = {}
    for row in members:
        per_source[row["source"]] = per_source.get(row["source"], 0) + 1
    covered = len({row["problem_id"] for row in members})
    mix = ", ".join(f"{count} {source}" for source, count in sorted(per_source.items()))
    return {
        "rows": sum(added.values()) + len(members),
        "corpus_id": corpus_id,
        "added": added,
        "per_source": per_source,
        "reused": "" if any(added.values()) else "every sample and verdict of earlier runs",
        "summary": f"{len(members)} trajectories of {covered} problems ({mix or 'none'})",
    }


def sample_reference(context: Context, material: Material) -> int:
    """Samples of pi_0 at the corpus's behaviour, drawn where they are missing; their number."""
    config = context.config.corpus
    label = sampling_label(config.behaviour, context.config.engine.max_response_tokens)
    batches: dict[str, list[str]] = {}
    if config.reference_samples:
        for ids in materials.shards(sorted(material.prompts), PROBLEMS_PER_BATCH):
            work = [(material.prompts[p].prompt_id, material.prompts[p].problem.suite_hash) for p in ids]
            unit = hashlib.sha256(repr([work, config.reference_samples]).encode()).hexdigest()[:24]
            batches[f"corpus/reference/{material.policy_id}/{label}/{unit}"] = ids
    known = context.warehouse.committed(batches)
    wanted = {batch: ids for batch, ids in batches.items() if batch not in known}
    total = config.reference_samples * sum(map(len, wanted.values()))
    done = 0
    if wanted:
        with materials.open_sampler(context, material.reference, config.behaviour) as sampler:
            for number, (batch, ids) in enumerate(wanted.items(), start=1):
                note = f"shard {number} of {len(wanted)}, of pi_0"
                asked = [material.assignment(p, config.reference_samples, "corpus", label) for p in ids]
                start = done
                judged = materials.scored(
                    sampler.run(
                        asked,
                        source="reference",
                        step=0,
                        progress=lambda n, _, start=start, note=note: context.progress(
                            start + n, total, "samples", note
                        ),
                    )
                )
                done += len(judged)
                context.warehouse.append(batch, tables(judged), run_id=context.run_id)
    return done


def ingest_solutions(context: Context, material: Material) -> int:
    """Known Python programs of the training problems as judged trajectories; the number of new ones."""
    tokenizer = checkpoints.load_tokenizer(material.reference)
    template = template_for(context.config.reference, tokenizer)
    added = 0
    with Judge(context.config.sandbox.backend, context.config.sandbox.workers) as judge:
        for ids in materials.shards(sorted(material.prompts), PROBLEMS_PER_BATCH):
            pairs = [
                (material.prompts[p], solution)
                for p in ids
                for solution in material.prompts[p].problem.solutions
                if solution.language in PYTHON
            ]
            work = [(prompt.prompt_id, prompt.problem.suite_hash, s.program) for prompt, s in pairs]
            unit = hashlib.sha256(repr(work).encode()).hexdigest()[:24]
            batch = f"import/human/{unit}"
            if not pairs or context.warehouse.committed([batch]):
                continue
            rows = _solution_rows(context, pairs, template, tokenizer, judge)
            context.warehouse.append(batch, {"trajectories": rows}, run_id=context.run_id)
            added += len(rows)
            context.progress(added, added, "human programs", "judged")
    return added


def _solution_rows(
    context: Context, pairs: list[tuple[Prompt, Solution]], template: Template, tokenizer: Any, judge: Judge
) -> list[dict[str, Any]]:
    suites = [prompt.problem.suite() for prompt, _ in pairs]
    limit = context.config.engine.max_response_tokens
    rows: list[dict[str, Any]] = []
    encoded = [encode_response(template, tokenizer, solution.program) for _, solution in pairs]
    programs = [extract_program(tokenizer.decode(ids, skip_special_tokens=True)) for ids in encoded]
    judgements = judge.judge([Submission(program, suite) for program, suite in zip(programs, suites, strict=True)])
    for (prompt, _), suite, ids, program, judgement in zip(pairs, suites, encoded, programs, judgements, strict=True):
        if len(ids) > limit:
            continue
        identity = repr([prompt.prompt_id, suite.suite_id, ids])
        rows.append(
            {
                "trajectory_id": hashlib.sha256(identity.encode()).hexdigest()[:32],
                "problem_id": prompt.problem.problem_id,
                "prompt_id": prompt.prompt_id,
                "suite_hash": suite.suite_id,
                "source": "human",
                "max_response_tokens": limit,
                "engine": "human",
                "prompt_tokens": len(prompt.token_ids),
                "prefix_tokens": 0,
                "token_ids": list(ids),
                "sampled_logprobs": None,
                "logprob_kind": "none",
                "text": tokenizer.decode(ids, skip_special_tokens=True),
                "program_hash": program_hash(program),
                "normal_hash": normal_hash(program),
                "finish_reason": "stop",
                **outcome(judgement, tests_total=len(suite.tests)),
            }
        )
    return rows


def select(context: Context, material: Material) -> list[dict[str, Any]]:
    """Members of the corpus: trajectory_id, problem_id, source."""
    config = context.config.corpus
    return context.warehouse.rows(
        SELECTION,
        {
            "prompt_ids": material.prompt_ids,
            "suite_hashes": material.suites,
            "correct_only": config.correct_only,
            "run_id": context.run_id,
            "sources": list(config.sources),
            "cap": config.per_problem,
            "pin": context.pin,
        },
    )


STAGE = Stage(name="corpus", version=1, sections=("corpus", "sandbox"), inputs=inputs, body=body)
