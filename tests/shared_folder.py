"""What takes long to make, made once for all processes of the tests."""

from __future__ import annotations

import fcntl
import os
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
