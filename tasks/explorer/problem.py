"""One problem: its statement and tests, every different program, two side by side, and one prompt through training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tasks.estimators import beta_interval
from tasks.explorer import response_rows
from tasks.explorer.address import BadAddress, NotFound
from tasks.explorer.audits import Audited, audited
from tasks.explorer.drawing import Dot, Line, Plot, interval, plot
from tasks.explorer.look import Look, Page
from tasks.explorer.outcomes import with_outcomes
from tasks.explorer.source_text import side_by_side, source
from tasks.programs.extraction import extract_program
from warehouse.queries import query

PROBLEM = query(__name__, "problem")
TESTS = query(__name__, "tests")
POLICIES = query(__name__, "policies")
PI_0 = query(__name__, "pi_0")
PROGRAMS = query(__name__, "programs")
VERDICTS = query(__name__, "verdicts")
THROUGH_TIME = query(__name__, "through_time")
AT_STEP = query(__name__, "at_step")
RUNS = query(__name__, "runs")

A_PAGE = 10
GIVEN = frozenset({"pi_0", "person", "other model"})
"""Whose programs training begins with."""
AUTHORS = ("all", "found", "pi_0", "training", "evaluation", "person", "other model", "suspect")
VERDICT_KINDS = ("all", "correct", "wrong")
ORDERS: Mapping[str, tuple[str, Callable[[Mapping[str, Any]], Any]]] = {
    "first": ("oldest first", lambda row: (row["first_snapshot"], row["program"])),
    "new": ("newest first", lambda row: (-row["first_snapshot"], row["program"])),
    "often": ("most frequent first", lambda row: (-row["times"], row["program"])),
}


def problem_page(look: Look) -> Page:
    """The problem and its programs, filtered by who wrote them and by verdict."""
    problem = the_problem(look)
    author, verdict = look.address.choice("by", AUTHORS), look.address.choice("verdict", VERDICT_KINDS)
    order = look.address.choice("order", tuple(ORDERS))
    number = look.address.page()
    look.session.need_responses()
    everything = look.rows(PROGRAMS, problem=problem["problem_id"])
    tests = audited(look, problem)
    chosen = [row for row in everything if _matches(row, author, verdict)]
    if author == "suspect":
        chosen = _suspects(look, problem, chosen, tests)
    chosen.sort(key=ORDERS[order][1])
    shown = chosen[A_PAGE * (number - 1) : A_PAGE * number]
    counts = look.row(PI_0, problem=problem["problem_id"])
    policies = look.rows(POLICIES, problem=problem["problem_id"])
    return Page(
        "problem.html",
        problem["title"] or problem["problem_id"],
        "/problems",
        {
            "problem": problem,
            "tests": look.rows(TESTS, problem=problem["problem_id"], suite=tests.counting),
            "audited": tests,
            "policies": [_rated(row) for row in policies],
            "sampled": any(row["source"] in ("online", "evaluation") for row in policies),
            "pi_0": _rated(counts) if counts and counts["n"] else None,
            "programs": with_texts(look, problem, shown, tests),
            "total": len(chosen),
            "all": len(everything),
            "found": sum(_matches(row, "found", "all") for row in everything),
            "number": number,
            "last": max(1, -(-len(chosen) // A_PAGE)),
            "chosen": {"by": author, "verdict": verdict, "order": order},
            "choices": {"by": AUTHORS, "verdict": VERDICT_KINDS},
            "orders": {name: label for name, (label, _) in ORDERS.items()},
        },
    )


def the_problem(look: Look) -> dict[str, Any]:
    """The problem that the address names. Raises BadAddress and NotFound."""
    name = look.address.needed("id")
    found = look.row(PROBLEM, problem=name)
    if found is None:
        raise NotFound(f"there is no problem {name[:120]!r} at this snapshot")
    return found


def found_by_training(row: Mapping[str, Any]) -> bool:
    """Whether training found this correct program itself: nobody whom it could have imitated wrote it."""
    return bool(row["correct"]) and "training" in row["authors"] and not GIVEN & {*row["authors"]}


def _matches(row: Mapping[str, Any], author: str, verdict: str) -> bool:
    if verdict != "all" and row["correct"] != (verdict == "correct"):
        return False
    if author == "found":
        return found_by_training(row)
    if author == "suspect":
        return bool(row["correct"])
    return author == "all" or author in row["authors"]


def _suspects(
    look: Look, problem: Mapping[str, Any], programs: Sequence[dict[str, Any]], tests: Audited
) -> list[dict[str, Any]]:
    """Those of the correct programs that an audit found likely wrong."""
    texts = response_rows.texts(look, problem["problem_id"], programs) if tests.suspects else {}
    return [row for row in programs if texts.get(row["program"], {}).get("program_hash") in tests.suspects]


def _rated(row: Mapping[str, Any]) -> dict[str, Any]:
    n, k = int(row["n"] or 0), int(row["k"] or 0)
    if not n:
        return {**row, "rate": None, "ruler": ""}
    low, high = beta_interval(n, k)
    return {**row, "rate": k / n, "low": low, "high": high, "ruler": interval(k / n, low, high)}


def with_texts(
    look: Look, problem: Mapping[str, Any], programs: Sequence[dict[str, Any]], tests: Audited
) -> list[dict[str, Any]]:
    """The rows with the programs' texts, what the sandbox said of them test by test, and what audits say."""
    whole = look.address.text("whole") == "1"
    texts = response_rows.texts(look, problem["problem_id"], programs)
    hashes = sorted({row["program_hash"] for row in texts.values() if row["program_hash"]})
    versions = {row["suite_hash"]: row["version"] for row in tests.suites}
    rows = look.rows(VERDICTS, suites=list(versions), counting=tests.counting, programs=hashes)
    said = {row["program_hash"]: _judged(row, versions, tests.counting) for row in rows}
    found: list[dict[str, Any]] = []
    for row in programs:
        text = texts.get(row["program"])
        if text is not None:
            found.append(
                {
                    **row,
                    **text,
                    "source": source(extract_program(text["text"] or ""), whole=whole),
                    "judged": said.get(text["program_hash"]),
                    "found": "authors" in row and found_by_training(row),
                    "suspicion": tests.suspects.get(text["program_hash"]),
                }
            )
    return found


