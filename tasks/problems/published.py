"""Published problem sets in their own fields: CodeContests, TACO, APPS, LiveCodeBench, HumanEval and MBPP.

Only Python 3 programs are kept as solutions. Tests that call a function become assert statements.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pickle
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from sandbox import Checker, TestCase
from tasks.problems import own_layout
from tasks.problems.own_layout import FILES, IMAGES, NO_TESTS, limits
from tasks.problems.problem import Problem, Solution, Style
from tasks.problems.records import Record

_CODECONTESTS_PYTHON3 = 3
_CODECONTESTS_SOURCES = ("unknown", "codechef", "codeforces", "hackerearth", "codejam", "atcoder", "aizu")
_IMAGE = re.compile(r"<image>|\[image\]|<img\b|!\[[^\]]*\]\(|\\includegraphics", re.IGNORECASE)
_MODULES = (
    *("typing", "collections", "heapq", "bisect", "itertools", "functools", "string"),
    *("re", "operator", "copy", "random", "datetime", "math"),
)
PRELUDE = "; ".join(
    [
        *(f"from {name} import *" for name in _MODULES),
        "from builtins import *",  # some of those have an `abs` or a `pow` of their own
        f"import {', '.join(_MODULES)}, sys",
    ]
)
"""Before programs that start from a given function: the sets' own graders import about as much, and what they give to
start from names `List` and `Optional` without importing them."""
_MEASURE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milli|k|g|bytes?)?")
_UNITS = {"ms": 1e-3, "milli": 1e-3, "k": 1 / 1024, "g": 1024.0}
_APPS_SECONDS = 4.0
_LIVECODEBENCH_SECONDS = 6.0
"""What the sets' own graders give a test: their problems state no limit."""
SHOWN = "The function must pass this test:"
"""What stands before the assert that an MBPP problem shows."""
_LIVECODEBENCH_PRELUDE = "sys.setrecursionlimit(50000)"
"""As in LiveCodeBench's grader, for both styles."""


def codecontests(record: Record, problem_set: str) -> Problem:
    """A CodeContests problem; its private and generated tests are the hidden ones."""
    name = record.text("name")
    source = int(record.number("source", 0) or 0)
    statement = record.text("description")
    hidden = _paired(record, "private_tests") + _paired(record, "generated_tests")
    public = _paired(record, "public_tests")
    reason = None if public or hidden else NO_TESTS
    if record.text("input_file", "") or record.text("output_file", ""):
        reason = FILES
    elif _IMAGE.search(statement):
        reason = IMAGES
    memory = record.number("memory_limit_bytes")
    return Problem(
        problem_id=f"codecontests/{name}",
        problem_set=problem_set,
        split="train",
        title=name,
        statement=statement,
        public_tests=public,
        hidden_tests=hidden,
        checker=Checker(kind="codecontests"),
        limits=limits(_seconds(record), None if memory is None else memory / (1 << 20)),
        solutions=(*_labelled(record, "solutions", "accepted"), *_labelled(record, "incorrect_solutions", "rejected")),
        source=f"CodeContests, {_CODECONTESTS_SOURCES[source] if source < len(_CODECONTESTS_SOURCES) else source}",
        licence="CC BY 4.0",
        unjudgeable_reason=reason,
    )


def taco(record: Record, problem_set: str) -> Problem:
    """A TACO problem; it has no public tests. Its id is its address, or made of what it asks."""
    name = record.text("url", "") or _digest(record.text("question"))
    time, memory = (_measured(record.text(field, "") or "") for field in ("time_limit", "memory_limit"))
    return _from_input_output(
        record,
        problem_set,
        f"taco/{name}",
        limits=(time, memory),
        licence="Apache-2.0",
    )


def _measured(text: str) -> float | None:
    """A time in seconds or a size in MiB, from words like `2.0 seconds`, `500 ms`, `256 megabytes` and `65536 KB`.

    None for bytes, too: what CodeChef's problems have in bytes is how long a program may be.
    """
    found = _MEASURE.match(text.strip().lower())
    if found is None or (found[2] or "").startswith("byte"):
        return None
    return float(found[1]) * _UNITS.get(found[2], 1.0)


