"""Folders and files that appear complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

BUILDING = ".building-"


def start_folder(target: Path) -> Path:
    """An empty folder to fill, beside `target`; what a killed process left unfinished there is removed.

    Each parent folder has one writer.
    """
    for left in target.parent.glob(f"{BUILDING}*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    building = target.parent / f"{BUILDING}{target.name}"
    building.mkdir(parents=True)
    return building


def finish_folder(building: Path, target: Path) -> None:
    """Make the filled folder `building` appear as `target`, replacing what was there."""
    for path in sorted(building.rglob("*")):
        if path.is_file():
            _flush(path)
    old = _set_aside(target) if target.exists() else None
    building.rename(target)
    _flush(target.parent)
    if old is not None:  # last, since it takes long where it is large
        shutil.rmtree(old)


def delete_folder(folder: Path) -> None:
    """Make the folder disappear at once, then free its space."""
    shutil.rmtree(_set_aside(folder))


def _set_aside(folder: Path) -> Path:
    return folder.rename(folder.with_name(f"{BUILDING}deleted-{folder.name}"))


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
