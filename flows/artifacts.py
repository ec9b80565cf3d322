"""What a run leaves for people in Prefect: one page with pass@k, the learning curve and the way to the report."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from tasks.run.intervals import interval_text
from tasks.run.manifests import Change, CurvePoint, EvaluateManifest, Manifest, ReportManifest
from tasks.run.stage_names import StageName

KEY = "spo-result"
BAR_CELLS = 40


def publish(run_id: str, manifests: Mapping[StageName, Manifest]) -> None:
    """Make the page in the current flow run, if one of its stages has a result to show."""
    from prefect import get_run_logger
    from prefect.artifacts import create_markdown_artifact

    text = page(run_id, manifests)
    if text is None:
        return
    try:
        create_markdown_artifact(text, key=KEY, description=f"run {run_id}")
    except httpx.HTTPError as error:  # the result is in the warehouse; a server that is away must not fail the run
        get_run_logger().warning("the result is not shown in Prefect: %s", error)


def headline(run_id: str, manifests: Mapping[StageName, Manifest]) -> str:
    """The run's result in one line: pass@k when it was evaluated, else what its last stage says."""
    evaluated = manifests.get("evaluate")
    last = evaluated if evaluated is not None else list(manifests.values())[-1]
    return f"{run_id}: {last.summary}"


def page(run_id: str, manifests: Mapping[StageName, Manifest]) -> str | None:
    """The page in Markdown; None when neither evaluation nor report is there."""
    evaluated, report = manifests.get("evaluate"), manifests.get("report")
    parts: list[str] = []
    if isinstance(evaluated, EvaluateManifest):
        parts += [comparison(evaluated.comparison), evaluated.described]
        parts += [f"Transfer to {name}:\n\n{comparison(found)}" for name, found in evaluated.transfer.items()]
        parts += [unseen(name, number, evaluated) for name, number in evaluated.transfer_alike.items()]
        if evaluated.unfit:
            parts.append(evaluated.unfit)
        if evaluated.curve:
            parts.append(curve(evaluated.curve))
    if isinstance(report, ReportManifest):
        parts.append(f"[The whole report]({report.page.absolute().as_uri()}): `{report.page}`")
    return "\n\n".join([f"# Run {run_id}", *parts]) + "\n" if parts else None


def unseen(name: str, alike: int, evaluated: EvaluateManifest) -> str:
    """Transfer to the problems of set `name` but those `alike` to training problems, if any is left."""
    if found := evaluated.transfer_unseen.get(name):
        what = f"Transfer to {name}, without the {alike} problems that training problems of this run resemble"
        return f"{what}:\n\n{comparison(found)}"
    return f"All {alike} problems of {name} resemble training problems of this run: it shows no transfer."


def comparison(changes: Mapping[str, Change]) -> str:
    """A table of pass@k before and after with the difference's interval, in per cent."""
    rows = ["| | before | after | difference | 95% interval |", "|---|---:|---:|---:|---:|"]
    for metric, row in changes.items():
        figures = f"{100 * row.before:.1f} | {100 * row.after:.1f} | {100 * row.difference:+.1f}"
        rows.append(f"| {metric} | {figures} | {interval_text(*row.interval, ' to ')} |")
    return "\n".join(rows)


def curve(points: tuple[CurvePoint, ...]) -> str:
    """pass@k along training, for the smallest k, as bars of text."""
    k = min(point.k for point in points)
    chosen = sorted((point for point in points if point.k == k), key=lambda point: point.step)
    bars = [
        f"step {point.step:>6}  {'█' * round(BAR_CELLS * point.value):<{BAR_CELLS}} {100 * point.value:5.1f}%"
        for point in chosen
    ]
    return "\n".join([f"pass@{k} along training:", "", "```", *bars, "```"])
