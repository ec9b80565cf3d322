"""What measured facts mean before any output is compared."""

from __future__ import annotations

import os
import signal

from sandbox.children import ENDED_ASLEEP, ENDED_CPU, ENDED_WALL
from sandbox.records import Limits, Verdict
from sandbox.worker import RunReport


def outcome(report: RunReport, limits: Limits) -> tuple[Verdict, str]:
    """Verdict and detail before any comparison: `accepted` means that the program ended well within its limits."""
    if report.ended == ENDED_CPU or report.cpu_s > limits.cpu_s:
        return Verdict.time_limit, f"more than {limits.cpu_s:g} s of CPU time"
    if report.ended == ENDED_ASLEEP:
        return Verdict.time_limit, "asleep without computing anything"
    if report.ended == ENDED_WALL:
        return Verdict.time_limit, f"more than {limits.wall_cap_s:g} s of real time"
    if report.memory_bytes > limits.memory_bytes:
        return Verdict.memory_limit, f"{report.memory_bytes >> 20} MiB of memory"
    if max(report.out_size, report.err_size) > limits.output_bytes:
        return Verdict.output_limit, f"more than {limits.output_bytes} bytes of output"
    if report.status:
        return failure(report)
    return Verdict.accepted, ""


def printable(text: str) -> str:
    """The text with what a terminal would obey or hide written out: programs choose the words of their errors."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def failure(report: RunReport) -> tuple[Verdict, str]:
    """What a non-zero wait status means."""
    words = report.err.decode("utf-8", "replace").strip().rsplit("\n", 1)[-1][:300]
    if number := report.signal:
        name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
        return Verdict.runtime_error, f"killed by {name}" + (f": {words}" if words else "")
    if words.startswith("MemoryError"):
        return Verdict.memory_limit, "MemoryError"
    return Verdict.runtime_error, words or f"exit status {os.waitstatus_to_exitcode(report.status)}"
