"""The parts of a report that are mostly tables: runs side by side, cost, new programs, settings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from tasks.config import OTHER_METHODS, ObjectiveConfig, RunConfig, differing
from tasks.estimators import Estimate, PairedDifference, average_paired_difference
from tasks.evaluate.eval_samples import policy_pass_at_k
from tasks.report import charts
from tasks.report.charts import Measure
from tasks.report.comparison import PairedScores, common_ks, paired
from tasks.report.report_page import Program, ReportSection, ReportTable
from tasks.report.run_history import RunHistory
from tasks.run.durations import duration
from tasks.run.intervals import interval_text

SHOWN_PROGRAMS = 12
"""New programs shown, over all runs."""

Histories = Sequence[RunHistory]


def percent(found: Estimate) -> str:
    """`62.8% [53.1, 71.9]`."""
    return f"{100 * found.value:.1f}% [{100 * found.low:.1f}, {100 * found.high:.1f}]"


def difference_text(found: PairedDifference) -> str:
    """`+12.3 points, 95% interval +4.5 to +20.1`; with a set of a single problem none is known."""
    return f"{100 * found.difference:+.1f} points, 95% interval {interval_text(found.low, found.high, ' to ')}"


def markdown_table(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> list[str]:
    """The lines of a Markdown table; a cell that a row lacks stays empty."""
    return [
        _markdown_row(columns),
        "|" + "---|" * len(columns),
        *(_markdown_row([row.get(name, "") for name in columns]) for row in rows),
    ]


def _markdown_row(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def side_by_side(histories: Histories) -> ReportSection | None:
    """The last policies of several runs beside each other, and what differs in their settings (Figure 2)."""
    evaluated = [history for history in histories if history.points]
    if len(evaluated) < 2:
        return None
    ks = common_ks(evaluated)
    measures = {
        f"pass@{k}": [
            Measure(h.run_id, found.value, found.low, found.high)
            for h in evaluated
            for found in [policy_pass_at_k(h.points[-1].scores, k)]
        ]
        for k in ks
    }
    pairs = [_last_policies(evaluated[0], other) for other in evaluated[1:]]
    tables = [_against_first(evaluated, pairs, ks)]
    differing = settings_that_differ({history.run_id: history.config for history in histories})
    if differing:
        columns = ["setting", *(history.run_id for history in histories)]
        tables.append(ReportTable("Settings that differ", columns, differing))
    text = "The last evaluated policy of each run, with 95% bootstrap intervals over problems."
    if not _comparable(evaluated):
        text += " They were evaluated on different problems, so only the paired table below compares the policies."
    elif any(found.judged_otherwise for found in pairs):
        text += " They were not all judged by the same tests, so only the paired table below compares the policies."
    if any(found.sampled_otherwise for found in pairs):
        text += " They were not all sampled in the same way: " + "; ".join(
            f"{history.run_id} {history.sampling}" for history in evaluated
        )
        text += "."
    return ReportSection("Side by side", text, [charts.comparison("side_by_side", "Last policies", measures)], tables)


def _comparable(histories: Histories) -> bool:
    """Whether all were evaluated on problems of the same names."""
    first, *others = ({s: sorted(found) for s, found in h.points[-1].scores.items()} for h in histories)
    return all(other == first for other in others)


def _last_policies(first: RunHistory, other: RunHistory) -> PairedScores:
    return paired((first, first.points[-1]), (other, other.points[-1]))


def _against_first(histories: Histories, pairs: Sequence[PairedScores], ks: Sequence[int]) -> ReportTable:
    first, *others = histories
    rows = [
        {
            "run": other.run_id,
            "": f"pass@{k}",
            "difference": difference_text(found),
            "problems better / worse / equal": f"{found.better} / {found.worse} / {found.equal}",
            "sign test p": "—" if found.p_value is None else found.p_value,
        }
        for other, pair in zip(others, pairs, strict=True)
        for k in ks
        for found in [average_paired_difference(pair.first, pair.second, k)]
    ]
    notes = [
        "Paired over the same problems, which removes the variation between them.",
        *(
            f"{other.run_id}: {pair.common} problems in common."
            for other, pair in zip(others, pairs, strict=True)
            if not _comparable([first, other])
        ),
        *(f"{other.run_id}: {note}." for other, pair in zip(others, pairs, strict=True) for note in pair.notes),
    ]
    return ReportTable(f"Against {first.run_id}", list(rows[0]), rows, " ".join(notes))


def settings_that_differ(configs: Mapping[str, RunConfig]) -> list[dict[str, str]]:
    """One row per field on which the configurations do not agree: `setting` and a column per run."""
    found = differing([config.model_dump(mode="json") for config in configs.values()])
    return [
        {"setting": name} | {run: "—" if value is None else value for run, value in zip(configs, values, strict=True)}
        for name, values in found
    ]


def cost(histories: Histories) -> ReportSection | None:
    """Time and cost of every stage."""
    rows = [row for history in histories for row in history.stages]
    if not rows:
        return None
    columns = {
        "run": "run",
        "stage": "stage",
        "time": "",
        "responses": "responses",
        "tokens": "sampled tokens",
        "programs": "programs judged",
        "judging": "CPU seconds of judging",
    }
    shown = [
        {title: row.get(name) for name, title in columns.items() if name != "time"}
        | {"time": "reused" if row["reused"] else duration(row["seconds"])}
        for row in rows
    ]
    order = ["run", "stage", "time", *(title for title in columns.values() if title not in ("run", "stage", ""))]
    timed = [row for row in rows if row["seconds"] is not None]
    text = "Time of this run alone; what earlier runs had sampled or judged already was reused and is not counted."
    if any(history.config.evaluate.during_training for history in histories):
        text += " What `evaluate` made was made beside training for the most part, in the time of `train`."
    return ReportSection(
        "Time and cost",
        text,
        charts=[charts.stage_time(timed)] if timed else [],
        tables=[ReportTable("What each stage made", order if len(histories) > 1 else order[1:], shown)],
    )


def discoveries(histories: Histories) -> ReportSection | None:
    """Correct programs from training that pi_0 never wrote."""
    found = [history for history in histories if history.discovered]
    if not found:
        return None
    table = [
        {
            "run": history.run_id,
            "different correct programs": len(history.discovered),
            "never written by pi_0": sum(row["new"] for row in history.discovered),
            "on problems": len({row["problem_id"] for row in history.discovered if row["new"]}),
            "of them not among people's either": sum(row["new"] and not row["human"] for row in history.discovered),
        }
        for history in found
    ]
    each = max(1, SHOWN_PROGRAMS // len(found))
    programs = [
        Program(
            row["problem_id"],
            row["program"],
            f"first with the weights of step {row['step']}, {_times(row['times'])}"
            + (", also among people's programs" if row["human"] else "")
            + (f", {history.run_id}" if len(found) > 1 else ""),
            unfolded=number == 0,
        )
        for history in found
        for number, row in enumerate([row for row in history.discovered if row["new"]][:each])
    ]
    columns = list(table[0]) if len(histories) > 1 else list(table[0])[1:]
    return ReportSection(
        "New solutions",
        "Correct programs that training found online; new are those that pi_0 never wrote, in any sample of any run.",
        tables=[ReportTable("Found in training", columns, table)],
        programs=programs,
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def configuration(histories: Histories) -> ReportSection:
    """Hyper-parameters and fingerprints."""
    names = list(dict.fromkeys(name for history in histories for name in history.fingerprints))
    runs = [history.run_id for history in histories]
    identity = [{"what": name} | {h.run_id: h.fingerprints.get(name, "") for h in histories} for name in names]
    main = [
        {"setting": name} | {h.run_id: value for h in histories for value in [_main_settings(h.config)[name]]}
        for name in _main_settings(histories[0].config)
    ]
    return ReportSection(
        "Settings",
        tables=[
            ReportTable("Hyper-parameters", ["setting", *runs], main),
            ReportTable("Fingerprints", ["what", *runs], identity),
        ],
        programs=[
            Program(f"Resolved configuration of {h.run_id}", json.dumps(h.config.model_dump(mode="json"), indent=2))
            for h in histories
        ],
    )


def _objective(objective: ObjectiveConfig) -> str:
    own = objective.kind in OTHER_METHODS
    return objective.kind if own else f"{objective.kind} ({objective.loss})"


def _main_settings(config: RunConfig) -> dict[str, str]:
    """What one looks for first."""
    train, behaviour = config.train, config.train.behaviour
    sources = [
        f"{source.share:.0%} {name}: " + " + ".join(_objective(o) for o in source.objectives)
        for name, source in train.sources.items()
        if source.share
    ]
    low, high = behaviour.temperature
    return {
        "algorithm": train.algorithm,
        "batches": f"{train.batch_size} sequences; " + "; ".join(sources),
        "beta": f"{train.beta:.4g} (1/beta = {1 / train.beta:.4g})",
        "optimizer steps": f"{train.steps:,}",
        "learning rate": f"{train.optimizer.learning_rate:g} after {train.optimizer.warmup_steps} steps of warm-up"
        + (f", falling over the last {decay}" if (decay := train.optimizer.decay_steps) else ""),
        "online sampling": f"{behaviour.weights} weights, T {low:g} to {high:g}, top-p {behaviour.top_p:g}",
        "weights handed over every": f"{train.model_update_interval} steps",
        "Q0 samples per prompt": f"{config.q0.samples}",
        "pivotal search": f"{config.pivotal.trajectories} trajectories, {config.pivotal.rollouts} rollouts per node",
        "evaluation": f"{config.evaluate.samples} samples per problem, "
        f"{'beside training' if config.evaluate.during_training else 'after training'}",
        "seed": str(config.seed),
    }
