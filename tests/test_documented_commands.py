"""Every command in README.md, CONTRIBUTING.md and docs is one that the command line and the deployments accept."""

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
PAGES = [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]
PREFIX = "prefect deployment run "
WORDS = {"STAGE": "train", "SNAPSHOT": "3", "RUN": "tiny-3", "RECIPE": "tiny", "NAME": "tiny", "a.b=c": "seed=1"}
"""What stands for something in the documents, and a value that it may have."""
CHEAP = {"recipes", "plan", "status"}
"""Commands that are run for real, in an empty home."""


def commands(text: str) -> list[str]:
    """The `spo` and `prefect deployment run` commands in a page: inline, in fenced and in indented blocks."""
    blocks = re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"`([^`\n]+)`", outside)
    found += re.findall(rf"^ {{4,}}((?:spo |{PREFIX}).*)$", outside, flags=re.MULTILINE)
    for block in blocks:
        lines = block.splitlines()
        while lines:
            line = lines.pop(0)
            while line.count("'") % 2 and lines:
                line += " " + lines.pop(0).strip()
            found += [line, line.partition("#")[2].partition("also: ")[2]]
    return [line.strip() for line in found if line.strip().startswith(("spo ", PREFIX))]


def words(command: str) -> list[str]:
    """The command's words, without brackets around what may be left out, and with values for what stands for one.

    What stands in quotes is left alone.
    """
    quoted: list[str] = []

    def put_aside(found: re.Match[str]) -> str:
        quoted.append(found[0])
        return f"<{len(quoted) - 1}>"

    plain = re.sub(r"'[^']*'|\"[^\"]*\"", put_aside, command)
    plain = re.sub(r" \[([^]]*)\]", r" \1", plain).replace(" ...", "").partition(" > ")[0]
    plain = plain.replace("--fields NAME", "--fields train.")
    plain = re.sub(r"[A-Z]{3,}|a\.b=c", lambda found: WORDS.get(found[0], found[0]), plain)
    plain = re.sub(r"<(\d+)>", lambda found: quoted[int(found[1])], plain)
    return shlex.split(plain, comments=True)


def test_commands_are_found_in_every_kind_of_block() -> None:
    page = "`spo runs`\n\n    spo status   # where\n\n```sh\nspo up\n```\n\n```toml\nspo none\n```\n"
    assert commands(page) == ["spo runs", "spo status   # where", "spo up"]


def test_what_stands_in_quotes_is_left_alone() -> None:
    asked = "SELECT outcomes[1] FROM q0 WHERE n > 3 AND x = 'RUN'"
    found = words(f'spo sql "{asked}" --at SNAPSHOT [--csv] > FILE  # an answer')
    assert found == ["spo", "sql", asked, "--at", "3", "--csv"]


ALL = sorted({(page.name, command) for page in PAGES for command in commands(page.read_text(encoding="utf-8"))})
OURS = [pytest.param(words(c), id=f"{page}: {c}") for page, c in ALL if c.startswith("spo ")]
PREFECTS = [pytest.param(words(c), id=f"{page}: {c}") for page, c in ALL if c.startswith(PREFIX)]


SOURCES = [path for package in ("flows", "tasks", "sandbox", "warehouse") for path in (PROJECT / package).rglob("*.py")]
OWN_INSTALL = re.compile(r"""pip install (?!-e |--)(?:['"]?\.['"\[\s`]|['"]?\.$|['"]?spo-pipeline)""", re.MULTILINE)


def test_an_install_that_is_not_editable_is_found() -> None:
    wrong = ("pip install '.[ray]'", "pip install .[ray]", "pip install spo-pipeline[hub]", "pip install .")
    right = ("pip install -e '.[ray]'", "pip install peft", "pip install --target /opt/contest numpy")
    assert all(OWN_INSTALL.search(text) for text in wrong)
    assert not any(OWN_INSTALL.search(text) for text in right)


@pytest.mark.parametrize("path", [*PAGES, *SOURCES], ids=lambda path: str(path.relative_to(PROJECT)))
def test_the_project_is_installed_from_its_checkout_beside_which_prefect_yaml_stands(path: Path) -> None:
    assert not OWN_INSTALL.search(path.read_text(encoding="utf-8"))


def test_the_documents_have_commands() -> None:
    assert len(OURS) > 25
    assert len(PREFECTS) >= 5


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
