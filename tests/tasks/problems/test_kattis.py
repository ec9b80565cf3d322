"""Problem packages: a folder with a statement, data and submissions."""

from pathlib import Path

import pytest

from sandbox import Checker
from tasks.config import ProblemsConfig
from tasks.problems.kattis import read_package, read_packages
from tasks.problems.sources import read
from tests.refusals import refused


def package(root: Path, yaml: str = "name: Twice\nlicense: cc by-sa\n", name: str = "twice") -> Path:
    folder = root / name
    files = {
        "problem.yaml": yaml,
        "problem_statement/problem.en.tex": "\\problemname{Twice}\nPrint twice $n$.",
        "data/sample/1.in": "1\n",
        "data/sample/1.ans": "2\n",
        "data/secret/group1/2.in": "2\n",
        "data/secret/group1/2.ans": "4\n",
        "submissions/accepted/a.py": "print(2 * int(input()))",
        "submissions/wrong_answer/b.py": "print(1)",
        "submissions/accepted/c.cpp": "int main(){}",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def test_package_is_read(tmp_path: Path) -> None:
    problem = read_package(package(tmp_path), "set")
    assert (problem.problem_id, problem.title, problem.licence) == ("kattis/twice", "Twice", "cc by-sa")
    assert [test.expected for test in problem.public_tests] == ["2\n"]
    assert [test.expected for test in problem.hidden_tests] == ["4\n"]
    assert [(s.program, s.claimed) for s in problem.solutions] == [
        ("print(2 * int(input()))", "accepted"),
        ("print(1)", "wrong_answer"),
    ]


def test_limits_and_validator_flags_are_read(tmp_path: Path) -> None:
    flags = "validator_flags: case_sensitive float_tolerance 1e-4\n"
    yaml = 'name: "Twice"  # a comment\nlimits:\n  time_limit: 3\n  memory: 64\n' + flags
    problem = read_package(package(tmp_path, yaml), "set")
    assert (problem.title, problem.limits.cpu_s, problem.limits.memory_bytes) == ("Twice", 3.0, 64 << 20)
    assert problem.checker == Checker("kattis", case_sensitive=True, float_tolerance=1e-4, name="0.0001")


@pytest.mark.parametrize(
    "flags, checker",
    [
        ("", Checker("kattis")),
        ("float_absolute_tolerance 1e-6", Checker("kattis", float_tolerance=1e-6)),
        ("float_relative_tolerance 1e-6", Checker("kattis", name="1e-06")),
    ],
)
def test_answers_are_compared_as_the_default_validator_does(flags: str, checker: Checker, tmp_path: Path) -> None:
    assert read_package(package(tmp_path, f"validator_flags: {flags}\n"), "set").checker == checker


@pytest.mark.parametrize(
    "flags, kind", [("space_change_sensitive", "caseless"), ("case_sensitive space_change_sensitive", "exact")]
)
def test_where_white_space_matters_letters_are_compared_as_the_flags_say(flags: str, kind: str, tmp_path: Path) -> None:
    problem = read_package(package(tmp_path, f"validator_flags: {flags}\n"), "set")
    assert problem.checker.kind == kind


@pytest.mark.parametrize("words", ["float_tolerance 1e-3", '"float_tolerance 1e-3"', "[float_tolerance, '1e-3']"])
@pytest.mark.parametrize(
    "place",
    [
        "data/testdata.yaml: output_validator_flags",
        "data/test_group.yaml: output_validator_args",
        "data/sample/testdata.yaml: output_validator_flags, data/secret/group1/testdata.yaml: output_validator_flags",
        "data/sample/1.yaml: output_validator_args, data/secret/group1/2.yaml: output_validator_args",
    ],
)
def test_what_groups_of_tests_tell_the_validator_is_read(tmp_path: Path, place: str, words: str) -> None:
    folder = package(tmp_path, "validator_flags: case_sensitive\n")
    for one in place.split(", "):
        name, key = one.split(": ")
        (folder / name).write_text(f"on_reject: break\n{key}: {words}  # tolerance\n")
    problem = read_package(folder, "set")
    assert (problem.checker.case_sensitive, problem.checker.float_tolerance) == (True, 1e-3)
    assert problem.unjudgeable_reason is None


def test_the_innermost_group_decides_and_groups_that_differ_cannot_be_judged(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / "data" / "testdata.yaml").write_text("output_validator_flags:\n  - float_tolerance\n  - 1e-3\n")
    assert read_package(folder, "set").checker.float_tolerance == 1e-3
    (folder / "data" / "secret" / "testdata.yaml").write_text("output_validator_flags: ''\n")
    problem = read_package(folder, "set")
    assert problem.unjudgeable_reason == "its groups of tests are compared by different rules"
    (folder / "data" / "sample" / "testdata.yaml").write_text("output_validator_flags: ''\n")
    problem = read_package(folder, "set")
    assert (problem.unjudgeable_reason, problem.checker.float_tolerance) == (None, None)
    (folder / "data" / "secret" / "testdata.yaml").write_text("output_validator_flags: float_tolerance much\n")
    with refused("InvalidProblem", "secret/testdata.yaml", "float_tolerance", "'much'"):
        read_package(folder, "set")


def test_a_time_limit_beside_the_package_holds_where_the_package_has_none(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / ".timelimit").write_text("7\n")
    assert read_package(folder, "set").limits.cpu_s == 7
    (folder / "problem.yaml").write_text("limits:\n  time_limit: 3\n")
    assert read_package(folder, "set").limits.cpu_s == 3
    (folder / "problem.yaml").write_text("limits:\n  memory: 64\n")
    (folder / ".timelimit").write_text("soon")
    with refused("InvalidProblem", "'.timelimit'", "'soon'"):
        read_package(folder, "set")


@pytest.mark.parametrize(
    "yaml, reason",
    [
        ("type:\n  - pass-fail\n  - interactive\n", "interactive"),
        ("type: [pass-fail, multi-pass]\n", "interactive"),
        ("type:\n- submit-answer\nname: x\n", "asks for outputs, not for a program"),
        ("type: pass-fail\n", None),
        ("type:\n  - scoring\n", None),
        ("validation: custom\n", "needs a special judge"),
        ("validation: custom interactive\n", "interactive"),
        ("validation: default\n", None),
    ],
)
def test_validation_decides_whether_it_can_be_judged(tmp_path: Path, yaml: str, reason: str | None) -> None:
    assert read_package(package(tmp_path, yaml), "set").unjudgeable_reason == reason


def test_own_validator_needs_a_special_judge(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / "output_validators").mkdir()
    (folder / "output_validators" / "check.py").write_text("")
    assert read_package(folder, "set").unjudgeable_reason == "needs a special judge"


def test_picture_in_the_statement_is_a_reason(tmp_path: Path) -> None:
    folder = package(tmp_path)
    (folder / "problem_statement" / "problem.en.tex").write_text("\\includegraphics{x}")
    assert read_package(folder, "set").unjudgeable_reason == "statement has images"


def test_folder_of_packages_is_a_source(tmp_path: Path) -> None:
    for name in "abcdefgh":
        package(tmp_path, name=name)
    report = read(ProblemsConfig(source="kattis", path=str(tmp_path), train=4, evaluation=4))
    assert {problem.problem_set for problem in report.problems} == {tmp_path.name}
    assert len(report.problems) + sum(report.left_out.values()) == 8


def test_package_faults_are_named(tmp_path: Path) -> None:
    with refused("NoPackage"):
        read_packages(tmp_path, "set")
    with refused("NoFolder"):
        read_packages(tmp_path / "absent", "set")
    folder = package(tmp_path)
    (folder / "data" / "secret" / "3.in").write_text("3\n")
    with refused("NoAnswer", "3.in", "3.ans"):
        read_package(folder, "set")
    with refused("InvalidProblem", "problem.yaml", "'limits.memory'"):
        read_package(package(tmp_path, "limits:\n  memory: much\n", name="other"), "set")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "problem.yaml").write_text("name: x\n")
    with refused("NoStatement"):
        read_package(bare, "set")
