"""Stage `report`: the run's figures as PNG and one self-contained page."""

from __future__ import annotations

import json
from typing import Any

from tasks import figures, material
from tasks.estimators import beta_interval
from tasks.figures import Measure, Panel, Series
from tasks.report_page import Fact, Finding, Program, Report, Section, Table, write_report
from tasks.signatures import TrainingHistory, signatures
from tasks.stage import Context, Stage

DIVERSITY = """
-- How diverse are the samples of each evaluated policy?
SELECT step, avg(distinct_correct) AS distinct_correct, avg(duplicate_share) AS duplicate_share, avg(entropy) AS entropy
FROM (
    SELECT policy_id, step, problem_id,
           count(DISTINCT normal_hash) FILTER (reward = 0) AS distinct_correct,
           1 - count(DISTINCT normal_hash) / count(*) AS duplicate_share, avg(entropy) AS entropy
    FROM eval_samples WHERE list_contains(?, policy_id) AND sampling = ? GROUP BY ALL
) GROUP BY step ORDER BY step
"""
REWARD_BY_TEMPERATURE = """
-- How often do online responses pass, by their temperature?
SELECT floor(temperature * 10) / 10 AS low, count(*) AS n, count(*) FILTER (reward = 0) AS k
FROM trajectories WHERE run_id = ? AND source = 'online' AND reward IS NOT NULL GROUP BY low ORDER BY low
"""
SOURCE_MIX = """
-- Which sources did each optimizer step train on?
SELECT step, source, count(*) AS sequences
FROM (SELECT step, unnest(sources) AS source FROM train_batches WHERE run_id = ?) GROUP BY ALL ORDER BY step, source
"""
STAGE_TIME = """
-- How long did each stage of the run take?
SELECT run_id AS run, stage, max(seconds) AS seconds FROM stages
WHERE run_id = ? AND status = 'completed' GROUP BY ALL ORDER BY min(created_at)
"""
TRAINING_FIGURES = """
-- The trainer's figures, step by step.
SELECT name, step, any_value(value) AS value FROM train_steps WHERE run_id = ? GROUP BY name, step ORDER BY name, step
"""
NEW_SOLUTIONS = """
-- Which correct programs did training find that pi_0 never wrote?
SELECT t.problem_id, any_value(t.text) AS program, count(*) AS times, min(t.step) AS step
FROM trajectories t
WHERE t.run_id = ? AND t.source = 'online' AND t.reward = 0 AND NOT EXISTS (
    SELECT 1 FROM trajectories r WHERE r.problem_id = t.problem_id AND r.normal_hash = t.normal_hash
    AND r.source IN ('reference', 'pivotal_rollout')
)
GROUP BY t.problem_id, t.normal_hash ORDER BY step, t.problem_id LIMIT 12
"""


def inputs(context: Context) -> dict[str, Any]:
    """The evaluation it shows."""
    return {"run": context.run_id, "evaluation": context.manifest("evaluate")}


def body(context: Context) -> dict[str, Any]:
    """Write the page and the figures into the run's folder."""
    evaluation = context.manifest("evaluate")
    sections = [
        _results(evaluation),
        _diversity(context, evaluation),
        _training(context),
        _prompts(context),
        _discoveries(context),
        _configuration(context),
    ]
    report = Report(
        title=f"Run {context.run_id}",
        subtitle=evaluation["described"],
        facts=_facts(evaluation),
        findings=_findings(context, evaluation),
        sections=[section for section in sections if section is not None],
        footer=f"Written by spo-pipeline from the warehouse at {context.warehouse.location}.",
    )
    page, *pictures = write_report(report, context.run_dir / "report")
    curve = next(path for path in pictures if path.stem == "learning_curve")
    return {
        "rows": 0,
        "page": str(page),
        "learning_curve": str(curve),
        "summary": f"{len(pictures)} figures; {page}",
    }


def _facts(evaluation: dict[str, Any]) -> list[Fact]:
    return [
        Fact(
            name,
            f"{100 * row['before']:.1f}% → {100 * row['after']:.1f}%",
            f"{100 * row['difference']:+.1f} points, 95% interval {100 * row['interval'][0]:+.1f} to "
            f"{100 * row['interval'][1]:+.1f}",
        )
        for name, row in by_k(evaluation["comparison"])
    ]


