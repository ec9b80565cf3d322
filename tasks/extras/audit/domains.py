"""What stands in each role of a problem's inputs: its kind, its bounds, and values worth trying."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tasks.extras.audit.layout import Document
from tasks.extras.audit.statement import Comparison, base, evaluate, same_length

Kind = Literal["whole", "real", "text"]
WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,299})")
REAL = re.compile(r"-?\d{1,300}\.\d+")
"""Longer ones count as texts: no floating-point number holds them, and Python reads no more than 4,300 digits."""
LONGEST = 200
"""Letters of the longest text that is made where its length is free."""
LONGEST_ASKED = 20_000
"""Letters of the longest text that is made where another number says how many."""
UNNAMED = "role"
"""How the names begin of roles that the statement's format does not tell."""
LEARNED_FROM = 4
"""Tests that must agree on what is learned from them alone."""
MOST_LEARNED = 24
"""Roles of a layout from which nothing is learned any more: there are too many pairs."""
MANY = 64
"""Tokens that make a role long enough to learn its order from."""

Bounds = Mapping[str, Sequence[int]]
"""By name: the numbers that an input has so far."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What a role holds; bounds are inclusive, and of the length where it holds text."""

    kind: Kind
    low: int
    high: int
    observed: tuple[str, ...]
    """Different tokens of the tests, in the order in which they come."""
    letters: str
    """Letters that texts may have besides those of their own class."""
    classes: str
    """Letters of the classes that the statement names."""
    distinct: bool = False
    ascending: bool = False
    permutation: bool = False
    anagrams: bool = False
    """Whether all texts are the same letters in another order."""
    spelled_like: tuple[str, ...] = ()
    """Texts whose first letter, and whose others, are of classes that all texts have."""
    no_letter_twice: bool = False
    """Whether no text has a letter twice."""


def domains(
    documents: Sequence[Document], names: Sequence[str], comparisons: Sequence[Comparison], classes: str, public: int
) -> list[Domain]:
    """The domain of each role of documents of one layout, of which the first `public` are sure to be right.

    Roles that the statement does not name have names beginning with `UNNAMED`.
    """
    found = [_domain(documents, role, names[role], comparisons, classes) for role in range(len(documents[0]))]
    sure = documents[:public] if public > 1 else documents
    for role, one in enumerate(found):
        texts = tuple(dict.fromkeys(token for document in sure for token in document[role]))
        same = len(texts) > 2 and len(texts[0]) > 3 and len({"".join(sorted(text)) for text in texts}) == 1
        long = [text for text in one.observed if len(text) > 1] if one.kind == "text" else []
        once = len(long) > LEARNED_FROM and all(len(set(text)) == len(text) for text in long)
        found[role] = replace(
            one, spelled_like=texts, anagrams=one.kind == "text" and same, no_letter_twice=once and not same
        )
    return found


def _domain(
    documents: Sequence[Document], role: int, name: str, comparisons: Sequence[Comparison], classes: str
) -> Domain:
    columns = [document[role] for document in documents]
    tokens = tuple(dict.fromkeys(token for column in columns for token in column))
    kind: Kind = "text"
    if tokens and all(WHOLE.fullmatch(token) for token in tokens):
        kind = "whole"
    elif tokens and all(WHOLE.fullmatch(token) or REAL.fullmatch(token) for token in tokens):
        kind = "real"
    sizes = [len(token) if kind == "text" else int(float(token)) for token in tokens] or [0]
    stated = constant_bounds(f"|{name}|" if kind == "text" else name, comparisons)
    if kind == "text" and stated == (None, None):
        stated = constant_bounds("|*|", comparisons)
    if name.startswith(UNNAMED) and kind != "text":
        stated = _nearest(min(sizes), max(sizes), comparisons)
    if kind == "text" and stated == (None, None) and len(tokens) > LEARNED_FROM and len(set(sizes)) == 1:
        stated = sizes[0], sizes[0]
    low, high = _widened(min(sizes), max(sizes), stated, kind)
    long = [column for column in columns if len(column) > 2]
    enough = len(long) > 3 and kind == "whole"
    return Domain(
        kind=kind,
        low=low,
        high=high,
        observed=tokens[:MANY],
        letters="".join(sorted({letter for token in tokens for letter in token})),
        classes=classes,
        distinct=len(long) > 3 and all(len(set(column)) == len(column) for column in long),
        ascending=enough and all(column == sorted(column, key=int) for column in long),
        permutation=enough and all(sorted(map(int, column)) == list(range(1, len(column) + 1)) for column in long),
    )


