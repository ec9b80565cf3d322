"""One runner and the host's side of its protocol. Every byte that comes back is parsed as hostile."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections import OrderedDict
from collections.abc import Generator, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import NamedTuple

from sandbox.backends import Backend
from sandbox.cell import COMPILED, REFUSED, TRAITS_AT
from sandbox.channel import Channel
from sandbox.children import ENDED_ASLEEP, ENDED_WALL
from sandbox.errors import RunnerLost, SandboxUnavailable
from sandbox.records import Limits
from sandbox.runner import (
    COMMAND,
    ERROR_TAIL,
    MAGIC,
    PLAN,
    REPORT,
    STYLE_CALLS,
    STYLE_PROGRAM,
)
from sandbox.traits import PLAIN

MODULES = ("values", "operators", "program_side", "traits", "confine", "cell", "children", "runner")
REFEREE_PROGRAM = "from sandbox.referee import main\nmain()\n"
"""Program of a runner that no foreign program enters, and which has the referee imported already."""
BOOTSTRAP = """
import os, sys, types
def take(n):
    data = b""
    while len(data) < n:
        part = os.read(0, n - len(data))
        if not part: os._exit(3)
        data += part
    return data
import json
def start():
    message = json.loads(take(int(take(12))))
    package = types.ModuleType("sandbox"); package.__path__ = []
    sys.modules["sandbox"] = package
    for name, source in message["modules"]:
        module = types.ModuleType("sandbox." + name)
        sys.modules["sandbox." + name] = module
        setattr(package, name, module)
        exec(compile(source, name + ".py", "exec"), module.__dict__)
    if not message["keep"]:
        for name in [n for n in sys.modules if n.startswith("sandbox")]: del sys.modules[name]
    package.runner.main(message["config"])
start()
"""
START_S, ANSWER_S = 60.0, 60.0
SLOTS, SLOT_BYTES = 512, 256 << 20
"""Inputs one runner keeps: at most this many, of at most so many bytes together."""
SUMMARY_MOST = 600
CALL_BYTES = 16 << 20
"""Most bytes of a test's calls, and of the answers to them: apart from what the program prints."""
REFEREE_LIMITS = Limits(cpu_s=10, memory_bytes=1 << 30, output_bytes=2 * CALL_BYTES)


class RunReport(NamedTuple):
    """What the runner says of one test: all of it measured by its server, none of it by the program."""

    slot: int
    status: int
    ended: int
    cpu_s: float
    wall_s: float
    memory_bytes: int
    out_size: int
    err_size: int
    out: bytes
    err: bytes
    waits: int = 0
    """How often it gave up the processor to wait for something."""

    @property
    def signal(self) -> int:
        """The signal that ended it; 0 if none did."""
        return os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else 0


class Input(NamedTuple):
    """An input the runner keeps under `key` after it was shipped once."""

    key: Hashable
    text: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """Result of a compilation: `code_hash`, or `error` when the program does not compile.

    `plain`: what the program does in one test cannot be found in the next one of the same process.
    """

    code_hash: str
    error: str
    plain: bool = False


@cache
def module_sources(names: tuple[str, ...]) -> list[tuple[str, str]]:
    """The source of what runs inside, in the order of the imports."""
    folder = resources.files("sandbox")
    return [(name, folder.joinpath(f"{name}.py").read_text("utf-8")) for name in names]


