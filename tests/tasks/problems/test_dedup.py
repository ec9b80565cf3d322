"""Duplicates planted among programs are found, and programs that differ are kept."""

from itertools import combinations
from random import Random

import pytest

from tasks.problems.dedup import near_duplicates, program_tokens, shingles, similarity
from tasks.problems.miniature.small import all_compositions
from tasks.problems.miniature.writer import write
from tasks.programs.extraction import normal_hash

LONG = """
def solve(rows, columns, grid):
    best = [[0] * columns for _ in range(rows)]
    for i in range(rows):
        for j in range(columns):
            above = best[i - 1][j] if i else 0
            left = best[i][j - 1] if j else 0
            best[i][j] = max(above, left) + grid[i][j]
    return best[-1][-1]

rows, columns = map(int, input().split())
grid = [list(map(int, input().split())) for _ in range(rows)]
print(solve(rows, columns, grid))
"""


def test_small_edit_of_a_long_program_is_a_near_duplicate() -> None:
    edited = LONG.replace("best[-1][-1]", "best[rows - 1][-1]") + "# done\n"
    assert near_duplicates([LONG, "print(1)", edited]) == [0, 1, 0]


def test_other_program_is_none() -> None:
    other = (
        "n = int(input())\nseen = set()\nwhile n not in seen:\n    seen.add(n)\n    n = n * n % 1000\nprint(len(seen))"
    )
    assert near_duplicates([LONG, other]) == [0, 1]


def test_a_duplicate_is_one_of_a_kept_program_and_never_below_the_threshold() -> None:
    programs = variants(Random(1), 60)
    for index, first in enumerate(found := near_duplicates(programs, 0.7)):
        assert found[first] == first <= index
        assert first == index or similarity(shingles(programs[index]), shingles(programs[first])) >= 0.7


def test_kept_programs_are_not_alike() -> None:
    programs = variants(Random(2), 120)
    kept = [index for index, first in enumerate(near_duplicates(programs, 0.7)) if index == first]
    alike = [
        (i, j) for i, j in combinations(kept, 2) if similarity(shingles(programs[i]), shingles(programs[j])) >= 0.7
    ]
    assert len(kept) < 100
    assert len(alike) <= 0.01 * len(kept)


def test_different_short_programs_are_not_mixed_up() -> None:
    programs = [write(composition, "loop") for composition in all_compositions()[::40]]
    assert len(set(near_duplicates(programs, 0.95))) == len({normal_hash(program) for program in programs})


@pytest.mark.parametrize("programs", [[], [""], ["", "# nothing"], ["x"], ["x", "x"]])
def test_few_or_empty_programs_are_no_special_case(programs: list[str]) -> None:
    expected = [0, 0] if programs == ["x", "x"] else list(range(len(programs)))
    assert near_duplicates(programs) == expected


def test_tokens_leave_out_comments_and_keep_strings_whole() -> None:
    assert program_tokens("a = '# no' # yes\nb**=2") == ["a", "=", "'# no'", "b", "**", "=", "2"]


def variants(random: Random, count: int) -> list[str]:
    """Programs made from a few long ones by exchanging names and dropping lines."""
    bases = [LONG, "\n".join(write(composition, "steps") for composition in random.sample(all_compositions(), 8))]
    programs: list[str] = []
    for _ in range(count):
        lines = random.choice(bases).splitlines()
        for _ in range(random.randrange(4)):
            lines.pop(random.randrange(len(lines)))
        programs.append("\n".join(lines))
    return programs
