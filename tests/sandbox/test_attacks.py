"""Every attack on every backend: no escape, no forged verdict, a clean machine and a working judge afterwards."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Judge, Judgement, Limits, Submission, Suite, TestCase, Verdict, confine
from sandbox.backends.docker_backend import ContainerChannel
from tests.examples import MANY
from tests.sandbox.attacks.programs import programs
from tests.sandbox.conftest import BACKENDS, open_judge, sums

ATTACKS = programs()
LIMITS = Limits(cpu_s=0.4 if MANY else 0.2, compile_cpu_s=1, memory_bytes=192 << 20, asleep_s=0.4)
SUITE = Suite("attack", (TestCase("1 2\n", "ESCAPED\n"),), limits=LIMITS)
RUNNERS = 8
BATCH = 40
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


def alive(judge: Judge) -> int:
    """Processes and threads of the judge: beneath this process, and in its containers."""
    count = below(os.getpid())
    for worker in judge._workers:
        channel = worker._channel
        if isinstance(channel, ContainerChannel):
            count += len(channel._client.api.top(channel._container)["Processes"])  # pyright: ignore[reportPrivateUsage]
    return count


class Attacked:
    """A judge under attack: a batch of attacks at once, with an honest program after each; most of the time they sleep
    or wait for a limit.
    """

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._found: dict[str, tuple[Judgement, Judgement]] = {}
        judge.judge([Submission(f"import time; time.sleep(0.3)  # {n}", sums(1)) for n in range(2 * RUNNERS)])
        self.before = alive(judge)

    def by(self, name: str) -> tuple[Judgement, Judgement]:
        """The judgements of an attack and of the honest program after it."""
        if name not in self._found:
            start = sorted(ATTACKS).index(name) // BATCH * BATCH
            self._attack(sorted(ATTACKS)[start : start + BATCH])
        return self._found[name]

    def after(self) -> int:
        """Processes and threads once all have attacked."""
        for name in sorted(ATTACKS):
            self.by(name)
        return alive(self._judge)

    def _attack(self, names: list[str]) -> None:
        honest = [Submission(ADD + f"  # {name}", sums(1)) for name in names]
        attacks = [Submission(ATTACKS[name], SUITE) for name in names]
        found = self._judge.judge([one for pair in zip(attacks, honest, strict=True) for one in pair])
        self._found |= dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


@pytest.fixture(scope="module", params=BACKENDS)
def attacked(request: pytest.FixtureRequest) -> Iterator[Attacked]:
    """A judge of each backend under attack."""
    with open_judge(request.param, workers=RUNNERS) as judge:
        yield Attacked(judge)


def test_there_are_at_least_sixty_attacks():
    assert len(ATTACKS) >= 60


@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_attack_neither_escapes_nor_breaks_the_judge(attacked: Attacked, name: str):
    attack, honest = attacked.by(name)
    assert attack.verdict not in (Verdict.accepted, Verdict.infra), attack.detail
    assert honest.verdict is Verdict.accepted, honest.detail


def test_no_attack_outlives_its_test(attacked: Attacked):
    assert attacked.after() == attacked.before


def test_nothing_of_one_program_reaches_the_next(judge: Judge):
    dirt = "import builtins, sys, math\nbuiltins.dirt = sys.dirt = math.dirt = 1\nprint('ESCAPED')\n1/0"
    look = (
        "import builtins, sys, math\nprint('ESCAPED' if any(hasattr(m, 'dirt') for m in (builtins, sys, math)) else '')"
    )
    found = [judge.judge([Submission(program, SUITE)])[0].verdict for program in (dirt, look)]
    assert found == [Verdict.runtime_error, Verdict.wrong_answer]


LEFTOVERS = {
    "flags_of_the_input": (
        "import fcntl, os; fcntl.fcntl(0, fcntl.F_SETFL, os.O_NONBLOCK | os.O_APPEND)",
        "import fcntl, os; dirty = fcntl.fcntl(0, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND)",
    ),
    "position_in_the_input": ("import os; os.lseek(0, 0, 2)", "import os; dirty = os.lseek(0, 0, 1)"),
    "environment": (
        "import os, ctypes; ctypes.CDLL(None).setenv(b'DIRT', b'1', 1); os.environ['DIRT'] = '1'; os.umask(0)",
        "import os; dirty = os.environ.get('DIRT') or os.umask(0) == 0",
    ),
    "limits": (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
        "import resource; dirty = resource.getrlimit(resource.RLIMIT_NOFILE)[1] == 3",
    ),
    "randomness": ("import random; random.seed(7)", "import random; dirty = random.random() != 0.8444218515250481"),
}


@pytest.mark.parametrize("what", sorted(LEFTOVERS))
def test_the_next_program_on_the_same_input_finds_it_untouched(judge: Judge, what: str):
    dirt, look = (program + "\n" for program in LEFTOVERS[what])
    look += "print('ESCAPED' if dirty else input())"
    judge.judge([Submission(dirt, SUITE)])
    found = judge.judge([Submission(look, SUITE)])[0]
    assert found.verdict is Verdict.wrong_answer, found.detail
    assert "2 tokens" in found.detail


UNFILTERED = {335, 336}
"""uretprobe and uprobe: the kernel lets no filter see them; outside a probe they end the caller by SIGILL."""


def test_every_system_call_off_the_list_is_refused(judge: Judge):
    column = list(confine.ARCHITECTURES).index(platform.machine())
    known = {**confine.SYSCALLS, **confine.CONDITIONAL}
    refused = [known[name][column] for name in (*confine.SERVER_ONLY, "clone3")]
    off = sorted({*range(600)} - {numbers[column] for numbers in known.values()} - UNFILTERED | {*refused})
    program = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for number in {off}:
    ctypes.set_errno(0)
    if libc.syscall(number, -1, -1, -1, -1, -1, -1) != -1 or ctypes.get_errno() not in (1, 38): print(number)
"""
    found = judge.judge([Submission(program, Suite("calls", (TestCase("", ""),)))])[0]
    assert found.verdict is Verdict.accepted, found.detail


def test_the_walls_that_must_stand_are_named(judge: Judge):
    assert "seccomp" in judge.walls
    assert any(wall.startswith(("landlock", "bubblewrap", "docker")) for wall in judge.walls)
