"""A newcomer's page does what it says: its files and its commands, as they are typed, from the first to the last."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.flows.conftest import PROJECT, Server
from tests.tasks.conftest import Lab

(PAGE,) = (path.read_text(encoding="utf-8") for path in (PROJECT / "docs").rglob("first-day.md"))
BLOCKS = [
    (found[1], found[2], PAGE[: found.start()])
    for found in re.finditer(r"^```(\w+)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
]
*COMMANDS, LAST = [line for kind, text, _ in BLOCKS if kind == "sh" for line in text.splitlines()]
FILES = {re.findall(r"`(\w+\.(?:py|toml))`", before)[-1]: text for kind, text, before in BLOCKS if kind != "sh"}
SHOWS = {"run": "pass@", "status": "fresh"}
"""The output of a command that must end well."""

pytestmark = [pytest.mark.xdist_group("server"), pytest.mark.timeout(600)]


def test_the_page_has_its_files_and_commands() -> None:
    assert {"make_problems.py", "my.toml"} <= FILES.keys()
    verbs = {command.split()[1] for command in COMMANDS}
    assert {"doctor", "judge", "plan", "run", "status", "report", "sql", "compare"} <= verbs
    assert LAST == "spo down", "which ends the server of the session (tests/flows/conftest.py)"


@pytest.fixture(scope="module")
def folder(finished: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, and a model where its recipe wants one."""
    made = tmp_path_factory.mktemp("day")
    for name, text in FILES.items():
        (made / name).write_text(text, encoding="utf-8")
    (model,) = (path.parent for path in (finished.home / "models").rglob("config.json"))
    shutil.copytree(model, made / tomllib.loads(FILES["my.toml"])["reference"]["model"])
    return made


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_works_after_those_before_it(
    command: str, folder: Path, at_once: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    first, verb, *rest = shlex.split(command)
    if first == "python":
        subprocess.run([sys.executable, verb, *rest], check=True)
        return
    assert first == "spo"
    cheaper = ["--set", "evaluate.during_training=false"] if command == "spo run my.toml" else []  # one process less
    told = at_once.told(verb, *rest, *cheaper)
    assert SHOWS.get(verb, "") in told
    if verb == "report":
        assert Path(told.splitlines()[0]).is_file()
