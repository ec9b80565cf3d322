"""Fenced blocks in a model's text, as models write them.

A fence is three or more backticks or tildes at the beginning of a line, or backticks at the end of a line of prose that
do not end code within the line; the block's language stands behind it. A block ends at a line that begins with its
fence, not further in than it could be, or where another one with a language begins; an unclosed one runs to the end of
the text, or to a fence at the end of its last line. In a list, or behind prose, a block is indented as it is.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

PYTHON = {"python", "py"}
"""Languages of fences that say Python."""

FENCE_INDENT = 3
"""Columns by which a closing fence may be further in than its block (CommonMark)."""
LIST_INDENT = 4
"""Columns by which a block behind the prose of a list item may be further in than the item."""

_OPENING = re.compile(r"(?P<before>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)")
_AFTER_PROSE = re.compile(r"(?P<before>.*[^`])(?P<fence>`{3,})(?P<info>[^\s`]*[ \t]*)")
_BACKTICKS = re.compile("`{3,}")
_CLOSING = re.compile(r"(?P<before>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>.*)")
_LANGUAGE = re.compile(r"[{.\s]*([a-z]+)")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language in lower case ('' for none), its lines, and where it begins and ends in the text."""

    language: str
    body: str
    start: int
    end: int
    closed: bool
    uncertain: bool = False
    """Nothing closes it, and it begins behind prose or where another one ends: it may be no block at all."""


def blocks(text: str) -> list[Block]:
    """The blocks of `text`, in order."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    lines, position, start, body, uncertain = text.split("\n"), 0, 0, list[str](), False
    for line in lines:
        if opened is not None and _ends(opened, line):
            found.append(Block(_language(opened), _unindented(opened, body), start, position, closed=True))
            opened = _opening(line) if _begins_another(line) else None
            start, body, uncertain = position, [], True
        elif opened is not None:
            body.append(line)
        elif position + len(line) < len(text):  # a fence that ends the text begins nothing
            opened, start, body = _opening(line), position, []
            uncertain = opened is not None and bool(opened["before"].strip())
        position += len(line) + 1
    if opened is not None:
        last = _language(opened), _unclosed(opened, body), start, len(text)
        found.append(Block(*last, closed=False, uncertain=uncertain))
    return found


def _opening(line: str) -> re.Match[str] | None:
    if match := _OPENING.fullmatch(line):
        return match
    match = _AFTER_PROSE.fullmatch(line)
    return None if match is None or _ends_code(match) else match


def _ends_code(fence: re.Match[str]) -> bool:
    """Whether a fence behind prose ends code within its line, as in ``It prints ```7``` ``, and so opens nothing."""
    return len(_BACKTICKS.findall(fence["before"])) % 2 == 1 and _language(fence) not in PYTHON


def _ends(opened: re.Match[str], line: str) -> bool:
    """Whether the line closes the block. More than three columns further in it stands in the block's program."""
    match = _CLOSING.fullmatch(line)
    if match is None or not match["fence"].startswith(opened["fence"]):
        return False
    before = opened["before"].expandtabs()
    indent = len(before) - len(before.lstrip()) + (LIST_INDENT if before.strip() else 0)
    return len(match["before"].expandtabs()) <= indent + FENCE_INDENT


def _begins_another(line: str) -> bool:
    """Whether a line that ends a block names the language of a block that begins: ```` ``` </think> ```` does not."""
    match = _OPENING.fullmatch(line)
    return match is not None and (bool(re.match(r"[\w{]", match["info"])) or _language(match) in PYTHON)


def _language(fence: re.Match[str]) -> str:
    """The language that a fence names: `python3`, `{.python}` and `python title="x"` all say python."""
    info = fence["info"].strip().lower()
    match = _LANGUAGE.match(info)
    return match[1] if match else info


def _unclosed(opened: re.Match[str], body: list[str]) -> str:
    text = _unindented(opened, body).rstrip()
    fence = opened["fence"]
    return text[: -len(fence)] if text.endswith(fence) and not text.endswith(fence + fence[0]) else text


def _unindented(opened: re.Match[str], body: list[str]) -> str:
    before = opened["before"]
    if before.strip():
        return textwrap.dedent("\n".join(body))
    if not all(line.startswith(before) for line in body if line.strip()):
        return "\n".join(body)
    return "\n".join(line.removeprefix(before) for line in body)
