"""What the report says of prompts and corpus: tables and charts from the stages' manifests and the warehouse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tasks.estimators import Counts, beta_interval, soft_value, soft_value_interval
from tasks.programs.extraction import program_hash
from tasks.report.chart_rendering import HATCHES, Axes, Chart, Theme
from tasks.report.report_page import ReportSection, ReportTable
from tasks.run import prompt_set
from tasks.run.manifests import CorpusManifest, PrepareManifest
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import counts_for_training
from tasks.run.stage import Context
from warehouse.queries import query

FATES = ("kept", "over the cap", "near duplicate", "duplicate", "not correct", "too long", "no verdict")
"""What can become of a response, best first; together they make up what came in."""
MOST_ROWS = 200

PER_PROBLEM = query(__name__, "per_problem")
VERDICTS = query(__name__, "verdicts")


def sections(context: Context) -> list[ReportSection]:
    """The report's parts about training prompts, corpus and decontamination."""
    prompts = prompt_set.load(context, "train")
    found = [training_prompts(context, prompts), corpus(context, prompts), suites(context), left_out(context)]
    return [section for section in found if section is not None]


def training_prompts(context: Context, prompts: PromptSet) -> ReportSection:
    """Every training prompt's counts with the intervals of S and of the soft value, hardest first."""
    known, beta = counts_for_training(context, prompts), context.config.train.beta
    shares = context.manifest(CorpusManifest).known_shares
    rows = [_prompt_row(context, name, counts, shares.get(name), beta) for name, counts in known.items() if counts[0]]
    rows.sort(key=lambda row: (row["share"], row["problem"]))
    columns = ("problem", "n", "k", "share", "95% interval of S", "y_0, nats", "95% interval of y_0", "flag")
    unsolved = sum(k == 0 for _, k in known.values())
    note = f"{unsolved} of {len(known)} without a success. " if unsolved else ""
    if fractional := context.config.train.reward == "fractional":
        columns = tuple(name for name in columns if "y_0" not in name)
        note += "A success passes every test; soft values come from shares of tests and are not shown. "
    return ReportSection(
        "Soft values of the prompts",
        "Samples of the reference policy at temperature 1 over all runs; Jeffreys intervals (Beta posterior).",
        charts=[soft_values(list(known.values()), beta)] if rows and not fractional else [],
        tables=[ReportTable("Training prompts", columns, rows[:MOST_ROWS], note + _shown(rows))],
    )


def _prompt_row(context: Context, problem_id: str, counts: Counts, known: float | None, beta: float) -> dict[str, Any]:
    """`known`: the probability that pi_0 gives the corpus's programs, where that is the prompt's S."""
    n, k = counts
    config = context.config.q0
    low, high = beta_interval(n, k)
    y_low, y_high = soft_value_interval(n, k, beta)
    fate, prior = "kept with a prior", config.prior
    if context.config.train.reward == "fractional":
        fate = "trained on by the tests that it passes"
    elif config.zero_successes == "drop":
        fate, prior = "not trained on", 0.0
    elif known is not None:
        fate = f"kept with S = {known:.1g} of known programs"
    return {
        "problem": problem_id,
        "n": n,
        "k": k,
        "share": round(k / n, 4),
        "95% interval of S": f"{low:.4f} to {high:.4f}",
        "y_0, nats": round(soft_value(n, k, beta, prior=prior, known=known), 2),
        "95% interval of y_0": f"{y_low:.2f} to {y_high:.2f}",
        "flag": f"no success: {fate}" if k == 0 else "",
    }


