"""`spo study`: submit a study, watch it, show its tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from flows.settings import home, server_elsewhere, warehouse_location
from tasks.errors import CodedError

if TYPE_CHECKING:
    from flows.study_config import Study

console = Console()


class StudyFailed(CodedError):
    """The study ended without all its runs; what it says can be tried again with the same command."""


def study(
    name: Annotated[str, typer.Argument(help="Study in flows/studies, or a TOML file.")] = "quick",
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of every arm, instead of the study's own.")] = None,
    arm: Annotated[list[str] | None, typer.Option(help="Only these arms.")] = None,
    first_seed: Annotated[int | None, typer.Option(min=0, help="First seed, instead of the study's own.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="File of results (JSON Lines): known arms are not run, new ones are added."),
    ] = None,
) -> None:
    """Compare ways of training over several seeds. The same command continues a stopped study."""
    from flows.cli import watch
    from flows.server import embedded
    from flows.study_config import load
    from tasks.report import study_results

    definition = load(name)
    arms = definition.chosen(arm)
    work = definition.work(arms, seeds, first_seed)
    if results is not None:
        study_results.require_writable(results)
        known = study_results.read(results, definition.settings(), definition.compared())
        work = known.missing(work, definition.after())
    _check(definition, [name for name in arms if name in {one for one, _ in work}])
    embedded.ready(console.print)
    shown = Path(name).absolute() if name.endswith(".toml") else name
    parameters = {
        "study": str(shown),
        "seeds": seeds,
        "arms": arm or None,
        "folder": str(Path.cwd()),
        "first_seed": first_seed,
        "results": str(results.absolute()) if results else None,
    }
    console.print(f"submitting spo/study: {definition.title}, {len(work)} runs", highlight=False)
    folder = home() / "studies" / Path(name).stem
    before = _written(folder)
    ended = watch.watch(watch.submit("spo/study", parameters), console)
    if _written(folder) != before:
        _show(json.loads((folder / "study.json").read_text(encoding="utf-8")))
        console.print(f"Page       {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if ended.state != "COMPLETED":
        raise StudyFailed(
            f"the study ended as {ended.state}: {ended.message}\nthe same command continues it; logs: {home() / 'logs'}"
        )


def _written(folder: Path) -> int | None:
    """When the study's result was written (nanoseconds); None when there is none."""
    result = folder / "study.json"
    return result.stat().st_mtime_ns if result.is_file() else None


def _check(definition: Study, arms: Sequence[str]) -> None:
    """Raise NotReady, with every fault and the arms that have it, unless a run of every arm could begin.

    Not with a server on another machine: the worker's files may be there.
    """
    from tasks import config as configuration
    from tasks.checks import preflight

    if server_elsewhere():
        return
    found: dict[str, list[str]] = {}
    for arm in arms:
        config = configuration.absolute(definition.config(arm, definition.first_seed), Path.cwd())
        for message in preflight.faults(config, home(), warehouse_location()):
            found.setdefault(message, []).append(arm)
    if found:
        listed = "\n".join(f"  {', '.join(named)}: {message}" for message, named in found.items())
        raise preflight.NotReady(f"these arms could not begin, so nothing was started:\n{listed}")


def _show(found: dict[str, Any]) -> None:
    """The tables; long cells are folded, since a cut figure is worse than a tall row."""
    for group in found["groups"]:
        console.rule(group["title"])
        if group["text"]:
            console.print(group["text"], highlight=False)
        for each in group["tables"]:
            columns = [Column(name, overflow="fold") for name in each["columns"]]
            table = Table(*columns, title=each["title"], caption=each["note"])
            for row in each["rows"]:
                table.add_row(*(Text(str(row.get(name, ""))) for name in each["columns"]))
            console.print(table)
