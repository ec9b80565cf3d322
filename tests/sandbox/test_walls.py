"""A judge starts only behind the walls it insists on, and says which one is missing."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import Judge, SandboxUnavailable, Submission, Suite, TestCase, Verdict, describe_walls, installed_packages
from sandbox.worker import require_walls
from tests.refusals import refused

ROOT = Path(__file__).parents[2]
DENY = """
import sys
from sandbox import Judge, SandboxUnavailable, Submission, Suite, TestCase, confine
column = list(confine.ARCHITECTURES).index(confine.platform.machine())
def deny(program):
    load = [(confine.LOAD, 0, 0, confine.OFFSET_NR)]
    confine.prctl(confine.PR_SET_NO_NEW_PRIVS, 1)
    confine.FilterProgram(load + program + [(confine.RETURN, 0, 0, confine.ALLOW)]).install()
def landlock():
    deny([(confine.JUMP_GE, 0, 2, 444), (confine.JUMP_GE, 1, 0, 447), (confine.RETURN, 0, 0, confine.ERRNO | 38)])
def seccomp():
    prctl = confine.SYSCALLS["prctl"][column]
    deny([(confine.JUMP_EQ, 0, 3, prctl), (confine.LOAD, 0, 0, confine.OFFSET_ARG0),
          (confine.JUMP_EQ, 0, 1, confine.PR_SET_SECCOMP), (confine.RETURN, 0, 0, confine.ERRNO | 22)])
def start(**options):
    try:
        with Judge(workers=1, backend_options=options) as judge:
            print(judge.judge([Submission("print(1)", Suite("s", (TestCase("", "1"),)))])[0].verdict, *judge.walls)
    except SandboxUnavailable as error:
        print("refused:", error)
