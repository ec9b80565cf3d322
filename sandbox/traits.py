"""What a compiled program's names say about how to run it. Part of what runs inside; no foreign code runs here.

A program is plain if nothing it does in one run can be found in the next one of the same process: it imports only
modules without settings, and uses no name by which a program reaches beyond its own objects. Only plain programs are
run several tests to a process, and even they only while the modules they import stay as they were.
"""

from __future__ import annotations

import inspect
import opcode
import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

LAST_WORDS, PLAIN, THREADS, FILES = 1, 2, 4, 8
"""May hold objects that write when destroyed; leaves nothing behind; wants stacks of threads; wants temporary files."""
ENDERS = frozenset((
    "FileIO", "TextIOWrapper", "BufferedWriter", "BufferedRWPair", "BufferedRandom", "IOBase", "RawIOBase",
    "BufferedIOBase", "TextIOBase", "detach", "exec", "weakref", "__del__",
))  # fmt: skip
"""Names in a program by which it may hold what writes when it is destroyed."""
OPENERS, MODES = frozenset({"open", "fdopen"}), frozenset("rwaxbt+")
"""Names by which a program opens files, and the letters of their modes: one opened to be read writes nothing."""
THREADED = frozenset({"threading", "_thread", "concurrent", "asyncio", "stack_size", "multiprocessing"})
WITHOUT_SETTINGS = frozenset((
    "__future__", "abc", "array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "enum",
    "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "random", "re", "statistics",
    "string", "sys", "time", "typing",
))  # fmt: skip
"""Modules that keep nothing between calls but what is renewed for each test: streams, seed, recursion limit."""
REACHING = frozenset((
    "addaudithook", "argv", "breakpoint", "cache_from_source", "compile", "delattr", "displayhook", "eval",
    "excepthook", "exec", "getattr", "getcontext", "globals", "hasattr", "intern", "meta_path", "modules", "path",
    "path_hooks", "purge", "register", "setattr", "setcontext", "setprofile", "setswitchinterval", "settrace",
    "unraisablehook", "vars", "__del__",
))  # fmt: skip
"""Names by which a program can change, or look at, more than its own objects."""
OWN = frozenset(("__init__", "__name__", "__slots__", "__hash__", "__repr__", "__str__", "__len__", "__iter__",
                 "__getitem__", "__setitem__", "__contains__", "__bool__", "__call__", "__module__", "__qualname__",
                 "__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__add__", "__sub__", "__mul__",
                 "__next__", "__neg__", "__mod__", "__pow__", "__annotations__", "__doc__"))  # fmt: skip
"""Names with underscores that classes of a program's own define; any other such name may reach further."""
STREAMS = ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__")
EXTENDED, IMPORT, HANDLER = (opcode.opmap[name] for name in ("EXTENDED_ARG", "IMPORT_NAME", "PUSH_EXC_INFO"))
SUSPENDABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def traits(code: CodeType) -> int:
    """The program's traits, added up."""
    names = names_in(code)
    imports = {name.split(".")[0] for name in imports_in(code)}
    found = LAST_WORDS if has_last_words(code, names) else 0
    reaching = {name for name in names - OWN if name in REACHING or (name[:1] == "_" and name != "_")}
    found |= 0 if found or reaching - imports or imports - WITHOUT_SETTINGS else PLAIN
    found |= 0 if THREADED.isdisjoint(names | imports) else THREADS
    return found | (FILES if "tempfile" in imports else 0)


def has_last_words(code: CodeType, names: set[str]) -> bool:
    """Whether the program may hold what writes when destroyed: files, `__del__`, generators stopped inside `try`."""
    texts = {text for part in parts(code) for text in texts_in(part.co_consts)}
    writes = any(MODES.issuperset(text) and text.strip("rbt") for text in texts)
    if not ENDERS.isdisjoint(names | texts) or (writes and not OPENERS.isdisjoint(names)):
        return True
    return any(part.co_flags & SUSPENDABLE and HANDLER in part.co_code[::2] for part in parts(code))


def texts_in(constants: tuple[Any, ...]) -> Iterator[str]:
    """The texts among constants and in their tuples, as defaults of arguments are."""
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from texts_in(constant)


def parts(code: CodeType) -> Iterator[CodeType]:
    """The code object and all inside it."""
    todo = [code]
    while todo:
        part = todo.pop()
        yield part
        todo += [constant for constant in part.co_consts if isinstance(constant, CodeType)]


def names_in(code: CodeType) -> set[str]:
    """Global names and attributes the program mentions."""
    return {name for part in parts(code) for name in part.co_names}


def imports_in(code: CodeType) -> set[str]:
    """Modules the program names in its imports."""
    found: set[str] = set()
    for part in parts(code):
        argument, instructions = 0, part.co_code
        for operation, low in zip(instructions[::2], instructions[1::2], strict=True):
            argument = argument << 8 | low
            if operation == IMPORT:
                found.add(part.co_names[argument])
            argument = argument if operation == EXTENDED else 0
    return found


def contents(code: CodeType) -> list[dict[str, Any]]:
    """What the modules that a program imports hold, and the classes in them: to be compared after it ran."""
    modules = [sys.modules[name] for name in sorted(imports_in(code)) if name in sys.modules]
    classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
    return [dict(vars(thing)) for thing in (*modules, *classes)]


def same(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> bool:
    """Whether nothing was put in, taken out or exchanged; the streams of `sys` are renewed anyway."""
    if len(before) != len(after):
        return False
    for one, two in zip(before, after, strict=True):
        if one.keys() != two.keys() or any(two[key] is not one[key] for key in one if key not in STREAMS):
            return False
    return True
