"""Runners in containers of a Docker engine: no network, nothing writable, no privileges; one container per worker.

The runner's source travels over standard input, so nothing is mounted and a remote engine works too. The image needs
nothing but an interpreter: by default it is made of the running one, without any registry; `sandbox/Dockerfile`
builds the same from a published base.
"""

from __future__ import annotations

import os
import re
import select
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sandbox.backends.embedded import ENVIRONMENT, INTERPRETER_FLAGS, interpreter
from sandbox.channel import CHUNK, Channel, wait
from sandbox.errors import RunnerLost, SandboxUnavailable

LEFT_OUT = {
    "site-packages",
    "dist-packages",
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "ensurepip",
    "__pycache__",
    "turtledemo",
}
NOBODY = "65534:65534"
STREAM_HEADER = struct.Struct(">BxxxI")
PROCESSES = 128


class DockerBackend:
    """Containers of `image` (None: made of the running interpreter) with `memory_bytes` each, under `runtime`.

    `packages`: folders of the image that hold packages for programs to import.
    """

    name = "docker"

    def __init__(
        self, image: str | None = None, *, host: str | None = None, runtime: str | None = None,
        memory_bytes: int = 3 << 30, python: str | None = None, packages: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self._client = connect(host)
        self._runtime = runtime
        self.memory_bytes: int | None = memory_bytes
        self._image = image or own_image(self._client)
        self._config: dict[str, Any] = {"uid": 0, "processes": None, "packages": list(packages)}
        self._python = python or ("python3" if image else interpreter())
        self.walls: tuple[str, ...] = (f"docker:{runtime}" if runtime else "docker",)

    def launch(self, bootstrap: str) -> tuple[Channel, dict[str, Any]]:
        """Create a container, attach to it, start it."""
        import docker.errors
        import requests.exceptions

        try:
            container: Any = self._client.api.create_container(
                self._image,
                [self._python, *INTERPRETER_FLAGS, "-c", bootstrap],
                stdin_open=True,
                user=NOBODY,
                environment=ENVIRONMENT,
                working_dir="/",
                network_disabled=True,
                labels={"spo.sandbox": "runner"},
                host_config=self._host_config(),
            )
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise SandboxUnavailable(f"the Docker engine refuses a container of {self._image!r}: {error}") from error
        try:
            return ContainerChannel(self._client, container["Id"]), self._config
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            remove(self._client, container["Id"])
            raise SandboxUnavailable(f"a container of {self._image!r} does not start: {error}") from error

    def _host_config(self) -> Any:
        return self._client.api.create_host_config(
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            ipc_mode="none",
            pids_limit=PROCESSES,
            mem_limit=self.memory_bytes,
            memswap_limit=self.memory_bytes,
            auto_remove=True,
            log_config={"Type": "none", "Config": {}},
            runtime=self._runtime,
        )

    def close(self) -> None:
        """Close the connection to the engine."""
        self._client.close()


class ContainerChannel:
    """The standard streams of a container; its output comes in Docker's frames of eight header bytes."""

    def __init__(self, client: Any, container: str) -> None:
        self._client, self._container = client, container
        self._attached = client.api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        self._socket: socket.socket = getattr(self._attached, "_sock", self._attached)
        self._socket.setblocking(False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._writable.register(self._socket, select.POLLOUT)
        self._raw, self._buffer, self._complaints = bytearray(), bytearray(), bytearray()
        client.api.start(container)

    def send(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                wait(self._writable, deadline, "does not read")
            except OSError as error:
                raise RunnerLost(f"the container is gone: {error}") from error

    def receive(self, count: int, deadline: float) -> bytes:
        while len(self._buffer) < count:
            wait(self._readable, deadline, "does not answer")
            try:
                part = self._socket.recv(CHUNK)
            except OSError as error:
                raise RunnerLost(f"the container is gone: {error}") from error
            if not part:
                words = self._complaints[-300:].decode("utf-8", "replace").strip()
                raise RunnerLost(f"the container has ended {words}")
            self._raw += part
            self._unframe()
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _unframe(self) -> None:
        """Move complete frames from the raw bytes to where they belong."""
        while len(self._raw) >= STREAM_HEADER.size:
            stream, size = STREAM_HEADER.unpack_from(self._raw)
            end = STREAM_HEADER.size + size
            if len(self._raw) < end:
                return
            target = self._buffer if stream == 1 else self._complaints
            target += self._raw[STREAM_HEADER.size : end]
            del self._raw[:end]
            del self._complaints[:-4096]

    def close(self) -> None:
        self._socket.close()
        self._attached.close()
        remove(self._client, self._container)


def remove(client: Any, container: str) -> None:
    """End a container; one that has ended is being removed by the engine already."""
    import docker.errors

    try:
        client.api.remove_container(container, force=True)
    except docker.errors.APIError as error:
        if error.status_code not in (404, 409):  # gone; going
            raise


# engine and image ------------------------------------------------------------------------------------------------


def connect(host: str | None) -> Any:
    """A client of an engine that answers."""
    try:
        import docker
        import docker.errors
    except ImportError as error:
        raise SandboxUnavailable("the Python package `docker` is missing; install it to use this backend") from error
    try:
        client = docker.DockerClient(base_url=host, timeout=60) if host else docker.from_env(timeout=60)
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        raise SandboxUnavailable(f"no Docker engine answers ({error}); start one or set DOCKER_HOST") from error
    return client


def own_image(client: Any) -> str:
    """An image of the running interpreter; imported on first use, without a registry."""
    import docker.errors

    tag = f"{sys.implementation.cache_tag}-{'.'.join(map(str, sys.version_info[:3]))}"
    try:
        client.images.get(f"spo-sandbox:{tag}")
    except docker.errors.ImageNotFound:
        with tempfile.TemporaryFile() as file:
            with tarfile.open(fileobj=file, mode="w") as archive:
                fill_image(archive)
            file.seek(0)
            client.api.import_image_from_data(file, repository="spo-sandbox", tag=tag)
    return f"spo-sandbox:{tag}"


def fill_image(archive: tarfile.TarFile) -> None:
    """Put in the interpreter, its standard library and the shared libraries these need, all readable to everybody."""
    program = Path(interpreter())
    standard = Path(os.path.realpath(os.__file__)).parent
    paths = [program, *library_files(standard)]
    extensions = [path for path in paths if path.suffix == ".so"]
    paths += sorted(shared_libraries([program, *extensions]))
    seen: set[Path] = set()
    for path in paths:
        for folder in reversed(path.parents[:-1]):
            if folder not in seen:
                seen.add(folder)
                entry = tarfile.TarInfo(str(folder).lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
        if path not in seen:
            seen.add(path)
            with path.open("rb") as content:
                entry = tarfile.TarInfo(str(path).lstrip("/"))
                entry.size, entry.mode = path.stat().st_size, 0o755
                archive.addfile(entry, content)


def library_files(standard: Path) -> Iterator[Path]:
    """Files of the standard library without tests, tools and installed packages."""
    for folder, folders, files in os.walk(standard):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and not name.startswith("config-"))
        yield from (Path(folder, name) for name in sorted(files) if name.endswith((".py", ".so")))


def shared_libraries(programs: list[Path]) -> set[Path]:
    """What `ldd` names for these files, by the paths under which the loader looks for it."""
    found: set[Path] = set()
    for program in programs:
        listing = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        found.update(Path(path) for path in re.findall(r"(/\S+) \(0x", listing))
    return found