def _findings(context: Context, evaluation: dict[str, Any]) -> list[Finding]:
    """Failure signatures of the paper's notes, as far as the curves show them."""
    figures_of: dict[str, list[tuple[float, float]]] = {}
    for row in context.warehouse.rows(TRAINING_FIGURES, [context.run_id]):
        figures_of.setdefault(row["name"], []).append((row["step"], row["value"]))
    curves = {k: [(point["step"], point["value"]) for point in evaluation["curve"] if point["k"] == k] for k in (1, 10)}
    history = TrainingHistory(curves[1], curves[10], figures_of, context.config.train.beta)
    return [Finding(found.name, found.text, found.severity) for found in signatures(history)]


def by_k(comparison: dict[str, Any]) -> list[tuple[str, Any]]:
    """`pass@k` entries in the order of k (JSON sorts them as text)."""
    return sorted(comparison.items(), key=lambda item: int(item[0].removeprefix("pass@")))


def _results(evaluation: dict[str, Any]) -> Section:
    metrics: dict[str, list[Series]] = {}
    for k in sorted({point["k"] for point in evaluation["curve"]}):
        points = [point for point in evaluation["curve"] if point["k"] == k]
        columns = {name: [point[name] for point in points] for name in ("step", "value", "low", "high")}
        metrics[f"pass@{k}"] = [Series("SPO", columns["step"], columns["value"], columns["low"], columns["high"])]
    return Section(
        "Learning curve",
        "pass@k on the evaluation problems, with bootstrap intervals over problems; step 0 is the reference policy.",
        charts=[figures.learning_curve(metrics)],
    )


def _diversity(context: Context, evaluation: dict[str, Any]) -> Section:
    policies = sorted({point["policy_id"] for point in evaluation["curve"]})
    rows = context.warehouse.rows(DIVERSITY, [policies, evaluation["sampling"]])
    steps = [row["step"] for row in rows]
    panels = [
        Panel(
            "distinct correct programs per problem", [Series("SPO", steps, [row["distinct_correct"] for row in rows])]
        ),
        Panel("share of duplicates", [Series("SPO", steps, [row["duplicate_share"] for row in rows])], share=True),
    ]
    if all(row["entropy"] is not None for row in rows):
        panels.append(Panel("entropy, nats per token", [Series("SPO", steps, [row["entropy"] for row in rows])]))
    return Section("Diversity", charts=[figures.curves("diversity", "Diversity", panels, "optimizer step")])


def _training(context: Context) -> Section:
    run = [context.run_id]
    temperatures = [
        Measure(
            f"{row['low']:.1f}-{row['low'] + 0.1:.1f}",
            row["k"] / row["n"],
            *beta_interval(row["n"], row["k"]),
            note=f"n={row['n']}",
        )
        for row in context.warehouse.rows(REWARD_BY_TEMPERATURE, run)
    ]
    charts = [figures.stage_time(context.warehouse.rows(STAGE_TIME, run))]
    mix = context.warehouse.rows(SOURCE_MIX, run)
    if mix:
        charts.append(figures.source_mix(mix))
    if temperatures:
        charts.append(figures.reward_by_temperature(temperatures))
    return Section("Training", charts=charts)


def _prompts(context: Context) -> Section:
    known = material.counts(context, material.load(context, "train"))
    chart = figures.q0_histogram(list(known.values()), context.config.train.beta)
    return Section("Training prompts", "How often the reference policy solves each prompt at temperature 1.", [chart])


def _discoveries(context: Context) -> Section | None:
    found = context.warehouse.rows(NEW_SOLUTIONS, [context.run_id])
    if not found:
        return None
    programs = [
        Program(
            row["problem_id"], row["program"], f"first with the weights of step {row['step']}, {row['times']} times"
        )
        for row in found
    ]
    return Section(
        "New solutions", "Correct programs from training that pi_0 never wrote, in any run.", programs=programs
    )


def _configuration(context: Context) -> Section:
    prepared = context.manifest("prepare")
    identity = [
        {"what": "reference policy", "value": prepared["policy_id"]},
        {"what": "prompt template", "value": prepared["template_id"]},
        {"what": "problems", "value": prepared["problems_batch"]},
        {"what": "warehouse snapshot", "value": str(context.warehouse.snapshot())},
    ]
    settings = json.dumps(context.config.model_dump(mode="json"), indent=2)
    return Section(
        "Settings",
        tables=[Table("Fingerprints", ("what", "value"), identity)],
        programs=[Program("Resolved configuration", settings)],
    )


STAGE = Stage(name="report", version=1, sections=(), inputs=inputs, body=body)
