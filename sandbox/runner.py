"""The one program inside every sandbox: a confined fork server that runs foreign programs and reports what they did.

The host sends commands on standard input and reads reports on standard output; both are moved away before anything
foreign runs, so no test ever holds them. The server itself never reads submission bytes: they go from the pipe into
memory files (splice), are compiled in a cell of their own and come back as memory files (sendfile). Each test is a
child forked from the server with fresh memory files as standard input, output and error. What is right or wrong is
unknown here: only the host has the expected outputs.

Command: op, a, b, length (`COMMAND`), then `length` bytes. P: keep an input as slot a. D: forget slot a. C: compile
this program, b CPU milliseconds. R: run the tests in the payload (`PLAN`). S: stop the run in progress.
Report: `REPORT`, then the announced bytes.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import select
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from sandbox import cell, confine, traits
from sandbox.children import ENDED_ITSELF, NOTHING, End, attend, expect_no_children, well

COMMAND = struct.Struct("<cIIQ")
PLAN = struct.Struct("<IIIQQBBHI")  # cpu, wall and asleep ms, memory, output, style, stop at failure, per fork, job
REPORT = struct.Struct("<4scIIiBQQQQQQII")
"""Magic, kind, job, slot, then `End`; out size, err size, bytes of each that follow."""
MAGIC = b"SPO1"
STYLE_PROGRAM, STYLE_CALLS = 0, 1
UNDECIDED = 1 << 8
"""Wait status reported for a test of a group that did not come to a good end: exit status 1."""
SLACK, STACK_SLACK = 96 << 20, 640 << 20
"""Address space beyond the memory limit, in general and where a program names threads or packages are installed: these
reserve 128 MiB and more and touch little."""
TEMPORARY_FILES = 8
"""Temporary files of a test whose program imports `tempfile`, each at most as large as an output."""
ERROR_TAIL = 2048
NOWHERE = 2
"""The server's own standard error, /dev/null: what a compiler says beside its result is not kept."""
LOST = 71
"""Exit status of a child that failed before the program in it began."""
LIMITS_REFUSED = 6
"""The server's exit status where lower limits of its own forbid it to set those of a program."""
TOO_LOW = (
    "it may not give its programs the limits they need (10 s of CPU time, 64 MiB files, 256 of them open, 1 GiB); "
    "lower ones are in force: see `ulimit -H -a`"
)
COMPILER_MS = 10_000
"""CPU time of a compiler in milliseconds, unless a suite says otherwise."""
COMPILER_ASLEEP_MS = 3000
"""A compiler never waits: one that uses no CPU time for so long is not let near a processor."""


class RunPlan(NamedTuple):
    """Limits and manner of a run, as the host sent them."""

    cpu_ms: int
    wall_ms: int
    asleep_ms: int
    memory: int
    output: int
    style: int
    stop_at_failure: int
    per_fork: int
    job: int


