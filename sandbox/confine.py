"""The walls a process can put around itself: seccomp, Landlock, rlimits, dropped privileges. Linux, ctypes only.

This module and `runner.py` are the only project code inside a sandbox. Nothing here is undone afterwards: every
wall holds for all children. Numbers come from the kernel's uapi headers (seccomp.h, landlock.h, prctl.h, unistd.h).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import platform
import re
import resource
import signal
import struct
import sys
from typing import Any

LIBC = ctypes.PyDLL(None, use_errno=True)
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 36, 38
PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EPERM, ENOTTY, ENOSYS = 1, 25, 38
LOAD, JUMP_EQ, JUMP_GE, JUMP_SET, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
OFFSET_NR, OFFSET_ARCH, OFFSET_ARG0, OFFSET_ARG1, OFFSET_ARG2, OFFSET_ARG3 = 0, 4, 16, 24, 32, 40
CLONE_THREAD = 0x10000
SIGKILL = 9
AF_UNIX = 1
MAP_SHARED, MAP_ANONYMOUS = 0x1, 0x20

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000
REFUSE, PERMIT = -1, -2
"""Targets of jumps while a filter is put together."""

# name: (x86_64, aarch64); -1 where the architecture lacks it. Busy calls first: the kernel walks a filter in order.
SYSCALLS: dict[str, tuple[int, int]] = {
    "read": (0, 63), "write": (1, 64), "futex": (202, 98), "munmap": (11, 215), "brk": (12, 214),
    "close": (3, 57), "fstat": (5, 80), "newfstatat": (262, 79), "lseek": (8, 62), "openat": (257, 56),
    "clock_gettime": (228, 113), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233), "getrandom": (318, 278), "open": (2, -1),
    "stat": (4, -1), "lstat": (6, -1), "statx": (332, 291), "readlink": (89, -1), "readlinkat": (267, 78),
    "access": (21, -1), "faccessat": (269, 48), "faccessat2": (439, 439), "getcwd": (79, 17), "chdir": (80, 49),
    "fchdir": (81, 50), "getdents64": (217, 61), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65),
    "writev": (20, 66), "preadv": (295, 69), "pwritev": (296, 70), "pipe": (22, -1), "pipe2": (293, 59),
    "dup": (32, 23), "dup2": (33, -1), "dup3": (292, 24), "close_range": (436, 436), "select": (23, -1),
    "pselect6": (270, 72), "poll": (7, -1), "ppoll": (271, 73), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, -1), "epoll_pwait": (281, 22), "eventfd2": (290, 19), "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, -1),
    "times": (100, 153), "getrusage": (98, 165), "getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getpgid": (121, 155),
    "getpgrp": (111, -1), "getsid": (124, 156), "getgroups": (115, 158), "getresuid": (118, 148),
    "getresgid": (120, 150), "getpriority": (140, 141), "uname": (63, 160), "sysinfo": (99, 179), "umask": (95, 166),
    "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293), "set_tid_address": (218, 96),
    "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "getcpu": (309, 168), "membarrier": (324, 283),
    "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260), "waitid": (247, 95), "sigaltstack": (131, 132),
    "rt_sigpending": (127, 136), "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "pause": (34, -1),
    "restart_syscall": (219, 128), "setitimer": (38, 103), "getitimer": (36, 102), "alarm": (37, -1),
    "ftruncate": (77, 46), "fallocate": (285, 47), "fadvise64": (221, 223), "fsync": (74, 82), "fdatasync": (75, 83),
    "msync": (26, 227), "getrlimit": (97, 163), "setrlimit": (160, 164), "sendfile": (40, 71), "splice": (275, 76),
    "arch_prctl": (158, -1), "statfs": (137, 43), "fstatfs": (138, 44), "kill": (62, 129), "tgkill": (234, 131),
    "prctl": (157, 167), "seccomp": (317, 277), "memfd_create": (319, 279), "pidfd_open": (434, 434),
}  # fmt: skip
CONDITIONAL: dict[str, tuple[int, int]] = {
    "mmap": (9, 222), "clone": (56, 220), "clone3": (435, 435), "ioctl": (16, 29), "fcntl": (72, 25),
    "prlimit64": (302, 261), "socketpair": (53, 199), "sendto": (44, 206), "recvfrom": (45, 207),
}  # fmt: skip
ALLOWED_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS TIOCGWINSZ FIONREAD FIONBIO FIO(N)CLEX
ALLOWED_FCNTLS = (0, 1, 2, 3, 4, 1030, 1032, 1033, 1034)  # DUPFD GET/SETFD GET/SETFL DUPFD_CLOEXEC GETPIPE_SZ SEALS
SERVER_ONLY = ("memfd_create", "pidfd_open", "prctl", "seccomp", "sendfile", "splice", "wait4", "waitid")

Instruction = tuple[int, int, int, int]


class WallRefused(Exception):
    """The kernel refused a wall; the message names it."""


def _column() -> int:
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise WallRefused(f"seccomp: no system call table for {machine!r}, only for {', '.join(ARCHITECTURES)}")
    return list(ARCHITECTURES).index(machine)


def _one_of(nr: int, offset: int, values: tuple[int, ...], refusal: int) -> list[Instruction]:
    """If the call is `nr`: allow when the argument at `offset` is one of `values`, else refuse with an errno."""
    body: list[Instruction] = [(LOAD, 0, 0, offset)]
    body += [(JUMP_EQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    body += [(RETURN, 0, 0, ERRNO | refusal), (RETURN, 0, 0, ALLOW)]
    return [(JUMP_EQ, 0, len(body), nr), *body]


def _no_shared_memory(nr: int) -> list[Instruction]:
    """If the call is `nr`, mmap: refuse anonymous shared memory.

    It lives on while a single page of it is mapped, so neither the address space nor the resident memory of a process
    would bound it.
    """
    body: list[Instruction] = [(LOAD, 0, 0, OFFSET_ARG3), (JUMP_SET, 0, 2, MAP_ANONYMOUS), (JUMP_SET, 0, 1, MAP_SHARED)]
    body += [(RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
    return [(JUMP_EQ, 0, len(body), nr), *body]


def _stream_pairs(nr: int) -> list[Instruction]:
    """If the call is `nr`, socketpair: allow two connected local streams, which reach nothing but one another."""
    refuse: list[Instruction] = [(LOAD, 0, 0, OFFSET_ARG0), (JUMP_EQ, 1, 0, AF_UNIX), (RETURN, 0, 0, ERRNO | EPERM)]
    kinds = _one_of(nr, OFFSET_ARG1, (1, 1 | 0o4000, 1 | 0o2000000, 1 | 0o2004000), EPERM)[1:]
    return [(JUMP_EQ, 0, len(refuse) + len(kinds), nr), *refuse, *kinds]


def server_filter() -> list[Instruction]:
    """Filter of the server and all below it: an allow list; everything else fails with EPERM."""
    column = _column()
    arch = list(ARCHITECTURES.values())[column]
    program: list[Instruction] = [(LOAD, 0, 0, OFFSET_ARCH), (JUMP_EQ, 1, 0, arch), (RETURN, 0, 0, ERRNO | EPERM)]
    program += [(LOAD, 0, 0, OFFSET_NR), (JUMP_GE, 0, 1, X32_BIT), (RETURN, 0, 0, ERRNO | EPERM)]
    nr = {name: numbers[column] for name, numbers in CONDITIONAL.items()}
    program += _no_shared_memory(nr["mmap"])
    for numbers in SYSCALLS.values():
        if numbers[column] >= 0:
            program += [(JUMP_EQ, 0, 1, numbers[column]), (RETURN, 0, 0, ALLOW)]
    program += [(JUMP_EQ, 0, 1, nr["clone3"]), (RETURN, 0, 0, ERRNO | ENOSYS)]
    program += [(JUMP_EQ, 0, 1, nr["clone"]), (RETURN, 0, 0, ALLOW)]
    program += _one_of(nr["ioctl"], OFFSET_ARG1, ALLOWED_IOCTLS, ENOTTY)
    program += _one_of(nr["fcntl"], OFFSET_ARG1, ALLOWED_FCNTLS, EPERM)
    program += _one_of(nr["prlimit64"], OFFSET_ARG0, (0,), EPERM)
    program += _stream_pairs(nr["socketpair"])
    for name in ("sendto", "recvfrom"):  # to the other end of a pair, without flags: no urgent data
        program += _one_of(nr[name], OFFSET_ARG3, (0,), EPERM)
    return [*program, (RETURN, 0, 0, ERRNO | EPERM)]


def child_filter() -> tuple[list[Instruction], int]:
    """Filter of a process that runs foreign code, and the index of the instruction to which its own pid belongs.

    Short, since it is installed once per test: no new processes, no signals to others, nothing only the server needs.
    Nor may a process kill itself or change its limit of CPU time, after which the kernel would: so whoever was ended by
    SIGKILL was ended from outside.
    """
    column = _column()
    refused = [SYSCALLS[name][column] for name in SERVER_ONLY]
    setrlimit, prlimit = SYSCALLS["setrlimit"][column], CONDITIONAL["prlimit64"][column]
    kill, tgkill = SYSCALLS["kill"][column], SYSCALLS["tgkill"][column]
    own_pid = (JUMP_EQ, PERMIT, REFUSE, 0)
    calls = [kill, tgkill, CONDITIONAL["clone"][column], setrlimit, prlimit]
    checks: list[list[Instruction]] = [
        [(LOAD, 0, 0, OFFSET_ARG1), (JUMP_EQ, REFUSE, 2, SIGKILL)],  # then on to the process id
        [(LOAD, 0, 0, OFFSET_ARG2), (JUMP_EQ, REFUSE, 0, SIGKILL), (LOAD, 0, 0, OFFSET_ARG0), own_pid],
        [(LOAD, 0, 0, OFFSET_ARG0), (JUMP_SET, PERMIT, REFUSE, CLONE_THREAD)],
        [(LOAD, 0, 0, OFFSET_ARG0), (JUMP_EQ, REFUSE, PERMIT, resource.RLIMIT_CPU)],
        [(LOAD, 0, 0, OFFSET_ARG1), (JUMP_EQ, REFUSE, PERMIT, resource.RLIMIT_CPU)],
    ]
    program: list[Instruction] = [(LOAD, 0, 0, OFFSET_NR)]
    program += [(JUMP_EQ, REFUSE, 0, nr) for nr in refused]
    starts = itertools.accumulate((len(check) for check in checks), initial=len(calls))
    program += [(JUMP_EQ, start - i, 0, nr) for i, (nr, start) in enumerate(zip(calls, starts, strict=False))]
    program += [(RETURN, 0, 0, ALLOW), *itertools.chain(*checks), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)]
    return resolved(program), program.index(own_pid)


def resolved(program: list[Instruction]) -> list[Instruction]:
    """The program with jumps to REFUSE and PERMIT, its last two instructions, as distances."""
    last = len(program) - 1
    distance = {REFUSE: last - 1, PERMIT: last}
    return [
        (code, distance[yes] - i - 1 if yes in distance else yes, distance[no] - i - 1 if no in distance else no, value)
        for i, (code, yes, no, value) in enumerate(program)
    ]


class FilterProgram:
    """A BPF program laid out for the kernel; `install` puts it on the calling process."""

    def __init__(self, program: list[Instruction]) -> None:
        packed = b"".join(struct.pack("HBBI", *instruction) for instruction in program)
        self._code = ctypes.create_string_buffer(packed, len(packed))
        header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(self._code))
        self._header = ctypes.create_string_buffer(header, len(header))
        self._address = ctypes.c_void_p(ctypes.addressof(self._header))
        self._prctl = LIBC.prctl

    def patch(self, index: int, value: int) -> None:
        """Set the constant of one instruction."""
        struct.pack_into("I", self._code, index * 8 + 4, value & 0xFFFFFFFF)

    def install(self) -> None:
        """Restrict the calling thread and everything it starts; needs no_new_privs."""
        if self._prctl(PR_SET_SECCOMP, 2, self._address, 0, 0):
            raise WallRefused(f"seccomp: {os.strerror(ctypes.get_errno())}")


def prctl(option: int, value: int, extra: int = 0) -> None:
    """prctl(2) that raises."""
    if LIBC.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(extra), 0, 0):
        raise WallRefused(f"prctl {option}: {os.strerror(ctypes.get_errno())}")


# Landlock --------------------------------------------------------------------------------------------------------

READ_FILE, READ_DIR, WRITE_FILE = 1 << 2, 1 << 3, 1 << 1
RULESET_BITS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446


def landlock_abi() -> int:
    """Landlock version of the kernel, 0 where it is missing or switched off."""
    return max(0, LIBC.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1))


def landlock_rules(abi: int, readable: list[str], listable: list[str], writable: list[str]) -> int:
    """A ruleset against every file access but reading beneath `readable`, listing `listable`, writing `writable`.

    Also against TCP (ABI 4), and abstract sockets and signals to processes outside (ABI 6). Returns its descriptor;
    paths are looked up now, the rules hold from `enforce_landlock` on.
    """
    access = (1 << RULESET_BITS.get(abi, 16)) - 1
    fields = [access] + ([3] if abi >= 4 else []) + ([3] if abi >= 6 else [])
    attributes = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = LIBC.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        raise WallRefused(f"landlock: {os.strerror(ctypes.get_errno())}")
    for path in readable:
        _allow_beneath(ruleset, path, READ_FILE | READ_DIR)
    for path in listable:
        _allow_beneath(ruleset, path, READ_DIR)
    for path in writable:
        _allow_beneath(ruleset, path, READ_FILE | WRITE_FILE)
    return ruleset


def enforce_landlock(ruleset: int) -> None:
    """Put the rules on this thread and all it starts; needs no_new_privs."""
    if LIBC.syscall(RESTRICT_SELF, ruleset, 0):
        raise WallRefused(f"landlock: {os.strerror(ctypes.get_errno())}")
    os.close(ruleset)


def _allow_beneath(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a path that is not there needs no permission
    if not os.path.isdir(path):
        access &= ~READ_DIR
    rule = struct.pack("=Qi", access, fd)
    refused = LIBC.syscall(ADD_RULE, ruleset, 1, rule, 0)
    os.close(fd)
    if refused:
        raise WallRefused(f"landlock: rule for {path!r}: {os.strerror(ctypes.get_errno())}")


def library_paths() -> tuple[list[str], list[str]]:
    """Paths an interpreter reads while it runs, and folders it only lists: no installed packages among them."""
    standard = os.path.dirname(os.path.realpath(os.__file__))
    readable = ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo"]
    readable += ["/dev/urandom", "/dev/random"]
    with contextlib.suppress(OSError):
        readable += [
            os.path.join(standard, name)
            for name in os.listdir(standard)
            if not name.endswith(("site-packages", "dist-packages"))
        ]
    readable += [path for path in sys.path if path.endswith(".zip")]
    return readable, [standard]


# Limits and privileges -------------------------------------------------------------------------------------------


def hold_limits(processes: int | None) -> None:
    """Limits that no test changes, set once in the server and inherited."""
    for what, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_SIGPENDING, 64),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        hard = resource.getrlimit(what)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))
    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (hard if hard != resource.RLIM_INFINITY else 1 << 30, hard))
    if processes is not None:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))


def drop_privileges(uid: int) -> None:
    """Become `uid` without groups or capabilities; only root can and must."""
    for capability in range(64):
        if LIBC.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    LIBC.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


# All of them --------------------------------------------------------------------------------------------------------


def raise_walls(config: dict[str, Any]) -> list[str]:
    """Confine this process for good; returns the names of the walls that stand."""
    walls = ["rlimits"]
    os.umask(0o077)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    abi = landlock_abi()
    readable, listable = library_paths()
    rules = landlock_rules(abi, readable + config["packages"], listable, ["/dev/null"]) if abi else -1
    if os.getuid() == 0 and config["uid"]:
        become(config["uid"], config["packages"])
        walls.append("uid")
    require_readable(config["packages"])
    hold_limits(config["processes"] if os.getuid() != 0 else None)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    walls += ["non_dumpable", "no_new_privs"]
    if abi:
        enforce_landlock(rules)
        walls.append(f"landlock:{abi}")
    FilterProgram(server_filter()).install()
    return [*walls, "seccomp"]


def require_readable(packages: list[str]) -> None:
    """Refuse folders of packages that programs could not import from: these would fail, and look wrong."""
    for folder in packages:
        if not os.access(folder, os.R_OK | os.X_OK):
            raise WallRefused(
                f"packages: programs run as user {os.getuid()} and cannot read {folder!r}: give them a folder that "
                "everybody may read, also those above it (such as /opt/packages), or install bubblewrap"
            )


def become(uid: int, packages: list[str]) -> None:
    """Drop root for `uid`; if that user cannot reach the standard library by its path, keep it as working folder."""
    standard = os.path.dirname(os.__file__)
    os.chdir(standard)
    drop_privileges(uid)
    if os.access(standard, os.R_OK):
        os.chdir("/")
    else:
        here = "/proc/self/cwd"
        sys.path[:] = [here, f"{here}/lib-dynload", *packages]
        for module in list(sys.modules.values()):
            if folders := getattr(module, "__path__", None):  # where its submodules are looked for
                module.__path__ = [re.sub(f"^{re.escape(standard)}", here, folder) for folder in folders]
        sys.path_importer_cache.clear()
