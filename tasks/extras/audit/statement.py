"""What a statement says of its inputs: comparisons between names, the order of the names, and words worth trying.

Statements are prose, so this is a reading of what most of them share: `1 <= N <= 10^5` in TeX or plain, `an integer
between 1 and 100`, `a string of length 3`, and a quoted format of names. Whatever was misread is noticed: a comparison
that one of the problem's own tests breaks is not kept (`inputs.py`).
"""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Values = Mapping[str, Sequence[int]]
"""By name (`A` for `A_i`, `|S|` for lengths): its values, one for a scalar."""

_NAME = r"[A-Za-z][A-Za-z0-9']*(?:_\{[^{}]*\}|_[A-Za-z0-9]+)*"
_ATOM = rf"(?:\| ?{_NAME} ?\||\d+{_NAME}|{_NAME}|\d+(?:\.\d+)?)"
_FORMULA = rf"(?:- ?)?{_ATOM}(?: ?(?:\*\*|[-+*^/]) ?(?:- ?)?{_ATOM})*"
_TERM = rf"{_FORMULA}(?: ?, ?(?:\.\.\. ?, ?)?{_FORMULA})*"
_CHAIN = re.compile(rf"{_TERM}(?: *(?:<=|>=|<|>) *{_TERM})+")
_BETWEEN = re.compile(rf"\b({_NAME})\s+(?:is|are|denotes)\b([^.;\n]{{0,90}}?)between ({_FORMULA}) and ({_FORMULA})")
_ANY_LENGTH = re.compile(rf"length (?:is )?(?:between|from) ({_FORMULA}) (?:and|to) ({_FORMULA})")
_LENGTH_OF = re.compile(
    rf"[Ll]engths? of ({_NAME}) (?:is|are) [^.;\n]{{0,30}}?(?:between|from) ({_FORMULA}) (?:and|to) ({_FORMULA})"
)
_SAME_LENGTH = (
    re.compile(rf"[Ll]engths of ({_NAME}) and ({_NAME}) are (?:equal|the same)"),
    re.compile(rf"\b({_NAME}) and ({_NAME}) (?:have|are of|are strings of) (?:the same|equal) lengths?"),
)
_COMMA = re.compile(r",(?![^{}]*\})")
_NOT_ALIKE = re.compile(
    rf"[Nn]ot all (?:of )?({_NAME}(?:, (?:and )?{_NAME}| and {_NAME})+) (?:are|have) (?:the same|equal)"
)
_DIFFERENT = re.compile(rf"({_FORMULA}) *!= *({_FORMULA})")
_FIXED_LENGTH = re.compile(rf"\b({_NAME})\s+is an? (?:length-(\d+) string|string of length (?!between)({_FORMULA}))")
_FORMAT = re.compile(r"[Ff]ormat[^\n]*\n+((?:\s*>[^\n]*\n+)+|\s*```[^\n]*\n.*?```|\s*<pre>.*?</pre>)", re.DOTALL)
_SECTION = re.compile(r"^#* *Constraints:? *$(.*?)^#* *(?:Input|Output)\b[^\n]*$", re.DOTALL | re.MULTILINE)
_LETTER = re.compile(r"`(\S)`")
_LITERAL = re.compile(r"`([^`\n]{1,40})`")
_WORDS = (
    (r"<(?:br|p|var|sub|sup|/(?:p|var|sub|sup))\b[^>]*>", " "),
    (r"\\(?:leqslant|leqq|leq|le)(?![A-Za-z])|≤|≦|⩽", "<="), (r"\\(?:geqslant|geqq|geq|ge)(?![A-Za-z])|≥|≧", ">="),
    (r"\\neq?(?![A-Za-z])|≠", "!="),
    (r"\\lt(?![A-Za-z])", "<"), (r"\\gt(?![A-Za-z])", ">"), (r"\\(?:times|cdot)(?![A-Za-z])|×|·", "*"),
    (r"\\(?:ldots|dots|cdots)(?![A-Za-z])|…", " ... "), (r"\\vdots(?![A-Za-z])|⋮", " : "),
    (r"\\(?:lvert|rvert|vert)(?![A-Za-z])", "|"), (r"−|–", "-"),
    (r"\\(?:mathrm|text|mathit|rm|mathbf)(?![A-Za-z])", ""),
    (r"\\(?:left|right)(?![A-Za-z])|\\[,;! ]|\$|\{,\}", ""), (r"(?<=\d),(?=\d{3}(?!\d))", ""),
    (r"\^\s*\{\s*(\d+)\s*\}", r"^\1"), (r"(?<![_\w])\{(\w+)\}", r"\1"),
)  # fmt: skip
MOST_POWER = 4096


