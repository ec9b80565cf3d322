"""Kattis/ICPC problem packages: one folder per problem.

Read are `problem.yaml`, `.timelimit`, the statement (English first), `data/sample` and `data/secret` (`.in` with
`.ans`, and what `testdata.yaml` or `test_group.yaml` tell the validator), and Python programs under
`submissions/<verdict>`. Of the YAML only `key: value` lines, lists of words and blocks one level deep are understood,
which is all that judging needs.

Source: problem package format, versions "legacy" and 2023-07.
"""

from __future__ import annotations

import re
from itertools import zip_longest
from pathlib import Path

from sandbox import Checker, TestCase
from tasks.problems.own_layout import IMAGES, INTERACTIVE, NO_TESTS, SPECIAL_JUDGE, limits
from tasks.problems.problem import Problem, Solution
from tasks.problems.records import InvalidProblem

_CLAIMS = {
    "accepted": "accepted",
    "wrong_answer": "wrong_answer",
    "time_limit_exceeded": "time_limit",
    "run_time_error": "runtime_error",
}
_FLAGS = ("output_validator_flags", "output_validator_args")
"""What the validator is told on a test, in either version of the format."""
_GROUP_FILES = ("testdata.yaml", "test_group.yaml")
MANY_CHECKERS = "its groups of tests are compared by different rules"
SUBMIT_ANSWER = "asks for outputs, not for a program"
_STATEMENT_FOLDERS = ("problem_statement", "statement")
_STATEMENT_NAMES = ("problem.en.tex", "problem.en.md", "problem.tex", "problem.md")
_IMAGE = re.compile(r"\\includegraphics|!\[[^\]]*\]\(|<img\b|\\illustration")


def read_packages(root: Path, problem_set: str) -> list[Problem]:
    """The packages at or below `root`, by path. Raises InvalidProblem where there is none or one is malformed."""
    return [read_package(folder, problem_set) for folder in packages(root)]


def packages(root: Path) -> list[Path]:
    """The folders of the packages at or below `root`, by path. Raises InvalidProblem where there is none."""
    if not root.is_dir():
        raise InvalidProblem(f"{root}: is no folder of problem packages", code="NoFolder")
    folders = sorted(path.parent for path in root.rglob("problem.yaml"))
    if not folders:
        raise InvalidProblem(f"{root}: holds no problem.yaml, so no problem package", code="NoPackage")
    return folders


def read_package(folder: Path, problem_set: str) -> Problem:
    """The problem of one package. Raises InvalidProblem (names the file)."""
    settings = _settings(folder / "problem.yaml")
    statement_file = _statement_file(folder)
    statement = _read(statement_file)
    public, hidden = _tests(folder / "data" / "sample"), _tests(folder / "data" / "secret")
    checkers = _checkers(settings, folder)
    return Problem(
        problem_id=f"kattis/{folder.name}",
        problem_set=problem_set,
        split="train",
        title=settings.get("name", folder.name),
        statement=statement,
        public_tests=public,
        hidden_tests=hidden,
        checker=checkers[0],
        limits=limits(_time_limit(settings, folder), _number(settings, "limits.memory", folder / "problem.yaml")),
        solutions=tuple(_solutions(folder / "submissions")),
        source=settings.get("source", ""),
        licence=settings.get("license", ""),
        unjudgeable_reason=_reason(settings, folder, statement, judged=bool(public or hidden))
        or (MANY_CHECKERS if len(checkers) > 1 else None),
    )


def _reason(settings: dict[str, str], folder: Path, statement: str, *, judged: bool) -> str | None:
    validation, kinds = settings.get("validation", "default"), _words(settings.get("type", ""))
    if "interactive" in validation or not {"interactive", "multi-pass"}.isdisjoint(kinds):
        return INTERACTIVE
    if "submit-answer" in kinds:
        return SUBMIT_ANSWER
    custom = [folder / name for name in ("output_validators", "output_validator")]
    if validation.startswith("custom") or any(path.is_dir() and any(path.iterdir()) for path in custom):
        return SPECIAL_JUDGE
    if not judged:
        return NO_TESTS
    return IMAGES if _IMAGE.search(statement) else None


def _settings(path: Path) -> dict[str, str]:
    """Flat settings; those of a block as `block.key`, the items of a list with spaces between them."""
    settings: dict[str, str] = {}
    block = name = ""
    for line in _read(path).splitlines():
        if item := re.match(r"^\s*-\s+(.*?)\s*(?:\s#.*)?$", line):
            settings[name] = f"{settings.get(name, '')} {item[1]}".strip()
            continue
        match = re.match(r"^(\s*)([\w-]+)\s*:\s*(.*?)\s*(?:\s#.*)?$", line)
        if match is None or line.lstrip().startswith("#"):
            continue
        indent, key, value = match.groups()
        name = f"{block}.{key}" if indent and block else key
        if not indent:
            block = "" if value else key
        if value:
            settings[name] = value.strip("\"'")
    return settings


