"""The small vocabulary of miniature problems: sources, filters, maps and reductions.

Each operation knows its English sentence, its Python text in one or more spellings, its meaning, and the operation it
is confused with, if any. `x` is one value, `a` the list of values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any, Literal

Kind = Literal["integers", "words"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where the values come from: `phrase` in English, `code` an iterable, `read` its meaning, `draw` an input."""

    name: str
    kind: Kind
    phrase: str
    code: str
    read: Callable[[str], list[Any]]
    draw: Callable[[Random], str]


@dataclass(frozen=True, slots=True)
class Operation:
    """A filter (`apply`: value to bool) or a map (`apply`: value to value) in one or more spellings."""

    name: str
    kind: Kind
    phrase: str
    spellings: tuple[str, ...]
    apply: Callable[[Any], Any]
    confused_with: str | None = None


@dataclass(frozen=True, slots=True)
class Reduction:
    """What is printed: `lines` print it from the list `a`; `fold` is (start, step with {v}, end) for a loop."""

    name: str
    kind: Kind
    phrase: str
    lines: tuple[str, ...]
    apply: Callable[[Sequence[Any]], str]
    confused_with: str | None = None
    fold: tuple[str, str, str] | None = None


def draw_integers(random: Random) -> str:
    return " ".join(str(random.randint(-12, 15)) for _ in range(random.randint(3, 9)))


def _draw_words(random: Random) -> str:
    words = [_draw_word(random) for _ in range(random.randint(3, 7))]
    return " ".join(words)


def _draw_word(random: Random) -> str:
    stem = "".join(random.choice("aeioubcmnrst") for _ in range(random.randint(1, 5)))
    return stem + stem[-2::-1] if random.random() < 0.3 else stem


def _draw_letters(random: Random) -> str:
    return "".join(random.choice("aeioubckmnprstz") for _ in range(random.randint(4, 10)))


SOURCES = (
    Source(
        "line",
        "integers",
        "Read integers.",
        "map(int, input().split())",
        lambda text: [int(token) for token in text.split()],
        draw_integers,
    ),
    Source(
        "range",
        "integers",
        "Read n. Take 1 to n.",
        "range(1, int(input()) + 1)",
        lambda text: list(range(1, int(text) + 1)),
        lambda random: str(random.randint(3, 14)),
    ),
    Source(
        "digits",
        "integers",
        "Read a number. Take its digits.",
        "map(int, input())",
        lambda text: [int(digit) for digit in text.strip()],
        lambda random: str(random.randint(100, 99_999_999)),
    ),
    Source("words", "words", "Read words.", "input().split()", lambda text: text.split(), _draw_words),
    Source(
        "letters", "words", "Read a word. Take its letters.", "input()", lambda text: list(text.strip()), _draw_letters
    ),
)

FILTERS = (
    Operation("even", "integers", "Keep the even ones.", ("x % 2 == 0", "not x % 2"), lambda x: x % 2 == 0, "odd"),
    Operation("odd", "integers", "Keep the odd ones.", ("x % 2 == 1", "x % 2"), lambda x: x % 2 == 1),
    Operation("positive", "integers", "Keep the positive ones.", ("x > 0",), lambda x: x > 0),
    Operation("negative", "integers", "Keep the negative ones.", ("x < 0",), lambda x: x < 0, "positive"),
    Operation("above", "integers", "Keep those above 3.", ("x > 3",), lambda x: x > 3, "below"),
    Operation("below", "integers", "Keep those below 5.", ("x < 5",), lambda x: x < 5),
    Operation("threes", "integers", "Keep the multiples of 3.", ("x % 3 == 0", "not x % 3"), lambda x: x % 3 == 0),
    Operation("not_threes", "integers", "Drop the multiples of 3.", ("x % 3 > 0", "x % 3"), lambda x: x % 3, "threes"),
    Operation("long", "words", "Keep the long ones.", ("len(x) > 3",), lambda x: len(x) > 3),
    Operation("short", "words", "Keep the short ones.", ("len(x) < 4",), lambda x: len(x) < 4, "long"),
    Operation("with_a", "words", "Keep those with an a.", ('"a" in x',), lambda x: "a" in x),
    Operation("without_a", "words", "Drop those with an a.", ('"a" not in x',), lambda x: "a" not in x, "with_a"),
    Operation("same", "words", "Keep the palindromes.", ("x == x[::-1]",), lambda x: x == x[::-1]),
    Operation("early", "words", "Keep those before m.", ('x < "m"',), lambda x: x < "m", "late"),
    Operation("late", "words", "Keep those after m.", ('x > "m"',), lambda x: x > "m"),
    Operation("vowel", "words", "Keep those that start with a vowel.", ('x[0] in "aeiou"',), lambda x: x[0] in "aeiou"),
)

