"""Limits that the system has set already: no program is failed because the sandbox could not set its own."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from sandbox import Judge, Limits, Submission, Suite, TestCase
name, most = sys.argv[1], int(sys.argv[2])
resource.setrlimit(getattr(resource, name), (most, most))
suite = Suite("sum", (TestCase("1 2", "3"),), limits=Limits(cpu_s=20))
with Judge(workers=1) as judge:
    for found in judge.judge([Submission("print(3)", suite)]):
        print(found.verdict, found.detail)
"""


def judged_under(name: str, most: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, name, str(most)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(("name", "most"), [("RLIMIT_NOFILE", 64), ("RLIMIT_FSIZE", 30 << 20)])
def test_a_judge_that_may_not_set_a_compilers_limits_does_not_start(name: str, most: int) -> None:
    found = judged_under(name, most)
    assert found.returncode
    assert "SandboxUnavailable" in found.stderr
    assert "ulimit" in found.stderr


def test_a_suite_whose_limits_are_above_those_in_force_fails_no_program() -> None:
    found = judged_under("RLIMIT_CPU", 15)
    assert found.stdout.startswith("infra"), found.stderr
    assert "ulimit" in found.stdout
