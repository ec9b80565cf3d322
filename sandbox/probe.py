"""What this machine can offer: which backends work and which walls each would have. For `spo doctor`."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox.backends import open_backend
from sandbox.errors import SandboxUnavailable
from sandbox.worker import JudgeWorker


@dataclass(frozen=True, slots=True)
class BackendProbe:
    """One backend's state: its walls, or why it cannot work."""

    backend: str
    works: bool
    walls: tuple[str, ...]
    problem: str


def describe_walls(backends: tuple[str, ...] = ("embedded", "docker")) -> list[BackendProbe]:
    """Start a runner of each backend and report the walls that stand."""
    return [probe(name) for name in backends]


def probe(name: str) -> BackendProbe:
    """Start one runner of this backend and end it again."""
    try:
        backend = open_backend(name)
    except SandboxUnavailable as error:
        return BackendProbe(name, False, (), str(error))
    worker = JudgeWorker(backend)
    try:
        worker.start()
        return BackendProbe(name, True, worker.walls, "")
    except SandboxUnavailable as error:
        return BackendProbe(name, False, (), str(error))
    finally:
        worker.close()
        backend.close()
