"""Problem files for `spo study curriculum-mix`: pi_0 never solves 40% of the problems, and 30% nearly always.

    spo run spo-half-online -s problems.train=600 --stage prepare
    spo run spo-half-online -s problems.train=600 --stage q0
    python -m benchmarks.curriculum_mix mix      writes mix/train.jsonl (96 problems) and mix/evaluation.jsonl (64)
    spo study curriculum-mix                     in the same folder

The problems are those of the small vocabulary, chosen by Q0's counts in this warehouse: solved ones pass in at least
80% of the samples, those between in 2 to 60%. The hopeless ones are of the wide vocabulary with four steps, which
pi_0 was never taught. They come without solutions, so that only sampling could teach them.
"""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

from benchmarks import harness
from flows.settings import warehouse_location
from tasks.problems.miniature import generate
from tasks.problems.problem import Problem
from warehouse import Warehouse

POOL, EVALUATION, PROBLEMS = 600, 64, 96
SHARES = {"hopeless": 0.4, "solved": 0.3, "between": 0.3}
BOUNDS = {"solved": (0.8, 1.0), "between": (0.02, 0.6)}
HOPELESS_DEPTH = 4


def record(problem: Problem, *, solutions: bool) -> dict[str, Any]:
    """The problem as a line of the project's own layout."""
    line: dict[str, Any] = {name: getattr(problem, name) for name in ("problem_id", "title", "statement", "source")}
    line["public_tests"] = [{"input": test.input, "output": test.expected} for test in problem.public_tests]
    line["input_tests"] = [test.input for test in problem.hidden_tests]
    line["output_tests"] = [test.expected for test in problem.hidden_tests]
    line["solutions"] = [{"code": known.program} for known in problem.solutions if solutions]
    line["checker"] = {"type": "tokens", "case_sensitive": problem.checker.case_sensitive}
    line |= {"time_limit_s": problem.limits.cpu_s, "memory_limit_mb": problem.limits.memory_bytes >> 20}
    return line | {"license": problem.licence}


def main() -> None:
    """Writes both files, and prints the success rates of the chosen problems."""
    folder = harness.options(__doc__, "folder").folder
    folder.mkdir(parents=True, exist_ok=True)
    with closing(Warehouse.open(warehouse_location(), read_only=True)) as store:
        rates = {row["problem_id"]: row["s"] for row in store.rows("SELECT problem_id, s FROM q0")}
    pool = generate(POOL, EVALUATION, 0)
    lines: list[dict[str, Any]] = []
    for kind, (least, most) in BOUNDS.items():
        inside = [p for p in pool[:POOL] if least <= rates.get(p.problem_id, -1.0) <= most]
        wanted = round(PROBLEMS * SHARES[kind])
        if len(inside) < wanted:
            raise SystemExit(f"Q0 has {len(inside)} {kind} problems; {wanted} are needed. Run the pool first.")
        mean = sum(rates[p.problem_id] for p in inside[:wanted]) / wanted
        print(f"{kind}: {wanted} of {len(inside)}, mean S0 {mean:.2f}")
        lines += [record(problem, solutions=True) for problem in inside[:wanted]]
    hopeless = generate(PROBLEMS - len(lines), 0, 0, HOPELESS_DEPTH)
    print(f"hopeless: {len(hopeless)}")
    lines += [record(problem, solutions=False) for problem in hopeless]
    held_out = [record(problem, solutions=False) for problem in pool[POOL:]]
    for name, chosen in (("train", lines), ("evaluation", held_out)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in chosen), encoding="utf-8")


if __name__ == "__main__":
    main()