def apps(record: Record, problem_set: str) -> Problem:
    """An APPS problem, also of the sets that use its fields; it has no public tests.

    Both of its splits count from 0, so that what it asks is part of its id.
    """
    number = record.data.get("problem_id", record.data.get("id"))
    if number is None or isinstance(number, bool) or not isinstance(number, int | str):
        raise record.error("problem_id", "must be a number or text")
    name = f"apps/{number}-{_digest(record.text('question'))}"
    return _from_input_output(record, problem_set, name, limits=(_APPS_SECONDS, None), licence="MIT")


def _digest(question: str) -> str:
    return hashlib.sha256(question.encode()).hexdigest()[:12]


def livecodebench(record: Record, problem_set: str) -> Problem:
    """A LiveCodeBench problem; private tests may be packed (base64, zlib, pickled text)."""
    name = record.text("question_id")
    public = _livecodebench_tests(record, "public_test_cases", record.embedded("public_test_cases"))
    hidden = _livecodebench_tests(record, "private_test_cases", _unpacked(record, "private_test_cases"))
    statement = record.text("question_content")
    starter = record.text("starter_code", "")
    function = any(test.expected == "" and test.input.startswith(("assert ", _AS_LISTS)) for test in public + hidden)
    reason = None if public or hidden else NO_TESTS
    return Problem(
        problem_id=f"livecodebench/{name}",
        problem_set=problem_set,
        split="train",
        title=record.text("question_title", name),
        statement=_with_starter(statement, starter),
        public_tests=public,
        hidden_tests=hidden,
        checker=Checker(kind="lines"),
        limits=limits(_LIVECODEBENCH_SECONDS, None),
        style="function" if function else "stdin",
        prelude=f"{PRELUDE}; {_LIVECODEBENCH_PRELUDE}" if function else f"import sys; {_LIVECODEBENCH_PRELUDE}",
        entry_point=_function_name(record) if function else "",
        source=f"LiveCodeBench, {record.text('platform', 'unknown')} {record.text('contest_date', '')}".strip(),
        unjudgeable_reason=IMAGES if _IMAGE.search(statement) else reason,
    )


def humaneval(record: Record, problem_set: str) -> Problem:
    """A HumanEval problem: the prompt is the statement, its check the one test."""
    entry_point = record.text("entry_point")
    prompt = record.text("prompt")
    own = {
        "problem_id": record.text("task_id"),
        "statement": prompt,
        "style": "function",
        "entry_point": entry_point,
        "test_code": record.text("test"),
        "test_call": f"check({entry_point})",
        "solutions": [{"code": prompt + record.text("canonical_solution"), "origin": "HumanEval"}],
        "source": "HumanEval",
        "license": "MIT",
    }
    return own_layout.read_problem(Record(record.where, own), problem_set)


def mbpp(record: Record, problem_set: str) -> Problem:
    """An MBPP problem, of the full or the sanitized set; the first assert is shown, since it names the function.

    A field `test`, which MBPP+ has on the hub, is one more test.
    """
    tests = record.texts("test_list")
    if not tests:
        raise record.error("test_list", "is empty")
    setup = "\n".join([*record.texts("test_imports"), record.text("test_setup_code", "")]).strip()
    text = record.text("text", "") or record.text("prompt")
    own = {
        "problem_id": f"mbpp/{record.data.get('task_id')}",
        "statement": f"{text}\n\n{SHOWN}\n\n{tests[0]}\n",
        "style": "function",
        "test_list": tests,
        "challenge_test_list": record.texts("challenge_test_list"),
        "test_setup_code": setup,
        "solutions": [{"code": record.text("code"), "origin": "MBPP"}],
        "source": "MBPP",
        "license": "CC BY 4.0",
    }
    problem = own_layout.read_problem(Record(record.where, own), problem_set)
    more = record.text("test", "")
    return replace(problem, hidden_tests=(*problem.hidden_tests, TestCase(more, ""))) if more else problem


