"""Interpreters of other versions found on this machine, for what must be the same under each of them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MINORS = (11, 12, 13, 14)


def interpreters() -> dict[str, str]:
    """Path of an interpreter by version ("3.12"): the running one, those on the path, and pyenv's."""
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for minor in MINORS:
        name = f"python3.{minor}"
        pyenv = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"))
        candidates = [shutil.which(name), *map(str, pyenv)]
        for candidate in filter(None, candidates):
            if works(candidate):
                found.setdefault(f"3.{minor}", candidate)
    return found


def works(interpreter: str) -> bool:
    """Whether it starts: a shim of pyenv may point to nothing."""
    return subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode == 0


def told(interpreter: str, script: str, given: str = "") -> str:
    """What the interpreter prints when it runs `script` with the project's root on its path."""
    done = subprocess.run(
        [interpreter, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{script}"],
        input=given, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