def soft_values(known: Sequence[Counts], beta: float) -> Chart:
    """Soft value of every prompt with its 95% interval, hardest first; hollow where no sample succeeded."""
    ordered = sorted((c for c in known if c[0]), key=lambda c: (c[1] / c[0], -c[0]))
    values = [soft_value(n, k, beta, prior=0.5) for n, k in ordered]
    ends = [soft_value_interval(n, k, beta) for n, k in ordered]

    def draw(figure: Figure, theme: Theme) -> None:
        axes: Axes = figure.subplots()
        places = range(len(values))
        axes.vlines(places, [low for low, _ in ends], [high for _, high in ends], color=theme.series[0], linewidth=1.2)
        faces = [theme.series[0] if k else theme.paper for _, k in ordered]
        axes.scatter(places, values, s=14, c=faces, edgecolors=theme.series[0], linewidths=0.8, zorder=3)
        axes.set_xlabel("training prompts, hardest first (hollow: no success)")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("soft value y_0, nats")
        axes.set_title("Soft values of the training prompts, with 95% intervals")
        axes.grid(True, axis="y")

    widths = sorted(high - low for low, high in ends)
    alt = f"Soft values of {len(values)} prompts; median width of the intervals {widths[len(widths) // 2]:.2f} nats"
    return Chart("soft_values", "Soft values", alt, draw)


def corpus(context: Context, prompts: PromptSet) -> ReportSection | None:
    """Per source: what came in, what became of it, how often it was right, and what it adds per problem."""
    manifest = context.manifest(CorpusManifest)
    flow = manifest.flow
    if not flow:
        return None
    added = context.warehouse.rows(PER_PROBLEM, [manifest.corpus_id])
    rows = [_source_row(source, fates, added, len(prompts.prompts)) for source, fates in flow.items()]
    columns = ("source", "came in", "judged", *FATES[::-1], "success rate", "problems", "per problem", "only source of")
    tables = [ReportTable("Sources of the corpus", columns, rows)]
    if manifest.left_out:
        skipped = [{"what": name, "responses": n} for name, n in sorted(manifest.left_out.items())]
        tables.append(ReportTable("Not taken in", ("what", "responses"), skipped))
    found, judged = disagreements(context, prompts)
    if judged:
        claims = ("problem", "said", "judged", "detail")
        title = f"Programs judged otherwise than their source says ({len(found)} of {judged})"
        tables.append(ReportTable(title, claims, found[:MOST_ROWS], _shown(found)))
    text = f"{manifest.summary}. Every response that could be used, and why it is in the corpus or not."
    return ReportSection("Corpus", text, [source_flow(flow)], tables)


def _source_row(
    source: str, fates: Mapping[str, int], added: Sequence[Mapping[str, Any]], problems: int
) -> dict[str, Any]:
    mine = {row["problem_id"]: row["n"] for row in added if row["source"] == source}
    others = {row["problem_id"] for row in added if row["source"] != source}
    judged, correct = fates.get("judged", 0), fates.get("correct", 0)
    rate = ""
    if judged:
        low, high = beta_interval(judged, correct)
        rate = f"{100 * correct / judged:.1f}% ({100 * low:.1f} to {100 * high:.1f})"
    counts = {name: fates.get(name, 0) for name in ("came in", "judged", *FATES)}
    return {"source": source, **counts} | {
        "success rate": rate,
        "problems": len(mine),
        "per problem": round(sum(mine.values()) / max(1, problems), 2),
        "only source of": len(mine.keys() - others),
    }


def source_flow(flow: Mapping[str, Mapping[str, int]]) -> Chart:
    """What became of each source's responses, as shares of what came in, and beside it how often it was right."""
    sources = list(flow)
    totals = {source: max(1, fates.get("came in", 0)) for source, fates in flow.items()}

    def draw(figure: Figure, theme: Theme) -> None:
        left, right = figure.subplots(1, 2, sharey=True, width_ratios=(3, 1))
        starts = [0.0] * len(sources)
        for number, fate in enumerate(FATES):
            shares = [flow[source].get(fate, 0) / totals[source] for source in sources]
            if any(shares):
                color = theme.series[number % len(theme.series)]
                style = {"color": color, "alpha": 0.75, "hatch": HATCHES[number % len(HATCHES)]}
                left.barh(sources, shares, left=starts, label=fate, edgecolor=theme.ink, linewidth=0.8, **style)
                starts = [start + share for start, share in zip(starts, shares, strict=True)]
        for place, source in enumerate(sources):
            left.annotate(f" {flow[source].get('came in', 0):,}", (1.0, place), va="center", fontsize=8.5)
            _draw_rate(right, place, flow[source], theme)
        left.set_title("What became of the responses")
        right.set_title("Correct")
        for axes in (left, right):
            axes.set_xlim(0, 1.12 if axes is left else 1.0)
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes.set_ylim(len(sources) - 0.5, -0.5)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower left", ncols=4)

    parts = [
        f"{source}: {fates.get('came in', 0)} came in, {fates.get('kept', 0)} kept" for source, fates in flow.items()
    ]
    alt = "Responses by source. " + "; ".join(parts)
    return Chart("source_flow", "Sources of the corpus", alt, draw, size=(8.4, 1.7 + 0.5 * len(sources)))


