"""The set `basics`: right programs pass, typical mistakes fail, and no task is another one in other words."""

import ast
import io
from collections import Counter
from collections.abc import Sequence
from functools import partial
from types import CodeType

import pytest

from sandbox import Judge, Submission, TestCase
from tasks.config import ProblemsConfig
from tasks.problems import basics
from tasks.problems.basics import Task
from tasks.problems.decontamination import decontaminate
from tasks.problems.dedup import near_duplicates
from tasks.problems.examples import EXAMPLES
from tasks.problems.problem import Style
from tasks.problems.sources import read

STYLES: tuple[Style, ...] = ("stdin", "function")
TASKS = basics.tasks()


def passes(task: Task, style: Style, code: str) -> bool:
    """Whether the program of `code` meets every test of the task, run here; nothing in the set is foreign code."""
    program = compile(task.program(code, style), task.name, "exec")
    try:
        return all(_meets(program, test, style) for test in task.problem(style).tests)
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError):
        return False


def _meets(program: CodeType, test: TestCase, style: Style) -> bool:
    if style == "function":
        names: dict[str, object] = {}
        exec(program, names)
        exec(test.input, names)
        return True
    lines, printed = iter(test.input.splitlines()), io.StringIO()
    exec(program, {"input": lambda: next(lines), "print": partial(print, file=printed)})
    return printed.getvalue().split() == test.expected.split()


@pytest.mark.parametrize("style", STYLES)
def test_every_solution_passes(style: Style) -> None:
    assert [(task.name, code) for task in TASKS for code in task.solutions if not passes(task, style, code)] == []


@pytest.mark.parametrize("style", STYLES)
def test_every_typical_mistake_fails(style: Style) -> None:
    assert [(task.name, code) for task in TASKS for code in task.wrong if passes(task, style, code)] == []


def verdicts(tasks: Sequence[Task], style: Style) -> dict[tuple[str, str], str]:
    """The sandbox's verdicts on solutions and typical mistakes, by task and code."""
    asked = [(task, code) for task in tasks for code in (*task.solutions, *task.wrong)]
    suites = {task.name: task.problem(style).suite() for task in tasks}
    with Judge(workers=2, mode="batch") as judge:
        found = judge.judge([Submission(task.program(code, style), suites[task.name]) for task, code in asked])
    return {(task.name, code): str(one.verdict) for (task, code), one in zip(asked, found, strict=True)}


def wanted(tasks: Sequence[Task]) -> dict[tuple[str, str], bool]:
    """Whether each of these programs is to be accepted."""
    return {(task.name, code): code in task.solutions for task in tasks for code in (*task.solutions, *task.wrong)}


@pytest.mark.child
@pytest.mark.parametrize("style", STYLES)
def test_the_sandbox_agrees_on_a_task_of_every_third_family(style: Style) -> None:
    some = list({task.family: task for task in TASKS}.values())[::3]
    found = verdicts(some, style)
    assert {key: verdict == "accepted" for key, verdict in found.items()} == wanted(some)
    assert set(found.values()) <= {"accepted", "wrong_answer", "runtime_error"}


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
def test_the_sandbox_agrees_on_every_task(style: Style) -> None:
    found = verdicts(TASKS, style)
    assert {key: verdict == "accepted" for key, verdict in found.items()} == wanted(TASKS)


def test_there_are_as_many_tasks_solutions_mistakes_and_tests_as_promised() -> None:
    assert len(TASKS) >= 240
    assert Counter(task.split for task in TASKS)["evaluation"] == 60
    assert all(len(task.solutions) >= 2 and len(set(task.wrong)) >= 3 for task in TASKS)
    assert all(len(set(task.tests)) >= 8 for task in TASKS)
    assert {task.difficulty for task in TASKS} == {1, 2, 3}


def test_three_tests_of_every_task_catch_a_mistake() -> None:
    few = [task.name for task in TASKS if sum(_catches(task, given, result) for given, result in task.cases) < 3]
    assert few == []


def test_a_family_is_in_one_split() -> None:
    splits: dict[str, set[str]] = {}
    for task in TASKS:
        splits.setdefault(task.family, set()).add(task.split)
    assert {family: found for family, found in splits.items() if len(found) > 1} == {}
    assert len(splits) == 77


