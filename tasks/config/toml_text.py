"""TOML text of plain values and trees: what `tomllib` reads back as the same."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+")


def document(tree: Mapping[str, Any], path: tuple[str, ...] = ()) -> str:
    """`tree` as TOML, sections under their headings; None, which TOML lacks, is left out.

    document({"seed": 1, "train": {"steps": 40}}) is "seed = 1\\n\\n[train]\\nsteps = 40\\n".
    """
    own = [f"{_key(name)} = {value(v)}\n" for name, v in tree.items() if not isinstance(v, Mapping) and v is not None]
    below = [document(v, (*path, name)) for name, v in tree.items() if isinstance(v, Mapping)]
    heading = f"[{'.'.join(map(_key, path))}]\n" if path and (own or not below) else ""
    return "\n".join(part for part in (heading + "".join(own), *below) if part)


def value(found: Any) -> str:
    """A value in one line; sections inside lists become inline tables."""
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, str):
        return _quoted(found)
    if isinstance(found, float):
        return repr(found) if math.isfinite(found) else str(found)
    if isinstance(found, Mapping):
        parts = [f"{_key(name)} = {value(v)}" for name, v in found.items() if v is not None]
        return f"{{ {', '.join(parts)} }}" if parts else "{}"
    if isinstance(found, (list, tuple)):
        return f"[{', '.join(map(value, found))}]"
    return str(found)


def _key(name: str) -> str:
    return name if BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
