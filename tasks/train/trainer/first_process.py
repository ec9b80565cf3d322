"""Work of the first process alone, while the others wait: for rollouts, a publication, a conversion.

How long it takes is not known, and a collective that waits longer than its process group's timeout ends the run. So a
thread of the first process lets the others hear from it now and then; they wait as long as they do. When the process
dies, its connections end and so does the waiting; when it only stops speaking, the timeout says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist

from tasks.train.shared.errors import ProcessDied, TrainerError

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class _Message:
    done: bool
    error: TrainerError | None = None


class FirstProcess:
    """What the first process of a group does alone; the same object in all of them."""

    def __init__(self, group: Any, *, beat_s: float, timeout_s: float) -> None:
        """`group`: a gloo group of all processes, used for nothing else; `timeout_s` is its timeout."""
        self._group = group
        self._beat_s = beat_s
        self._timeout_s = timeout_s

    def does(self, work: Callable[[], Found]) -> Found | None:
        """What `work` returns, on the first process; None on the others. Collective.

        A TrainerError of `work` is raised by all; `work` must not wait for the other processes. Raises ProcessDied
        where the first process was not heard of for the group's timeout.
        """
        if dist.get_rank():
            self._wait()
            return None
        error: TrainerError | None = None
        found: Found | None = None
        done = threading.Event()
        beating = threading.Thread(target=self._beat, args=(done,), daemon=True)
        beating.start()
        try:
            found = work()
        except TrainerError as raised:
            error = raised
        finally:
            done.set()
            beating.join()
        self._say(_Message(True, error))
        if error is not None:
            raise error
        return found

    def _beat(self, done: threading.Event) -> None:
        while not done.wait(self._beat_s):
            self._say(_Message(False))

    def _wait(self) -> None:
        while not (heard := self._hear()).done:
            pass
        if heard.error is not None:
            raise heard.error

    def _say(self, message: _Message) -> None:
        dist.broadcast_object_list([message], src=0, group=self._group)

    def _hear(self) -> _Message:
        box: list[Any] = [None]
        try:
            dist.broadcast_object_list(box, src=0, group=self._group)
        except RuntimeError as error:
            raise ProcessDied(
                f"the first process of training was not heard of for {self._timeout_s:g} s, or is gone ({error}); its "
                f"log says what it did last. Resumed, the run continues from its last checkpoint"
            ) from error
        return box[0]
