"""Fields of a record that came from outside: typed access, with errors that name file, line and field."""

from __future__ import annotations

import gzip
import json
import math
import sys
import zlib
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tasks.problems.problem import ProblemError
from warehouse.errors import InvalidRows
from warehouse.exchange.parquet_rows import parquet_rows


class InvalidProblem(ProblemError):
    """A problem file is unreadable or a record in it is malformed; the message names file, line and field."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a problem file. `where` is `file:line`; `path` leads to this part of the record."""

    where: str
    data: Mapping[str, Any]
    path: str = ""

    def text(self, name: str, default: str | None = None) -> str:
        """The text in field `name`; `default` where it is absent or null, an error without one."""
        value = self.data.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(name, f"must be text, is {_kind(value)}")
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        """The positive number in field `name`; `default` where it is absent, null or 0 (published sets write 0 so)."""
        value = self.data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.error(name, f"must be a positive number, is {_kind(value)}")
        return float(value) or default

    def flag(self, name: str, default: bool = False) -> bool:
        """The truth value in field `name`; `default` where it is absent or null."""
        value = self.data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, is {_kind(value)}")
        return value

    def texts(self, name: str) -> list[str]:
        """The list of texts in field `name`; empty where it is absent or null."""
        values = self.items(name)
        for position, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error(f"{name}[{position}]", f"must be text, is {_kind(value)}")
        return cast("list[str]", values)

    def records(self, name: str) -> list[Record]:
        """The list of objects in field `name`; empty where it is absent or null."""
        values = self.items(name)
        for position, value in enumerate(values):
            if not isinstance(value, dict):
                raise self.error(f"{name}[{position}]", f"must be an object, is {_kind(value)}")
        return [Record(self.where, value, f"{self.path}{name}[{i}].") for i, value in enumerate(values)]

    def record(self, name: str) -> Record:
        """The object in field `name`; an empty one where it is absent or null."""
        value = self.data.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.error(name, f"must be an object, is {_kind(value)}")
        return Record(self.where, cast("dict[str, Any]", value), f"{self.path}{name}.")

    def items(self, name: str) -> list[Any]:
        """The list in field `name`; empty where it is absent or null."""
        value = self.data.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.error(name, f"must be a list, is {_kind(value)}")
        return cast("list[Any]", value)

    def embedded(self, name: str) -> Any:
        """The JSON value written as text in field `name`; None where the field is absent, null or empty."""
        text = self.text(name, "")
        if not text.strip():
            return None
        try:
            return json.loads(text)
        except ValueError as error:
            raise self.error(name, f"holds no valid JSON: {error}") from error

    def error(self, name: str, reason: str) -> InvalidProblem:
        """The error for field `name`, to be raised."""
        return InvalidProblem(f"{self.where}: field '{self.path}{name}' {reason}")


@contextmanager
def long_numbers() -> Generator[None]:
    """Let whole numbers of any length be read and written: APPS has some of 9,000 digits, and Python stops at 4,300."""
    most = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(most)


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file, of a folder's files or of those that a pattern names, in the order of their names.

    Read are JSON Lines (`.jsonl`, `.json`, plain or `.gz`; empty lines are passed over) and Parquet (`.parquet`).
    Raises InvalidProblem.
    """
    for found in records_or_refusals(path):
        if isinstance(found, InvalidProblem):
            raise found
        yield found


def records_or_refusals(path: Path) -> Iterator[Record | InvalidProblem]:
    """The same, and in the place of a line that is no record what is wrong with it.

    Raises InvalidProblem for a file that cannot be read at all.
    """
    for file in files_of(path):
        yield from _parquet(file) if file.suffix == ".parquet" else _json_lines(file)


def files_of(path: Path) -> list[Path]:
    """The files that `path` means: itself, what the folder holds, or what the pattern matches."""
    if path.is_file():
        return [path]
    found = path.rglob("*") if path.is_dir() else path.parent.glob(path.name)
    files = sorted(file for file in found if file.is_file() and _readable(file))
    if not files:
        raise InvalidProblem(
            f"{path}: cannot be read: no such file, and no folder or pattern with {_KNOWN} files", code="Unreadable"
        )
    return files


_SUFFIXES = (".jsonl", ".json", ".parquet")
_KNOWN = ".jsonl, .json, .gz or .parquet"


def _readable(path: Path) -> bool:
    return Path(path.name.removesuffix(".gz")).suffix in _SUFFIXES


def _parquet(path: Path) -> Iterator[Record]:
    try:
        for number, row in enumerate(parquet_rows(path), start=1):
            yield Record(f"{path}:{number}", row)
    except InvalidRows as error:
        raise InvalidProblem(f"{path}: cannot be read: {error}", code="Unreadable") from error


def _json_lines(path: Path) -> Iterator[Record | InvalidProblem]:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _record_or_refusal(line, f"{path}:{number}")
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidProblem(f"{path}: cannot be read: {error}", code="Unreadable") from error


def _record_or_refusal(line: bytes, where: str) -> Record | InvalidProblem:
    try:
        return _record(line, where)
    except InvalidProblem as error:
        return error


def _record(line: bytes, where: str) -> Record:
    try:
        with long_numbers():
            value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidProblem(
            f"{where}: not UTF-8: byte 0x{line[error.start]:02x} at column {error.start + 1}; save the file as UTF-8",
            code="NotUtf8",
        ) from error
    except ValueError as error:
        raise InvalidProblem(f"{where}: not valid JSON: {error}", code="NotJson") from error
    if not isinstance(value, dict):
        raise InvalidProblem(f"{where}: a line must hold one object, this one holds {_kind(value)}", code="NotAnObject")
    return Record(where, cast("dict[str, Any]", value))


def _kind(value: Any) -> str:
    if value is None:
        return "missing"
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return f"{type(value).__name__} {shown[:40]}"
