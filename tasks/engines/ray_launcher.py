"""`python -m tasks.engines.ray_launcher ADDRESS CPUS GPUS COMMAND...`: run COMMAND on a node of a Ray cluster.

A launcher like ssh: standard input, output and error of the command are this process's own, and the command ends when
this process does. Ray chooses the node, which keeps the CPUs and GPUs reserved meanwhile and shows the command its GPUs
alone. So one mechanism, engine processes behind a launcher, brings every sampling stage to a cluster.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

ROOM_S = 600.0
"""Time for a node with room to be found, autoscaling included."""
CHUNK = 1 << 20
"""Most bytes that travel at once."""


class Node:
    """The command's process and its streams, as a Ray actor on the node that it got."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, bufsize=0)

    def ready(self) -> bool:
        """True, once the process is there."""
        return True

    def write(self, data: bytes) -> None:
        """Put `data` into its standard input; nothing: close that."""
        assert self._process.stdin is not None
        if not data:
            self._process.stdin.close()
            return
        view = memoryview(data)
        while view:
            view = view[self._process.stdin.write(view) or 0 :]

    def read(self, stream: str) -> bytes:
        """What its `stdout` or `stderr` says next; nothing at its end."""
        return os.read(getattr(self._process, stream).fileno(), CHUNK)

    def status(self) -> int:
        """How it ended, once it has."""
        return self._process.wait()


def run(address: str, cpus: float, gpus: float, command: Sequence[str]) -> int:
    """Run `command` on a node of the cluster at `address`, streams passed on, and return its exit status."""
    import ray
    from ray.exceptions import GetTimeoutError

    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    # Each stream is a queue of its own: what is written must not wait for what is read.
    streams = {"ready": 1, "stdin": 1, "stdout": 1, "stderr": 1}
    on_cluster: Any = ray.remote
    node = on_cluster(num_cpus=cpus, num_gpus=gpus, concurrency_groups=streams)(Node).remote(list(command))
    try:
        ray.get(node.ready.options(concurrency_group="ready").remote(), timeout=ROOM_S)
    except GetTimeoutError:
        wanted = f"{cpus:g} CPUs and {gpus:g} GPUs (shards.cpus, shards.gpus)"
        print(
            f"the Ray cluster at {address} had no node with room for {wanted} in {ROOM_S:.0f} s, of which shards.tasks "
            f"engines ask for as much each; it has {ray.available_resources()} free: lower shards.tasks, or add nodes",
            file=sys.stderr,
        )
        return 1

    def pumped(take: Callable[[], bytes], give: Callable[[bytes], None]) -> threading.Thread:
        thread = threading.Thread(target=_pump, args=(take, give), daemon=True)
        thread.start()
        return thread

    def read(stream: str) -> bytes:
        return ray.get(node.read.options(concurrency_group=stream).remote(stream))

    def write(data: bytes) -> None:
        ray.get(node.write.options(concurrency_group="stdin").remote(data))

    pumped(lambda: os.read(0, CHUNK), write)
    outputs = [pumped(lambda: read("stdout"), _writer(1)), pumped(lambda: read("stderr"), _writer(2))]
    for output in outputs:
        output.join()
    return int(ray.get(node.status.options(concurrency_group="ready").remote()))


def _pump(take: Callable[[], bytes], give: Callable[[bytes], None]) -> None:
    """Pass on what comes, up to and with the empty bytes of the end."""
    while data := take():
        give(data)
    give(data)


def _writer(descriptor: int) -> Callable[[bytes], None]:
    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    return write


def main(argv: Sequence[str]) -> int:
    """Run what the arguments say. What Ray prints goes to standard error."""
    address, cpus, gpus, *command = argv
    return run(address, float(cpus), float(gpus), command)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
