"""Kattis/ICPC problem packages: one folder per problem.

Read are `problem.yaml`, the statement (English first), `data/sample` and `data/secret` (`.in` with `.ans`), and Python
programs under `submissions/<verdict>`. Of the YAML only flat `key: value` lines and the block `limits` are understood,
which is all that judging needs.
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
_STATEMENT_FOLDERS = ("problem_statement", "statement")
_STATEMENT_NAMES = ("problem.en.tex", "problem.en.md", "problem.tex", "problem.md")
_IMAGE = re.compile(r"\\includegraphics|!\[[^\]]*\]\(|<img\b|\\illustration")


def read_packages(root: Path, problem_set: str) -> list[Problem]:
    """The packages at or below `root`, by path. Raises InvalidProblem where there is none or one is malformed."""
    return [read_package(folder, problem_set) for folder in packages(root)]


def packages(root: Path) -> list[Path]:
    """The folders of the packages at or below `root`, by path. Raises InvalidProblem where there is none."""
    if not root.is_dir():
        raise InvalidProblem(f"{root}: is no folder of problem packages")
    folders = sorted(path.parent for path in root.rglob("problem.yaml"))
    if not folders:
        raise InvalidProblem(f"{root}: holds no problem.yaml, so no problem package")
    return folders


def read_package(folder: Path, problem_set: str) -> Problem:
    """The problem of one package. Raises InvalidProblem (names the file)."""
    settings = _settings(folder / "problem.yaml")
    statement_file = _statement_file(folder)
    statement = _read(statement_file)
    public, hidden = _tests(folder / "data" / "sample"), _tests(folder / "data" / "secret")
    return Problem(
        problem_id=f"kattis/{folder.name}",
        problem_set=problem_set,
        split="train",
        title=settings.get("name", folder.name),
        statement=statement,
        public_tests=public,
        hidden_tests=hidden,
        checker=_checker(settings.get("validator_flags", "").split(), folder / "problem.yaml"),
        limits=limits(_number(settings, "limits.time_limit", folder), _number(settings, "limits.memory", folder)),
        solutions=tuple(_solutions(folder / "submissions")),
        source=settings.get("source", ""),
        licence=settings.get("license", ""),
        unjudgeable_reason=_reason(settings, folder, statement, judged=bool(public or hidden)),
    )


def _reason(settings: dict[str, str], folder: Path, statement: str, *, judged: bool) -> str | None:
    validation = settings.get("validation", "default")
    if "interactive" in validation or "interactive" in settings.get("type", ""):
        return INTERACTIVE
    custom = [folder / name for name in ("output_validators", "output_validator")]
    if validation.startswith("custom") or any(path.is_dir() and any(path.iterdir()) for path in custom):
        return SPECIAL_JUDGE
    if not judged:
        return NO_TESTS
    return IMAGES if _IMAGE.search(statement) else None


def _settings(path: Path) -> dict[str, str]:
    """Flat settings; those of a block as `block.key`."""
    settings: dict[str, str] = {}
    block = ""
    for line in _read(path).splitlines():
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


def _statement_file(folder: Path) -> Path:
    for place in _STATEMENT_FOLDERS:
        for name in _STATEMENT_NAMES:
            if (folder / place / name).is_file():
                return folder / place / name
    translations = [path for place in _STATEMENT_FOLDERS for path in sorted((folder / place).glob("problem.*"))]
    texts = [path for path in translations if path.suffix in {".tex", ".md"}]
    if not texts:
        raise InvalidProblem(f"{folder}: has no statement ({' or '.join(_STATEMENT_FOLDERS)}/problem.en.tex or .md)")
    return texts[0]


def _tests(folder: Path) -> tuple[TestCase, ...]:
    tests: list[TestCase] = []
    for given in sorted(folder.rglob("*.in")):
        answer = given.with_suffix(".ans")
        if not answer.is_file():
            raise InvalidProblem(f"{given}: has no answer file {answer.name} beside it")
        tests.append(TestCase(_read(given), _read(answer)))
    return tuple(tests)


def _checker(flags: list[str], where: Path) -> Checker:
    """The standard validator's flags: case_sensitive, space_change_sensitive, float_*tolerance."""
    tolerances: list[float] = []
    for flag, value in zip_longest(flags, flags[1:], fillvalue=""):
        if flag in {"float_tolerance", "float_absolute_tolerance", "float_relative_tolerance"}:
            try:
                tolerances.append(float(value))
            except ValueError as error:
                raise InvalidProblem(f"{where}: validator_flags: {flag} needs a number, has {value!r}") from error
    if "space_change_sensitive" in flags:
        return Checker(kind="exact", case_sensitive="case_sensitive" in flags)
    tolerance = max(tolerances) if tolerances else None
    return Checker(kind="tokens", case_sensitive="case_sensitive" in flags, float_tolerance=tolerance)


def _solutions(folder: Path) -> list[Solution]:
    return [
        Solution(_read(path), claimed=claimed)
        for name, claimed in _CLAIMS.items()
        for path in sorted((folder / name).glob("*.py"))
    ]


def _number(settings: dict[str, str], name: str, folder: Path) -> float | None:
    value = settings.get(name)
    if value is None:
        return None
    try:
        return float(value)
    except ValueError as error:
        raise InvalidProblem(f"{folder / 'problem.yaml'}: field '{name}' must be a number, is {value!r}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidProblem(f"{path}: cannot be read: {error}") from error
