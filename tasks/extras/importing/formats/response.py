"""What a foreign row says, in one form for all formats.

A row that cannot be taken is a `RefusedRow` with its place and the reason; reading goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from tasks.problems.records import InvalidProblem, Record, records_or_refusals

FIELDS = (
    *("problem_id", "prompt", "text", "program", "model", "finish_reason", "reward"),
    *("token_ids", "logprobs", "temperature", "top_p"),
)
"""What a column can be named for."""
CUT_OFF = {"length", "max_tokens", "model_length"}
"""What formats write where a response reached its length limit."""


@dataclass(frozen=True, slots=True)
class ForeignResponse:
    """One answer to one prompt."""

    where: str
    """`file:line`."""
    text: str
    """What was answered; a program alone when `is_program`."""
    prompt: str = ""
    """What was asked, as text; roles are left out."""
    problem_ids: tuple[str, ...] = ()
    """Names that the row gives its problem, the likeliest first."""
    model: str = ""
    """Who drew it, where the row says so."""
    is_program: bool = False
    finished: bool = True
    reward: float | None = None
    """The reward that the row gives."""
    token_ids: tuple[int, ...] | None = None
    """The response's tokens in the tokenizer of who drew it."""
    logprobs: tuple[float, ...] | None = None
    """Log-probability of each of `token_ids` (nats)."""
    temperature: float | None = None
    top_p: float | None = None


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that is not taken."""

    where: str
    reason: str


@dataclass(frozen=True, slots=True)
class Naming:
    """What the user says of a file beyond its format."""

    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field -> where it stands in a row (`info.problem_id`), in place of where the format has it."""

    def value(self, record: Record, name: str, default: Any = None) -> Any:
        """What the column that was named for the field holds; `default` where none was named."""
        return at(record, self.columns[name]) if name in self.columns else default


Found: TypeAlias = ForeignResponse | RefusedRow
RowReader: TypeAlias = Callable[[Record, Naming], Iterable[Found]]


def rows_of(path: Path, naming: Naming, read: RowReader) -> Iterator[Found]:
    """Every row of the files at `path`, as `read` understands it. Raises InvalidProblem where a file cannot be read."""
    for record in records_or_refusals(path):
        yield from (refused(record),) if isinstance(record, InvalidProblem) else understood(record, naming, read)


def understood(record: Record, naming: Naming, read: RowReader) -> Iterator[Found]:
    """What `read` makes of a record; where a field is malformed, the refusal of the record."""
    try:
        yield from read(record, naming)
    except InvalidProblem as error:
        yield refused(error)


def refused(error: InvalidProblem) -> RefusedRow:
    """The refusal that an error says: `FILE:LINE: REASON`."""
    where, _, reason = str(error).partition(": ")
    return RefusedRow(where, reason)


def response(record: Record, naming: Naming, **known: Any) -> ForeignResponse:
    """The row as `known` from its format, with what the named columns say in its place. Raises InvalidProblem."""
    text, program = naming.value(record, "text"), naming.value(record, "program")
    if text is not None and program is not None:
        raise record.error("text", "and a program are both named; a row is one of the two")
    if text is not None or program is not None:
        known |= {"text": _answered(record, program if text is None else text), "is_program": text is None}
    if "problem_id" in naming.columns:
        known["problem_ids"] = (str(naming.value(record, "problem_id")),)
    for name in ("prompt", "model"):
        if name in naming.columns:
            known[name] = _text(record, name, naming.value(record, name))
    for name in ("reward", "temperature", "top_p"):
        if name in naming.columns:
            known[name] = number(record, name, naming.value(record, name))
    if "finish_reason" in naming.columns:
        known["finished"] = str(naming.value(record, "finish_reason")).lower() not in CUT_OFF
    ids = _list(record, "token_ids", naming.value(record, "token_ids", known.get("token_ids")), int)
    logprobs = _list(record, "logprobs", naming.value(record, "logprobs", known.get("logprobs")), float)
    if logprobs is not None and (ids is None or len(ids) != len(logprobs)):
        raise record.error("logprobs", f"has {len(logprobs)} values for {len(ids or ())} tokens")
    known |= {"token_ids": ids, "logprobs": logprobs}
    if not str(known.get("text") or "").strip():
        raise record.error("text", "is empty: there is no answer")
    return ForeignResponse(record.where, **known)


