"""Judging of untrusted Python programs: fast, and with the same verdict behind every wall.

`Judge` is the door; everything it takes and gives is in `records`. The package needs the standard library only.
"""

from sandbox.errors import InvalidSuite, RunnerLost, SandboxError, SandboxUnavailable
from sandbox.judge import Judge, judgeable
from sandbox.packages import installed_packages
from sandbox.probe import describe_walls
from sandbox.records import (
    VERSION,
    Checker,
    Judgement,
    Limits,
    Submission,
    Suite,
    TestCase,
    TestResult,
    Verdict,
    VerdictStore,
)

__all__ = [
    "VERSION",
    "Checker",
    "InvalidSuite",
    "Judge",
    "Judgement",
    "Limits",
    "RunnerLost",
    "SandboxError",
    "SandboxUnavailable",
    "Submission",
    "Suite",
    "TestCase",
    "TestResult",
    "Verdict",
    "VerdictStore",
    "describe_walls",
    "installed_packages",
    "judgeable",
]
