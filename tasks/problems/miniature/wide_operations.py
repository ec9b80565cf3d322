"""What the wide vocabulary has beyond the small one; most of it is confused in pairs, each with the other."""

from __future__ import annotations

from random import Random

from tasks.problems.miniature.operations import Operation, Reduction, Source, draw_integers, spaced

_LETTERS = "aeioubckmnprstz"


def _one_a_line(values: str) -> str:
    return "\n".join([str(len(values.split())), *values.split()])


def _draw_long_words(random: Random) -> str:
    return " ".join("".join(random.choices(_LETTERS, k=random.randint(2, 7))) for _ in range(random.randint(4, 8)))


def _draw_places(random: Random) -> str:
    return "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(5, 11)))


SOURCES = (
    Source("number_lines", "integers", "Read n, then n integers, one a line.",
           "[int(input()) for _ in range(int(input()))]", lambda text: [int(token) for token in text.split()[1:]],
           lambda random: _one_a_line(draw_integers(random))),
    Source("comma_numbers", "integers", "Read integers with commas.", 'map(int, input().split(","))',
           lambda text: [int(token) for token in text.split(",")],
           lambda random: draw_integers(random).replace(" ", ",")),
    Source("countdown", "integers", "Read n. Take n down to 1.", "range(int(input()), 0, -1)",
           lambda text: list(range(int(text), 0, -1)), lambda random: str(random.randint(4, 24))),
    Source("places", "integers", "Read a word. Take the places of its letters in the alphabet.",
           "[ord(c) - 96 for c in input()]", lambda text: [ord(letter) - 96 for letter in text.strip()], _draw_places),
    Source("fives", "integers", "Read n. Take 5, 10 and so on up to n.", "range(5, int(input()) + 1, 5)",
           lambda text: list(range(5, int(text) + 1, 5)), lambda random: str(random.randint(15, 90))),
    Source("comma_words", "words", "Read words with commas.", 'input().split(",")', lambda text: text.split(","),
           lambda random: _draw_long_words(random).replace(" ", ",")),
    Source("word_lines", "words", "Read n, then n words, one a line.", "[input() for _ in range(int(input()))]",
           lambda text: text.split()[1:], lambda random: _one_a_line(_draw_long_words(random))),
    Source("dash_words", "words", "Read words with dashes.", 'input().split("-")', lambda text: text.split("-"),
           lambda random: _draw_long_words(random).replace(" ", "-")),
)  # fmt: skip

FILTERS = (
    Operation("one_digit", "integers", "Keep those of one digit.", ("abs(x) < 10",), lambda x: abs(x) < 10,
              "two_digits"),
    Operation("two_digits", "integers", "Keep those of two digits.", ("9 < abs(x) < 100",), lambda x: 9 < abs(x) < 100,
              "one_digit"),
    Operation("by_five", "integers", "Keep the multiples of 5.", ("x % 5 == 0", "not x % 5"), lambda x: x % 5 == 0,
              "not_by_five"),
    Operation("not_by_five", "integers", "Drop the multiples of 5.", ("x % 5 > 0", "x % 5"), lambda x: x % 5 > 0,
              "by_five"),
    Operation("inside", "integers", "Keep those from 2 to 8.", ("2 <= x <= 8", "1 < x < 9"), lambda x: 2 <= x <= 8,
              "outside"),
    Operation("outside", "integers", "Drop those from 2 to 8.", ("not 2 <= x <= 8", "x < 2 or x > 8"),
              lambda x: not 2 <= x <= 8, "inside"),
    Operation("one_over", "integers", "Keep those 1 over a multiple of 4.", ("x % 4 == 1",), lambda x: x % 4 == 1,
              "one_under"),
    Operation("one_under", "integers", "Keep those 1 under a multiple of 4.", ("x % 4 == 3",), lambda x: x % 4 == 3,
              "one_over"),
    Operation("near", "integers", "Keep those within 5 of zero.", ("abs(x) <= 5", "-6 < x < 6"), lambda x: abs(x) <= 5,
              "far"),
    Operation("far", "integers", "Drop those within 5 of zero.", ("abs(x) > 5", "x > 5 or x < -5"),
              lambda x: abs(x) > 5, "near"),
    Operation("with_e", "words", "Keep those with an e.", ('"e" in x',), lambda x: "e" in x, "without_e"),
    Operation("without_e", "words", "Drop those with an e.", ('"e" not in x',), lambda x: "e" not in x, "with_e"),
    Operation("odd_length", "words", "Keep those of odd length.", ("len(x) % 2 == 1", "len(x) % 2"),
              lambda x: len(x) % 2 == 1, "even_length"),
    Operation("even_length", "words", "Keep those of even length.", ("len(x) % 2 == 0", "not len(x) % 2"),
              lambda x: len(x) % 2 == 0, "odd_length"),
    Operation("ends_in_vowel", "words", "Keep those that end with a vowel.", ('x[-1] in "aeiou"',),
              lambda x: x[-1] in "aeiou", "ends_otherwise"),
    Operation("ends_otherwise", "words", "Drop those that end with a vowel.", ('x[-1] not in "aeiou"',),
              lambda x: x[-1] not in "aeiou", "ends_in_vowel"),
    Operation("no_vowel", "words", "Drop those that start with a vowel.", ('x[0] not in "aeiou"',),
              lambda x: x[0] not in "aeiou", "vowel"),
)  # fmt: skip