MAPS = (
    Operation("square", "integers", "Square each.", ("x * x", "x ** 2"), lambda x: x * x, "double"),
    Operation("double", "integers", "Double each.", ("x * 2", "x + x"), lambda x: x * 2),
    Operation("next", "integers", "Add 1 to each.", ("x + 1",), lambda x: x + 1),
    Operation("previous", "integers", "Take 1 from each.", ("x - 1",), lambda x: x - 1, "next"),
    Operation("negate", "integers", "Negate each.", ("-x",), lambda x: -x),
    Operation("absolute", "integers", "Make each absolute.", ("abs(x)",), lambda x: abs(x), "negate"),
    Operation("half", "integers", "Halve each, rounding down.", ("x // 2",), lambda x: x // 2),
    Operation("cube", "integers", "Cube each.", ("x * x * x", "x ** 3"), lambda x: x**3, "triple"),
    Operation("triple", "integers", "Triple each.", ("x * 3",), lambda x: x * 3),
    Operation("reverse", "words", "Reverse each.", ("x[::-1]",), lambda x: x[::-1]),
    Operation("upper", "words", "Write each in capitals.", ("x.upper()",), lambda x: x.upper()),
    Operation("first", "words", "Shorten each to its first letter.", ("x[0]",), lambda x: x[0]),
    Operation("last", "words", "Shorten each to its last letter.", ("x[-1]",), lambda x: x[-1], "first"),
    Operation("twice", "words", "Write each twice.", ("x * 2", "x + x"), lambda x: x * 2),
    Operation("exclaim", "words", "Put ! after each.", ('x + "!"',), lambda x: x + "!", "ask"),
    Operation("ask", "words", "Put ? after each.", ('x + "?"',), lambda x: x + "?"),
)


def spaced(values: Sequence[Any]) -> str:
    return " ".join(str(value) for value in values)


REDUCTIONS = (
    Reduction(
        "sum",
        "integers",
        "Print the sum.",
        ("print(sum(a))",),
        lambda a: str(sum(a)),
        None,
        ("t = 0", "t += {v}", "print(t)"),
    ),
    Reduction(
        "product",
        "integers",
        "Print the product.",
        ("t = 1", "for x in a:", "    t *= x", "print(t)"),
        lambda a: str(prod(a)),
        "sum",
        ("t = 1", "t *= {v}", "print(t)"),
    ),
    Reduction(
        "count",
        "integers",
        "Print how many.",
        ("print(len(a))",),
        lambda a: str(len(a)),
        None,
        ("t = 0", "t += 1", "print(t)"),
    ),
    Reduction("largest", "integers", "Print the largest.", ("print(max(a))",), lambda a: str(max(a))),
    Reduction("smallest", "integers", "Print the smallest.", ("print(min(a))",), lambda a: str(min(a)), "largest"),
    Reduction("sorted", "integers", "Print them sorted.", ("print(*sorted(a))",), lambda a: spaced(sorted(a))),
    Reduction("backwards", "integers", "Print them backwards.", ("print(*a[::-1])",), lambda a: spaced(a[::-1]),
              "all"),
    Reduction("all", "integers", "Print them.", ("print(*a)",), spaced),
    Reduction("spread", "integers", "Print the range.", ("print(max(a) - min(a))",), lambda a: str(max(a) - min(a))),
    Reduction("tail", "integers", "Print the last.", ("print(a[-1])",), lambda a: str(a[-1]), "head"),
    Reduction("head", "integers", "Print the first.", ("print(a[0])",), lambda a: str(a[0])),
    Reduction("words_all", "words", "Print them.", ("print(*a)",), spaced),
    Reduction("dashes", "words", "Print them with dashes.", ('print("-".join(a))',), lambda a: "-".join(a)),
    Reduction("commas", "words", "Print them with commas.", ('print(",".join(a))',), lambda a: ",".join(a), "dashes"),
    Reduction("words_count", "words", "Print how many.", ("print(len(a))",), lambda a: str(len(a)), None,
              ("t = 0", "t += 1", "print(t)")),
    Reduction("words_sorted", "words", "Print them sorted.", ("print(*sorted(a))",), lambda a: spaced(sorted(a))),
    Reduction("words_backwards", "words", "Print them backwards.", ("print(*a[::-1])",), lambda a: spaced(a[::-1]),
              "words_all"),
    Reduction("words_head", "words", "Print the first.", ("print(a[0])",), lambda a: str(a[0])),
    Reduction("words_tail", "words", "Print the last.", ("print(a[-1])",), lambda a: str(a[-1]), "words_head"),
)  # fmt: skip
