"""`spo study` on a real embedded server: arms that end well, one that its guards stop, and the study again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest

from tasks.config import validate
from tasks.scoring.reference import fingerprint
from tests.flows.conftest import Server
from tests.tasks.conftest import MICRO
from warehouse import Warehouse

STUDY = f"""
title = "Packings, one of them poisoned"
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
overrides = {{ train = {{ packing = "padded" }} }}
[[groups]]
title = "Packings"
arms = ["calm", "wild"]
"""


def poison(home: Path, packing: Literal["padded"]) -> None:
    """Store log-probabilities of no response's length for every trajectory, as trained on with that packing."""
    with Warehouse.open(home / "warehouse") as store:
        (prepared,) = store.rows("SELECT path FROM policies WHERE kind = 'reference' LIMIT 1")
        (trained,) = store.rows("SELECT config_json FROM runs WHERE recipe = 'micro' LIMIT 1")
        config = validate(json.loads(trained["config_json"]))
        wild = config.train.model_copy(update={"packing": packing})
        name = fingerprint(Path(prepared["path"]), wild, config.reference.dtype, "cpu")
        ids = [row["trajectory_id"] for row in store.rows("SELECT DISTINCT trajectory_id FROM trajectories")]
        rows = [{"trajectory_id": identity, "fingerprint": name, "logprobs": [0.0] * 999} for identity in ids]
        store.append("poison", {"reference_logprobs": rows}, run_id="poison")


@pytest.mark.timeout(900)
def test_a_study_compares_its_arms_shows_what_the_guards_stopped_and_does_nothing_twice(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "rates.toml"
    path.write_text(STUDY, encoding="utf-8")
    calm = server.spo("study", str(path), "--arm", "calm")
    assert calm.returncode == 0, calm.stdout + calm.stderr
    poison(server.home, packing="padded")
    results = tmp_path / "results.jsonl"
    first = server.spo("study", str(path), "--results", str(results))
    assert first.returncode == 0, first.stdout + first.stderr
    assert "0; 1 stopped by the guards" in first.stdout
    folder = server.home / "studies" / "rates"
    table = (folder / "study.md").read_text(encoding="utf-8")
    assert "| arm | seeds | pass@1 | pass@10 | pass@10 against pi_0 |" in table
    assert "\n| calm | 1 | " in table
    assert "| arm | to 80% of the best pass@10 | to the pass@10 of calm |" in table
    assert (folder / "report.html").is_file()
    finished = "SELECT count(*) FROM stages WHERE stage = 'evaluate' AND status = 'completed'"
    rows = "SELECT count(*) FROM trajectories"
    before = server.value(finished), server.value(rows)
    assert before[0] == 1
    again = server.spo("study", str(path), "--arm", "calm")
    assert again.returncode == 0, again.stdout + again.stderr
    assert (server.value(finished), server.value(rows)) == before
    known = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    assert [(line["arm"], line["seed"], "stopped" in line) for line in known] == [("calm", 5, False), ("wild", 5, True)]
    elsewhere = server.spo("study", str(path), "--results", str(results))
    assert "Packings, one of them poisoned, 0 runs" in elsewhere.stdout, elsewhere.stdout + elsewhere.stderr
    assert (folder / "study.md").read_text(encoding="utf-8") == table