class JudgeWorker:
    """A runner, started when first needed; `close` ends it."""

    def __init__(self, backend: Backend, preimports: Sequence[str] = (), *, for_referee: bool = False) -> None:
        self._backend, self._preimports, self._for_referee = backend, tuple(preimports), for_referee
        self._channel: Channel | None = None
        self._job = 0
        self._kept: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self._kept_bytes = 0
        self._free_slots = list(range(SLOTS))
        self._referee: JudgeWorker | None = None
        self.walls: tuple[str, ...] = ()
        self.python = ""
        self.jobs_done = 0

    # life

    def start(self) -> None:
        """Launch the runner and insist on its walls; SandboxUnavailable if one that must stand does not."""
        channel, config = self._backend.launch(BOOTSTRAP)
        config = {"preimports": list(self._preimports), **config}
        modules = module_sources((*MODULES, "stand_ins", "asserts", "referee") if self._for_referee else MODULES)
        body = json.dumps({"modules": modules, "config": config, "keep": self._for_referee}).encode()
        deadline = time.monotonic() + START_S
        try:
            channel.send(b"%012d" % len(body) + body, deadline)
            (length,) = struct.unpack("<I", channel.receive(4, deadline))
            if length > 4096:
                raise RunnerLost("the runner's greeting is too long")
            hello = json.loads(channel.receive(length, deadline))
            if "refused" in hello:
                raise RunnerLost(str(hello["refused"]))
            self.walls = require_walls((*self._backend.walls, *hello["walls"]))
            self.python = str(hello["python"])
        except (RunnerLost, SandboxUnavailable, ValueError, KeyError) as error:
            channel.close()
            raise SandboxUnavailable(f"a runner of backend {self._backend.name!r} did not start: {error}") from error
        self._channel = channel
        self._kept.clear()
        self._kept_bytes, self._free_slots, self.jobs_done = 0, list(range(SLOTS)), 0

    @property
    def alive(self) -> bool:
        """Whether a runner has been started and not ended."""
        return self._channel is not None

    def close(self) -> None:
        """End the runner, if there is one."""
        channel, self._channel = self._channel, None
        if channel:
            channel.close()
        if self._referee:
            self._referee.close()

    def referee(self) -> JudgeWorker:
        """A second runner beside this one, for the asserts of function-style problems; no foreign program enters it."""
        if self._referee is None:
            self._referee = JudgeWorker(self._backend, for_referee=True)
        if not self._referee.alive:
            self._referee.start()
            if error := self._referee.compile(REFEREE_PROGRAM, REFEREE_LIMITS).error:
                raise RunnerLost(f"the referee's program does not compile: {error}")
        return self._referee

    # commands

    def compile(self, program: str, limits: Limits) -> Compiled:
        """Compile a program in a cell of its own; it is the one that `run` runs."""
        self._job += 1
        source = program.encode("utf-8", "replace")
        deadline = time.monotonic() + 6 * limits.compile_cpu_s + ANSWER_S
        self._send(b"C", self._job, int(limits.compile_cpu_s * 1000), source, deadline)
        report = self._report(b"C", 0, deadline)
        (length,) = struct.unpack("<I", self._receive(4, deadline))
        if length > SUMMARY_MOST:
            raise RunnerLost("a compilation's summary is too long")
        summary = self._receive(length, deadline)
        if report.ended in (ENDED_WALL, ENDED_ASLEEP):
            raise RunnerLost("the compiler was not let near a processor")
        if report.signal == signal.SIGKILL and not report.ended:
            raise RunnerLost("the compiler was killed from outside")
        if report.ended or report.status or not summary:
            return Compiled("", "the compiler was stopped: too much time or memory")
        if summary[:1] == COMPILED and len(summary) > TRAITS_AT:
            code_hash = f"{self.python}-{summary[1:TRAITS_AT].decode('ascii', 'replace')}"
            return Compiled(code_hash, "", bool(summary[TRAITS_AT] & PLAIN))
        if summary[:1] != REFUSED:
            raise RunnerLost("a compilation's summary makes no sense")
        return Compiled("", summary[1:].decode("utf-8", "replace"))

    def run(
        self, inputs: Sequence[Input], limits: Limits, *, per_fork: int = 1, stop: bool = True, calls: bool = False
    ) -> Generator[tuple[int, RunReport], None, None]:
        """Run the compiled program on inputs; yields (position, report). Closing the generator stops the run."""
        deadline = time.monotonic() + ANSWER_S
        wanted = {entry.key for entry in inputs}
        slots = [self._slot(entry, wanted, deadline) for entry in inputs]
        back = {slot: position for position, slot in enumerate(slots)}
        plan = PLAN.pack(
            int(limits.cpu_s * 1000), int(limits.wall_cap_s * 1000), int(limits.asleep_s * 1000), limits.memory_bytes,
            limits.output_bytes, STYLE_CALLS if calls else STYLE_PROGRAM, stop, per_fork, self._job,
        )  # fmt: skip
        self._send(b"R", 0, 0, plan + struct.pack(f"<{len(slots)}I", *slots), deadline)
        yield from self._reports(back, limits)

    def _reports(self, back: dict[int, int], limits: Limits) -> Generator[tuple[int, RunReport], None, None]:
        patience = limits.wall_cap_s + ANSWER_S
        finished = False
        try:
            while True:
                report = self._report(b"TE", limits.output_bytes, time.monotonic() + patience)
                if report is END:
                    finished = True
                    return
                index = back.pop(report.slot, None)
                if index is None:
                    raise RunnerLost("the runner reports a test it was not asked for")
                yield index, report
        except RunnerLost:
            finished = True
            raise
        finally:
            if not finished:
                self._stop_run(limits, patience)

    def _stop_run(self, limits: Limits, patience: float) -> None:
        deadline = time.monotonic() + patience
        self._send(b"S", 0, 0, b"", deadline)
        while self._report(b"TE", limits.output_bytes, deadline) is not END:
            pass

    # pieces

    def _slot(self, entry: Input, wanted: set[Hashable], deadline: float) -> int:
        """Where the runner keeps this input, which is shipped if need be; inputs in `wanted` are not given up."""
        if entry.key in self._kept:
            self._kept.move_to_end(entry.key)
            return self._kept[entry.key][0]
        data = entry.text.encode("utf-8", "surrogateescape")
        while self._kept and (not self._free_slots or self._kept_bytes + len(data) > SLOT_BYTES):
            oldest = next((key for key in self._kept if key not in wanted), None)
            if oldest is None:
                break
            slot, size = self._kept.pop(oldest)
            self._kept_bytes -= size
            self._free_slots.append(slot)
            self._send(b"D", slot, 0, b"", deadline)
        slot = self._free_slots.pop()
        self._kept[entry.key] = (slot, len(data))
        self._kept_bytes += len(data)
        self._send(b"P", slot, 0, data, deadline)
        return slot

    def _send(self, op: bytes, a: int, b: int, payload: bytes, deadline: float) -> None:
        if self._channel is None:
            raise RunnerLost("the runner has been ended")
        self._channel.send(COMMAND.pack(op, a, b, len(payload)) + payload, deadline)

    def _receive(self, count: int, deadline: float) -> bytes:
        if self._channel is None:
            raise RunnerLost("the runner has been ended")
        return self._channel.receive(count, deadline)

    def _report(self, kinds: bytes, most_out: int, deadline: float) -> RunReport:
        fields = REPORT.unpack(self._receive(REPORT.size, deadline))
        magic, kind, job, slot, *end, out_size, err_size, out_sent, err_sent = fields
        status, ended, cpu_us, wall_us, peak, waits = end
        sound = magic == MAGIC and kind in kinds and job == self._job and ended <= ENDED_ASLEEP
        if not sound or out_sent > most_out or err_sent > ERROR_TAIL:
            raise RunnerLost("the runner's report makes no sense")
        if kind == b"E":
            return END
        out, err = self._receive(out_sent, deadline), self._receive(err_sent, deadline)
        used = cpu_us / 1e6, wall_us / 1e6, peak << 10
        return RunReport(slot, status, ended, *used, out_size, err_size, out, err, waits)


END = RunReport(0, 0, 0, 0.0, 0.0, 0, 0, 0, b"", b"")


def only(worker: JudgeWorker, inputs: Sequence[Input], limits: Limits, *, calls: bool = False) -> RunReport:
    """The report of a run on one input."""
    reports = [report for _, report in worker.run(inputs, limits, calls=calls)]
    if len(reports) != 1:
        raise RunnerLost("the runner did not run what it was asked to")
    return reports[0]


def require_walls(walls: tuple[str, ...]) -> tuple[str, ...]:
    """The walls, if seccomp and a file-system wall are among them."""
    if "seccomp" not in walls:
        raise SandboxUnavailable("seccomp is missing; a Linux kernel with CONFIG_SECCOMP_FILTER is needed")
    if not any(wall.startswith(("landlock", "bubblewrap", "docker")) for wall in walls):
        raise SandboxUnavailable(
            "no file-system wall: Landlock is off (kernel 5.13+, lsm=landlock) and bubblewrap does not work; "
            "install bubblewrap or use the docker backend"
        )
    return walls
