"""Evaluation problems planted among training problems, in other clothes, are found; look-alikes are kept."""

from dataclasses import replace
from random import Random

import pytest

from sandbox import TestCase
from tasks.problems.decontamination import Thresholds, decontaminate, normal_words, overlaps
from tasks.problems.miniature import generate
from tasks.problems.problem import Problem

BOILERPLATE = (
    "Input\nThe first line contains a single integer t (1 <= t <= 1000), the number of test cases.",
    "Each test case consists of one line with two integers n and k.",
    "Output\nFor each test case, print one integer, the answer to the problem.",
    "It is guaranteed that the sum of n over all test cases does not exceed 200000.",
)


def invented(random: Random, name: str) -> Problem:
    """A problem whose story is drawn from one small vocabulary and whose frame is everybody's."""
    vocabulary = [f"{first}{last}" for first in ("mar", "tol", "ben", "sik", "dra", "lu") for last in _ENDINGS]
    sentences = [
        " ".join([random.choice(vocabulary) for _ in range(random.randint(6, 12))] + [random.choice("abnkm")])
        for _ in range(random.randint(6, 9))
    ]
    story = ". ".join(sentence.capitalize() for sentence in sentences)
    tests = tuple(TestCase(f"{random.random()} {random.random()}\n", f"{random.random()}\n") for _ in range(6))
    return Problem(name, "set", "train", name, "\n\n".join([story + ".", *BOILERPLATE]), hidden_tests=tests)


_ENDINGS = ("ket", "lon", "vis", "mur", "pa", "ster", "ving", "old", "eth", "ris", "um", "an")


def other_white_space(problem: Problem, random: Random) -> Problem:
    words = problem.statement.split()
    return replace(problem, statement="".join(word + random.choice([" ", "  ", "\n", "\n\n"]) for word in words))


def renamed_variables(problem: Problem, random: Random) -> Problem:
    names = dict(zip("abnkmt", random.sample("pqrsuvwxyz", 6), strict=True))
    words = [names.get(word.rstrip(".,"), word) for word in problem.statement.split(" ")]
    return replace(problem, statement=" ".join(words), hidden_tests=())


def reordered_sections(problem: Problem, random: Random) -> Problem:
    sections = problem.statement.split("\n\n")
    random.shuffle(sections)
    return replace(problem, statement="\n\n".join(sections), hidden_tests=())


def translated(problem: Problem, random: Random) -> Problem:
    return replace(problem, statement=invented(random, "other").statement)


@pytest.mark.parametrize("disguise", [other_white_space, renamed_variables, reordered_sections, translated])
def test_planted_copies_are_found_and_nothing_else(disguise) -> None:
    random = Random(disguise.__name__)
    evaluation = [invented(random, f"evaluation/{number}") for number in range(60)]
    own = [invented(random, f"train/{number}") for number in range(300)]
    copies = [replace(disguise(p, random), problem_id=f"copy/{p.problem_id}") for p in evaluation]
    train = own + copies
    random.shuffle(train)
    found = {(overlap.train_id, overlap.evaluation_id) for overlap in overlaps(train, evaluation)}
    planted = {(f"copy/{p.problem_id}", p.problem_id) for p in evaluation}
    assert len(found & planted) >= 0.95 * len(planted)
    assert len(found & planted) >= 0.95 * len(found)


def test_decontamination_keeps_the_others_in_order_and_reports_each_pair() -> None:
    random = Random(0)
    problems = [invented(random, str(number)) for number in range(10)]
    copy = replace(problems[3], problem_id="copy")
    kept, found = decontaminate([*problems[:3], copy, *problems[4:]], [problems[3]])
    assert [p.problem_id for p in kept] == ["0", "1", "2", "4", "5", "6", "7", "8", "9"]
    assert [(o.train_id, o.evaluation_id, o.reason) for o in found] == [
        ("copy", "3", "same statement and shared phrases and near duplicate and tests")
    ]
    assert found[0].containment == found[0].jaccard == 1.0
    assert found[0].shared_tests == 6


def test_shared_tests_alone_are_a_reason_unless_they_are_trivial() -> None:
    random = Random(1)
    one, other, *rest = (invented(random, str(number)) for number in range(8))
    same = replace(other, hidden_tests=one.hidden_tests)
    assert [overlap.reason for overlap in overlaps([one, *rest], [same])] == ["tests"]
    trivial = tuple(TestCase(f"{n}\n", "1\n") for n in range(6))
    assert overlaps([replace(one, hidden_tests=trivial), *rest], [replace(other, hidden_tests=trivial)]) == []


def test_shared_asserts_are_a_reason_however_they_are_laid_out_and_prepared() -> None:
    random = Random(1)
    one, other, *rest = (invented(random, str(number)) for number in range(8))
    asserts = ["assert f(1,2)==3", "assert f(4,5)==9", "assert f(10,20)==30"]
    close = tuple(TestCase(text) for text in asserts)
    spaced = tuple(TestCase("import math\n" + text.replace(",", ", ").replace("==", " == ")) for text in asserts)
    one, other = (
        replace(problem, style="function", entry_point="f", public_tests=(), hidden_tests=tests)
        for problem, tests in ((one, close), (other, spaced))
    )
    assert [overlap.reason for overlap in overlaps([one, *rest], [other])] == ["tests"]
    checks = tuple(TestCase(f"def check(f):\n    assert f({n}, 0) == 0") for n in range(3))
    assert overlaps([one, *rest], [replace(other, hidden_tests=checks)]) == []