def _nearest(least: int, most: int, comparisons: Sequence[Comparison]) -> tuple[int | None, int | None]:
    """The stated numbers next to what the tests have, for a role of which nobody knows which name it has."""
    numbers = [(one, number) for one in comparisons for number in _constants(one)]
    if not numbers:
        return None, None
    lows = [value for _, (side, value) in numbers if side == "low" and value <= least]
    highs = [value for _, (side, value) in numbers if side == "high" and value >= most]
    return max(lows, default=least), min(highs, default=most)


def _constants(comparison: Comparison) -> list[tuple[str, int]]:
    """("low" or "high", number) of each side of the comparison that is a number."""
    found: list[tuple[str, int]] = []
    for side, formulas in (("low", comparison.left), ("high", comparison.right)):
        found += [(side, value[0]) for formula in formulas if (value := evaluate(formula, {})) is not None]
    return found


def learned(documents: Sequence[Document], names: Sequence[str], kinds: Sequence[Domain]) -> list[Comparison]:
    """What the tests say of roles without a name: none is ever above a number of the input that some reach."""
    found: list[Comparison] = []
    if len(names) > MOST_LEARNED:
        return found
    numbers = [role for role, kind in enumerate(kinds) if kind.kind == "whole"]
    single = [role for role in numbers if all(len(document[role]) == 1 for document in documents)]
    for role in numbers:
        filled = [document for document in documents if document[role]]
        for other in single:
            if role == other or not names[role].startswith(UNNAMED) or len(filled) < LEARNED_FROM:
                continue
            pairs = [(max(map(int, document[role])), int(document[other][0])) for document in filled]
            reached = sum(mine == theirs for mine, theirs in pairs)
            if all(mine <= theirs for mine, theirs in pairs) and 4 * reached >= len(pairs):
                found.append(Comparison((names[role],), "<=", (names[other],)))
    return found


def learned_lengths(documents: Sequence[Document], names: Sequence[str], kinds: Sequence[Domain]) -> list[Comparison]:
    """What the tests say of two texts of an input: that they are equally long, when all are and not all alike."""
    single = [
        role
        for role, kind in enumerate(kinds)
        if kind.kind == "text" and all(len(document[role]) == 1 for document in documents)
    ]
    found: list[Comparison] = []
    if len(documents) < LEARNED_FROM or len(single) > MOST_LEARNED:
        return found
    for a, b in itertools.combinations(single, 2):
        pairs = {(len(document[a][0]), len(document[b][0])) for document in documents}
        if len(pairs) > 1 and all(mine == theirs for mine, theirs in pairs):
            found += same_length(names[a], names[b])
    return found


def _widened(least: int, most: int, stated: tuple[int | None, int | None], kind: Kind) -> tuple[int, int]:
    """The stated bounds; where nothing is stated, what the tests have, and a little beyond it."""
    low, high = stated
    if kind == "text":
        return max(0, min(least, 1) if low is None else low), (max(most + 2, 8) if high is None else high)
    return (min(least, 0) if low is None else low), (2 * abs(most) + 2 if high is None else high)


def constant_bounds(name: str, comparisons: Iterable[Comparison]) -> tuple[int | None, int | None]:
    """The tightest numbers that a name is compared with, `(low, high)`; chains of names are followed."""
    return _bound(name, tuple(comparisons), upper=False, depth=0), _bound(name, tuple(comparisons), upper=True, depth=0)


def _bound(name: str, comparisons: tuple[Comparison, ...], *, upper: bool, depth: int) -> int | None:
    found: list[int] = []
    for one in comparisons:
        mine, theirs = (one.left, one.right) if upper else (one.right, one.left)
        if name not in map(base, mine):
            continue
        for formula in theirs:
            value = evaluate(formula, {})
            if value is not None:
                found.append(value[0] - (one.sign == "<") * (1 if upper else -1))
            elif depth < 3 and re.fullmatch(r"\|?[A-Za-z][\w']*\|?", base(formula)) and base(formula) != name:
                follow = _bound(base(formula), comparisons, upper=upper, depth=depth + 1)
                found += [] if follow is None else [follow - (one.sign == "<") * (1 if upper else -1)]
    return None if not found else min(found) if upper else max(found)


def values_by_name(document: Document, names: Sequence[str], kinds: Sequence[Domain]) -> dict[str, list[int]]:
    """The numbers of a document by the statement's names, and the lengths of its texts."""
    found: dict[str, list[int]] = {}
    for role, tokens in enumerate(document):
        if kinds[role].kind == "text":
            lengths = [len(token) for token in tokens]
            for name in (f"|{names[role]}|", "|*|"):
                found[name] = [*found.get(name, ()), *lengths]
        elif kinds[role].kind == "whole" and all(WHOLE.fullmatch(token) for token in tokens):
            found[names[role]] = [*found.get(names[role], ()), *map(int, tokens)]
    return found


