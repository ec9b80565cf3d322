"""Names of units of work: hashes of named values, so that neither a new field nor another Python changes them."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(**values: Any) -> str:
    """24 hexadecimal digits that identify these JSON values by their names: `digest(problems=[...], samples=8)`."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