def test_short_statements_are_not_alike_because_they_share_phrases() -> None:
    problems = generate(48, 32, 0)
    train, evaluation = problems[:48], problems[48:]
    assert [o for o in overlaps(train, evaluation) if o.reason != "tests"] == []


def test_normal_words_forget_layout_markup_names_and_numbers() -> None:
    assert normal_words("You have $N$ \\le 10^5   <b>Apples</b>!") == ["you", "have", "v", "0", "0", "apples"]


def test_threshold_decides() -> None:
    random = Random(2)
    one = invented(random, "one")
    half = replace(one, problem_id="half", hidden_tests=(), statement=one.statement[: len(one.statement) // 3])
    alone = Thresholds(common_at_least=10)
    assert overlaps([half], [one], alone) != []
    strict = replace(alone, containment=0.99)
    assert overlaps([half], [replace(one, statement=one.statement[50:])], strict) == []


def test_nothing_in_nothing_out() -> None:
    assert decontaminate([], []) == ([], [])


def test_a_copy_that_is_in_the_set_many_times_is_found_although_its_phrases_are_common() -> None:
    one = invented(Random(3), "evaluation")
    copies = [replace(one, problem_id=f"copy-{n}", hidden_tests=()) for n in range(8)]
    found = overlaps(copies, [one])
    assert {overlap.train_id for overlap in found} == {copy.problem_id for copy in copies}
    assert {overlap.reason for overlap in found} == {"same statement and near duplicate"}


def test_versions_of_a_problem_are_one_problem_of_which_the_most_alike_speaks() -> None:
    one, *others = (invented(Random(n), f"problem/{n}") for n in range(9))
    edited = [replace(one, statement=f"{one.statement} Edition {n}.", hidden_tests=()) for n in range(5)]
    (found,) = overlaps([*edited, one, *others], [replace(one, problem_id="evaluation")])
    assert (found.train_id, found.jaccard, found.shared_tests) == (one.problem_id, 1.0, 6)
    assert found.reason == "same statement and shared phrases and near duplicate and tests"


def stated(name: str, statement: str, *tests: TestCase) -> Problem:
    return Problem(name, "set", "train", name, statement, hidden_tests=tests)


@pytest.mark.parametrize(
    "statement",
    ["Write a function that returns the largest of three numbers.", "给定一个整数数组，请找出其中最大的两个数之和。"],
)
def test_a_copy_is_found_however_short_its_statement_is(statement: str) -> None:
    copy = stated("copy", f"  {statement.upper()}\n")
    assert [(o.evaluation_id, o.reason) for o in overlaps([copy], [stated("one", statement)])] == [
        ("one", "same statement")
    ]


EDITIONS = {
    "hub": "{text}\n\nThe function must pass this test:\n\nassert largest(1, 2, 3) == 3\n",
    "with more inputs": '"""\n{text}\nassert largest(1,2,3)==3\n"""\n',
    "words alone": "{text}",
}


@pytest.mark.parametrize("trained", EDITIONS)
@pytest.mark.parametrize("evaluated", EDITIONS)
def test_editions_of_a_problem_that_show_different_things_around_the_same_words_are_one(
    trained: str, evaluated: str
) -> None:
    text = "Write a function to find the largest of three numbers."
    one, other = (stated(name, EDITIONS[name].format(text=text)) for name in (trained, evaluated))
    assert [o.reason.split(" and ")[0] for o in overlaps([one], [other])] == ["same statement"]


def test_a_number_of_mbpp_is_the_same_problem_however_it_was_reworded() -> None:
    found = overlaps(
        [stated("mbpp/3", "a"), stated("mbpp/4", "b")], [stated("Mbpp/3", "c"), stated("HumanEval/4", "d")]
    )
    assert [(o.train_id, o.evaluation_id, o.reason) for o in found] == [("mbpp/3", "Mbpp/3", "same number")]


def test_statements_too_short_to_be_told_by_are_no_copies() -> None:
    assert overlaps([stated("train", "Print the answer.")], [stated("evaluation", "Print the answer.")]) == []


def test_a_chinese_statement_has_a_word_per_character() -> None:
    statement = "给定一个整数数组和一个目标值，请你在该数组中找出和为目标值的两个整数，并返回它们的下标。"
    assert normal_words("给定 n 个整数") == ["给", "定", "v", "个", "整", "数"]
    rewritten = stated("rewritten", f"{statement}你可以假设每种输入只会对应一个答案。")
    assert {o.reason for o in overlaps([rewritten], [stated("one", statement)])} == {"shared phrases"}


def test_one_shared_test_is_no_reason_between_suites_of_more() -> None:
    shared = TestCase("1 2 3 4 5 6 7 8\n", "36\n")
    trivial = [[TestCase(f"{n}\n", f"{m}\n") for n in range(5)] for m in (1, 2)]
    one, other = (stated(name, "", shared, *rest) for name, rest in zip(("one", "other"), trivial, strict=True))
    assert overlaps([one], [other]) == []
    assert [o.reason for o in overlaps([stated("alone", "", shared)], [other])] == ["tests"]
