"""What happens inside the forked children: compiling a program, and running it as `__main__`.

Everything here runs just before, or underneath, foreign code: nothing after the program's start is believed by
anyone. What is needed after the program ran is bound before it runs.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import errno
import hashlib
import importlib
import io
import marshal
import os
import random
import resource
import sys
import threading
import warnings
from types import CodeType, ModuleType
from typing import Any, NoReturn

from sandbox import program_side, traits

HIGHEST_FD = 4096
COMPILE_MEMORY = 1 << 30
COMPILE_OUTPUT = 64 << 20
SUMMARY = 600
"""Bytes of a compilation's result which the host may see: a mark, then the code's hash or an error message."""
COMPILED, REFUSED = b"1", b"0"
HASH_LENGTH = 32
TRAITS_AT = len(COMPILED) + HASH_LENGTH
"""Where in a compilation's result the byte with the program's traits stands."""
RECURSION_LIMIT = 1000
MOST_FILES = 256
"""Descriptors a program may have: each may hold memory of the kernel's that counts as nobody's."""
PREIMPORTS = (
    "collections", "heapq", "bisect", "itertools", "functools", "math", "string", "re", "random", "operator", "copy",
    "decimal", "fractions", "typing", "io", "threading", "queue", "array", "time", "datetime", "cmath", "statistics",
    "types", "dataclasses", "enum", "traceback", "linecache", "contextlib", "ctypes",
)  # fmt: skip


def prepare(preimports: list[str]) -> None:
    """Once, in the server: import what programs import, and make the standard streams every child will use."""
    for name in (*PREIMPORTS, *preimports):
        importlib.import_module(name)
    random.seed(0)
    sys.set_int_max_str_digits(0)  # real accepted programs print longer numbers; a slow conversion costs only CPU time
    sys.argv = ["main.py"]
    builtins.exit = builtins.quit = leave  # the site module, which the runner goes without, provides these
    open_streams()


def leave(code: object = None) -> NoReturn:
    """`exit` and `quit`, as the site module provides them."""
    raise SystemExit(code)


def open_streams() -> None:
    """Text streams on descriptors 0, 1 and 2, set up as a fresh interpreter does.

    So `sys.stdin` reads line ends of every kind as a newline: the tests of some sets have CRLF. `sys.stdin.buffer` has
    the bytes as they are.
    """
    for fd, name in enumerate(("stdin", "stdout", "stderr")):
        raw = io.FileIO(fd, "r" if fd == 0 else "w", closefd=False)
        buffer = io.BufferedReader(raw) if fd == 0 else io.BufferedWriter(raw)
        errors = "backslashreplace" if fd == 2 else "surrogateescape"
        stream: Any = io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=fd == 2)
        stream.mode = "r" if fd == 0 else "w"
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def set_limits(cpu_ms: int, address_space: int, file_size: int) -> None:
    """Hard caps of this process. The server ends it at the exact CPU limit; the kernel a little later."""
    cpu_s = -(-cpu_ms // 1000) + 1
    setrlimit = resource.setrlimit
    setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
    setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
    setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))


# compiling -------------------------------------------------------------------------------------------------------


def compile_into(source: int, target: int) -> NoReturn:
    """Compile the program in file `source`; write hash, flags and code, or the error, to file `target`; exit.

    As text, of which no comment says how it is encoded: `# Run-length encoding: zlib` is about the task.
    """
    program = os.pread(source, os.fstat(source).st_size, 0)
    warnings.simplefilter("ignore")  # of odd but valid code; nobody could read them
    try:
        code = compile(program.decode("utf-8-sig"), "main.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        message = f"{type(error).__name__}: {error}".encode("utf-8", "replace")
        os.write(target, REFUSED + message[: SUMMARY - 1])
        os._exit(0)
    data = COMPILED + code_hash(code).encode() + bytes([traits.traits(code)]) + marshal.dumps(code)
    while data:
        data = data[os.write(target, data) :]
    os._exit(0)


def code_hash(code: CodeType) -> str:
    """Hash of everything in the code but where in the text it stood.

    Equal hashes, equal behaviour, unless a program looks at its own line numbers.
    """
    digest = hashlib.sha256()
    _hash_code(code, digest.update)
    return digest.hexdigest()[:HASH_LENGTH]


def _hash_code(code: CodeType, update: Any) -> None:
    numbers = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_name, code.co_qualname)
    instructions = (code.co_code, code.co_exceptiontable)
    update(b"<code" + repr((numbers, names, instructions)).encode("utf-8", "surrogatepass"))
    for constant in code.co_consts:
        _hash_constant(constant, update)
    update(b">")


def _hash_constant(constant: object, update: Any) -> None:
    if isinstance(constant, CodeType):
        _hash_code(constant, update)
    elif isinstance(constant, tuple):
        update(b"(")
        for item in constant:
            _hash_constant(item, update)
        update(b")")
    elif isinstance(constant, frozenset):
        update(repr(sorted(f"{type(item).__name__}{item!r}" for item in constant)).encode("utf-8", "surrogatepass"))
    elif isinstance(constant, int) and not isinstance(constant, bool):
        update(b"i%x;" % constant)
    else:
        update(f"{type(constant).__name__}{constant!r};".encode("utf-8", "surrogatepass"))


# running ---------------------------------------------------------------------------------------------------------


def load(code_file: int) -> tuple[CodeType, bool]:
    """The compiled program, and whether it may hold objects that write when they are destroyed."""
    data = os.pread(code_file, os.fstat(code_file).st_size, 0)
    return marshal.loads(data[TRAITS_AT + 1 :]), bool(data[TRAITS_AT] & traits.LAST_WORDS)


def provide_files(spare: list[int]) -> None:
    """Let `tempfile` make files of these empty memory files; a name reaches them as long as the program runs."""
    import tempfile

    def take() -> int:
        if not spare:
            raise OSError(errno.ENOSPC, "no further temporary files")
        return spare.pop()

    def temporary_file(mode: str = "w+b", buffering: int = -1, encoding: Any = None, newline: Any = None,
                       *_: Any, errors: Any = None, **__: Any) -> Any:  # fmt: skip
        return open(os.dup(take()), mode, buffering, encoding, errors, newline)

    def named_temporary_file(mode: str = "w+b", buffering: int = -1, encoding: Any = None, newline: Any = None,
                             *_: Any, errors: Any = None, **__: Any) -> Any:  # fmt: skip
        fd = take()
        file: Any = open(os.dup(fd), mode, buffering, encoding, errors, newline)  # noqa: SIM115  for the program
        return tempfile._TemporaryFileWrapper(file, f"/dev/fd/{fd}", False)

    def mkstemp(*_: Any, **__: Any) -> tuple[int, str]:
        fd = take()
        return os.dup(fd), f"/dev/fd/{fd}"

    def mkdtemp(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.EROFS, "there are temporary files here, but no folders for them")

    tempfile.TemporaryFile, tempfile.NamedTemporaryFile = temporary_file, named_temporary_file
    tempfile.mkstemp, tempfile.mkdtemp = mkstemp, mkdtemp


def new_module(name: str) -> dict[str, Any]:
    """Names of a new module, which is in place as an imported one is: dataclasses, pickle and others look it up there.

    Nothing else holds it, so that it can be destroyed as at a normal exit.
    """
    module = ModuleType(name)
    module.__dict__.update(__builtins__=builtins, __file__="main.py")
    sys.modules[name] = module
    return module.__dict__


def run_program(loaded: tuple[CodeType, bool]) -> NoReturn:
    """Run the program and exit as a fresh interpreter would.

    The interpreter's own end costs more than most tests; only programs that may hold objects which write when they are
    destroyed come to it. Of all others the rest is done that somebody can see.
    """
    leave_now, end_interpreter = os._exit, ctypes.pythonapi.Py_Exit
    code, ends_with_interpreter = loaded
    status = 70
    try:
        status = execute(code, new_module("__main__"))
        if ends_with_interpreter:
            end_interpreter(status)
        status = finish(status)
    finally:
        leave_now(status)


def execute(code: CodeType, namespace: dict[str, Any], *, whole: bool = False) -> int:
    """Run code in a namespace; the exit status it asks for, 1 after an uncaught exception.

    `whole`: it is a module, which must not exit at all; 1 if it does.
    """
    sys.setrecursionlimit(RECURSION_LIMIT + depth())
    try:
        exec(code, namespace)
    except SystemExit as request:
        status = exit_status(request.code)
        if status or not whole:
            return status
        show_error()
        return 1
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        show_error()
        return 1
    return 0


def depth() -> int:
    """Levels of recursion beneath what the caller executes, which a program of its own interpreter has not."""
    frame, count = sys._getframe(), 1  # `exec` itself is one
    while frame := frame.f_back:
        count += 1
    return count


def run_group(loaded: tuple[CodeType, bool], inputs: list[int], outputs: list[int], marks: int) -> NoReturn:
    """Run the program on several tests in this one process; after each good end a zero byte goes to `marks`.

    Stops at the first bad end, leftover thread or change to a module. What this process claims only ever saves work:
    the host accepts a test of a group only on its output and the whole process's measured cost, and decides all else
    again alone.
    """
    leave_now, write, dup2, lseek = os._exit, os.write, os.dup2, os.lseek
    contents, same, untouched = traits.contents, traits.same, traits.contents(loaded[0])
    try:
        for stdin, stdout in zip(inputs, outputs, strict=True):
            lseek(stdin, 0, 0)
            dup2(stdin, 0)
            dup2(stdout, 1)
            renew()
            failed = execute(loaded[0], new_module("__main__"))
            if failed or threading.active_count() > 1 or flush_output() or not same(untouched, contents(loaded[0])):
                break
            write(marks, b"\0")
    finally:
        leave_now(0)


def renew() -> None:
    """Undo what an earlier test of the group most likely left behind."""
    open_streams()
    random.seed(0)


def run_calls(loaded: tuple[CodeType, bool], results: int) -> NoReturn:
    """Load the program as a module and call its functions as standard input says; the answers go to `results`."""
    leave_now, write = os._exit, os.write
    status = 70
    try:
        calls = program_side.read_calls(os.pread(0, os.fstat(0).st_size, 0))
        os.lseek(0, 0, os.SEEK_END)
        namespace = new_module("solution")
        status = execute(loaded[0], namespace, whole=True)
        if status == 0:
            answers = memoryview(program_side.answer_calls(namespace, calls))
            while answers:
                answers = answers[write(results, answers) :]
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        status = 1
        show_error()
    finally:
        leave_now(status)


def finish(status: int) -> int:
    """What the interpreter does at its end that others can see: threads, atexit, streams."""
    try:
        threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
        import atexit

        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        show_error()
    return status or flush_output()


def flush_output() -> int:
    """Write out what is buffered in the standard output; 120 if the program's own fails, as of the interpreter.

    What the first one says, where the program has put another one in its place, interests the interpreter no more.
    """
    stdout, first = getattr(sys, "stdout", None), sys.__stdout__
    try:
        if stdout is not None and not is_closed(stdout):
            stdout.flush()
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        show_error()
        return 120
    if first is not None and first is not stdout:
        with contextlib.suppress(BaseException):
            first.flush()
    return 0


def is_closed(stream: Any) -> bool:
    """Whether a stream says that it is closed; one that cannot say is not."""
    try:
        return bool(stream.closed)
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        return False


def exit_status(code: object) -> int:
    """Process status of `SystemExit(code)`."""
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    try:
        sys.stderr.write(f"{code}\n")
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        return 1
    return 1


def show_error() -> None:
    """Traceback of the current exception on standard error, whatever the program did to the means."""
    try:
        kind, error, trace = sys.exc_info()
        if kind is not None and error is not None:
            sys.__excepthook__(kind, error, trace)
            sys.stderr.flush()
    except BaseException:  # noqa: BLE001  whatever foreign code raises
        return
