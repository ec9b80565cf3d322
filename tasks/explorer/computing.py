"""What takes longer than a page may: computed once beside the pages, which ask again until it is there."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Final, Generic, TypeVar

from warehouse import StillReading

T = TypeVar("T")
KEPT: Final = 128


class Computations(Generic[T]):
    """Results by key, one computed at a time; the oldest are forgotten. A failure is raised to whoever asks for it."""

    def __init__(self) -> None:
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compute")
        self._found: OrderedDict[Hashable, Future[T]] = OrderedDict()
        self._guard = threading.Lock()

    def result(self, key: Hashable, compute: Callable[[], T], *, wait_s: float, what: str) -> T:
        """The result of `compute` for `key`; raises StillReading, which says `what`, when it is not there in time."""
        with self._guard:
            future = self._found.get(key)
            if future is None:
                future = self._found[key] = self._worker.submit(compute)
            self._found.move_to_end(key)
            while len(self._found) > KEPT:
                self._found.popitem(last=False)
        try:
            return future.result(timeout=wait_s)
        except NotYet:
            raise StillReading(what) from None
        except Exception:
            with self._guard:
                self._found.pop(key, None)  # the next one who asks tries again
            raise
