"""The table of attacks in docs/guides/sandbox.md counts what the suite has."""

from __future__ import annotations

import re
from pathlib import Path

from tests.sandbox.attacks import programs as attacks

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "sandbox.md").read_text(encoding="utf-8")


def test_the_table_of_attacks_counts_those_of_the_suite() -> None:
    table = PAGE.split("<!-- attacks -->")[1].split("<!-- end of attacks -->")[0]
    told = {name: int(count) for name, count in re.findall(r"^\| `(\w+)` \|.*\| (\d+) \|$", table, re.MULTILINE)}
    groups = {name: group for name, group in vars(attacks).items() if name.isupper() and isinstance(group, dict)}
    counted = {name: len(group) for name, group in groups.items()}
    assert told == counted
    assert f"{len(attacks.programs())} programs" in table
    assert sum(counted.values()) == len(attacks.programs())
