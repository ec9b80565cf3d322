"""`spo study` on a real embedded server: arms that end well, one that its guards stop, and the study again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.conftest import Server
from tests.tasks.conftest import MICRO

STUDY = f"""
title = "Rates, one of them absurd"
seeds = 1
first_seed = 5
[overrides]
pivotal = {{ trajectories = 0 }}
[arms.calm]
recipe = "{MICRO}"
label = "calm"
[arms.wild]
recipe = "{MICRO}"
label = "wild"
overrides = {{ train = {{ optimizer = {{ learning_rate = 1e30 }} }} }}
[[groups]]
title = "Rates"
arms = ["calm", "wild"]
"""


@pytest.mark.timeout(900)
def test_a_study_compares_its_arms_shows_what_the_guards_stopped_and_does_nothing_twice(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(STUDY, encoding="utf-8")
    first = server.spo("study", str(path))
    assert first.returncode == 0, first.stdout + first.stderr
    assert "0; 1 stopped by the guards" in first.stdout
    folder = server.home / "studies" / "rates"
    table = (folder / "study.md").read_text(encoding="utf-8")
    assert "| arm | seeds | pass@1 | pass@10 | pass@10 against pi_0 | pass@10 against calm |" in table
    assert "\n| calm | 1 | " in table
    assert (folder / "report.html").is_file()
    finished = "SELECT count(*) FROM stages WHERE stage = 'evaluate' AND status = 'completed'"
    rows = "SELECT count(*) FROM trajectories"
    before = server.value(finished), server.value(rows)
    assert before[0] == 1
    again = server.spo("study", str(path), "--arm", "calm")
    assert again.returncode == 0, again.stdout + again.stderr
    assert (server.value(finished), server.value(rows)) == before
