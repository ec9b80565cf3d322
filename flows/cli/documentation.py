"""The commands of `spo` as a page: docs/reference/commands.md.

python -m flows.cli.documentation > docs/reference/commands.md
"""

from __future__ import annotations

import textwrap
from typing import Any, Final

import typer.main

from flows.cli.main import app

INTRODUCTION: Final = """\
# Commands

Every command of `spo`, its arguments and its options.
`python -m flows.cli.documentation > docs/reference/commands.md` writes this page. `spo COMMAND --help` prints the same.

A setting is given as `--set NAME=VALUE`, or `-s NAME=VALUE`. [Settings](settings.md) lists the names.
"""
WIDTH: Final = 140


def page() -> str:
    """The text of docs/reference/commands.md."""
    root: Any = typer.main.get_command(app)
    return "\n".join([INTRODUCTION, *(_command(name, command) for name, command in sorted(root.commands.items()))])


def _command(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    rows = [f"* {_names(one)}: {_meaning(one)}" for one in (*arguments, *options)]
    text = textwrap.fill(" ".join((command.help or "").split()), WIDTH, break_long_words=False)
    return "\n".join([f"## spo {name}", "", text, "", *rows, *([""] if rows else [])])


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{(parameter.metavar or parameter.name).upper()}`"
    return ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len, reverse=True))


def _meaning(parameter: Any) -> str:
    return " ".join((parameter.help or "").split())


if __name__ == "__main__":
    print(page(), end="")
