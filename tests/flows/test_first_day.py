"""A newcomer's page does what it says: its files and its commands, as they are typed, from the first to the last."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.conftest import Server
from tests.tasks.conftest import (
    Lab,
    finished,  # noqa: F401  (a fixture)
)

PAGE = (Path(__file__).parents[2] / "docs" / "start" / "first-day.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def written(folder: Path) -> list[str]:
    """Write the page's files into `folder`; the page's commands in their order."""
    typed: list[str] = []
    for found in BLOCK.finditer(PAGE):
        if found[1] == "sh":
            typed += found[2].splitlines()
        else:
            *_, name = re.findall(r"`(\w+\.(?:py|toml))`", PAGE[: found.start()])
            (folder / name).write_text(found[2], encoding="utf-8")
    return typed


def test_the_page_has_its_files_and_commands(tmp_path: Path) -> None:
    typed = written(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"make_problems.py", "double.py", "my.toml"}
    assert [command.split()[1] for command in typed] == [
        *("doctor", "make_problems.py", "judge", "plan", "run", "status", "report", "sql", "sql", "sql"),
        *("run", "compare", "down"),
    ]


@pytest.fixture
def at_home(finished: Lab, tmp_path: Path) -> Server:  # noqa: F811
    """A folder with a model in it, and a server of its own to be started there."""
    (model,) = (path.parent for path in (finished.home / "models").rglob("config.json"))
    shutil.copytree(model, tmp_path / "my-model")
    return Server(tmp_path / ".spo")


def test_every_command_of_the_page_works(at_home: Server, tmp_path: Path) -> None:
    told: dict[str, str] = {}
    for command in written(tmp_path):
        first, *rest = shlex.split(command)
        program = [sys.executable, *(["-m", "flows.cli"] if first == "spo" else [])]
        environment = {name: value for name, value in at_home.environment.items() if name != "SPO_HOME"}
        done = subprocess.run(
            [*program, *rest], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        told[command] = done.stdout
    assert "accepted" in told["spo judge double.py --problem double --problems problems.jsonl"]
    assert "6 are solved sometimes" in told["spo plan my.toml --probe"]
    assert "pass@10" in told["spo run my.toml"]
    assert "fresh" in told["spo status"]
    assert Path(told["spo report"].splitlines()[0]).is_file()
