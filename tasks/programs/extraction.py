"""From a model's text to a program, and from a program to its identity."""

from __future__ import annotations

import hashlib
import re

from tasks.programs import fences, identity

TASK_MARK = "# Task:"
"""Starts a worked example of the few-shot template; a model that goes on after its answer writes it next."""

_NEXT_TASK = re.compile(rf"^{TASK_MARK}", re.MULTILINE)
_BARE_FENCE = re.compile(r"^```[ \t]*$", re.MULTILINE)


def extract_program(text: str) -> str:
    """The program in `text`: all of it where that is Python, else its last fenced Python block, or its last fence
    without a language, or all of it.

    What a fence is, is said in fences.py. What may be no block, and is no Python, gives way to the blocks before it: a
    line of prose may end in "```python". A text that begins with Python and closes a fence which it never opened
    begins within a block: so does an answer to worked examples. Whatever follows a line that starts with `# Task:`,
    unless within a closed fence, is the model inventing the next task and is cut off first. The result has no trailing
    white space; it may be empty.
    """
    text = text.replace("\r\n", "\n")
    if "```" in text or "~~~" in text:  # in a string or comment, if anything
        whole = _before_next_task(text)
        if _is_python(whole):
            return whole.strip("\n").rstrip()
    text = _before_next_task(f"```python\n{text}" if _begins_within_a_block(text) else text)
    blocks = _without_prose(fences.blocks(text))
    python = [block.body for block in blocks if block.language in fences.PYTHON]
    plain = [block.body for block in blocks if not block.language]
    chosen = [body for body in python or plain if body.strip()] or python or plain
    program = chosen[-1] if chosen else text
    return program.strip("\n").rstrip()


def program_hash(program: str) -> str:
    """Identity of behaviour: equal for programs that differ in comments and layout only (32 hexadecimal characters).

    The same under every version of Python, for every text. Docstrings count, since a program can read its own. What has
    no form that all versions agree on (see identity.py), or is not Python, is identified by its exact text.
    """
    form = identity.form(program)
    return _digest("text:" + program if form is None else "form:" + form)


def normal_hash(program: str) -> str:
    """Identity for duplicates and diversity: like `program_hash`, and docstrings do not count."""
    form = identity.form(program, docstrings=False)
    return _digest("text:" + program.strip() if form is None else "form:" + form)


def _begins_within_a_block(text: str) -> bool:
    """Whether a statement of Python stands before the first fence, and behind it, up to the next fence, no Python."""
    fence = _BARE_FENCE.search(text)
    head = text[: fence.start()] if fence else ""
    if fence is None or not re.search("[(=]", head) or "```" in head or not _is_python(head):
        return False
    opened = next((block.body for block in fences.blocks(text) if block.start == fence.start()), "")
    return not _is_python(_NEXT_TASK.split(opened)[0])


def _before_next_task(text: str) -> str:
    marks = list(_NEXT_TASK.finditer(text))
    closed = [block for block in fences.blocks(text) if block.closed] if marks else []
    for mark in marks:
        if not any(block.start < mark.start() < block.end for block in closed):
            return text[: mark.start()]
    return text


def _without_prose(blocks: list[fences.Block]) -> list[fences.Block]:
    """The blocks without the last one, where it is uncertain and holds no Python but prose, or nothing."""
    doubtful = len(blocks) > 1 and blocks[-1].uncertain
    return blocks[:-1] if doubtful and not _is_python(blocks[-1].body) else blocks


def _is_python(text: str) -> bool:
    """Whether the text is Python, and not blank."""
    return bool(text.strip()) and identity.form(text) is not None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
