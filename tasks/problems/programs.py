"""From a model's text to a program, and from a program to its identity."""

from __future__ import annotations

import hashlib
import re

from tasks.problems import identity

TASK_MARK = "# Task:"
"""Starts a worked example of the few-shot template; a model that goes on after its answer writes it next."""

_FENCE = re.compile(r"^[ \t]*```([^\n`]*)\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_PYTHON_NAMES = {"python", "python3", "py"}


def extract_program(text: str) -> str:
    """The program in `text`: its last fenced Python block, else its last fence without a language, else all of it.

    Whatever follows a line that starts with `# Task:` is the model inventing the next task and is cut off first.
    An unclosed fence runs to the end of the text. The result has no trailing white space; it may be empty.
    """
    text = _before_next_task(text.replace("\r\n", "\n"))
    blocks = [(match[1].strip().lower().split(" ")[0], match[2]) for match in _FENCE.finditer(text)]
    python = [body for language, body in blocks if language in _PYTHON_NAMES]
    plain = [body for language, body in blocks if not language]
    chosen = python or plain
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


def _before_next_task(text: str) -> str:
    if text.startswith(TASK_MARK):
        return ""
    return text.split("\n" + TASK_MARK, 1)[0]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
