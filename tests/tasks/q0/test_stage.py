"""The stage `q0` as a whole: it stops a run whose prompts are all unusable."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tasks.q0.stage import NoUsablePrompt
from tests.tasks.conftest import Lab


def test_a_run_of_which_no_prompt_is_solved_stops_after_q0_and_keeps_the_samples(copied: Callable[[], Lab]) -> None:
    lab = copied()
    untrained = {"reference.pretrain.steps": 1, "q0.samples": 3, "q0.zero_successes": "drop"}
    run_id = lab.start("hopeless", untrained)
    lab.run(run_id, "prepare")
    with pytest.raises(NoUsablePrompt, match="none of the 6 training prompts"):
        lab.run(run_id, "q0")
    assert lab.value(f"SELECT sum(n) FROM reference_counts WHERE run_id = '{run_id}'") == 6 * 3
    with pytest.raises(NoUsablePrompt):
        lab.run(run_id, "q0")
    assert lab.value(f"SELECT sum(n) FROM reference_counts WHERE run_id = '{run_id}'") == 6 * 3