def at(record: Record, path: str) -> Any:
    """The value at a dotted path such as `info.problem_id` or `choices.0.text`; None where there is none.

    A text on the way that holds JSON is looked into.
    """
    value: Any = record.data
    for depth, name in enumerate(path.split(".")):
        if depth and isinstance(value, str):
            value = Record(record.where, {path: value}).embedded(path)
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(name)
        elif isinstance(value, list) and name.isdigit() and int(name) < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[int(name)]
        else:
            return None
    return value


def names_at(record: Record, *paths: str) -> tuple[str, ...]:
    """What stands at these paths and can be a problem's name, in their order."""
    found = [at(record, path) for path in paths]
    return tuple(str(value) for value in found if isinstance(value, str | int) and not isinstance(value, bool))


def number(record: Record, name: str, value: Any) -> float | None:
    """The value as a number, also negative; None stays None. Raises InvalidProblem."""
    if value is None or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, bool):
        return float(value)
    if not isinstance(value, int | float):
        raise record.error(name, f"must be a number, is {value!r:.40}")
    return float(value)


def messages(record: Record, name: str) -> list[Record]:
    """The messages of a conversation in field `name`; a plain text is one of them. Raises InvalidProblem."""
    value = record.data.get(name)
    if isinstance(value, str):
        return [Record(record.where, {"content": value}, f"{record.path}{name}.")]
    return record.records(name)


def content(message: Record) -> str:
    """What a message says: its text, or the texts of its parts. Raises InvalidProblem for what is no text.

    Reasoning that stands beside the answer is refused: how the two were written together is not known.
    """
    if message.data.get("reasoning_content") or message.data.get("reasoning"):
        raise message.error("reasoning_content", "is kept apart from the answer, so the response is not known exactly")
    value = message.data.get("content")
    if not isinstance(value, list):
        return message.text("content", "")
    parts = message.records("content")
    kinds = {part.text("type", "text") for part in parts} - {"text"}
    if kinds:
        raise message.error("content", f"has parts that are no text: {', '.join(sorted(kinds))}")
    return "".join(part.text("text") for part in parts)


def asked(parts: Iterable[Record]) -> str:
    """What messages say, one after the other."""
    return "\n\n".join(content(part) for part in parts)


def answer(parts: list[Record]) -> Record:
    """The one answer of a conversation. Raises InvalidProblem where there are several, or calls of tools."""
    own = [part for part in parts if part.data.get("role", "assistant") == "assistant"]
    if len(own) != 1 or len(parts) != 1:
        where = parts[0] if parts else Record("", {})
        raise where.error("", f"{len(parts)} messages: a row must be one answer, not a conversation")
    if own[0].data.get("tool_calls"):
        raise own[0].error("tool_calls", "are made: a row must be one answer")
    return own[0]


def _answered(record: Record, value: Any) -> str:
    """The response in a named column: a text, or one answer as a list of messages. Raises InvalidProblem."""
    if isinstance(value, list):
        return content(answer(Record(record.where, {"text": value}).records("text")))
    return _text(record, "text", value)


def _text(record: Record, name: str, value: Any) -> str:
    if isinstance(value, list):
        return asked(Record(record.where, {name: value}).records(name))
    if not isinstance(value, str):
        raise record.error(name, f"must be text, is {value!r:.40}")
    return value


def _list(record: Record, name: str, value: Any, kind: type) -> tuple[Any, ...] | None:
    if value is None or (isinstance(value, list | tuple) and not value):
        return None
    found = cast("list[Any]", list(value)) if isinstance(value, list | tuple) else None
    allowed = int if kind is int else int | float
    if found is None or not all(isinstance(one, allowed) and not isinstance(one, bool) for one in found):
        raise record.error(name, f"must be a list of {'token numbers' if kind is int else 'numbers'}")
    return tuple(kind(one) for one in found)
