"""`spo publish`: a run's policy, adapter and trajectories as folders that others load, or on the hub."""

from __future__ import annotations

import tempfile
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from flows.settings import home, warehouse_location

if TYPE_CHECKING:
    from tasks.extras.publish.parts import Part
    from tasks.run.stage import Context

console = Console(highlight=False, soft_wrap=True, markup=False)
HUB = "hf:"


class PublishedPart(StrEnum):
    """What can be published."""

    model = "model"
    adapter = "adapter"
    trajectories = "trajectories"


def publish(
    run: Annotated[str, typer.Argument(help="Run, or RUN@STEP.")],
    target: Annotated[str, typer.Argument(help="New folder, or hf:OWNER/NAME.")],
    part: Annotated[list[PublishedPart], typer.Option(help="Only this part; repeatable. Default: all.")] = [],  # noqa: B006
    licence: Annotated[str, typer.Option(help="Licence to state, as the hub names it: apache-2.0, mit, ...")] = "",
    name: Annotated[str | None, typer.Option(help="Name in the cards; default: the target's.")] = None,
    public: Annotated[bool, typer.Option("--public", help="hf: a public repository; default: private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show files and cards; write and send nothing.")] = False,
) -> None:
    """Publish a run: model folder with a card, adapter, trajectories as a data set."""
    from tasks.extras.publish import facts, hub, parts
    from tasks.run import runs
    from tasks.run.stage import Context
    from warehouse import Warehouse

    run_id, step = _split(run)
    called = name or (target.removeprefix(HUB) if target.startswith(HUB) else Path(target).absolute().name)
    if target.startswith(HUB) and not dry_run:
        hub.require_token()
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        context = Context(run_id, runs.load_config(store, run_id), store, home())
        found = facts.gather(context, step)
        planned = parts.plan(context, found, called, [one.value for one in part], licence)
        if dry_run:
            _show(planned)
        elif target.startswith(HUB):
            _push(context, planned, public=public)
        else:
            for one in planned:
                console.print(f"{one.name}: {parts.write(context, one, Path(target) / one.name)}")


def _split(run: str) -> tuple[str, int | None]:
    run_id, at, step = run.partition("@")
    if at and not step.isdigit():
        raise typer.BadParameter(f"{run!r}: a step is a number, as in tiny-1@40")
    return run_id, int(step) if at else None


def _show(planned: list[Part]) -> None:
    for part in planned:
        console.print(f"{part.name}, as {part.repository}")
        for file in part.files:
            console.print(f"  {file.name:<48} {file.size:>20}")
    for part in planned:
        console.print(f"\n----- {part.repository}/README.md -----\n\n{part.card}")
    console.print("nothing was written")


def _push(context: Context, planned: list[Part], *, public: bool) -> None:
    from tasks.extras.publish import hub, parts

    for part in planned:
        with tempfile.TemporaryDirectory(prefix="spo-publish-") as folder:
            written = parts.write(context, part, Path(folder) / part.name)
            hub.push(part, written, private=not public, say=console.print)