def _judged(row: Mapping[str, Any], versions: Mapping[str, int], counting: str | None) -> dict[str, Any]:
    other = None if row["suite_hash"] == counting else versions.get(row["suite_hash"])
    return {**with_outcomes(row), "other_version": other}


def programs_page(look: Look) -> Page:
    """Two programs of a problem side by side, with what differs."""
    problem = the_problem(look)
    look.session.need_responses()
    wanted = look.address.texts("p")
    if len(wanted) != 2:
        raise BadAddress(f"two programs can be compared, not {len(wanted)}: tick them on the problem's page")
    rows = {str(row["program"]): row for row in look.rows(PROGRAMS, problem=problem["problem_id"])}
    if unknown := [one for one in wanted if one not in rows]:
        raise NotFound(f"the problem has no program {unknown[0][:40]!r} at this snapshot")
    texts = response_rows.texts(look, problem["problem_id"], [rows[one] for one in wanted])
    left, right = (extract_program(texts[int(one)]["text"] or "") for one in wanted)
    return Page(
        "programs.html",
        f"Two programs for {problem['title'] or problem['problem_id']}",
        "/problems",
        {
            "problem": problem,
            "sides": with_texts(look, problem, [rows[one] for one in wanted], audited(look, problem)),
            "lines": side_by_side(left, right, whole=look.address.text("whole") == "1"),
        },
    )


def prompt_page(look: Look) -> Page:
    """One prompt through training: at each step the samples, the share that pass, and the programs of that step."""
    problem, run = the_problem(look), look.address.text("run")
    look.session.need_responses()
    steps = look.rows(THROUGH_TIME, problem=problem["problem_id"], run=run)
    if not steps:
        raise NotFound(f"no run has sampled the problem {problem['problem_id']!r} along training at this snapshot")
    known = [int(row["step"]) for row in steps]
    asked = look.address.number("step", known[-1]) or 0
    step = min(known, key=lambda one: abs(one - asked))
    programs = look.rows(AT_STEP, problem=problem["problem_id"], run=run, step=step)
    return Page(
        "prompt.html",
        f"{problem['title'] or problem['problem_id']} through training",
        "/problems",
        {
            "problem": problem,
            "run": run,
            "runs": look.rows(RUNS, problem=problem["problem_id"]),
            "steps": known,
            "step": step,
            "now": next(row for row in steps if row["step"] == step),
            "charts": _time_charts(look, steps, step),
            "programs": with_texts(look, problem, programs, audited(look, problem)),
        },
    )


def _time_charts(look: Look, steps: Sequence[Mapping[str, Any]], step: int) -> list[tuple[str, Any]]:
    marks = [(float(step), "shown below")]
    passing = [
        Dot(
            row["step"],
            row["k"] / row["n"],
            *beta_interval(row["n"], row["k"]),
            href=look.address.changed(step=row["step"]),
        )
        for row in steps
        if row["n"]
    ]
    new = [Dot(row["step"], row["new"], href=look.address.changed(step=row["step"])) for row in steps]
    return [
        ("Share that pass", plot(Plot("Share that pass", [Line("passes", passing)], share=True, marks=marks))),
        ("New programs", plot(Plot("New programs", [Line("new programs", new)], marks=marks))),
    ]
