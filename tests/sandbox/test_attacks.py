"""Every attack on every backend: no escape, no forged verdict, a clean machine and a working judge afterwards."""

import os
from pathlib import Path

import pytest

from sandbox import Judge, Limits, Submission, Suite, TestCase, Verdict
from tests.sandbox.attacks.programs import programs
from tests.sandbox.conftest import sums

ATTACKS = programs()
SUITE = Suite("attack", (TestCase("1 2\n", "ESCAPED\n"),), limits=Limits(cpu_s=0.6, memory_bytes=192 << 20))
ADD = "a, b = map(int, input().split()); print(a + b)"


def below(pid: int) -> int:
    """Processes and threads beneath a process."""
    parents: dict[int, int] = {}
    threads: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)], threads[int(entry.name)] = int(fields[1]), int(fields[17])
    found, edge = 0, {pid}
    while edge:
        edge = {child for child, parent in parents.items() if parent in edge}
        found += sum(threads[child] for child in edge)
    return found


def test_there_are_at_least_sixty_attacks():
    assert len(ATTACKS) >= 60


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_attack_neither_escapes_nor_outlives_its_test(judge: Judge, name: str):
    canary = Submission(ADD + f"  # {name}", sums(1))
    assert judge.judge([canary])[0].verdict is Verdict.accepted
    before = below(os.getpid())
    verdict = judge.judge([Submission(ATTACKS[name], SUITE)])[0]
    assert verdict.verdict not in (Verdict.accepted, Verdict.infra), verdict.detail
    assert below(os.getpid()) == before
    again = judge.judge([Submission(ADD + f"  # {name} again", sums(1))])[0]
    assert again.verdict is Verdict.accepted, again.detail


def test_nothing_of_one_program_reaches_the_next(judge: Judge):
    dirt = "import builtins, sys, math\nbuiltins.dirt = sys.dirt = math.dirt = 1\nprint('ESCAPED')\n1/0"
    look = (
        "import builtins, sys, math\nprint('ESCAPED' if any(hasattr(m, 'dirt') for m in (builtins, sys, math)) else '')"
    )
    found = [judge.judge([Submission(program, SUITE)])[0].verdict for program in (dirt, look)]
    assert found == [Verdict.runtime_error, Verdict.wrong_answer]


def test_the_walls_that_must_stand_are_named(judge: Judge):
    assert "seccomp" in judge.walls
    assert any(wall.startswith(("landlock", "bubblewrap", "docker")) for wall in judge.walls)
