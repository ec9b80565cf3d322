"""Every command in README.md and docs is one that the command line and the deployments accept."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer._click.exceptions import MissingParameter
from typer.testing import CliRunner

from flows.cli.main import app

PROJECT = Path(__file__).parents[1]
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").glob("*.md"))]
PREFIX = "prefect deployment run "
WORDS = {"STAGE": "train", "SNAPSHOT": "3", "RUN": "tiny-3", "RECIPE": "tiny", "NAME": "tiny", "a.b=c": "seed=1"}
"""What stands for something in the documents, and a value that it may have."""
CHEAP = {"recipes", "plan", "status"}
"""Commands that are run for real, in an empty home."""


def commands(text: str) -> list[str]:
    """The `spo` and `prefect deployment run` commands in a page: inline code, and lines of fenced blocks."""
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`([^`\n]+)`", outside)
    for block in blocks:
        lines = block.splitlines()
        while lines:
            line = lines.pop(0)
            while line.count("'") % 2 and lines:
                line += " " + lines.pop(0).strip()
            found += [line, line.partition("#")[2].partition("also: ")[2]]
    return [line.strip() for line in found if line.strip().startswith(("spo ", PREFIX))]


def words(command: str) -> list[str]:
    """The command's words, without brackets around what may be left out, and with values for what stands for one."""
    plain = re.sub(r" \[([^]]*)\]", r" \1", command).replace(" ...", "").partition(" > ")[0]
    plain = plain.replace("--fields NAME", "--fields train.")
    return [re.sub(r"[A-Z]{3,}|a\.b=c", lambda m: WORDS.get(m[0], m[0]), w) for w in shlex.split(plain, comments=True)]


ALL = sorted({(page.name, command) for page in PAGES for command in commands(page.read_text(encoding="utf-8"))})
OURS = [pytest.param(words(c), id=f"{page}: {c}") for page, c in ALL if c.startswith("spo ")]
PREFECTS = [pytest.param(words(c), id=f"{page}: {c}") for page, c in ALL if c.startswith(PREFIX)]


def test_the_documents_have_commands() -> None:
    assert len(OURS) > 25
    assert len(PREFECTS) > 5


@pytest.mark.parametrize("command", OURS)
def test_a_documented_command_is_accepted(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for word in command:
        if word.endswith(".py"):
            Path(word).write_text("print(1)\n", encoding="utf-8")
    root: Any = typer.main.get_command(app)
    assert command[1] in root.commands, f"no command {command[1]!r}"
    with contextlib.suppress(MissingParameter):  # `spo export` in a sentence is a name, not a whole command
        root.commands[command[1]].make_context(command[1], command[2:])


@pytest.mark.parametrize("command", PREFECTS)
def test_a_documented_deployment_exists_and_has_the_parameters(command: list[str]) -> None:
    described = yaml.safe_load((PROJECT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
    deployments = {f"spo/{found['name']}": found["entrypoint"] for found in described}
    name, *rest = command[3:]
    assert name in deployments
    module, function = deployments[name].rsplit(".", 1)
    known = inspect.signature(getattr(importlib.import_module(module), function)).parameters
    given = [rest[i + 1].partition("=")[0] for i, word in enumerate(rest) if word == "-p"]
    assert set(given) <= set(known)
    assert {word for word in rest if word.startswith("-")} <= {"-p", "--watch"}


@pytest.mark.parametrize("command", [c for c in OURS if c.values[0][1] in CHEAP and "--probe" not in c.values[0]])
def test_a_documented_command_that_only_looks_works_before_the_first_run(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPO_HOME", str(tmp_path / "none"))
    for name in ("SPO_WAREHOUSE", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPO_PORT", "9")
    result = CliRunner().invoke(app, command[1:])
    if "--run" in command:  # there is none to plan yet
        assert "no run 'tiny-3'" in str(result.exception)
    elif result.exception is not None and "toml" in str(command):
        assert "does not exist" in str(result.exception)
    else:
        assert result.exit_code == 0, result.output
    assert not (tmp_path / "none").exists()
