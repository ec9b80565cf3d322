"""Programs that a trained policy writes and its pi_0 does not, and the problems that it solves less often.

    python -m benchmarks.new_programs --home FOLDER --run RUN [--samples 400] [--problems 20]

Of the run's held-out problems those are taken that the last policy gained most on. Of each, pi_0 draws as many samples
as said, in the evaluation's own way; they are rows of `eval_samples` like any other, so that the same command draws
nothing. Shown is of each problem the program that the last policy wrote most often among those that pass and that pi_0
wrote in none of its samples, compared without comments, layout and docstrings (`normal_hash`).
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

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

NEW = """
SELECT any_value(text) AS text, count(*) AS n FROM eval_samples
WHERE policy_id = $last AND sampling = $sampling AND prompt_id = $prompt AND verdict = 'accepted'
  AND normal_hash NOT IN (
      SELECT normal_hash FROM eval_samples
      WHERE policy_id = $first AND sampling = $sampling AND prompt_id = $prompt AND normal_hash IS NOT NULL
  )
GROUP BY normal_hash ORDER BY n DESC, min(sample) LIMIT 1
"""


def chosen(problem_ids: Mapping[str, object], gain: Mapping[str, int], number: int) -> list[str]:
    """The `number` problems with the largest gain, of those that have one."""
    return sorted((p for p in problem_ids if gain[p] > 0), key=lambda p: (-gain[p], p))[:number]


def sample(context: Context, prompts: PromptSet, number: int) -> Context:
    """Let pi_0 draw what it lacks of `number` samples of each prompt; the context with that number."""
    tree = context.config.model_dump(mode="json")
    configs.merge(tree, {"evaluate": {"samples": number}})
    context = replace(context, config=configs.validate(tree))
    first, *_ = candidates(context)
    total = sum(eval_samples.missing(context, prompts, first.policy_id).values())
    if total:
        with open_sampler(context, first.folder, context.config.evaluate.behaviour, trained=True) as sampler:
            eval_samples.sample_missing(
                context, prompts, first, sampler, progress=lambda n: print(f"\r{n} of {total} samples of pi_0", end="")
            )
        print()
    return context


def show(context: Context, prompts: PromptSet, policies: tuple[str, str]) -> int:
    """Print the new program of each problem that has one; how many these are."""
    counts = [eval_samples.counts(context, prompts, policy) for policy in policies]
    shown = 0
    for problem_id, prompt in prompts.prompts.items():
        asked = dict(zip(("first", "last"), policies, strict=True))
        asked |= {"sampling": eval_samples.label_of(context), "prompt": prompt.prompt_id}
        (n_first, k_first), (n_last, k_last) = (found[problem_id] for found in counts)
        for row in context.warehouse.rows(NEW, asked):
            shown += 1
            print(
                f"\n{problem_id}: pi_0 {k_first} of {n_first}, trained {k_last} of {n_last}; written {row['n']} times"
            )
            print(f"{prompt.problem.statement.strip()}\n\n{extract_program(row['text'])}")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--problems", type=int, default=20)
    options = parser.parse_args()
    with Warehouse.open(options.home / "warehouse") as store:
        context = Context(options.run, runs.load_config(store, options.run), store, options.home)
        prompts, policies = prompt_set.load(context, "evaluation"), candidates(context)
        pair = policies[0].policy_id, policies[-1].policy_id
        before, after = (eval_samples.counts(context, prompts, policy) for policy in pair)
        if any(n == 0 for n, _ in (*before.values(), *after.values())):
            parser.error(f"run {options.run} has not been evaluated to its end; run it again, it goes on")
        gain = {p: round(1000 * (after[p][1] / after[p][0] - before[p][1] / before[p][0])) for p in prompts.prompts}
        wanted = chosen(prompts.prompts, gain, options.problems)
        some = replace(prompts, prompts={p: prompts.prompts[p] for p in wanted})
        context = sample(context, some, options.samples)
        print(f"\n{show(context, some, pair)} of the {len(wanted)} problems have a new program")
        for p in sorted(gain, key=lambda p: (gain[p], p))[:LOST]:
            print(f"worse: {p}: pi_0 {before[p][1]} of {before[p][0]}, trained {after[p][1]} of {after[p][0]}")


if __name__ == "__main__":
    main()