class Server:
    """State between commands: the input slots, the compiled program, the pipes to the host."""

    def __init__(self, inlet: int, outlet: int, base_memory: int, packages: bool) -> None:
        self.inlet, self.outlet, self.base_memory, self.packages = inlet, outlet, base_memory, packages
        self.slack, self.traits = SLACK, 0
        self.slots: dict[int, int] = {}
        self.settable: set[tuple[int, int, int]] = set()
        self.code = -1
        self.fork: Any = confine.LIBC.fork
        program, self.pid_index = confine.child_filter()
        self.filter = confine.FilterProgram(program)
        self.commands = select.poll()
        self.commands.register(inlet, select.POLLIN)

    # what comes from the host and goes to it

    def serve(self) -> None:
        """Obey until the host closes the pipe."""
        while True:
            op, a, b, length = COMMAND.unpack(self.take(COMMAND.size))
            if op == b"P":
                self.forget(a)
                self.slots[a] = self.receive(length)
            elif op == b"D":
                self.forget(a)
            elif op == b"C":
                self.compile(length, b, a)
            elif op == b"R":
                self.run(self.take(length))

    def take(self, length: int) -> bytes:
        """Exactly `length` bytes written by the host itself; ends the server when the host is gone."""
        parts: list[bytes] = []
        while length:
            part = os.read(self.inlet, length)
            if not part:
                os._exit(0)
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def receive(self, length: int) -> int:
        """A sealed memory file with the next `length` bytes, which the server never sees."""
        fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        while length:
            moved = os.splice(self.inlet, fd, length)
            if not moved:
                os._exit(0)
            length -= moved
        seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return fd

    def forget(self, slot: int) -> None:
        fd = self.slots.pop(slot, -1)
        if fd >= 0:
            os.close(fd)

    def report(self, kind: bytes, job: int, slot: int, end: End, out: int, err: int, most: int) -> None:
        """Send what happened and, unless there is more than `most`, the output; of the error text only the tail."""
        out_size = os.fstat(out).st_size if out >= 0 else 0
        err_size = os.fstat(err).st_size if err >= 0 else 0
        out_sent = out_size if out_size <= most else 0
        err_sent = min(err_size, ERROR_TAIL)
        head = REPORT.pack(MAGIC, kind, job, slot, *end, out_size, err_size, out_sent, err_sent)
        write_all(self.outlet, head)
        self.send(out, 0, out_sent)
        self.send(err, err_size - err_sent, err_sent)

    def send(self, fd: int, offset: int, count: int) -> None:
        while count:
            moved = os.sendfile(self.outlet, fd, offset, count)
            if not moved:
                os._exit(4)
            offset += moved
            count -= moved

    # children

    def may_set(self, cpu_ms: int, address_space: int, file_size: int) -> bool:
        """Whether a child can set these limits, found out by one that does nothing else."""
        limits = cpu_ms, address_space, file_size
        if limits not in self.settable:

            def try_them() -> None:
                cell.set_limits(*limits)
                os._exit(0)

            end = attend(self.child(try_them), cpu_ms, 10_000 + 5 * cpu_ms, COMPILER_ASLEEP_MS)
            if end.status == LOST << 8:
                return False
            if well(end):
                self.settable.add(limits)
        return True

    def compiler_limits(self, cpu_ms: int) -> tuple[int, int, int]:
        return cpu_ms, self.base_memory + cell.COMPILE_MEMORY, cell.COMPILE_OUTPUT

    def limits(self, plan: RunPlan) -> tuple[int, int, int]:
        """The limits of a test, as `cell.set_limits` takes them."""
        return plan.cpu_ms, self.base_memory + plan.memory + self.slack, plan.output + 1

    def compile(self, length: int, cpu_ms: int, job: int) -> None:
        """Compile a program in a cell; the host gets the cell's summary, the code stays here as a memory file."""
        limits = self.compiler_limits(cpu_ms)
        if not self.may_set(*limits):
            os._exit(LIMITS_REFUSED)
        if self.code >= 0:
            os.close(self.code)
        source = self.receive(length)
        self.code = new_file("code")

        def compile_source() -> None:
            cell.set_limits(*limits)
            self.confine_child(source, self.code, NOWHERE)
            cell.compile_into(0, 1)

        pid = self.child(compile_source)
        end = attend(pid, cpu_ms, 10_000 + 5 * cpu_ms, COMPILER_ASLEEP_MS)
        os.close(source)
        found = os.pread(self.code, 1, cell.TRAITS_AT)
        self.traits = found[0] if found else 0
        self.slack = STACK_SLACK if self.packages or self.traits & traits.THREADS else SLACK
        self.report(b"C", job, 0, end, -1, -1, 0)
        size = os.fstat(self.code).st_size
        head = min(size, cell.SUMMARY)
        write_all(self.outlet, struct.pack("<I", head))
        self.send(self.code, 0, head)
        expect_no_children()

    def child(self, life: Callable[[], object]) -> int:
        """A new process that leads this life and never comes back from it; its pid."""
        leave = os._exit
        pid = self.fork()
        if pid == 0:
            try:
                life()
            finally:
                leave(LOST)
        return pid

    def confine_child(self, stdin: int, stdout: int, stderr: int, keep: tuple[int, ...] = ()) -> None:
        """In a child: the standard files in place, all others but `keep` closed, the child's filter up."""
        os.lseek(stdin, 0, os.SEEK_SET)
        fcntl.fcntl(stdin, fcntl.F_SETFL, 0)  # an earlier program may have changed the flags they share
        for target, fd in enumerate((stdin, stdout, stderr)):
            os.dup2(fd, target)
        lowest = 3
        for fd in sorted(keep):
            os.closerange(lowest, fd)
            lowest = fd + 1
        os.closerange(lowest, cell.HIGHEST_FD)
        confine.LIBC.prctl(confine.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        self.filter.patch(self.pid_index, os.getpid())
        self.filter.install()

    def run(self, payload: bytes) -> None:
        """Run tests until they are done, one fails (if so planned) or the host says stop."""
        plan = RunPlan(*PLAN.unpack_from(payload))
        slots = [slot for (slot,) in struct.iter_unpack("<I", payload[PLAN.size :])]
        if not self.may_set(*self.limits(plan)):
            os._exit(LIMITS_REFUSED)
        for start in range(0, len(slots), plan.per_fork):
            if start and self.commands.poll(0):
                break
            group = slots[start : start + plan.per_fork]
            good = self.run_one(plan, group[0]) if plan.per_fork == 1 else self.run_group(plan, group)
            if plan.stop_at_failure and not good:
                break
        self.report(b"E", plan.job, 0, NOTHING, -1, -1, 0)

    def run_one(self, plan: RunPlan, slot: int) -> bool:
        """One test in a process of its own; whether it ended well."""
        out, err = new_file("out"), new_file("err")
        spare = [new_file("temporary") for _ in range(TEMPORARY_FILES)] if self.traits & traits.FILES else []

        def take_test() -> None:
            if spare:
                cell.provide_files(spare)
            cell.set_limits(*self.limits(plan))
            loaded = cell.load(self.code)
            if plan.style == STYLE_CALLS:
                self.confine_child(self.slots[slot], NOWHERE, err, keep=(out, *spare))  # what it prints is nobody's
                cell.run_calls(loaded, out)
            self.confine_child(self.slots[slot], out, err, keep=tuple(spare))
            cell.run_program(loaded)

        pid = self.child(take_test)
        end = attend(pid, plan.cpu_ms, plan.wall_ms, plan.asleep_ms)
        self.report(b"T", plan.job, slot, end, out, err, plan.output)
        for fd in (out, err, *spare):
            os.close(fd)
        expect_no_children()
        return well(end)

    def run_group(self, plan: RunPlan, group: list[int]) -> bool:
        """Several tests in one process. Each report carries the cost of the whole process."""
        outs, err, marks = [new_file("out") for _ in group], new_file("err"), new_file("marks")
        inputs = [self.slots[slot] for slot in group]

        def take_tests() -> None:
            cell.set_limits(*self.limits(plan))
            loaded = cell.load(self.code)
            self.confine_child(inputs[0], outs[0], err, keep=(marks, *inputs, *outs))
            cell.run_group(loaded, inputs, outs, marks)

        pid = self.child(take_tests)
        end = attend(pid, plan.cpu_ms, plan.wall_ms, plan.asleep_ms)
        done = min(os.fstat(marks).st_size, len(group)) if well(end) else 0
        for position, (slot, out) in enumerate(zip(group, outs, strict=True)):
            fate = end._replace(status=0, ended=ENDED_ITSELF) if position < done else end._replace(status=UNDECIDED)
            self.report(b"T", plan.job, slot, fate, out, err, plan.output)
        for fd in (*outs, err, marks):
            os.close(fd)
        expect_no_children()
        return done == len(group)


def new_file(name: str) -> int:
    """A fresh memory file."""
    return os.memfd_create(name, os.MFD_CLOEXEC)


def write_all(fd: int, data: bytes) -> None:
    """Write everything."""
    while data:
        data = data[os.write(fd, data) :]


# start -----------------------------------------------------------------------------------------------------------


def address_space() -> int:
    """Bytes of address space in use, 256 MiB where /proc does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 256 << 20


def move_pipes() -> tuple[int, int]:
    """The pipes to the host, moved out of the standard positions, which get /dev/null."""
    inlet, outlet = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 10), fcntl.fcntl(1, fcntl.F_DUPFD_CLOEXEC, 10)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    return inlet, outlet


def greet(outlet: int, hello: dict[str, Any]) -> None:
    """Tell the host what stands, or what was refused."""
    data = json.dumps(hello).encode()
    write_all(outlet, struct.pack("<I", len(data)) + data)


def main(config: dict[str, Any]) -> None:
    """Pre-import, confine, say what stands, serve."""
    inlet, outlet = move_pipes()
    try:
        sys.path += config["packages"]
        cell.prepare(config["preimports"])
        base_memory = address_space()
        walls = confine.raise_walls(config)
        server = Server(inlet, outlet, base_memory, bool(config["packages"]))
        if not server.may_set(*server.compiler_limits(COMPILER_MS)):
            raise confine.WallRefused(TOO_LOW)
    except (confine.WallRefused, ImportError) as error:
        greet(outlet, {"refused": str(error)})
        return
    greet(outlet, {"walls": walls, "python": sys.version.split()[0]})
    gc.collect()
    gc.freeze()
    server.serve()
