"""The project keeps its promises about itself: tree, links, lock file, names."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tests

PROJECT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "sandbox", "warehouse")
README = (PROJECT / "README.md").read_text(encoding="utf-8")


def tracked() -> list[Path]:
    """Files of the project, as git knows them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    return [PROJECT / name for name in listed.split("\0") if name and (PROJECT / name).is_file()]


def test_the_architecture_page_lists_every_folder_of_the_top_level() -> None:
    page = (PROJECT / "docs" / "reference" / "architecture.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE))
    folders = {path.relative_to(PROJECT).parts[0] for path in tracked() if len(path.relative_to(PROJECT).parts) > 1}
    assert shown == {name for name in folders if not name.startswith(".")}


@pytest.mark.parametrize("document", sorted(p for p in tracked() if p.suffix == ".md"), ids=lambda p: p.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_pages_that_the_code_names_exist() -> None:
    named = {
        (path.name, page)
        for path in tracked()
        if path.suffix in {".py", ".toml", ".sql", ".sh", ".yml", ".yaml"}
        for page in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert named
    assert [where for where in named if not (PROJECT / where[1]).exists()] == []


def test_the_lock_file_has_every_dependency() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    locked = {
        line.split("==")[0].lower().replace("_", "-") for line in (PROJECT / "requirements.lock").read_text().split()
    }
    names = {re.split(r"[\[<>=!; ]", text)[0].lower().replace("_", "-") for text in wanted}
    assert names - locked == set()
    assert "torch==2.13.0" in (PROJECT / "requirements.lock").read_text().split()


def test_no_module_carries_the_name_of_an_installed_package() -> None:
    locked = {
        line.split("==")[0].lower().replace("-", "_") for line in (PROJECT / "requirements.lock").read_text().split()
    }
    modules = {
        path.stem for path in tracked() if path.suffix == ".py" and path.relative_to(PROJECT).parts[0] in PACKAGES
    }
    assert modules & (locked | set(sys.stdlib_module_names)) <= {"__init__", "__main__"}


@pytest.mark.parametrize(
    "path", [p for p in tracked() if p.suffix == ".py" and "tests" in p.parts], ids=lambda p: p.name
)
def test_what_a_test_takes_from_another_is_there(path: Path) -> None:
    # tests of vLLM run in an environment of their own, so that here nothing else would notice
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            module = importlib.import_module(str(node.module))
            for name in (alias.name for alias in node.names):
                found = hasattr(module, name) or importlib.util.find_spec(f"{node.module}.{name}")
                assert found, f"{node.module} has no {name}"


def test_large_tables_are_joined_with_lists_that_may_be_long() -> None:
    # list_contains goes through the list for every row: 2.8 s for 200,000 rows and 5,000 ids, where a join takes 0.02 s
    large = re.compile(r"\b(?:FROM|JOIN) (?:trajectories|eval_samples|verdicts|known_verdicts|tests)\b")
    long = re.compile(r"list_contains\([^,]+, (?:\w+\.)?(?:trajectory_id|problem_id|prompt_id|suite_hash|seed)\)")
    for path in (path for path in tracked() if path.suffix == ".sql"):
        for text in path.read_text(encoding="utf-8").split("-- name: "):
            assert not (large.search(text) and long.search(text)), f"{path.name}: {text.splitlines()[0]}"


def test_the_make_help_names_the_two_commands_of_the_readme() -> None:
    listed = subprocess.run(["make", "help"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for command in ("run", "test"):
        assert re.search(rf"\bmake {command}\b", README)
        assert re.search(rf"^{command}\s", listed, flags=re.MULTILINE)


def test_every_deployment_of_the_readme_exists() -> None:
    deployed = set(
        re.findall(r"^  - name: (\S+)", (PROJECT / "prefect.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    )
    mentioned = set(re.findall(r"(?<!\.)spo/([a-z][a-z0-9-]*)", README))
    assert mentioned <= deployed
    assert deployed == {
        "full-pipeline",
        "prepare",
        "q0",
        "corpus",
        "pivotal",
        "train",
        "evaluate",
        "eval",
        "report",
        "study",
        "rejudge",
        "audit",
    }


def test_the_scenarios_of_the_tests_name_files_that_are_there() -> None:
    named = re.findall(r"[\w/]+/test_\w+\.py", tests.__doc__ or "")
    assert len(named) > 10
    assert [name for name in named if not (PROJECT / "tests" / name).is_file()] == []
