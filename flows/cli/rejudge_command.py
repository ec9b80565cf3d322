"""`spo rejudge`: say what an older version of the sandbox may have judged wrongly, and judge it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from flows.settings import warehouse_location
from sandbox import VERSION, Verdict
from tasks.errors import CodedError

if TYPE_CHECKING:
    from tasks.extras.rejudge import Backlog

console = Console()


class RejudgeFailed(CodedError):
    """Judging again ended early; the same command goes on."""


def rejudge(
    apply: Annotated[bool, typer.Option("--apply", help="Judge again; without it only a count is printed.")] = False,
    verdict: Annotated[list[Verdict], typer.Option(help="Also judge responses with this verdict; repeatable.")] = [],  # noqa: B006
) -> None:
    """Judge again what an older version of the sandbox may have judged wrongly."""
    from tasks.extras.rejudge import look
    from warehouse import Warehouse

    doubted = [str(one) for one in verdict]
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        backlog = look(store, doubted)
    _show(backlog)
    if not apply:
        _say("nothing was changed; `spo rejudge --apply` does it" if backlog.suspects else "there is nothing to do")
    elif backlog.suspects:
        _submit(doubted)


def _show(backlog: Backlog) -> None:
    for name, count in backlog.responses.items():
        _say(f"{count:>9,} responses judged {name}")
    for reason, count in sorted(backlog.left_out.items()):
        _say(f"{count:>9,} responses left out: {reason}")
    if backlog.suspects:
        _say(f"{len(backlog.unknown):>9,} programs of these have no verdict of sandbox version {VERSION}")


def _submit(verdicts: list[str]) -> None:
    from flows.cli import watch
    from flows.server import embedded

    embedded.ready(_say)
    ended = watch.watch(watch.submit("spo/rejudge", {"verdicts": verdicts}), console)
    if ended.state != "COMPLETED":
        raise RejudgeFailed(f"it ended as {ended.state}: {ended.message}; `spo rejudge --apply` goes on where it was")


def _say(message: str) -> None:
    console.print(message, highlight=False, soft_wrap=True)