def _draw_rate(axes: Axes, place: int, fates: Mapping[str, int], theme: Theme) -> None:
    judged, correct = fates.get("judged", 0), fates.get("correct", 0)
    if judged:
        low, high = beta_interval(judged, correct)
        style = {"color": theme.series[0], "clip_on": False}  # points at 0 and 100% are whole
        axes.plot([low, high], [place, place], linewidth=2.2, **style)
        axes.plot(correct / judged, place, marker="o", markersize=6, **style)


def disagreements(context: Context, prompts: PromptSet) -> tuple[list[dict[str, str]], int]:
    """Shipped programs whose verdict differs from what their source says, and how many could be compared.

    An executed verdict of the source counts before its claim; where it only claims, right or wrong is compared.
    """
    rows = context.warehouse.rows(VERDICTS, [prompts.suites])
    known = {(row["program_hash"], row["suite_hash"]): row for row in rows}
    found: list[dict[str, str]] = []
    compared = 0
    for problem_id, prompt in prompts.prompts.items():
        for solution in prompt.problem.solutions:
            judged = known.get((program_hash(solution.program), prompt.problem.suite_hash))
            if judged is None:
                continue
            compared += 1
            said = solution.verified or solution.claimed
            same = said == judged["verdict"] or (said == "rejected" and judged["verdict"] != "accepted")
            if not same:
                detail = str(judged["detail"] or "").strip()[-120:]
                found.append({"problem": problem_id, "said": said, "judged": judged["verdict"], "detail": detail})
    return sorted(found, key=lambda row: (row["said"], row["judged"], row["problem"])), compared


def suites(context: Context) -> ReportSection:
    """By which tests the run's programs were judged: those that the problems came with, or more that audits found."""
    manifest = context.manifest(PrepareManifest)
    rows = [{"problem": name, "version": version} for name, version in sorted(manifest.suite_versions.items())]
    others = manifest.rows - len(rows)
    text = f"{others} problems are judged by the tests that they came with"
    if rows:
        table = ReportTable("Problems with tests of audits", ("problem", "version"), rows[:MOST_ROWS], _shown(rows))
        return ReportSection("Suites", f"{text}, {len(rows)} by more that audits found.", tables=[table])
    wanted = context.config.problems.accepted_tests
    return ReportSection("Suites", text + ("." if wanted else "; tests that audits added were not wanted."))


def left_out(context: Context) -> ReportSection | None:
    """Problems that were not used, by reason, and every pair that cost a training problem its place."""
    manifest = context.manifest(PrepareManifest)
    reasons = [{"reason": name, "problems": n} for name, n in sorted(manifest.left_out.items())]
    pairs = [
        {
            "training problem": pair.train_id,
            "evaluation problem": pair.evaluation_id,
            "why": pair.reason,
            "shared phrases": f"{100 * pair.containment:.0f}%",
            "Jaccard": round(pair.jaccard, 2),
            "shared tests": pair.shared_tests,
        }
        for pair in manifest.overlaps
    ]
    if not reasons and not pairs:
        return None
    columns = ("training problem", "evaluation problem", "why", "shared phrases", "Jaccard", "shared tests")
    tables = [ReportTable("Problems that were not used", ("reason", "problems"), reasons)] if reasons else []
    if pairs:
        tables.append(
            ReportTable("Training problems that are evaluation problems", columns, pairs[:MOST_ROWS], _shown(pairs))
        )
    return ReportSection("Problems left out", tables=tables)


def _shown(rows: Sequence[Any]) -> str:
    return f"The first {MOST_ROWS} of {len(rows)} rows." if len(rows) > MOST_ROWS else ""
