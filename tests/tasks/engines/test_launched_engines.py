"""Engines that a command starts elsewhere: through pipes, in another session, folder and environment, as ssh does."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tasks.config import EngineConfig, ShardsConfig
from tasks.engines import engine_process, engine_start, open_engine
from tasks.engines.process_engine import ProcessEngine
from tasks.engines.protocol import Request
from tests.refusals import refused
from tests.tasks.engines.conftest import END, build, save, save_tokenizer

PATIENCE_S = 120.0
AWAY = 'cd / && cat | env -i PATH="$PATH" setsid --wait "$@" | cat'
LIKE_SSH = ("sh", "-c", AWAY, "machine-{index}")
SETTINGS = EngineConfig(max_batch=16)
SCRIPTED = EngineConfig(kind="scripted", max_batch=16)
REQUESTS = [
    Request((3 + n // 4, 4, 5), n=2, seed=n, temperature=0.5 + n % 2, top_p=0.9, max_tokens=12) for n in range(40)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = save(build("llama"), tmp_path_factory.mktemp("model"))
    save_tokenizer(made)
    return made


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose engine needs no model library."""
    made = save(build("llama"), tmp_path_factory.mktemp("script"))
    responses = {"stop_ids": [END], "default": [[5, 6, END], [5, 7, END], [9, END]]}
    (made / "script.json").write_text(json.dumps(responses), encoding="utf-8")
    return made


def launched(folder: Path, *launcher: str, engines: int = 1, settings: EngineConfig = SCRIPTED) -> ProcessEngine:
    shards = ShardsConfig(launcher=launcher, engines=engines)
    engine = open_engine(settings, folder, dtype="float32", shards=shards)
    assert isinstance(engine, ProcessEngine)
    return engine


def below(pid: int) -> list[psutil.Process]:
    """The launcher's process and all that it has started, wherever they are by now."""
    launcher = psutil.Process(pid)
    return [launcher, *launcher.children(recursive=True)]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_engines_elsewhere_give_what_an_engine_here_gives(folder: Path) -> None:
    here = open_engine(SETTINGS, folder, dtype="float32")
    away = launched(folder, *LIKE_SSH, engines=2, settings=SETTINGS)
    found, wanted = (sorted(e.sample(REQUESTS), key=lambda c: (c.request, c.index)) for e in (away, here))
    assert [(one.request, one.index, one.token_ids) for one in found] == [
        (one.request, one.index, one.token_ids) for one in wanted
    ]
    for one, other in zip(found, wanted, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert away.score([((3, 4), (5, 6))])[0] == pytest.approx(here.score([((3, 4), (5, 6))])[0], abs=1e-5)
    with refused("MissingModel", folder / "gone"):
        away.refresh(folder / "gone")
    processes = [each for pid in away.pids for each in below(pid)]
    serving = [each.cmdline() for each in processes if each.name().startswith("python")]
    assert len(serving) == 2
    assert all(command[-1] == "-" for command in serving)
    assert {part for each in processes for part in each.cmdline() if part.startswith("machine-")} == {
        "machine-0",
        "machine-1",
    }
    began = time.monotonic()
    away.close()
    assert time.monotonic() - began < engine_process.CLOSING_S / 2
    here.close()
    until(lambda: all(gone(each) for each in processes))


def serving() -> list[psutil.Process]:
    """Engines that frames reach through their standard input; not their launchers, whose command theirs is part of."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter(["cmdline"]):
        command: list[str] = process.info["cmdline"] or []
        if command[-2:] == ["tasks.engines.serve", "-"] and command[1:2] == ["-P"]:
            found.append(process)
    return found


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[tuple[str, ...]]:
    """A command that reaches an SSH server of its own on this machine, with a key of its own."""
    server = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    if server is None or shutil.which("ssh") is None:
        pytest.skip("no SSH server is installed (openssh-server)")
    tmp_path.chmod(0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    settings = [
        f"ListenAddress 127.0.0.1:{port}",
        f"HostKey {tmp_path}/host",
        f"AuthorizedKeysFile {tmp_path}/user.pub",
    ]
    settings += ["StrictModes no", "UsePAM no", "PasswordAuthentication no", f"PidFile {tmp_path}/pid"]
    (tmp_path / "config").write_text("\n".join(settings) + "\n", encoding="utf-8")
    Path("/run/sshd").mkdir(exist_ok=True)
    running = subprocess.Popen([server, "-D", "-e", "-f", tmp_path / "config"], stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    assert "listening" in running.stderr.readline()
    options = [f"-p{port}", f"-i{tmp_path}/user", "-oBatchMode=yes", "-oStrictHostKeyChecking=no"]
    yield ("ssh", *options, f"-oUserKnownHostsFile={tmp_path}/known", "127.0.0.1")
    running.terminate()
    running.wait()
    running.stderr.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="an SSH server of its own wants root")
def test_engines_behind_ssh_give_what_engines_here_give_and_end_with_it(script: Path, ssh: tuple[str, ...]) -> None:
    here = open_engine(SCRIPTED, script, dtype="float32")
    away = launched(script, *ssh, engines=2)
    found, wanted = (sorted(e.sample(REQUESTS), key=lambda c: (c.request, c.index)) for e in (away, here))
    assert found == wanted
    here.close()
    engines = serving()
    assert len(engines) == 2
    os.killpg(away.pids[0], signal.SIGKILL)
    away.close()
    until(lambda: all(gone(each) for each in engines))


def test_an_engine_ends_when_the_connection_to_it_does(script: Path) -> None:
    away = launched(script, *LIKE_SSH)
    processes = below(away.pids[0])
    os.killpg(away.pids[0], signal.SIGKILL)
    with refused("EngineDied", "SIGKILL"):
        list(away.sample(REQUESTS))
    until(lambda: all(gone(each) for each in processes))
    away.close()


def test_what_the_launcher_says_is_in_the_error(script: Path) -> None:
    with refused("EngineDied", "status 255", "no route to gpu-0"):
        launched(script, "sh", "-c", "echo no route to $0 >&2; exit 255", "gpu-{index}")
    with refused("LauncherMissing", "shards.launcher", "no-such-command", "PYTHONPATH="):
        launched(script, "no-such-command")


def test_a_machine_that_greets_on_standard_output_is_told_apart(script: Path) -> None:
    with refused("EngineDied", "Garbled", "Welc"):
        launched(script, "sh", "-c", 'echo "Welcome to this machine"; exec "$@"', "sh")


@pytest.mark.skipif(shutil.which("unshare") is None or os.geteuid() != 0, reason="network namespaces want root")
def test_an_engine_needs_no_network(script: Path) -> None:
    away = launched(script, "unshare", "--net", "--")
    assert len(list(away.sample(REQUESTS))) == 80
    away.close()


def test_another_interpreter_elsewhere_needs_a_checkout(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_start, "_package", lambda: tmp_path / "site-packages" / "tasks")
    with refused("CheckoutMissing"):
        launched(script, *LIKE_SSH, settings=SCRIPTED.model_copy(update={"python": "/other/python"}))