def keeps_order(tokens: Sequence[str], domain: Domain) -> bool:
    """Whether a role's tokens have the properties that those of the tests all have."""
    if domain.permutation:
        return sorted(map(int, tokens)) == list(range(1, len(tokens) + 1))
    if domain.distinct and len(set(tokens)) < len(tokens):
        return False
    return not domain.ascending or list(tokens) == sorted(tokens, key=int)


def within(token: str, domain: Domain) -> bool:
    """Whether a token is of the domain's kind and bounds."""
    if domain.kind == "text":
        twice = domain.no_letter_twice and len(set(token)) < len(token)
        return domain.low <= len(token) <= domain.high and not twice and spelled(token, domain)
    if domain.kind == "real":
        return bool(WHOLE.fullmatch(token) or REAL.fullmatch(token))
    return bool(WHOLE.fullmatch(token)) and domain.low <= int(token) <= domain.high


def spelled(text: str, domain: Domain) -> bool:
    """Whether a text is spelled like those of the tests: its first letter like their first, the others like theirs."""
    if not text or not domain.spelled_like:
        return True
    if domain.anagrams:
        return sorted(text) == sorted(domain.spelled_like[0])
    first = {letter_class(token[0], domain) for token in domain.spelled_like if token}
    rest = {letter_class(letter, domain) for token in domain.spelled_like for letter in token[1:]} or first
    return letter_class(text[0], domain) in first and all(letter_class(letter, domain) in rest for letter in text[1:])


def letter_class(letter: str, domain: Domain) -> str:
    """`a`, `A` or `0` for a letter of a class that the statement names, `.` for others that it names; else itself."""
    for holds, name in ((str.islower, "a"), (str.isupper, "A"), (str.isdigit, "0")):
        if letter in domain.classes and holds(letter):
            return name
    return "." if letter in domain.classes else letter