def _from_input_output(
    record: Record, problem_set: str, problem_id: str, *, limits: tuple[float | None, float | None], licence: str
) -> Problem:
    statement = record.text("question")
    tests, style, name = _input_output_tests(record)
    reason = None if tests else NO_TESTS
    return Problem(
        problem_id=problem_id,
        problem_set=problem_set,
        split="train",
        title=record.text("name", "") or problem_id,
        statement=_with_starter(statement, record.text("starter_code", "")),
        hidden_tests=tests,
        checker=Checker(case_sensitive=True),
        limits=own_layout.limits(*limits),
        style=style,
        prelude=PRELUDE if style == "function" else "",
        entry_point=name,
        solutions=tuple(Solution(program) for program in _embedded_texts(record, "solutions")),
        source=record.text("url", "") or record.text("source", ""),
        licence=licence,
        unjudgeable_reason=IMAGES if _IMAGE.search(statement) or _pictures(record) else reason,
    )


def _pictures(record: Record) -> bool:
    """Whether TACO says that the statement has pictures, which it leaves out."""
    return str(record.data.get("picture_num") or "0").strip() not in {"0", "0.0"}


def _input_output_tests(record: Record) -> tuple[tuple[TestCase, ...], Style, str]:
    """Tests of the field `input_output`: {"inputs": [...], "outputs": [...], "fn_name": optional}."""
    value = record.embedded("input_output")
    if value is None:
        return (), "stdin", ""
    if not isinstance(value, dict):
        raise record.error("input_output", "must hold an object")
    inner = Record(record.where, cast("dict[str, Any]", value), f"{record.path}input_output.")
    inputs, outputs = inner.items("inputs"), inner.items("outputs")
    if len(inputs) != len(outputs):
        raise inner.error("outputs", f"has {len(outputs)} entries, but 'inputs' has {len(inputs)}")
    name = inner.text("fn_name", "")
    if not name:
        pairs = [(_lines(given), _lines(expected)) for given, expected in zip(inputs, outputs, strict=True)]
        return tuple(TestCase(given, expected) for given, expected in pairs), "stdin", ""
    method = "class Solution" in record.text("starter_code", "")
    calls: list[TestCase] = []
    for given, expected in zip(inputs, outputs, strict=True):
        arguments = given if isinstance(given, list) else [given]
        results = [expected]
        if isinstance(expected, list) and len(cast("list[Any]", expected)) == 1:
            results.append(expected[0])  # the sets wrap a single result in a list
        right = tuple(map(_with_numbers, results))
        calls.append(_assert(name, [*map(_with_numbers, arguments)], right, method=method))
    return tuple(calls), "function", name


def _assert(name: str, arguments: Sequence[Any], expected: tuple[Any, ...], *, method: bool) -> TestCase:
    """One call as an assert, any of the results `expected` being right.

    Results come from JSON, which knows no tuples: as in the sets' own graders, one counts as the list of its items.
    """
    call = f"{'Solution().' if method else ''}{name}({', '.join(map(_spelled, arguments))})"
    lists = any(isinstance(result, list | dict) for result in expected)
    asked = f"_as_lists({call})" if lists else call
    results = [*map(_spelled, expected)]
    right = f"== {results[0]}" if len(results) == 1 else f"in ({', '.join(results)})"
    return TestCase(f"{_AS_LISTS if lists else ''}assert {asked} {right}\n", "")


def _spelled(value: Any) -> str:
    """An expression for a value that came from JSON. A large one is one constant: syntax trees of such take seconds."""
    text = repr(value)
    text = _with_infinities(value) if "inf" in text or "nan" in text else text  # numbers that have no literal
    if len(text) <= _LONGEST_LITERAL:
        return text
    packed = json.dumps(value)
    return f"__import__('json').loads({packed!r})" if json.loads(packed) == value else text


def _with_infinities(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_with_infinities, cast('list[Any]', value)))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{k!r}: {_with_infinities(v)}' for k, v in cast('dict[Any, Any]', value).items())}}}"
    return f"float({text!r})" if (text := repr(value)) in ("inf", "-inf", "nan") else text


_LONGEST_LITERAL = 20_000


_AS_LISTS = """def _as_lists(value):
    if isinstance(value, (list, tuple)):
        return [_as_lists(item) for item in value]
    return {key: _as_lists(item) for key, item in value.items()} if isinstance(value, dict) else value


"""


def _with_numbers(value: Any) -> Any:
    """A dictionary that went through JSON, whose keys are texts, with the whole numbers that all of them spell."""
    if not isinstance(value, dict) or not value:
        return value
    try:
        return {int(key): item for key, item in cast("dict[str, Any]", value).items()}
    except ValueError:
        return value


