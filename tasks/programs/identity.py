"""What a program says, apart from comments and layout, in a form that does not depend on the interpreter.

The form of a program is its syntax tree written down by rules of our own: node by node, fields in alphabetical order,
nothing for a field that is absent or empty, constants by type and exact value. Versions of Python read some programs
differently or not at all; these have no form, whichever version asks:

* what only versions after 3.11 know, f-strings of PEP 701 among it;
* names of characters that Unicode 3.2 does not have, which newer versions of Python may know and older ones not;
* f-strings with a backslash, a comment or a line break inside braces;
* brackets or nodes nested deeper than every version's parser is sure to follow.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterator
from typing import Any

OLDEST = (3, 11)
MOST_BRACKETS, MOST_NODES = 60, 150
"""Deepest nesting of brackets and of syntax nodes that has a form."""

_SKIPPED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_WITH_DOCSTRING = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LITERAL = re.compile(
    r"""\#[^\n]*|(?<!\w)(?P<prefix>[rRbBuUfF]{0,2})(?:'''(?P<a>(?:\\.|[^\\])*?)'''|\"\"\"(?P<b>(?:\\.|[^\\])*?)\"\"\""""
    r"""|'(?P<c>(?:\\.|[^\\'\n])*)'|"(?P<d>(?:\\.|[^\\"\n])*)"|(?P<open>['"]))""",
    re.DOTALL,
)
_READ_DIFFERENTLY = re.compile(r"[\\\#\n]|(?:^|\{)\s*\*|![a-z]\s|\{.*=|=.*\{")


def form(program: str, *, docstrings: bool = True) -> str | None:
    """The program's form, with or without its docstrings; None for what has none. Never raises."""
    program = re.sub("\r\n?", "\n", program.removeprefix("\ufeff"))
    if deepest_bracket(program) > MOST_BRACKETS or not all(map(is_plain, formatted_literals(program))):
        return None
    if not (program.isascii() or is_known(_LITERAL.sub(_kept, program))):
        return None
    if not all(map(is_known_name, re.findall(r"\\N\{([^{}]*)\}", program))):
        return None
    tree = parse(program, feature_version=OLDEST)
    if tree is None:
        return None
    return written(tree if docstrings else without_docstrings(tree))


def parse(program: str, feature_version: tuple[int, int] | None = None) -> ast.Module | None:
    """The syntax tree, None for what is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd literals in sampled programs; nobody could act on them
            return ast.parse(program, feature_version=feature_version)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def deepest_bracket(text: str) -> int:
    """How deep brackets nest, those in strings and comments counted too."""
    depth = deepest = 0
    for bracket in re.findall(r"[()\[\]{}]", text):
        depth = depth + 1 if bracket in "([{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest


def is_known(text: str) -> bool:
    """Whether Unicode 3.2 has all these characters, so that every version of Python agrees on what is a name."""
    return all(char.isascii() or unicodedata.ucd_3_2_0.category(char) != "Cn" for char in text)


def is_known_name(name: str) -> bool:
    """Whether `\\N{name}` is a character of Unicode 3.2 by its own name, which never changes."""
    try:
        return unicodedata.ucd_3_2_0.name(unicodedata.lookup(name), "") == name.upper()
    except (KeyError, TypeError):  # not there, or a sequence of characters
        return False


def _kept(literal: re.Match[str]) -> str:
    """What is left of a literal or comment where names are looked for: a quote that nothing closes."""
    return literal[0] if literal["open"] else " "


def formatted_literals(program: str) -> Iterator[tuple[str, bool]]:
    """Text between the quotes of each f-string, as Python 3.11 finds them, and whether it is a raw one.

    A quote that is never closed gives a lone brace, which is no f-string.
    """
    for match in _LITERAL.finditer(program):
        prefix = (match["prefix"] or "").lower()
        if match["open"]:
            yield "{", False
        elif "f" in prefix:
            yield next(body for body in match.group("a", "b", "c", "d") if body is not None), "r" in prefix


def is_plain(literal: tuple[str, bool]) -> bool:
    """Whether every version reads this f-string in the same way."""
    body, raw = literal
    if not raw:
        body = re.sub(r"\\N\{[^{}]*\}", "", body)
    depth = start = skipped = 0
    for match in re.finditer(r"[{}]", body):
        here, brace = match.start(), match[0]
        if here < skipped:
            continue
        if depth == 0 and body[here : here + 2] == 2 * brace:
            skipped = here + 2  # a doubled brace stands for itself
            continue
        depth += 1 if brace == "{" else -1
        start = here + 1 if brace == "{" and depth == 1 else start
        inside = body[start:here]
        if not 0 <= depth <= 2 or (depth == 0 and (_READ_DIFFERENTLY.search(inside) or not is_known(inside))):
            return False
    return depth == 0


def without_docstrings(tree: ast.Module) -> ast.Module:
    """The tree with its docstrings taken out."""
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and has_docstring(node.body):
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def has_docstring(body: list[ast.stmt]) -> bool:
    """Whether the first statement is a docstring."""
    first = body[0] if body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def written(tree: ast.AST) -> str | None:
    """A tree as text; None if it is nested too deeply."""
    parts: list[str] = []
    todo: list[tuple[Any, int]] = [(tree, 0)]
    while todo:
        item, depth = todo.pop()
        if depth > MOST_NODES:
            return None
        if isinstance(item, Mark):
            parts.append(item.text)
        elif isinstance(item, ast.Constant):
            parts.append(f"(Constant {constant(item.value)})")
        elif isinstance(item, ast.AST):
            todo.append((Mark(")"), depth))
            for name, value in reversed(fields(item)):
                todo += [(value, depth + 1), (Mark(f" {name}="), depth)]
            parts.append(f"({type(item).__name__}")
        elif isinstance(item, list):
            todo += [(Mark("]"), depth), *((part, depth) for part in reversed(item)), (Mark("["), depth)]
        else:
            parts.append(constant(item))
    return "".join(parts)


class Mark:
    """Text between the nodes still to be written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def fields(node: ast.AST) -> list[tuple[str, Any]]:
    """Names and values of the fields that are there."""
    found = [(name, getattr(node, name, None)) for name in sorted(node._fields) if name not in _SKIPPED]
    if isinstance(node, ast.JoinedStr):
        found = [("values", [part for part in node.values if not is_empty(part)])]
    elif isinstance(node, ast.FormattedValue) and isinstance(node.format_spec, ast.JoinedStr):
        empty = all(map(is_empty, node.format_spec.values))
        found = [(name, value) for name, value in found if name != "format_spec" or not empty]
    return [(name, value) for name, value in found if value is not None and value != []]


def is_empty(part: ast.AST) -> bool:
    """Whether a part of an f-string adds nothing; some versions put such parts in."""
    return isinstance(part, ast.Constant) and part.value == ""


def constant(value: Any) -> str:
    """Type and exact value of a constant, an identifier or a number of the tree."""
    if isinstance(value, str):
        return f"s{len(value)}:{value}"
    if isinstance(value, bytes):
        return f"b{value.hex()}"
    if isinstance(value, bool) or value is None or value is Ellipsis:
        return str(value)
    if isinstance(value, int):
        return f"i{value:x}"
    if isinstance(value, float):
        return f"f{value.hex()}"
    return f"c{value.real.hex()}{value.imag.hex()}"