def test_no_statement_nearly_repeats_another_or_a_worked_example() -> None:
    statements = [task.statement(style) for task in TASKS for style in STYLES]
    statements += [shown for style in STYLES for shown, _ in EXAMPLES[style]]
    assert near_duplicates(statements) == list(range(len(statements)))
    assert len({task.name for task in TASKS}) == len(TASKS)


def test_training_and_evaluation_share_no_problem() -> None:
    problems = basics.problems()
    train = [problem for problem in problems if problem.split == "train"]
    kept, overlaps = decontaminate(train, [problem for problem in problems if problem.split == "evaluation"])
    assert overlaps == []
    assert kept == train


class _Renamed(ast.NodeTransformer):
    """Names that the program gives, in the order in which they are met, and constants by their types."""

    def __init__(self, argument_names: Sequence[str]) -> None:
        self.names = {name: f"v{number}" for number, name in enumerate(argument_names)}

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if isinstance(node.ctx, ast.Store):
            self.names.setdefault(node.id, f"v{len(self.names)}")
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(type(node.value).__name__)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            node.generators = [super(_Renamed, self).generic_visit(one) for one in node.generators]
            node.elt = self.visit(node.elt)
            return node
        return super().generic_visit(node)


def renamed(program: str) -> str:
    """The body of a function with its names numbered and its constants masked."""
    (function,) = ast.parse(program).body
    assert isinstance(function, ast.FunctionDef)
    change = _Renamed([argument.arg for argument in function.args.args])
    return "\n".join(ast.unparse(change.visit(statement)) for statement in function.body)


def test_no_evaluation_task_is_one_of_training_or_a_worked_example_with_other_names_or_constants() -> None:
    one, other = renamed("def f(a):\n return [x + 'a' for x in a]"), renamed("def g(s):\n return [y + 'b' for y in s]")
    assert one == other == "return [v1 + 'str' for v1 in v0]"
    known = {renamed(program): "worked example" for _, program in EXAMPLES["function"]}
    asked: dict[str, str] = {}
    for task in TASKS:
        bodies = known if task.split == "train" else asked
        bodies |= {renamed(task.program(code, "function")): task.name for code in task.solutions}
    assert {body: (known[body], asked[body]) for body in known.keys() & asked.keys()} == {}


def test_statements_of_two_styles() -> None:
    task = next(task for task in TASKS if task.name == "keep_positive")
    assert task.statement("stdin") == (
        "Read a line of integers xs. Print the positive numbers of xs, in the same order, separated by spaces."
    )
    assert task.statement("function") == (
        "Write a function keep_positive(xs) that takes a list of integers xs and returns the positive numbers of xs, "
        "in the same order, as a list."
    )


def test_programs_of_two_styles() -> None:
    task = next(task for task in TASKS if task.name == "absolute")
    body = "if n < 0:\n    n = -n\nreturn n"
    assert task.program(body, "stdin") == "n = int(input())\nif n < 0:\n    n = -n\nprint(n)"
    assert task.program(body, "function") == "def absolute(n):\n    if n < 0:\n        n = -n\n    return n"
    early = "if n < 0:\n    return -n\nreturn n"
    assert task.program(early, "stdin").endswith("    return n\n\nn = int(input())\nprint(absolute(n))")


def test_the_source_takes_each_split_from_its_families_whatever_the_seed() -> None:
    for seed in (0, 1):
        report = read(ProblemsConfig(source="basics", train=1000, evaluation=1000, seed=seed))
        split_of = {problem.problem_id: problem.split for problem in report.problems}
        assert split_of == {problem.problem_id: problem.split for problem in basics.problems()}
    few = read(ProblemsConfig(source="basics", train=10, evaluation=4))
    assert Counter(problem.split for problem in few.problems) == {"train": 10, "evaluation": 4}


def _catches(task: Task, given: Sequence[object], result: object) -> bool:
    return any(_answer(task, code, given) != result for code in task.wrong)


def _answer(task: Task, code: str, given: Sequence[object]) -> object:
    names: dict[str, object] = {}
    exec(task.program(code, "function"), names)
    try:
        return names[task.name](*given)  # type: ignore[operator]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return repr(error)