@dataclass(frozen=True, slots=True)
class Comparison:
    """`left` and `right` are lists of formulas each pair of which compares by `sign`: `<=`, `<` or `!=`."""

    left: tuple[str, ...]
    sign: str
    right: tuple[str, ...]

    def holds(self, values: Values) -> bool:
        """Whether it holds; what names something else than the values is taken to hold."""
        for one in self.left:
            for other in self.right:
                a, b = evaluate(one, values), evaluate(other, values)
                if a is None or b is None or base(one) == base(other):
                    continue
                if not all(self._compares(x, y) for x, y in _together(a, b)):
                    return False
        return True

    def _compares(self, x: int, y: int) -> bool:
        return x != y if self.sign == "!=" else x < y or (x == y and self.sign == "<=")


@dataclass(frozen=True, slots=True)
class Statement:
    """What was found in a statement."""

    comparisons: tuple[Comparison, ...]
    different: tuple[Comparison, ...]
    """What it says is not equal."""
    not_alike: tuple[tuple[str, ...], ...]
    """Names of which it says that not all values are the same."""
    format: tuple[str, ...]
    """The lines of the input format."""
    literals: tuple[str, ...]
    """What stands between back quotes."""
    classes: str
    """All the letters of the classes that it names (lowercase, uppercase, digits), and single ones of constraints."""