"""


def told(script: str) -> str:
    """What a process prints that first takes a wall away from itself."""
    done = subprocess.run(
        [sys.executable, "-c", DENY + script], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=100, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_without_landlock_and_namespaces_nothing_starts():
    assert "no file-system wall: Landlock is off" in told("landlock(); start(outer='none')")


def test_without_seccomp_nothing_starts():
    words = told("seccomp(); start(outer='none')")
    assert words.startswith("refused:")
    assert "seccomp: Invalid argument" in words


def test_without_landlock_bubblewrap_is_wall_enough():
    words = told("landlock(); start(outer='bubblewrap')")
    if "bubblewrap does not work here" in words:
        pytest.skip(words)
    assert words.startswith("accepted bubblewrap")
    assert "landlock" not in words


def test_an_unknown_module_to_preimport_is_named():
    with refused("SandboxUnavailable", "no_such_module"):
        Judge(workers=1, preimports=["no_such_module"])


@pytest.mark.parametrize(
    "walls, missing",
    [(("landlock:4",), "seccomp"), (("seccomp", "rlimits", "uid"), "file-system"), ((), "seccomp")],
)
def test_a_missing_wall_is_named(walls: tuple[str, ...], missing: str):
    with refused("SandboxUnavailable", missing):
        require_walls(walls)


@pytest.mark.docker
@pytest.mark.parametrize("user", ["0", "65534"])
def test_the_runners_own_walls_stand_inside_a_plain_container(user: str):
    from sandbox.backends.docker_backend import connect, own_image
    from sandbox.backends.embedded import interpreter

    try:
        client = connect(None)
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    command = [interpreter(), "-B", "-c", "import sys; sys.path.insert(0, '/project')\n" + DENY + "start()"]
    mounts = {str(ROOT / "sandbox"): {"bind": "/project/sandbox", "mode": "ro"}}
    words = client.containers.run(
        own_image(client), command, user=user, volumes=mounts, network_mode="none", remove=True
    ).decode()
    assert words.startswith("accepted rlimits"), words
    assert "seccomp" in words
    assert "landlock" in words


def test_a_backend_that_does_not_work_says_why_and_the_others_are_still_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    embedded, docker = describe_walls()
    assert embedded.works
    assert "seccomp" in embedded.walls
    assert not docker.works
    assert "no Docker engine answers" in docker.problem


@pytest.mark.parametrize("outer", ["none", "auto"])
def test_packages_can_be_given_to_programs(public_folder: Path, outer: str):
    (public_folder / "given_package.py").write_text("ANSWER = 7")
    options = {"outer": outer, "packages": (str(public_folder),)}
    suite = Suite("given", (TestCase("", "7"),))
    program = "import given_package; print(given_package.ANSWER)"
    for preimports in ([], ["given_package"]):
        with Judge(workers=1, preimports=preimports, backend_options=options) as judge:
            assert judge.judge([Submission(program, suite)])[0].verdict is Verdict.accepted
    with Judge(workers=1) as judge:
        assert judge.judge([Submission(program, suite)])[0].verdict is Verdict.runtime_error


@pytest.mark.skipif(os.getuid() != 0, reason="programs run as the user of the tests where that is not root")
def test_packages_that_programs_cannot_read_are_refused(public_folder: Path):
    """A program that imports them would fail, and look wrong."""
    folder = public_folder / "private" / "packages"
    folder.mkdir(parents=True)
    (folder / "given_package.py").write_text("ANSWER = 7")
    folder.parent.chmod(0o700)
    options = {"outer": "none", "packages": (str(folder),)}
    with (
        refused("SandboxUnavailable", folder),
        Judge(workers=1, preimports=["given_package"], backend_options=options) as judge,
    ):
        judge.judge([Submission("print(1)", Suite("s", (TestCase("", "1"),)))])


@pytest.fixture(scope="module")
def numpys_folder() -> Iterator[str]:
    """A folder with NumPy alone, which every user may read."""
    installed = Path(pytest.importorskip("numpy").__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        for part in installed.glob("numpy*"):
            shutil.copytree(part, Path(folder) / part.name, ignore=shutil.ignore_patterns("tests", "__pycache__"))
        Path(folder).chmod(0o755)
        yield folder


@pytest.mark.parametrize("outer", ["none", "auto"])
def test_numpy_can_be_given_and_is_imported_once(numpys_folder: str, outer: str):
    program = (
        "import numpy as np\na = np.array(list(map(int, input().split())))\nprint(a.sum(), (a @ a), np.sort(a)[0])"
    )
    suite = Suite("numpy", tuple(TestCase(f"{n} 2", f"{n + 2} {n * n + 4} 2") for n in range(3, 9)))
    options = {"outer": outer, "packages": (numpys_folder,)}
    with Judge(workers=1, preimports=["numpy"], backend_options=options) as judge:
        found = judge.judge([Submission(program, suite)])[0]
    assert found.verdict is Verdict.accepted, found.detail
    assert found.cpu_s / len(found.tests) < 0.1


def test_numpys_numbers_are_numbers_to_asserts(numpys_folder: str):
    asked = {
        "assert f([1, 2]) == 3": "np.sum(x)",
        "assert f([0, 2]) == [0, 4]": "list(np.array(x) ** 2)",
        "assert f([3]) == 1.5": "np.float64(1.5)",
        "assert f([4]) is True": "np.mod(x[0], 2) == 0",
        "assert not f([5])": "np.mod(x[0], 2) == 0",
        "assert len(f([1, 2]).tolist()) == 2": "np.array(x)",
    }
    suites = [Suite(test, (TestCase(test),), style="function") for test in asked]
    programs = [f"import numpy as np\ndef f(x):\n    return {body}\n" for body in asked.values()]
    submissions = list(map(Submission, programs, suites))
    options = {"packages": (numpys_folder,)}
    with Judge(workers=1, preimports=["numpy"], backend_options=options) as judge:
        found = judge.judge(submissions)
    assert [(one.verdict, one.detail) for one in found] == [(Verdict.accepted, "")] * len(asked)


def test_installed_packages_are_named_with_their_versions(tmp_path: Path):
    assert installed_packages([str(tmp_path)]) == ()
    (tmp_path / "one-1.5.dist-info").mkdir()
    (tmp_path / "one-1.5.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: one\nVersion: 1.5\n")
    (tmp_path / "one-1.5.dist-info" / "RECORD").write_text("one/__init__.py,,\n")
    (tmp_path / "one").mkdir()
    (tmp_path / "loose.py").write_text("")
    assert installed_packages([str(tmp_path), "/of/an/image"]) == ("/of/an/image", "loose.py", "one==1.5")
