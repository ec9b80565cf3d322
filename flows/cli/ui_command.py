"""`spo ui`: the pages in a browser, or frozen in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from flows.settings import home, warehouse_location, warehouse_shown

console = Console()


def ui(
    host: Annotated[str, typer.Option(help="Address to listen on; other machines need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: a free one.")] = 4280,
    token: Annotated[
        str | None, typer.Option(envvar="SPO_UI_TOKEN", help="Token for access; default: a random one where needed.")
    ] = None,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Time limit of a typed question (seconds).")] = 10.0,
    open_: Annotated[bool, typer.Option("--open", help="Open the address in this machine's browser.")] = False,
    bundle: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the pages as files instead of serving them.")
    ] = None,
    run: Annotated[list[str], typer.Option(help="Bundle: run to include; repeatable.")] = [],  # noqa: B006
    sql: Annotated[str | None, typer.Option(help="Bundle: problem_id and trajectory_id of this query.")] = None,
    at: Annotated[int | None, typer.Option(help="Bundle: snapshot.")] = None,
) -> None:
    """Show runs, problems, programs and tokens in the browser. Read-only; works while runs write."""
    if bundle is not None:
        _freeze(bundle, run, sql, at)
        return
    if run or sql or at is not None:
        raise typer.BadParameter("--run, --sql and --at choose what a bundle holds: give --bundle FOLDER, too")
    from flows.explorer_server import Serving, serve

    def told(address: str) -> None:
        console.print(f"Warehouse  {warehouse_shown()}", highlight=False, soft_wrap=True)
        console.print(f"Pages      {address}  (Ctrl-C ends)", highlight=False, soft_wrap=True)
        if open_:
            typer.launch(address)

    serve(warehouse_location(), home(), Serving(host, port, token, time_limit), told)


def _freeze(folder: Path, runs: list[str], sql: str | None, at: int | None) -> None:
    from tasks.explorer import bundle
    from tasks.explorer.pages import Explorer
    from warehouse.reading.readers import Readers

    with Readers.open(warehouse_location()) as readers:
        readers.fill()
        with readers.session(at) as session:
            session.need_responses()
            shown = session.snapshot
            known = {row["run_id"] for row in session.rows("SELECT run_id FROM runs")}
            answer = None if sql is None else session.ask(sql, limit=bundle.MOST_PAGES)
        if unknown := [run for run in runs if run not in known]:
            raise bundle.EmptyBundle(f"no run {unknown[0]!r} at snapshot {shown}; `spo runs` lists the runs")
        chosen = (
            (frozenset[str](), frozenset[str]()) if answer is None else bundle.chosen_by(answer.columns, answer.rows)
        )
        selection = bundle.Selection(frozenset(runs), *chosen, at=at)
        pages = bundle.write(Explorer(readers, home()), selection, folder, f"frozen at snapshot {shown}")
    console.print(f"{len(pages)} pages; open {pages[0]}", highlight=False, soft_wrap=True)
