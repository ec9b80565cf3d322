"""Backends: how a runner is launched, and which outer wall that adds. Judging does not know which one it has."""

from __future__ import annotations

from typing import Any, Protocol

from sandbox.channel import Channel
from sandbox.errors import SandboxUnavailable


class Backend(Protocol):
    """Launches runners."""

    name: str
    walls: tuple[str, ...]
    """Outer walls; a runner adds its own."""
    memory_bytes: int | None
    """Memory of one runner with all its processes; None: no limit but the machine's."""

    def launch(self, bootstrap: str) -> tuple[Channel, dict[str, Any]]:
        """A new interpreter running `bootstrap`, and what its runner's configuration must hold besides the common."""
        ...

    def close(self) -> None:
        """Give back whatever the backend holds besides its runners."""
        ...


def open_backend(name: str, **options: Any) -> Backend:
    """The backend of this name; SandboxUnavailable when it cannot work here."""
    if name in ("auto", "embedded"):
        from sandbox.backends.embedded import EmbeddedBackend

        return EmbeddedBackend(**options)
    if name == "docker":
        from sandbox.backends.docker_backend import DockerBackend

        return DockerBackend(**options)
    raise SandboxUnavailable(f"no backend {name!r}; there are `embedded` and `docker`")
