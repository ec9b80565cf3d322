"""The command `spo recipes`: the recipes, their values, and what every field means."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from flows.cli.run_commands import Settings, overrides
from flows.settings import RECIPES, recipe_meaning, recipe_names

console = Console()


def recipes(
    name: Annotated[str, typer.Argument(help="Recipe to print; with --fields: beginning of the names.")] = "",
    set_: Settings = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print the recipe as JSON instead of TOML.")] = False,
    fields: Annotated[bool, typer.Option("--fields", help="Print fields with default, bounds and meaning.")] = False,
    document: Annotated[bool, typer.Option("--document", help="Print docs/reference/settings.md.")] = False,
) -> None:
    """List the recipes, or print one with every value, or print fields with their meaning."""
    from tasks.config import documentation

    if document:
        print(documentation.page(), end="")
    elif fields:
        _show_fields(name)
    elif name:
        _show_recipe(name, set_, as_json)
    else:
        _list_recipes()


def _list_recipes() -> None:
    table = Table.grid(padding=(0, 2))
    for name in recipe_names():
        table.add_row(Text(name, "bold", no_wrap=True), Text(recipe_meaning(name)))
    console.print(table)


def _show_fields(prefix: str) -> None:
    from tasks.config import documentation

    for path, field in documentation.below(prefix):
        bounds = f"   {field.bounds}" if field.bounds else ""
        line = Text.assemble((path, "bold"), f" = {field.default}   {field.type}{bounds}")
        console.print(line, highlight=False, soft_wrap=True)
        console.print(Padding(Text(field.meaning), (0, 0, 0, 4)))


def _show_recipe(name: str, settings: list[str], as_json: bool) -> None:
    """The recipe with every value; as TOML it is a recipe again."""
    from tasks.config import load, toml_text

    config = load(name, overrides(settings), folder=RECIPES)
    if as_json:
        print(config.model_dump_json(indent=2))
        return
    print(f"# The recipe {config.recipe} with every value, written by `spo recipes {name}`.\n")
    print(toml_text.document(config.model_dump(mode="json", exclude={"recipe"})), end="")
