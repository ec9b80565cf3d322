"""pass@k of stored samples: the exact estimator beside two estimators found in use, on one file of executed samples.

    python -m benchmarks.pass_at_k humaneval_codegen16b_samples.jsonl.gz [--ks 1 10 100]
    python -m benchmarks.pass_at_k humaneval_codegen16b_samples.jsonl.gz --judge humaneval.jsonl.gz [--of 10]

The file is JSON Lines (gzip when it ends in .gz), one problem a line, with `samples: [{passed: bool, ...}]`.
Peers: 1 - (1 - c/n)^k (plugging the share in: biased low) and a bootstrap of k samples with replacement.
The second table asks how often each interval holds the truth: problems are drawn with 20 of their samples each.
With --judge, the first samples of each problem are judged in the sandbox instead, and every disagreement with a stored
flag is listed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict
from tasks.estimators import average_pass_at_k, pass_at_k


def records(path: Path) -> list[dict[str, Any]]:
    """The file's lines."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    return [json.loads(line) for line in text.splitlines()]


def judged(sampled: list[dict[str, Any]], problems: list[dict[str, Any]], of: int) -> list[list[bool]]:
    """Our own flags of the first `of` samples of each problem; prints every disagreement with the stored ones."""
    suites = {problem["problem_id"]: (problem["statement"], suite(problem)) for problem in problems}
    asked: list[Submission] = []
    for one in sampled:
        statement, tests = suites[one["problem_id"]]
        asked += [Submission(statement + sample["completion"], tests) for sample in one["samples"][:of]]
    with Judge(backend="embedded", workers=2) as judge:
        verdicts = iter(judge.judge(asked))
    flags: list[list[bool]] = []
    for one in sampled:
        flags.append([])
        for i, sample in enumerate(one["samples"][:of]):
            judgement = next(verdicts)
            flags[-1].append(judgement.verdict is Verdict.accepted)
            if flags[-1][-1] != sample["passed"]:
                found = f"ours {judgement.verdict} {judgement.detail[:80]!r}"
                print(f"  {one['problem_id']} sample {i}: stored {sample['verified']}, {found}")
    return flags


def suite(problem: dict[str, Any]) -> Suite:
    """The tests of a HumanEval problem."""
    test = TestCase(f"{problem['test_code']}\n{problem['test_call']}\n", "")
    return Suite(
        problem["problem_id"],
        (test,),
        limits=Limits(cpu_s=3.0),
        style="function",
        entry_point=problem["entry_point"],
        setup=problem["statement"],
    )


def plugged_in(flags: Sequence[Sequence[bool]], k: int) -> float:
    """Mean of 1 - (1 - c/n)^k."""
    return float(np.mean([1 - (1 - sum(one) / len(one)) ** k for one in flags]))


def with_replacement(flags: Sequence[Sequence[bool]], k: int, draws: random.Random, repeats: int = 100) -> float:
    """Mean over problems of the share of k-sized draws with replacement that hold a correct sample."""
    hits = [sum(any(draws.choices(one, k=k)) for _ in range(repeats)) / repeats for one in flags]
    return float(np.mean(hits))


def coverage(flags: Sequence[Sequence[bool]], k: int, problems: int, trials: int) -> tuple[float, float]:
    """Share of 95% intervals that hold the whole file's pass@k, and their mean width."""
    draws, hits, width = random.Random(0), 0, 0.0
    truth = float(np.mean([pass_at_k(len(one), sum(one), k) for one in flags]))
    for trial in range(trials):
        counts = [(20, sum(draws.sample(one, 20))) for one in draws.choices(flags, k=problems)]
        estimate = average_pass_at_k({"": counts}, k, seed=trial)
        hits += estimate.low <= truth <= estimate.high
        width += estimate.high - estimate.low
    return hits / trials, width / trials


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--ks", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument(
        "--judge", type=Path, help="file with the problems; judge the samples instead of trusting flags"
    )
    parser.add_argument("--of", type=int, default=100, help="samples of each problem to judge")
    arguments = parser.parse_args()
    sampled = records(arguments.path)
    if arguments.judge:
        own = judged(sampled, records(arguments.judge), arguments.of)
        stored = [[sample["passed"] for sample in one["samples"][: arguments.of]] for one in sampled]
        odd = sum(a != b for x, y in zip(own, stored, strict=True) for a, b in zip(x, y, strict=True))
        print(f"judged {sum(map(len, own))} programs, {odd} disagree with the stored flag")
        for k in (k for k in arguments.ks if k <= arguments.of):
            values = [
                average_pass_at_k({"": [(len(one), sum(one)) for one in flags]}, k).value for flags in (own, stored)
            ]
            print(f"  pass@{k:<4} own judging {values[0]:7.2%}   stored flags of the same samples {values[1]:7.2%}")
        return
    flags = [[bool(sample["passed"]) for sample in one["samples"]] for one in sampled]
    counts = [(len(one), sum(one)) for one in flags]
    print(f"{arguments.path.name}: {len(flags)} problems, {sum(n for n, _ in counts)} samples")
    for k in arguments.ks:
        exact = average_pass_at_k({"": counts}, k)
        print(
            f"  pass@{k:<4} exact {exact.value:7.2%} [{exact.low:.2%}, {exact.high:.2%}]   plugged in "
            f"{plugged_in(flags, k):7.2%}   with replacement {with_replacement(flags, k, random.Random(0)):7.2%}"
        )
    print("coverage of the 95% interval from 20 samples a problem")
    for problems in (32, 100, 164):
        for k in (1, 10):
            share, width = coverage(flags, k, problems, trials=1000)
            print(f"  {problems:>4} problems, pass@{k:<3} coverage {share:6.1%}   mean width {width:6.2%}")


if __name__ == "__main__":
    main()