def _lines(value: Any) -> str:
    """Standard input or output; some sets give a list of lines."""
    if isinstance(value, list):
        return "\n".join(str(line) for line in cast("list[Any]", value)) + "\n"
    return str(value)


def _embedded_texts(record: Record, name: str) -> list[str]:
    value = record.data.get(name)
    if isinstance(value, str):
        value = record.embedded(name)
    return Record(record.where, {name: value}, record.path).texts(name)


def _paired(record: Record, name: str) -> tuple[TestCase, ...]:
    """Tests given as {"input": [...], "output": [...]} or as a list of {"input", "output"}."""
    if isinstance(record.data.get(name), list):
        return tuple(TestCase(test.text("input"), test.text("output")) for test in record.records(name))
    inner = record.record(name)
    inputs, outputs = inner.texts("input"), inner.texts("output")
    if len(inputs) != len(outputs):
        raise inner.error("output", f"has {len(outputs)} entries, but 'input' has {len(inputs)}")
    return tuple(TestCase(given, expected) for given, expected in zip(inputs, outputs, strict=True))


def _labelled(record: Record, name: str, claimed: str) -> list[Solution]:
    inner = record.record(name)
    languages, programs = inner.items("language"), inner.texts("solution")
    if len(languages) != len(programs):
        raise inner.error("solution", f"has {len(programs)} entries, but 'language' has {len(languages)}")
    python = [text for language, text in zip(languages, programs, strict=True) if language in _PYTHON3]
    return [Solution(program, claimed=claimed) for program in python]


_PYTHON3 = (_CODECONTESTS_PYTHON3, "PYTHON3")


def _seconds(record: Record) -> float | None:
    given = record.record("time_limit")
    seconds = (given.number("seconds", 0.0) or 0.0) + (given.number("nanos", 0.0) or 0.0) / 1e9
    return seconds or None


def _livecodebench_tests(record: Record, name: str, value: Any) -> tuple[TestCase, ...]:
    tests = Record(record.where, {name: value}, record.path).records(name)
    return tuple(
        _assert_of_lines(record, test) if test.text("testtype", "stdin") == "functional" else _stdin_test(test)
        for test in tests
    )


def _stdin_test(test: Record) -> TestCase:
    return TestCase(test.text("input"), test.text("output"))


def _assert_of_lines(record: Record, test: Record) -> TestCase:
    """A functional test: each line of the input is one argument as JSON, the output the result as JSON."""
    try:
        arguments = [json.loads(line) for line in test.text("input").split("\n") if line.strip()]
        expected = json.loads(test.text("output"))
    except ValueError as error:
        raise test.error("input", f"or its output holds no JSON: {error}") from error
    method = "class Solution" in record.text("starter_code", "")
    return _assert(_function_name(record), arguments, (expected,), method=method)


def _function_name(record: Record) -> str:
    metadata = record.embedded("metadata") or {}
    name = Record(record.where, metadata, "metadata.").text("func_name", "")
    if name:
        return name.rsplit(".", 1)[-1]
    match = re.search(r"def (\w+)\(", record.text("starter_code", ""))
    if match is None:
        raise record.error("metadata.func_name", "is missing, and 'starter_code' defines no function")
    return match[1]


class _TextUnpickler(pickle.Unpickler):
    """Reads pickled text and nothing else: whatever would call code is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Always refuses."""
        raise pickle.UnpicklingError(f"refuses {module_name}.{global_name}")


def _unpacked(record: Record, name: str) -> Any:
    text = record.text(name, "")
    if not text.strip() or text.lstrip().startswith("["):
        return record.embedded(name)
    try:
        content = _TextUnpickler(io.BytesIO(zlib.decompress(base64.b64decode(text, validate=True)))).load()
        return json.loads(content)
    except (ValueError, TypeError, zlib.error, pickle.UnpicklingError, EOFError) as error:
        raise record.error(name, f"is neither JSON nor packed JSON: {error}") from error


def _with_starter(statement: str, starter: str) -> str:
    return f"{statement.rstrip()}\n\nStart from this code:\n\n{starter.rstrip()}\n" if starter.strip() else statement
