"""Statements of functions in the form that a model which goes on with a text answers with a program.

After comments of several lines such a model goes on with comments (figures: docs/evidence/benchmarks.md). So a task
ends with one line that says what to write.
"""

from __future__ import annotations

import ast
import inspect
import re

from tasks.programs.identity import parse

_LITERAL = re.compile(r"""[rRuU]?(\"{3}|'{3}|"|')((?:(?!\1).)*)\1""", re.DOTALL)
"""One string literal, its quotes and what stands between them."""


def function_task(statement: str) -> str:
    """The statement as a task: code put into words (`task_of`), paragraphs of one line each put into one line."""
    task = task_of(statement)
    if task is not None:
        return task
    paragraphs = statement.strip().split("\n\n")
    return " ".join(paragraphs) if not any("\n" in one for one in paragraphs) else statement.strip()


def task_of(statement: str) -> str | None:
    """The task of a function with a docstring and no body, as HumanEval has them; None where the statement is no such.

    The docstring, then `Write a function f(x) that does this.` Annotations are left out, since what they name may have
    to be imported. Functions that stand before it are part of the task: a program is the whole answer.
    """
    tree = parse(statement)
    *before, stub = tree.body if tree is not None and tree.body else [None]
    text = _docstring(stub, statement) if isinstance(stub, ast.FunctionDef) else None
    if not isinstance(stub, ast.FunctionDef) or text is None:
        return None
    parts = [inspect.cleandoc(text).strip()]
    wanted = f"Write a function {stub.name}({_arguments(stub)}) that does this."
    if any(isinstance(node, ast.FunctionDef) for node in before):
        parts += ["\n\n".join(ast.unparse(node) for node in before if node is not None)]
        wanted += " Begin with the code above."
    return "\n\n".join(parts) + "\n" + wanted


def given_code(statement: str) -> str:
    """One line of Python that runs what stands before a function without a body: imports and helpers, as HumanEval has.

    Sets' own graders put the whole statement before an answer, so that an answer may name them. Empty where nothing
    stands there, and for statements of another form.
    """
    tree = parse(statement)
    stub = tree.body[-1] if tree is not None and tree.body else None
    if not isinstance(stub, ast.FunctionDef) or _docstring(stub, statement) is None:
        return ""
    first = min([stub.lineno, *(decorator.lineno for decorator in stub.decorator_list)])
    before = "".join(statement.splitlines(keepends=True)[: first - 1]).strip()
    return f"exec({before + chr(10)!r})" if before else ""


def _docstring(stub: ast.FunctionDef, statement: str) -> str | None:
    """The text that is all of the function besides imports, escapes as written; None where there is more, or none."""
    *imports, last = stub.body
    if not all(isinstance(node, ast.Import | ast.ImportFrom) for node in imports):
        return None
    literal = last.value if isinstance(last, ast.Expr) else None
    text = literal.value if isinstance(literal, ast.Constant) else None
    if literal is None or not isinstance(text, str) or not text.strip():
        return None
    written = _LITERAL.fullmatch(ast.get_source_segment(statement, literal) or "")
    return written[2] if written else text


def _arguments(stub: ast.FunctionDef) -> str:
    """The arguments without annotations."""
    for argument in ast.walk(stub.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(stub.args)
