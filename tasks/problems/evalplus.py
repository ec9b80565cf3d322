"""HumanEval+ and MBPP+ as evalplus writes them: inputs without outputs.

What is right is what the canonical solution answers. The tests carry it: whoever judges computes its answers beside the
program's, in the sandbox, and compares them as evalplus does (`atol`, and rules of its own for some MBPP problems).
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from sandbox import TestCase
from tasks.problems.own_layout import NO_TESTS
from tasks.problems.problem import Problem, Solution
from tasks.problems.records import Record
from tasks.programs.stubs import given_code

INPUTS_PER_TEST = 50
"""One test calls the program with so many inputs: a test has one limit of time."""
ANY_ANSWER = ("are_equivalent",)
NOT_NONE = ("check_str", "text_match_three", "text_starta_endb")
"""MBPP problems whose answer only has to be there, or not: a match object."""
SAME_SET = (
    "similar_elements",
    "find_char_long",
    "common_in_nested_lists",
    "extract_singly",
    "larg_nnum",
    "intersection_array",
    "find_dissimilar",
    "Diff",
)
"""MBPP problems whose answer counts without order and repetition."""
OTHERWISE = {
    "sum_div": "answer == 0",
    "surface_Area": "abs(answer - round(given[0] ** 2 + 2 * given[0] * (given[0] ** 2 / 4 + given[1] ** 2) ** 0.5)) "
    "<= {atol}",
    "digit_distance_nums": "answer == sum(abs(int(a) - int(b)) for a, b in zip(*[str(n).zfill(len(str(max(given)))) "
    "for n in given]))",
}
"""MBPP problems with a second right answer."""
ROOT = "find_zero"
"""HumanEval's problem of any root of a polynomial."""
COMPARISON = """
import copy
from math import inf, nan

expected_in = {{}}
exec({canonical!r}, expected_in)
reference = expected_in[{name!r}]


def near(answer, wanted, slack):
    if isinstance(wanted, (list, tuple)) and isinstance(answer, (list, tuple)):
        return len(answer) == len(wanted) and all(near(a, w, slack) for a, w in zip(answer, wanted))
    if isinstance(wanted, (int, float, complex)) and isinstance(answer, (int, float, complex)):
        return answer == wanted or abs(answer - wanted) <= slack + 1e-07 * abs(wanted)
    return answer == wanted


def right(answer, wanted, given):
    {rule}
    floats = isinstance(wanted, float) or (
        isinstance(wanted, (list, tuple)) and len(wanted) > 0 and all(isinstance(w, float) for w in wanted)
    )
    slack = {atol} or (1e-06 if floats else 0)
    return answer == wanted or (slack > 0 and type(answer) == type(wanted) and near(answer, wanted, slack))


for given in {inputs}:
    wanted = reference(*copy.deepcopy(given))
    assert right({name}(*copy.deepcopy(given)), wanted, given), repr(given)[:200]
"""


def humanevalplus(record: Record, problem_set: str) -> Problem:
    """A problem of HumanEval+: base inputs, then plus inputs."""
    problem = _problem(record, problem_set, "HumanEval+", "MIT", None)
    return replace(problem, prelude=given_code(problem.statement))


def mbppplus(record: Record, problem_set: str) -> Problem:
    """A problem of MBPP+; JSON's lists become the tuples, sets and numbers that the statement's assert shows."""
    shown = _shown_arguments(record.text("prompt"), record.text("entry_point"))
    return _problem(record, problem_set, "MBPP+", "Apache-2.0; MBPP: CC BY 4.0", shown)