def _words(value: str) -> list[str]:
    """The words of a value: of a text, or of a list in either of YAML's ways."""
    listed = value.strip("[]").replace(",", " ") if value.startswith("[") else value
    return [word.strip("\"'") for word in listed.split()]


def _statement_file(folder: Path) -> Path:
    for place in _STATEMENT_FOLDERS:
        for name in _STATEMENT_NAMES:
            if (folder / place / name).is_file():
                return folder / place / name
    translations = [path for place in _STATEMENT_FOLDERS for path in sorted((folder / place).glob("problem.*"))]
    texts = [path for path in translations if path.suffix in {".tex", ".md"}]
    if not texts:
        raise InvalidProblem(
            f"{folder}: has no statement ({' or '.join(_STATEMENT_FOLDERS)}/problem.en.tex or .md)", code="NoStatement"
        )
    return texts[0]


def _tests(folder: Path) -> tuple[TestCase, ...]:
    tests: list[TestCase] = []
    for given in sorted(folder.rglob("*.in")):
        answer = given.with_suffix(".ans")
        if not answer.is_file():
            raise InvalidProblem(f"{given}: has no answer file {answer.name} beside it", code="NoAnswer")
        tests.append(TestCase(_read(given), _read(answer)))
    return tuple(tests)


def _checkers(settings: dict[str, str], folder: Path) -> list[Checker]:
    """The rules by which outputs are compared, each once: those of the package, with what groups and tests add."""
    whole, data = _words(settings.get("validator_flags", "")), folder / "data"
    tests = sorted(given for part in ("sample", "secret") for given in (data / part).rglob("*.in"))
    told = dict.fromkeys(_told(given, data) for given in tests) or {(folder / "problem.yaml", ()): None}
    return list(dict.fromkeys(_checker([*whole, *words], where) for where, words in told))


def _told(given: Path, data: Path) -> tuple[Path, tuple[str, ...]]:
    """What the validator is told on one test, and by which file: its own, or that of the innermost group that does."""
    groups = (group for group in given.parents if group.is_relative_to(data))
    for path in (given.with_suffix(".yaml"), *(group / name for group in groups for name in _GROUP_FILES)):
        settings = _settings(path) if path.is_file() else {}
        if name := next((name for name in _FLAGS if name in settings), None):
            return path, tuple(_words(settings[name]))
    return data.parent / "problem.yaml", ()


def _time_limit(settings: dict[str, str], folder: Path) -> float | None:
    """Seconds: the package's own limit, else that of the judge it was exported from, in `.timelimit`."""
    path = folder / ".timelimit"
    own = _number(settings, "limits.time_limit", folder / "problem.yaml")
    return own if own is not None or not path.is_file() else _number({path.name: _read(path).strip()}, path.name, path)


_TOLERANCES = {
    "float_tolerance": ("absolute", "relative"),
    "float_absolute_tolerance": ("absolute",),
    "float_relative_tolerance": ("relative",),
}


def _checker(flags: list[str], where: Path) -> Checker:
    """The standard validator's flags: case_sensitive, space_change_sensitive, float_*tolerance."""
    tolerances: dict[str, float] = {}
    for flag, value in zip_longest(flags, flags[1:], fillvalue=""):
        if flag in _TOLERANCES:
            try:
                tolerances |= dict.fromkeys(_TOLERANCES[flag], float(value))
            except ValueError as error:
                raise InvalidProblem(
                    f"{where}: flags of the validator: {flag} needs a number, has {value!r}"
                ) from error
    if "space_change_sensitive" in flags:
        return Checker("exact", case_sensitive=True) if "case_sensitive" in flags else Checker("caseless")
    relative = f"{tolerances['relative']:g}" if "relative" in tolerances else ""
    return Checker("kattis", "case_sensitive" in flags, tolerances.get("absolute"), relative)


def _solutions(folder: Path) -> list[Solution]:
    return [
        Solution(_read(path), claimed=claimed)
        for name, claimed in _CLAIMS.items()
        for path in sorted((folder / name).glob("*.py"))
    ]


def _number(settings: dict[str, str], name: str, where: Path) -> float | None:
    value = settings.get(name)
    if value is None:
        return None
    try:
        return float(value)
    except ValueError as error:
        raise InvalidProblem(f"{where}: field '{name}' must be a number, is {value!r}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProblem(f"{path}: cannot be read: {error}", code="Unreadable") from error
