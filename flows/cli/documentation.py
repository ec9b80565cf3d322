"""The commands of `spo` as a page: docs/reference/commands.md.

python -m flows.cli.documentation > docs/reference/commands.md
"""

from __future__ import annotations

from typing import Any, Final

import typer.main

from flows.cli.main import app

INTRODUCTION: Final = """\
# Commands

Every command of `spo`, its arguments and its options.
`python -m flows.cli.documentation > docs/reference/commands.md` writes this page.
The option `--help` of each command prints the same.

A setting is given as `--set NAME=VALUE`, or `-s NAME=VALUE`. [Settings](settings.md) lists the names.
"""


def page() -> str:
    """The text of docs/reference/commands.md."""
    root: Any = typer.main.get_command(app)
    rows = [_row(name, command) for name, command in sorted(root.commands.items())]
    return "\n".join([INTRODUCTION, "| command | arguments and options |", "|---|---|", *rows, ""])


def _row(name: str, command: Any) -> str:
    parameters = sorted(command.params, key=lambda one: one.param_type_name != "argument")
    shown = [f"{_names(one)} {_meaning(one)}" for one in parameters if not getattr(one, "hidden", False)]
    return f"| **{name}** | {'<br>'.join([' '.join((command.help or '').split()), *shown])} |"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len, reverse=True))


def _meaning(parameter: Any) -> str:
    return " ".join((parameter.help or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