def _problem(record: Record, problem_set: str, source: str, licence: str, shown: Sequence[Any] | None) -> Problem:
    name, prompt = record.text("entry_point"), record.text("prompt")
    canonical = prompt + record.text("canonical_solution")
    atol = record.number("atol", 0.0) or 0.0
    tests: list[TestCase] = []
    for field in ("base_input", "plus_input"):
        given = [_typed(one, shown) for one in _inputs(record, field)]
        for start in range(0, len(given), INPUTS_PER_TEST):
            part = given[start : start + INPUTS_PER_TEST]
            text = COMPARISON.format(
                canonical=canonical, name=name, rule=_rule(name, atol, mbpp=shown is not None), atol=atol, inputs=part
            )
            tests.append(TestCase(text, ""))
    return Problem(
        problem_id=record.text("task_id"),
        problem_set=problem_set,
        split="train",
        title=record.text("task_id"),
        statement=prompt,
        hidden_tests=tuple(tests),
        style="function",
        entry_point=name,
        solutions=(Solution(canonical, origin=source),),
        source=source,
        licence=licence,
        unjudgeable_reason=None if tests else NO_TESTS,
    )


def _inputs(record: Record, field: str) -> list[list[Any]]:
    found = record.data.get(field)
    if isinstance(found, dict) and not found:  # so evalplus writes none
        return []
    for position, one in enumerate(record.items(field)):
        if not isinstance(one, list):
            raise record.error(f"{field}[{position}]", "must be a list of arguments")
    return cast("list[list[Any]]", record.items(field))


def _rule(name: str, atol: float, *, mbpp: bool) -> str:
    """The line that decides before answers are compared, for problems whose answers are not unique."""
    if not mbpp:
        root = f"return abs(sum(c * answer ** i for i, c in enumerate(given[0]))) <= {atol}"
        return root if name == ROOT else "pass"
    if name in ANY_ANSWER:
        return "return True"
    if name in SAME_SET:
        return "return set(answer) == set(wanted)"
    if name in NOT_NONE:
        return "return (answer if isinstance(answer, bool) else answer is not None) == (wanted is not None)"
    if name in OTHERWISE:
        return f"if {OTHERWISE[name].format(atol=atol)}: return True"
    return "pass"


def _shown_arguments(prompt: str, name: str) -> list[Any]:
    """The arguments of the first assert in the statement that are plain values."""
    for line in prompt.splitlines():
        if not line.strip().startswith("assert "):
            continue
        try:
            calls = [node for node in ast.walk(ast.parse(line.strip())) if isinstance(node, ast.Call)]
            for call in calls:
                if isinstance(call.func, ast.Name) and call.func.id == name:
                    return [ast.literal_eval(argument) for argument in call.args]
        except (ValueError, SyntaxError):
            continue
    return []


def _typed(given: list[Any], shown: Sequence[Any] | None) -> list[Any]:
    """The arguments in the types of those shown; what goes beyond them stays as JSON has it."""
    if not shown:
        return given
    return [_like(value, shown[place]) if place < len(shown) else value for place, value in enumerate(given)]


def _like(value: Any, shown: Any) -> Any:
    if isinstance(value, str) and isinstance(shown, int | float | complex):
        return _number(value)
    if isinstance(value, dict) and isinstance(shown, dict) and shown:
        inner = next(iter(cast("dict[Any, Any]", shown).values()))
        return {key: _like(one, inner) for key, one in cast("dict[Any, Any]", value).items()}
    if not isinstance(value, list):
        return value
    items = cast("list[Any]", value)
    if isinstance(shown, dict):  # a set of several kinds is shown as an empty dictionary
        return set(items) if items else {}
    if not isinstance(shown, list | tuple | set | frozenset):
        return items
    kind = cast("type[Any]", type(cast("Any", shown)))
    members = list(cast("Sequence[Any]", shown))
    deeper = next((one for one in members if isinstance(one, list | tuple | set | dict)), kind())
    leaf = next((one for one in members if not isinstance(one, list | tuple | set | dict)), None)
    return kind(_like(one, deeper if isinstance(one, list | dict) else leaf) for one in items)


def _number(text: str) -> float | complex:
    try:
        return float(text)
    except ValueError:
        return complex(text)
