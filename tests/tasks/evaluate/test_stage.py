"""Where the sandbox fails on a sample it is drawn once more, whoever evaluates; what is missing still is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tasks.checks import plan as planning
from tasks.evaluate import eval_samples, evaluator
from tasks.evaluate.eval_samples import EvaluatedPolicy, TooFewSamples
from tasks.run import prompt_set, runs
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context
from tasks.run.stage_names import STAGE_NAMES
from tasks.sampling.sampler import Judged
from tests.tasks.conftest import Lab


@contextmanager
def failing(batches: int) -> Iterator[None]:
    """The sandbox fails on the first sample of as many batches."""
    scored, left = eval_samples.scored, batches

    def one_less(judged: Sequence[Judged]) -> list[Judged]:
        nonlocal left
        found = scored(judged)
        if left:
            left -= 1
            found[0] = replace(found[0], row=found[0].row | {"reward": None, "verdict": "infra"})
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(eval_samples, "scored", one_less)
        yield


def test_where_it_fails_again_and_again_the_problem_is_named_and_the_rest_is_kept(copied: Callable[[], Lab]) -> None:
    lab = copied()
    run_id = lab.start("fewer", {"evaluate": {"samples": 12, "ks": [1, 12]}})
    lab.run(run_id, *STAGE_NAMES[: STAGE_NAMES.index("evaluate")])
    with lab.store() as store:
        config = runs.load_config(store, run_id)
        work = {one.stage: one for one in planning.plan(store, config, lab.home, run_id=run_id)}
    assert work["evaluate"].amount == planning.Amount(3 * 4 * 2, "samples", f"{3 * 4 * 10} known")
    with failing(99), pytest.raises(TooFewSamples):
        lab.run(run_id, "evaluate")
    kept = lab.value("SELECT count(*) FROM eval_samples WHERE reward IS NOT NULL AND sample >= 10")
    assert kept >= 3 * 4 * 2 - 3
    found = lab.run(run_id, "evaluate")["evaluate"].manifest
    assert (found.rows, {point.k for point in found.curve}) == (3, {1, 12})


@pytest.mark.parametrize(("failures", "judged"), [(1, 12), (2, 11)])
def test_beside_training_it_is_drawn_once_more_and_a_k_without_enough_is_not_told(
    copied: Callable[[], Lab], failures: int, judged: int
) -> None:
    lab = copied()
    with lab.store() as store:
        config = runs.load_config(store, "micro-1")
        asked = config.evaluate.model_copy(update={"samples": 12, "ks": (1, 12)})
        context = Context("micro-1", config.model_copy(update={"evaluate": asked}), store, lab.home)
        prompts = prompt_set.load(context, "evaluation")
        reference = EvaluatedPolicy(prompts.policy_id, prompts.reference, 0)
        progress: list[int] = []
        with failing(failures), open_sampler(context, reference.folder, asked.behaviour) as sampler:
            drawn = eval_samples.sample_missing(context, prompts, reference, sampler, progress=progress.append)
        counts = eval_samples.counts(context, prompts, reference.policy_id)
        said = evaluator.announce(context, prompts, reference)["message"]
    assert drawn == sum(n for n, _ in counts.values()) - 4 * 10
    assert min(n for n, _ in counts.values()) == judged
    assert progress == sorted(progress)
    assert "pass@1 " in said
    assert ("pass@12" in said) == (judged == 12)
