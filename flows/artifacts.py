"""What stages leave for people, as artifacts of the Prefect run: pass@k as a table, the report's pictures."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import httpx

from tasks.run.manifests import EvaluateManifest, Manifest, ReportManifest

PICTURE_LIMIT_BYTES = 512 << 10
"""Larger pictures stay on disk: an artifact lives in the server's database."""


def publish(stage: str, run_id: str, manifest: Manifest) -> None:
    """Make the artifacts of a finished stage in the current flow run; stages without results make none."""
    from prefect import get_run_logger

    try:
        _create(run_id, manifest)
    except httpx.HTTPError as error:  # the result is in the warehouse; a server that is away must not fail the stage
        get_run_logger().warning("the results of %s are not shown as artifacts: %s", stage, error)


def _create(run_id: str, manifest: Manifest) -> None:
    from prefect.artifacts import create_image_artifact, create_markdown_artifact, create_table_artifact

    if isinstance(manifest, EvaluateManifest):
        create_table_artifact(
            comparison(manifest), key="spo-pass-at-k", description=f"run {run_id}: pass@k in per cent"
        )
    if isinstance(manifest, ReportManifest):
        create_markdown_artifact(summary(run_id, manifest), key="spo-report", description=f"run {run_id}")
        for name, path in small_pictures(manifest).items():
            create_image_artifact(data_address(path), key=f"spo-{name}", description=f"run {run_id}: {name}")


def comparison(manifest: EvaluateManifest) -> list[dict[str, Any]]:
    """pass@k before and after with the difference's interval, in per cent."""
    return [
        {
            "metric": metric,
            "before": round(100 * row.before, 1),
            "after": round(100 * row.after, 1),
            "difference": round(100 * row.difference, 1),
            "95% interval": f"{100 * row.interval[0]:+.1f} to {100 * row.interval[1]:+.1f}",
        }
        for metric, row in manifest.comparison.items()
    ]


def summary(run_id: str, manifest: ReportManifest) -> str:
    """Where the report is."""
    return f"# Run {run_id}\n\n{manifest.summary}\n\nPage: `{manifest.page}`\n"


def small_pictures(manifest: ReportManifest) -> dict[str, Path]:
    """The report's PNG files that are small enough to keep in the server, by artifact name."""
    return {
        name.replace("_", "-"): path
        for name, path in manifest.pictures.items()
        if path.is_file() and path.stat().st_size <= PICTURE_LIMIT_BYTES
    }


def data_address(path: Path) -> str:
    """A picture as an address that needs no server."""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
