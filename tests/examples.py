"""Number of examples of property tests and of loops over seeds: few in the ordinary run, many in the slow one.

`SPO_TEST_EXAMPLES=many` selects many. Few examples are the same in every run, many are drawn anew.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

MANY = os.environ.get("SPO_TEST_EXAMPLES", "few") == "many"

settings.register_profile("few", max_examples=15, deadline=None, derandomize=True, database=None)
settings.register_profile("many", max_examples=400, deadline=None)


def load_profile() -> None:
    """Let hypothesis draw as many examples as this run wants."""
    settings.load_profile("many" if MANY else "few")


def examples(few: int, many: int, **others: Any) -> settings:
    """The decorator of a property test whose examples cost more or less than usual."""
    return settings(max_examples=many if MANY else few, **others)


def seeds(few: int, many: int) -> range:
    """The seeds 0, 1, ... of a loop that draws its own cases."""
    return range(many if MANY else few)
