"""scripts/install.sh against a stand-in for pip and PyTorch: which build is kept, and which is put in its place; and
whether what is installed is what scripts/resolve.sh resolved."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PYTHON = """#!/bin/sh
if [ "$1" = -m ]; then shift 4; echo "$@" >>"$FOLDER/pip"; else PYTHONPATH="$FOLDER" exec "$REAL" "$@"; fi
"""


@pytest.mark.skipif(platform.system() == "Darwin", reason="there is one build for macOS")
@pytest.mark.parametrize(
    ("there", "asked", "done"),
    [
        ("cpu", "cuda", ["uninstall -y torch", "install torch==2.13.0"]),
        ("cuda", "cpu", ["uninstall -y torch", "install torch==2.13.0+cpu"]),
        ("cpu", "cpu", []),
        ("cuda", "cuda", []),
        ("cuda", "", []),
    ],
)
def test_the_build_of_pytorch_that_is_asked_for_takes_the_place_of_the_other(
    there: str, asked: str, done: list[str], tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(PYTHON)
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / ".installed").write_text(f"of another version/{there}\n")
    cuda = "13.0" if there == "cuda" else None
    (tmp_path / "torch.py").write_text(f"from types import SimpleNamespace\nversion = SimpleNamespace(cuda={cuda!r})\n")
    with (tmp_path / "torch.py").open("a") as torch:
        torch.write(f"__version__ = '2.13.0+{'cu130' if cuda else 'cpu'}'\n")
    environment = os.environ | {"FOLDER": str(tmp_path), "REAL": sys.executable, "PYTHON": sys.executable}
    environment = environment | ({"TORCH": asked} if asked else {})
    command = ["bash", str(PROJECT / "scripts" / "install.sh"), str(tmp_path)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    told = (tmp_path / "pip").read_text().splitlines()
    assert told[: len(done)] == done
    assert told[len(done)] == "install -r requirements.lock"
    assert (tmp_path / ".installed").read_text().strip().endswith(f"/{asked or there}")


@pytest.mark.parametrize(
    ("file", "added", "refused"),
    [
        ("pyproject.toml", "\n[tool.another]\nsetting = 1\n", False),
        ("requirements.lock", "another==1.0\n", True),
        ("requirements-vllm.lock", "another==1.0\n", True),
        ("Dockerfile", "RUN true\n", True),
        ("scripts/install_vllm.sh", "# changed\n", True),
        ("pyproject.toml", '\n[project.urls]\nhome = "https://example.org"\n', True),
    ],
)
def test_what_is_installed_but_was_not_resolved_anew_is_refused(
    file: str, added: str, refused: bool, tmp_path: Path
) -> None:
    shutil.copytree(PROJECT / "scripts", tmp_path / "scripts")
    whole = ("pyproject.toml", "requirements.lock", "requirements-vllm.lock", "requirements.resolved", "Dockerfile")
    for name in whole:
        shutil.copyfile(PROJECT / name, tmp_path / name)
    check = ["bash", "scripts/resolve.sh", "--check", sys.prefix]
    subprocess.run(check, cwd=tmp_path, check=True)
    with (tmp_path / file).open("a") as changed:
        changed.write(added)
    done = subprocess.run(check, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == int(refused)
