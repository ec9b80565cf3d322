"""Packages that programs may import besides the standard library: what they are, as far as verdicts depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path


def installed_packages(folders: Sequence[str]) -> tuple[str, ...]:
    """`name==version` of what is installed in these folders, in alphabetical order.

    A folder that is not here is one of a container's image and stands for itself, as does what has no version.
    """
    found: set[str] = set()
    for folder in folders:
        known = {f"{one.metadata['Name']}=={one.version}": one for one in distributions(path=[folder])}
        owned = {str(file).split("/")[0] for one in known.values() for file in one.files or ()}
        names = {path.name for path in Path(folder).iterdir()} if Path(folder).is_dir() else {folder}
        found |= {*known, *(name for name in names - owned if not name.endswith((".dist-info", "__pycache__", "bin")))}
    return tuple(sorted(found))
