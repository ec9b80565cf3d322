"""The table of memory per rank in docs/guides/scaling.md says what DeepSpeed holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tasks.train.zero_memory import LLAMA_8B, bytes_per_parameter, parameters

PROJECT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("ranks", [1, 4, 64])
def test_deepspeed_holds_what_the_formula_says(stage: int, ranks: int) -> None:
    command = [sys.executable, "-m", "tests.tasks.train.zero_memory", str(stage), str(ranks)]
    done = subprocess.run(command, cwd=PROJECT, env=os.environ, capture_output=True, text=True, timeout=500)
    measured = float(done.stdout.splitlines()[-1])
    assert measured == pytest.approx(bytes_per_parameter(stage, ranks), rel=0.05), done.stderr[-2000:]


def test_the_documented_table_is_the_formula_at_8b() -> None:
    page = (PROJECT / "docs" / "guides" / "scaling.md").read_text(encoding="utf-8")
    count = parameters(LLAMA_8B)
    assert f"{count:,} parameters" in page
    for stage in (0, 1, 2, 3):
        cells = [f"{count * bytes_per_parameter(stage, ranks) / 1e9:.1f}" for ranks in (1, 4, 8, 64)]
        assert f"| {stage} | {' | '.join(cells)} | " in page
