"""Folders that take long to make: made once for all processes of the tests, and copied for those that change them."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(name: str, make: Callable[[Path], None], factory: pytest.TempPathFactory) -> Path:
    """A folder that `make` filled, in whichever process of pytest-xdist asked first; the others wait for it.

    What `make` left behind when it failed is not taken: the next process that asks makes a folder of its own.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = shared / f"{name}.made"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder = factory.mktemp(name)
            make(folder)
            made.write_text(str(folder), encoding="utf-8")
    return Path(made.read_text(encoding="utf-8"))


NEVER_CHANGED = (".parquet", ".safetensors", ".png")
"""Endings of files that nothing writes again under their name, once they are there."""


def copy_home(home: Path, to: Path) -> Path:
    """A copy of a home, or of a folder of one; returns it. What never changes is the same file under a second name."""

    def copy(source: str, target: str) -> None:
        if source.endswith(NEVER_CHANGED):
            os.link(source, target)
        else:
            shutil.copy2(source, target)

    beside = shutil.ignore_patterns("*-wal", "*-shm")  # come and go while other processes read the catalog
    return Path(shutil.copytree(home, to, ignore=beside, copy_function=copy, dirs_exist_ok=True))