def whole_values(domain: Domain, constants: Sequence[int]) -> list[int]:
    """Values at which programs part: bounds, small numbers, powers, the tests' own, the programs' constants."""
    seen = [int(float(token)) for token in domain.observed]
    wanted = [domain.low, domain.high, 0, 1, 2, -1, 3, 10]
    wanted += constants
    wanted += [domain.low + 1, domain.high - 1, *seen[:16], (domain.low + domain.high) // 2]
    wanted += [number + step for number in seen[:8] for step in (-1, 1)]
    wanted += [
        number + step for power in (4, 8, 16, 31, 32, 53, 62, 63) for number in (2**power,) for step in (-1, 0, 1)
    ]
    wanted += [10**power for power in range(1, 19)]
    return [number for number in dict.fromkeys(wanted) if domain.low <= number <= domain.high]


def some_whole(domain: Domain, low: int, high: int, constants: Sequence[int], rng: random.Random) -> int:
    """A number of the domain between `low` and `high`: small, of any size, anywhere, or one at which programs part."""
    way = rng.random()
    if way < 0.3:
        return min(high, low + rng.randrange(6))
    if way < 0.5:
        return min(high, max(low, low + int(2 ** rng.uniform(0, max(1, (high - low).bit_length())))))
    if way < 0.7:
        near = [number for number in whole_values(domain, constants) if low <= number <= high]
        if near:
            return rng.choice(near)
    if way < 0.75:
        return high
    return rng.randint(low, high)


def some_text(domain: Domain, length: int | None, literals: Sequence[str], rng: random.Random) -> str:
    """A text of that length, else of the domain's: a test's own changed, one letter repeated, letters drawn."""
    way = rng.random()
    if domain.anagrams:
        return "".join(rng.sample(domain.spelled_like[0], len(domain.spelled_like[0])))
    usable = [text for text in literals if len(text.split()) == 1 and within(text, domain)]
    if length is None and usable and way < 0.25:
        return rng.choice(usable)
    start = rng.choice(domain.observed) if domain.observed else "a"
    if length is None and way > 0.85:
        return edited(start, domain, rng)
    if length is None:
        short = rng.randint(domain.low, max(domain.low, min(domain.high, domain.low + 6)))
        length = rng.choice([short, len(start), rng.randint(domain.low, max(domain.low, min(domain.high, LONGEST)))])
    length = min(length, LONGEST_ASKED)
    letters = [similar(start[place % len(start)], domain, rng) for place in range(length)] if start else []
    if way < 0.4 and letters:
        letters = [letters[0], *[letters[-1]] * (length - 1)]
    elif way < 0.6 and start:
        letters = list((start * (length // len(start) + 1))[:length])
        for place in rng.sample(range(length), min(length, rng.randint(0, 2))):
            letters[place] = similar(letters[place], domain, rng)
    elif way < 0.7:
        two = [similar(start[0], domain, rng), similar(start[-1], domain, rng)] if start else [""]
        letters = [rng.choice(two) for _ in range(length)]
    return "".join(letters)


def edited(text: str, domain: Domain, rng: random.Random) -> str:
    """The text with one letter more or less, or two neighbours exchanged."""
    place = rng.randrange(len(text)) if text else 0
    if rng.random() < 0.5:
        return text[:place] + similar(text[place] if text else "a", domain, rng) + text[place:]
    if rng.random() < 0.5:
        return text[:place] + text[place + 1 :]
    return text[:place] + text[place : place + 2][::-1] + text[place + 2 :]


def edits(text: str) -> list[str]:
    """The text with a zero before each number in it, and with its ends doubled, left out, or exchanged."""
    zeros = [f"{text[: one.start()]}0{text[one.start() :]}" for one in re.finditer(r"\d+", text)]
    ends = [text[:1] + text, text + text[-1:], text[1:], text[:-1], text[-1:] + text[1:-1] + text[:1]]
    return list(dict.fromkeys([*zeros, *(ends if text else [])]))


def text_from(texts: Sequence[str], domain: Domain, rng: random.Random) -> str | None:
    """A part of one of the texts, or all of it, or longer by one letter; None when there are none."""
    known = [text for text in texts if text]
    if not known:
        return None
    text = rng.choice(known)
    start, length = rng.randrange(len(text)), rng.randint(1, len(text))
    ways = [
        text,
        text[start : start + length],
        text[-length:],
        text[:length],
        text + text[0],
        similar(text[0], domain, rng),
    ]
    return rng.choice(ways)


def similar(letter: str, domain: Domain, rng: random.Random) -> str:
    """A letter of the same class: any that the statement names the class of, else one that a test has."""
    for holds in (str.islower, str.isupper, str.isdigit):
        if holds(letter):
            pool = [one for one in domain.classes if holds(one)] or [one for one in domain.letters if holds(one)]
            return rng.choice(pool or [letter])
    return rng.choice([one for one in domain.letters if not one.isalnum()] or [letter])


def bounds_given(name: str, domain: Domain, comparisons: Sequence[Comparison], known: Bounds) -> tuple[int, int]:
    """The domain's bounds as the values chosen so far narrow them: `A_i <= N` once N is known."""
    low, high = domain.low, domain.high
    for one in comparisons:
        strict = one.sign == "<"
        if name in map(base, one.left):
            found = [value for formula in one.right for value in evaluate(formula, known) or ()]
            high = min([high, *(value - strict for value in found)])
        if name in map(base, one.right):
            found = [value for formula in one.left for value in evaluate(formula, known) or ()]
            low = max([low, *(value + strict for value in found)])
    return low, max(low, high)


def lengths(names: Sequence[str], comparisons: Sequence[Comparison]) -> list[tuple[int, int]]:
    """(role of a number, role of a text) where the statement says that the one is the other's length."""
    sides = {(base(a), base(b)) for one in comparisons for a in one.left for b in one.right}
    equal = {(a, b) for a, b in sides if (b, a) in sides and b.startswith("|")}
    return [
        (names.index(a), names.index(b.strip("|"))) for a, b in sorted(equal) if a in names and b.strip("|") in names
    ]


def trusted(
    comparisons: Sequence[Comparison], values: Sequence[Bounds], public: int, names: Sequence[str]
) -> tuple[Comparison, ...]:
    """The comparisons of known names that the tests keep: others were misread. `public`: the tests that must all do so.

    Without public tests a tenth of the tests may break one, since generated ones do not always keep what is stated.
    """
    here = {*filter(None, names)} | {f"|{name}|" for name in names if name} | {"|*|"}
    judges, most = (values[:public], 0) if public else (values, len(values) // 10)
    return tuple(
        one
        for one in comparisons
        if here & {base(formula) for formula in (*one.left, *one.right)}
        and sum(not one.holds(known) for known in judges) <= most
    )


def every_value(domain: Domain, most: int) -> list[str] | None:
    """Every token of a domain; None where there are more than `most`, or nobody knows them all."""
    if domain.kind == "whole" and domain.high - domain.low < most:
        return [str(number) for number in range(domain.low, domain.high + 1)]
    named = [letter for letter in domain.letters if letter in domain.classes]
    letters = sorted({*domain.letters, *(domain.classes if named else "")})
    if domain.kind == "text" and domain.low == domain.high and len(letters) ** domain.low <= most:
        words = map("".join, itertools.product(letters, repeat=domain.low))
        return [word for word in words if spelled(word, domain)]
    return None
