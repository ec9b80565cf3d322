"""Statements that are code: a function with a docstring and no body, as HumanEval has them."""

from __future__ import annotations

import ast
import inspect

from tasks.problems.identity import parse


def task_of(statement: str) -> str | None:
    """The task in words, `Write a function f(x).` and the docstring; None where the statement is no such code.

    Annotations are left out, since what they name may have to be imported. Functions that stand before it are part of
    the task: a program is the whole answer.
    """
    tree = parse(statement)
    *before, stub = tree.body if tree is not None and tree.body else [None]
    text = _docstring(stub) if isinstance(stub, ast.FunctionDef) else None
    if not isinstance(stub, ast.FunctionDef) or text is None:
        return None
    first, *rest = inspect.cleandoc(text).strip().splitlines()
    parts = ["\n".join([f"Write a function {stub.name}({_arguments(stub)}). {first}", *rest])]
    if any(isinstance(node, ast.FunctionDef) for node in before):
        parts += ["Begin with this:", *(ast.unparse(node) for node in before if node is not None)]
    return "\n\n".join(parts)


def _docstring(stub: ast.FunctionDef) -> str | None:
    """The text that is all of the function besides imports; None where there is more, or none."""
    *imports, last = stub.body
    if not all(isinstance(node, ast.Import | ast.ImportFrom) for node in imports):
        return None
    text = last.value.value if isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) else None
    return text if isinstance(text, str) and text.strip() else None


def _arguments(stub: ast.FunctionDef) -> str:
    """The arguments without annotations."""
    for argument in ast.walk(stub.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(stub.args)
