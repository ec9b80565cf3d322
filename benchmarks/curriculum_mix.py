"""Problem files for `spo study curriculum-mix`: pi_0 never solves 40% of the problems, and 30% nearly always.

    spo run spo-half-online -s problems.train=600 --stage prepare
    spo run spo-half-online -s problems.train=600 --stage q0
    python -m benchmarks.curriculum_mix mix      writes mix/train.jsonl (96 problems) and mix/evaluation.jsonl (64)
    spo study curriculum-mix                     in the same folder

The problems are those of the small vocabulary, by what Q0 in this warehouse says of them: solved ones pass in at least
80% of the samples, those between in 2 to 60%. The hopeless ones are of the wide vocabulary with four steps, which the
small vocabulary's pi_0 was never taught, and come without solutions, so that nothing but sampling could teach them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from flows.settings import warehouse_location
from tasks.problems.miniature import generate
from tasks.problems.problem import Problem
from warehouse import Warehouse

POOL, EVALUATION = 600, 64
PROBLEMS = 96
SHARES = {"hopeless": 0.4, "solved": 0.3, "between": 0.3}
BOUNDS = {"solved": (0.8, 1.0), "between": (0.02, 0.6)}
HOPELESS_DEPTH = 4


def record(problem: Problem, *, solutions: bool) -> dict[str, Any]:
    """The problem as a line of the project's own layout (docs/problems.md)."""
    return {
        "problem_id": problem.problem_id,
        "title": problem.title,
        "statement": problem.statement,
        "public_tests": [{"input": test.input, "output": test.expected} for test in problem.public_tests],
        "input_tests": [test.input for test in problem.hidden_tests],
        "output_tests": [test.expected for test in problem.hidden_tests],
        "solutions": [{"code": known.program} for known in problem.solutions if solutions],
        "checker": {"type": "tokens", "case_sensitive": problem.checker.case_sensitive},
        "time_limit_s": problem.limits.cpu_s,
        "memory_limit_mb": problem.limits.memory_bytes >> 20,
        "source": problem.source,
        "license": problem.licence,
    }


def write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"wrote {path}")


def main() -> None:
    """Write both files, and print what Q0 says of the problems taken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Warehouse.open(warehouse_location(), read_only=True)) as store:
        rates = {row["problem_id"]: row["s"] for row in store.rows("SELECT problem_id, s FROM q0")}
    pool = generate(POOL, EVALUATION, 0)
    lines: list[dict[str, Any]] = []
    for kind, (least, most) in BOUNDS.items():
        inside = [p for p in pool[:POOL] if least <= rates.get(p.problem_id, -1.0) <= most]
        wanted = round(PROBLEMS * SHARES[kind])
        if len(inside) < wanted:
            raise SystemExit(
                f"Q0 knows {len(inside)} problems that are {kind} and {wanted} are needed; run the pool first"
            )
        taken = inside[:wanted]
        print(f"{kind}: {wanted} of {len(inside)}, mean S0 {sum(rates[p.problem_id] for p in taken) / wanted:.2f}")
        lines += [record(problem, solutions=True) for problem in taken]
    hopeless = generate(PROBLEMS - len(lines), 0, 0, HOPELESS_DEPTH)
    print(f"hopeless: {len(hopeless)}")
    write(folder / "train.jsonl", [*lines, *(record(problem, solutions=False) for problem in hopeless)])
    write(folder / "evaluation.jsonl", (record(problem, solutions=False) for problem in pool[POOL:]))


if __name__ == "__main__":
    main()
