"""What a finished run shows: pass@k before and after, where everything is, and a question for the warehouse."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from flows.settings import api_url, home, warehouse_location, warehouse_shown
from tasks.run import runs
from tasks.run.intervals import interval_text
from tasks.run.manifests import Change, EvaluateManifest, PrepareManifest, Q0Manifest, ReportManifest
from tasks.run.stage import finished
from warehouse import Warehouse
from warehouse.queries import query

QUESTION = query(__name__, "question")


def show(console: Console, run_id: str | None = None) -> None:
    """Print the result of `run_id`, by default the newest run."""
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        run_id = run_id or runs.latest(store)
        console.print(f"\n[bold]Result of run {run_id}[/]", highlight=False)
        show_pass_at_k(console, finished(store, EvaluateManifest, run_id=run_id))
        _skipped(console, store, run_id)
        question = hardest(store, run_id)
        answer = [] if question is None else store.rows(question)
        report = finished(store, ReportManifest, run_id=run_id)
    console.print(f"\nWarehouse  {warehouse_shown()}", highlight=False)
    if question is not None:
        console.print("Question   the five training prompts that the reference policy finds hardest, in SQL:")
        console.print(f'  {_command()} sql "{question}"', highlight=False, soft_wrap=True)
        console.print(_table(answer))
    if report is not None:
        console.print(f"\nReport     {report.page}", highlight=False, soft_wrap=True)
        if curve := report.pictures.get("learning_curve"):
            console.print(f"Picture    {curve}", highlight=False, soft_wrap=True)
    console.print(f"Run files  {home() / 'runs' / run_id}", highlight=False, soft_wrap=True)
    console.print(f"Prefect    {api_url().removesuffix('/api')}  (stop it with `make down`)", highlight=False)


def hardest(store: Warehouse, run_id: str) -> str | None:
    """The question for the hardest training prompts of the run, as SQL to copy; None before its Q0."""
    prepared = finished(store, PrepareManifest, run_id=run_id)
    sampled = finished(store, Q0Manifest, run_id=run_id)
    if prepared is None or sampled is None:
        return None
    texts = {
        "problems": prepared.problems_batch,
        "prompts": prepared.prompts_batch,
        "reference": prepared.policy_id,
        "template": prepared.template_id,
        "sampling": sampled.sampling,
    }
    question = " ".join(QUESTION.split()).replace("$beta", f"{runs.load_config(store, run_id).train.beta:.6g}")
    for name, value in texts.items():
        question = question.replace(f"${name}", "'" + value.replace("'", "''") + "'")
    return question


def _table(answer: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in answer[0] if answer else []:
        table.add_column(name, justify="right" if name != "problem_id" else "left")
    for row in answer:
        table.add_row(*(Text(f"{value:.3f}" if isinstance(value, float) else str(value)) for value in row.values()))
    return table


def _command() -> str:
    """How this program was called, so that the line can be copied."""
    called = Path(sys.argv[0])
    return os.path.relpath(called) if called.name == "spo" else "spo"


def show_pass_at_k(console: Console, manifest: EvaluateManifest | None) -> None:
    """Print pass@k before and after, and what limits the comparison."""
    if manifest is None:
        console.print("no evaluation in this run")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for heading in ("before", "after", "difference", "95% interval"):
        table.add_column(heading, justify="right")
    _changes(table, manifest.comparison, "")
    for name, found in manifest.transfer.items():
        _changes(table, found, f"{name} ")
        if unseen := manifest.transfer_unseen.get(name):
            _changes(table, unseen, f"{name}, unseen ")
    if table.row_count:
        console.print(table)
    console.print(manifest.described, highlight=False)
    if manifest.unfit:
        console.print(manifest.unfit, highlight=False)
    for name, number in manifest.transfer_alike.items():
        others = "unseen: the others" if manifest.transfer_unseen.get(name) else "none is left, it shows no transfer"
        told = f"{name}: {number} problems resemble training problems of this run; {others}"
        console.print(told, highlight=False)


def _changes(table: Table, changes: Mapping[str, Change], prefix: str) -> None:
    for name, row in sorted(changes.items(), key=lambda item: int(item[0].removeprefix("pass@"))):
        table.add_row(
            prefix + name,
            f"{100 * row.before:.1f}%",
            f"{100 * row.after:.1f}%",
            f"{100 * row.difference:+.1f}",
            interval_text(*row.interval, " .. "),
        )


def _skipped(console: Console, store: Warehouse, run_id: str) -> None:
    rows = store.rows("SELECT stage, status, manifest_json FROM stages WHERE run_id = ? ORDER BY arrival", [run_id])
    for row in rows:
        reused = json.loads(row["manifest_json"]).get("reused")
        if row["status"] == "skipped":
            console.print(f"skipped    {row['stage']}: done before with the same inputs", highlight=False)
        elif reused:
            console.print(f"reused     {row['stage']}: {reused}", highlight=False)
