"""Programs that a trained policy writes and its pi_0 does not, and the problems that it solves less often.

    python -m benchmarks.new_programs --home FOLDER --run RUN [--samples 400] [--problems 20]

Of the run's held-out problems those are taken on which the last policy wrote a program that passes and that is in none
of pi_0's samples; programs are compared without comments, layout and docstrings (`normal_hash`). On each, pi_0 then
draws as many samples as said, in the evaluation's own way; they are rows of `eval_samples` like any other. Shown is of
each problem what the last policy wrote most often that pi_0 still never wrote.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasks import config as configs
from tasks.evaluate import eval_samples
from tasks.evaluate.stage import candidates
from tasks.problems.programs import extract_program
from tasks.run import prompt_set, runs
from tasks.run.prompt_set import PromptSet
from tasks.run.sampling import open_sampler
from tasks.run.stage import Context
from warehouse import Warehouse

LOST = 3
"""Problems shown that the last policy solves less often."""
EVERY = 100
"""Samples from one line of progress to the next."""

NEW = """
SELECT any_value(text) AS text, count(*) AS n FROM eval_samples
WHERE policy_id = $last AND sampling = $sampling AND prompt_id = $prompt AND verdict = 'accepted'
  AND normal_hash NOT IN (
      SELECT normal_hash FROM eval_samples
      WHERE policy_id = $first AND sampling = $sampling AND prompt_id = $prompt AND normal_hash IS NOT NULL
  )
GROUP BY normal_hash ORDER BY n DESC, min(sample) LIMIT 1
"""


def new_programs(context: Context, prompts: PromptSet) -> dict[str, dict[str, Any]]:
    """Of each problem that has one, the new program that the last policy wrote most often; most often written first."""
    first, *_, last = candidates(context)
    asked = {"first": first.policy_id, "last": last.policy_id, "sampling": eval_samples.label_of(context)}
    rows = {p: context.warehouse.rows(NEW, asked | {"prompt": one.prompt_id}) for p, one in prompts.prompts.items()}
    return dict(sorted(((p, found[0]) for p, found in rows.items() if found), key=lambda item: -item[1]["n"]))


def sample(context: Context, prompts: PromptSet, number: int) -> None:
    """Let pi_0 draw what it lacks of `number` samples of each prompt."""
    tree = context.config.model_dump(mode="json")
    configs.merge(tree, {"evaluate": {"samples": number}})
    context = replace(context, config=configs.validate(tree))
    first, *_ = candidates(context)
    total = sum(eval_samples.missing(context, prompts, first.policy_id).values())

    def tell(done: int) -> None:
        if done % EVERY == 0:
            print(f"{done} of {total} samples of pi_0", flush=True)

    if total:
        with open_sampler(context, first.folder, context.config.evaluate.behaviour, trained=True) as sampler:
            eval_samples.sample_missing(context, prompts, first, sampler, progress=tell)


def show(context: Context, prompts: PromptSet, wanted: PromptSet) -> None:
    """Print the new programs of the problems `wanted`, and the problems that the last policy solves less often."""
    first, *_, last = candidates(context)
    before, after = (eval_samples.counts(context, prompts, one.policy_id) for one in (first, last))
    passed = {p: "pi_0 {1} of {0}, trained {3} of {2}".format(*before[p], *after[p]) for p in prompts.prompts}
    found = new_programs(context, wanted)
    for p, row in found.items():
        print(f"\n{p}: {passed[p]}; this program {row['n']} times\n{prompts.prompts[p].problem.statement.strip()}\n")
        print(extract_program(row["text"]))
    print(f"\n{len(found)} of {len(wanted.prompts)} problems still have a program that pi_0 never wrote\n")
    change = {p: after[p][1] / after[p][0] - before[p][1] / before[p][0] for p in prompts.prompts}
    for p in sorted(change, key=lambda p: (change[p], p))[:LOST]:
        print(f"worse: {p}: {passed[p]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--problems", type=int, default=20)
    options = parser.parse_args()
    with Warehouse.open(options.home / "warehouse") as store:
        context = Context(options.run, runs.load_config(store, options.run), store, options.home)
        prompts = prompt_set.load(context, "evaluation")
        if any(eval_samples.missing(context, prompts, one.policy_id) for one in candidates(context)):
            parser.error(f"run {options.run} has not been evaluated to its end; `spo resume {options.run}`, then again")
        chosen = list(new_programs(context, prompts))[: options.problems]
        wanted = replace(prompts, prompts={p: prompts.prompts[p] for p in chosen})
        sample(context, wanted, options.samples)
        show(context, prompts, wanted)


if __name__ == "__main__":
    main()
