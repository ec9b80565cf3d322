"""Whether a process of a training run was asked to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import dataclass


@dataclass(slots=True)
class Stop:
    """Whether the process was asked to stop: by SIGTERM, SIGINT, or its starter's end."""

    asked: bool = False

    def __call__(self) -> bool:
        return self.asked

    def listen(self, *, stdin: bool) -> None:
        """Watch for the signals, and for the end of standard input when told."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._ask())
        if stdin:
            threading.Thread(target=self._await_end_of_input, daemon=True).start()

    def _ask(self) -> None:
        self.asked = True

    def _await_end_of_input(self) -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        self._ask()
