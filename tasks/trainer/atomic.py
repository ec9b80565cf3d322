"""Folders and files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

BUILDING = ".building-"


@contextmanager
def new_folder(target: Path) -> Generator[Path]:
    """A folder to fill; it becomes `target` at the end of the block, replacing what was there, and never half."""
    building = target.parent / f"{BUILDING}{target.name}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    yield building
    finish_folder(building, target)


def finish_folder(building: Path, target: Path) -> None:
    """Make the filled folder `building` appear as `target`."""
    for path in sorted(building.rglob("*")):
        if path.is_file():
            _flush(path)
    if target.exists():
        shutil.rmtree(target)
    building.rename(target)
    _flush(target.parent)


def write_text(path: Path, text: str) -> None:
    """`text` in `path`: readers see the old content or the new."""
    building = path.with_name(f"{BUILDING}{path.name}")
    building.write_text(text, encoding="utf-8")
    _flush(building)
    building.replace(path)
    _flush(path.parent)


def write_once(path: Path, text: str) -> None:
    """`text` in `path` unless the file is there already; of several writers at once the first wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    building = path.with_name(f"{BUILDING}{os.getpid()}-{path.name}")
    building.write_text(text, encoding="utf-8")
    _flush(building)
    with contextlib.suppress(FileExistsError):
        os.link(building, path)
    building.unlink()
    _flush(path.parent)


def complete_folders(parent: Path, prefix: str) -> list[Path]:
    """Finished folders named `prefix`..., in order of name."""
    return sorted(path for path in parent.glob(f"{prefix}*") if path.is_dir())


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
