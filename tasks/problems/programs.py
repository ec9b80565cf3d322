"""From a model's text to a program, and from a program to its identity."""

from __future__ import annotations

import hashlib
import re

from tasks.problems import identity

TASK_MARK = "# Task:"
"""Starts a worked example of the few-shot template; a model that goes on after its answer writes it next."""

_NEXT_TASK = re.compile(rf"^{TASK_MARK}", re.MULTILINE)
_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)(?P<end>^[ \t]*(?P=fence)|\Z)",
    re.DOTALL | re.MULTILINE,
)
_LANGUAGE = re.compile(r"[{.\s]*([a-z]+)")
_PYTHON_NAMES = {"python", "py"}


def extract_program(text: str) -> str:
    """The program in `text`: its last fenced Python block, else its last fence without a language, else all of it.

    A fence is three or more backticks or tildes on a line; within a list, its block is indented as it is. An unclosed
    one runs to the end of the text. Whatever follows a line that starts with `# Task:`, unless within a closed fence,
    is the model inventing the next task and is cut off first. The result has no trailing white space; it may be empty.
    """
    text = _before_next_task(text.replace("\r\n", "\n"))
    blocks = [(_language(match["info"].strip().lower()), _unindented(match)) for match in _FENCE.finditer(text)]
    python = [body for language, body in blocks if language in _PYTHON_NAMES]
    plain = [body for language, body in blocks if not language]
    chosen = python or plain
    program = chosen[-1] if chosen else text
    return program.strip("\n").rstrip()


def _language(info: str) -> str:
    """The language that a fence names: `python3`, `{.python}` and `python title="x"` all say python."""
    match = _LANGUAGE.match(info)
    return match[1] if match else info


def _unindented(fence: re.Match[str]) -> str:
    indent, lines = fence["indent"], fence["body"].split("\n")
    if not all(line.startswith(indent) for line in lines if line.strip()):
        return fence["body"]
    return "\n".join(line.removeprefix(indent) for line in lines)


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


def _before_next_task(text: str) -> str:
    closed = [match.span() for match in _FENCE.finditer(text) if match["end"]]
    for mark in _NEXT_TASK.finditer(text):
        if not any(start < mark.start() < end for start, end in closed):
            return text[: mark.start()]
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