def read_statement(text: str) -> Statement:
    """Whatever the statement says in words that are understood here."""
    whole = plain_text(text)
    section = _SECTION.search(whole)
    plain = section[1] if section else whole
    found: list[Comparison] = []
    for chain in _CHAIN.finditer(plain):
        found += _comparisons(chain[0])
    for name, low, high in _LENGTH_OF.findall(plain):
        found += _bounded(f"|{base(name)}|", low, high)
    for pattern in _SAME_LENGTH:
        for a, b in pattern.findall(plain):
            found += same_length(base(a), base(b))
    for match in _BETWEEN.finditer(plain):
        name, between, low, high = match.groups()
        if base(name) == "length" or plain[: match.start()].rstrip().lower().endswith("length of"):
            continue
        found += _bounded(f"|{base(name)}|" if "length" in between else base(name), low, high)
    for low, high in _ANY_LENGTH.findall(plain):
        found += _bounded("|*|", low, high)
    for name, digits, formula in _FIXED_LENGTH.findall(plain):
        found += _bounded(f"|{base(name)}|", digits or formula, digits or formula)
    classes = "".join(
        letters
        for word, letters in (("lowercase", "abcdefghijklmnopqrstuvwxyz"), ("uppercase", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
                              ("digit", "0123456789"))
        if word in whole.lower().replace("lower case", "lowercase").replace("upper case", "uppercase")
    )  # fmt: skip
    classes += "".join(letter for letter in dict.fromkeys(_LETTER.findall(plain)) if letter not in classes)
    block = _FORMAT.search(whole)
    lines = [line.strip().lstrip(">").strip().strip("`") for line in block[1].splitlines()] if block else []
    shown = tuple(line for line in lines if line and not line.startswith("<"))
    literals = tuple(dict.fromkeys(_LITERAL.findall(text)))
    different = tuple(Comparison((a,), "!=", (b,)) for a, b in dict.fromkeys(_DIFFERENT.findall(plain)))
    not_alike = tuple(
        tuple(map(base, re.findall(_NAME, names.replace(" and ", " ")))) for names in _NOT_ALIKE.findall(plain)
    )
    return Statement(tuple(dict.fromkeys(found)), different, not_alike, shown, literals, classes)


def plain_text(text: str) -> str:
    """The statement without its markup of formulas."""
    text = html.unescape(text)
    for pattern, plain in _WORDS:
        text = re.sub(pattern, plain, text)
    return re.sub(r"^[ \t]*(?:[-*][ \t]+)+", "", text, flags=re.MULTILINE)


def base(name: str) -> str:
    """A name without its index: `A` for `A_{i,j}`, `|S|` for `|S_i|`."""
    return re.sub(r"_(?:\{[^{}]*\}|[A-Za-z0-9]+)|\s", "", name)


def evaluate(formula: str, values: Values) -> list[int] | None:
    """The formula's values; None where it uses names that have none, or several of them."""
    text = re.sub(r"(?<=\d)\s?(?=[A-Za-z])", "*", base(formula)).replace("^", "**")
    names = sorted(set(re.findall(r"\|[A-Za-z][\w']*\||[A-Za-z][\w']*", text)), key=len, reverse=True)
    if any(name not in values for name in names) or len(names) > 3:
        return None
    arrays = [name for name in names if len(values[name]) != 1]
    if len(arrays) > 1:
        return None
    found: list[int] = []
    for place in range(len(values[arrays[0]]) if arrays else 1):
        filled = text
        for name in names:
            filled = filled.replace(name, f"({values[name][place if name in arrays else 0]})")
        value = _number(filled)
        if value is None:
            return None
        found.append(value)
    return found


def _number(text: str) -> int | None:
    try:
        return _calculate(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _calculate(node: ast.expr) -> int:
    """The value of an arithmetic expression on whole numbers. Raises ValueError for any other."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_calculate(node.operand)
    if isinstance(node, ast.BinOp):
        a, b = _calculate(node.left), _calculate(node.right)
        if isinstance(node.op, ast.Add):
            return a + b
        if isinstance(node.op, ast.Sub):
            return a - b
        if isinstance(node.op, ast.Mult):
            return a * b
        if isinstance(node.op, ast.Div):
            return a // b
        if isinstance(node.op, ast.Pow) and 0 <= b <= MOST_POWER and abs(a) <= MOST_POWER:
            return a**b
    raise ValueError("not arithmetic on whole numbers")


def _together(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    if len(a) == len(b):
        return list(zip(a, b, strict=True))
    if len(a) == 1 or len(b) == 1:
        return [(x, y) for x in a for y in b]
    return []  # of different lengths: nobody says which belongs to which


def _comparisons(chain: str) -> list[Comparison]:
    """The comparisons of a chain; in `1 <= N <= 10^5, 1 <= M <= 9` the middle belongs to two of them."""
    signs = re.findall(r"<=|>=|<|>", chain)
    terms = [[part.strip() for part in _COMMA.split(term)] for term in re.split(r"<=|>=|<|>", chain)]
    terms = [[part for part in term if part and part != "..."] for term in terms]
    found: list[Comparison] = []
    for place, sign in enumerate(signs):
        left, right = terms[place], terms[place + 1]
        if place and any(part[0].isdigit() for part in left):
            left = left[-1:]
        if place + 2 == len(terms) or any(part[0].isdigit() for part in right):
            right = right[:1]
        sides = (tuple(left), tuple(right)) if "<" in sign else (tuple(right), tuple(left))
        found.append(Comparison(sides[0], sign.replace(">", "<"), sides[1]))
    return found


def _bounded(name: str, low: str, high: str) -> list[Comparison]:
    return [Comparison((low,), "<=", (name,)), Comparison((name,), "<=", (high,))]


def same_length(name: str, other: str) -> list[Comparison]:
    """Texts of these names are equally long."""
    return [Comparison((f"|{a}|",), "<=", (f"|{b}|",)) for a, b in ((name, other), (other, name))]


def indexed(text: str) -> list[tuple[str, str]]:
    """(name, index) of each name in a line of a format; the index is empty where there is none."""
    found: list[tuple[str, str]] = []
    for name in re.findall(_NAME, text):
        index = re.search(r"_(?:\{([^{}]*)\}|([A-Za-z0-9]+))$", name)
        found.append((base(name), "" if index is None else (index[1] or index[2]).replace(" ", "")))
    return found