MAPS = (
    Operation("plus_ten", "integers", "Add 10 to each.", ("x + 10",), lambda x: x + 10, "minus_ten"),
    Operation("minus_ten", "integers", "Take 10 from each.", ("x - 10",), lambda x: x - 10, "plus_ten"),
    Operation("modulo_ten", "integers", "Take each modulo 10.", ("x % 10",), lambda x: x % 10, "tenth"),
    Operation("tenth", "integers", "Divide each by 10, rounding down.", ("x // 10",), lambda x: x // 10, "modulo_ten"),
    Operation("modulo_three", "integers", "Take each modulo 3.", ("x % 3",), lambda x: x % 3, "third"),
    Operation("third", "integers", "Divide each by 3, rounding down.", ("x // 3",), lambda x: x // 3, "modulo_three"),
    Operation("from_twenty", "integers", "Take each from 20.", ("20 - x",), lambda x: 20 - x, "less_twenty"),
    Operation("less_twenty", "integers", "Take 20 from each.", ("x - 20",), lambda x: x - 20, "from_twenty"),
    Operation("times_five", "integers", "Multiply each by 5.", ("x * 5",), lambda x: x * 5, "plus_five"),
    Operation("plus_five", "integers", "Add 5 to each.", ("x + 5",), lambda x: x + 5, "times_five"),
    Operation("square_next", "integers", "Square each and add 1.", ("x * x + 1", "x ** 2 + 1"), lambda x: x * x + 1,
              "next_square"),
    Operation("next_square", "integers", "Add 1 to each and square it.", ("(x + 1) ** 2",), lambda x: (x + 1) ** 2,
              "square_next"),
    Operation("capital", "words", "Capitalize each.", ("x.capitalize()",), lambda x: x.capitalize(), "upper"),
    Operation("a_to_o", "words", "Turn each a into an o.", ('x.replace("a", "o")',), lambda x: x.replace("a", "o"),
              "o_to_a"),
    Operation("o_to_a", "words", "Turn each o into an a.", ('x.replace("o", "a")',), lambda x: x.replace("o", "a"),
              "a_to_o"),
    Operation("stutter", "words", "Repeat the first letter of each.", ("x[0] + x",), lambda x: x[0] + x, "linger"),
    Operation("linger", "words", "Repeat the last letter of each.", ("x + x[-1]",), lambda x: x + x[-1], "stutter"),
    Operation("mirror", "words", "Put its reverse after each.", ("x + x[::-1]",), lambda x: x + x[::-1],
              "mirror_before"),
    Operation("mirror_before", "words", "Put its reverse before each.", ("x[::-1] + x",), lambda x: x[::-1] + x,
              "mirror"),
    Operation("open", "words", "Put > before each.", ('">" + x',), lambda x: ">" + x, "close"),
    Operation("close", "words", "Put < before each.", ('"<" + x',), lambda x: "<" + x, "open"),
    Operation("ordered", "words", "Sort the letters of each.", ('"".join(sorted(x))',), lambda x: "".join(sorted(x))),
    Operation("dots_after", "words", "Fill each up to 6 with dots.", ('x.ljust(6, ".")',), lambda x: x.ljust(6, "."),
              "dots_before"),
    Operation("dots_before", "words", "Fill each up to 6 with dots in front.", ('x.rjust(6, ".")',),
              lambda x: x.rjust(6, "."), "dots_after"),
)  # fmt: skip

REDUCTIONS = (
    Reduction("average", "integers", "Print the average, rounding down.", ("print(sum(a) // len(a))",),
              lambda a: str(sum(a) // len(a)), "middle"),
    Reduction("middle", "integers", "Print the middle one.", ("print(sorted(a)[len(a) // 2])",),
              lambda a: str(sorted(a)[len(a) // 2]), "average"),
    Reduction("different", "integers", "Print how many different ones.", ("print(len(set(a)))",),
              lambda a: str(len(set(a))), "count"),
    Reduction("every_second", "integers", "Print the sum of every second one.", ("print(sum(a[::2]))",),
              lambda a: str(sum(a[::2])), "sum"),
    Reduction("number_commas", "integers", "Print them with commas.", ('print(*a, sep=",")',),
              lambda a: ",".join(map(str, a)), "semicolons"),
    Reduction("semicolons", "integers", "Print them with semicolons.", ('print(*a, sep=";")',),
              lambda a: ";".join(map(str, a)), "number_commas"),
    Reduction("descending", "integers", "Print them from the largest down.", ("print(*sorted(a)[::-1])",),
              lambda a: spaced(sorted(a)[::-1]), "sorted"),
    Reduction("ends", "integers", "Print the first plus the last.", ("print(a[0] + a[-1])",),
              lambda a: str(a[0] + a[-1]), "ends_apart"),
    Reduction("ends_apart", "integers", "Print the last minus the first.", ("print(a[-1] - a[0])",),
              lambda a: str(a[-1] - a[0]), "ends"),
    Reduction("letters_count", "words", "Print how many letters.", ("print(sum(len(x) for x in a))",),
              lambda a: str(sum(map(len, a))), "words_count"),
    Reduction("longest", "words", "Print the greatest length.", ("print(max(len(x) for x in a))",),
              lambda a: str(max(map(len, a))), "shortest"),
    Reduction("shortest", "words", "Print the least length.", ("print(min(len(x) for x in a))",),
              lambda a: str(min(map(len, a))), "longest"),
    Reduction("words_different", "words", "Print how many different ones.", ("print(len(set(a)))",),
              lambda a: str(len(set(a))), "words_count"),
    Reduction("alphabet_first", "words", "Print the first in the alphabet.", ("print(min(a))",), lambda a: min(a),
              "alphabet_last"),
    Reduction("alphabet_last", "words", "Print the last in the alphabet.", ("print(max(a))",), lambda a: max(a),
              "alphabet_first"),
    Reduction("joined", "words", "Print them joined.", ('print("".join(a))',), lambda a: "".join(a),
              "joined_backwards"),
    Reduction("joined_backwards", "words", "Print them joined backwards.", ('print("".join(a[::-1]))',),
              lambda a: "".join(a[::-1]), "joined"),
    Reduction("words_descending", "words", "Print them from the last in the alphabet.", ("print(*sorted(a)[::-1])",),
              lambda a: spaced(sorted(a)[::-1]), "words_sorted"),
)  # fmt: skip
