"""Stage `report`: the run's figures as PNG and one self-contained page."""

from __future__ import annotations

from typing import Any

from tasks.run.manifests import EvaluateManifest, ReportManifest
from tasks.run.stage import Amount, Context, Stage


def inputs(context: Context) -> dict[str, Any]:
    """The evaluation it shows."""
    return {"run": context.run_id, "evaluation": context.manifest(EvaluateManifest).model_dump(mode="json")}


def body(context: Context) -> ReportManifest:
    """Write the page and the figures into the run's folder."""
    from tasks.report import run_report  # which loads what draws: half a second that other stages need not wait

    page, *pictures = run_report.write_finished(context, context.manifest(EvaluateManifest).described)
    named = {path.stem: path for path in pictures}
    return ReportManifest(page=page, pictures=named, summary=f"{len(pictures)} figures; {page}")


def _usable(manifest: ReportManifest) -> bool:
    return all(path.is_file() for path in (manifest.page, *manifest.pictures.values()))


STAGE = Stage(
    manifest=ReportManifest,
    version=4,
    sections=(),
    inputs=inputs,
    body=body,
    amount=lambda _: Amount(1, "page"),
    units=lambda _: 1,
    usable=_usable,
)
