"""Everything that a run would stumble over is named before it is submitted, all at once and in seconds."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox import SandboxUnavailable
from tasks import config
from tasks.checkpoints.inspection import adapter_bytes
from tasks.checks.preflight import Machine, NotReady, faults, require
from tasks.problems.records import InvalidProblem, read_records
from tests.tasks.small_model import small_model
from tests.warehouse.conftest import trajectories
from warehouse import Warehouse

PROBLEM = {"problem_id": "a", "statement": "Print 1.", "input_tests": ["\n"], "output_tests": ["1\n"]}
RESPONSE = {"problem_id": "a", "program": "print(1)"}


def run(problems: dict[str, Any] | None = None, **sections: Any) -> config.RunConfig:
    return config.validate({"problems": problems or {}} | sections)


def check(problems: dict[str, Any] | None = None, **sections: Any) -> None:
    require(run(problems, **sections), Path.cwd())


def lines(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def numbered(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    return [PROBLEM | {"problem_id": f"p{number}"} | change for number, change in enumerate(changes)]


def solved(*programs: str) -> list[dict[str, Any]]:
    own = [{"code": program, "language": "python3", "correct": True} for program in programs]
    return numbered(*({"solutions": [one]} for one in own))


def checkpoint(folder: Path, **changes: Any) -> Path:
    """A tiny checkpoint folder with a tokenizer that has no chat template."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder.mkdir()
    words = Tokenizer(models.WordLevel({"<end>": 0, "<unk>": 1}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<end>").save_pretrained(folder)
    settings = {"model_type": "llama", "eos_token_id": 0} | changes
    (folder / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    save_file({"weight": torch.zeros(8, 8)}, str(folder / "model.safetensors"))
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad files of problems and of responses, problem packages and models."""
    here = tmp_path_factory.mktemp("files")
    lines(here / "good.jsonl", *numbered({}, {}))
    lines(here / "evaluation.jsonl", PROBLEM | {"problem_id": "e"})
    lines(here / "no statement.jsonl", PROBLEM, {"problem_id": "b"})
    lines(here / "no tests.jsonl", PROBLEM, {"problem_id": "b", "statement": "No tests."})
    lines(here / "response.jsonl", RESPONSE)
    lines(here / "no program.jsonl", {"problem_id": "a"})
    lines(here / "train.jsonl", *numbered({"split": "test", "statement": 1}, *[{"split": "train"}] * 3))
    lines(here / "one train.jsonl", *numbered({"split": "train"}, *[{"split": "other"}] * 2))
    lines(here / "wrong.jsonl", *solved(*["print(2)"] * 5))
    lines(here / "one right.jsonl", *solved("print(1)", *["print(2)"] * 4))
    good = json.dumps(PROBLEM).encode()
    latin = b"\n".join([good] * 300 + [good.replace(b"Print", b"Pr\xefnt")])
    (here / "latin.jsonl").write_bytes(latin)
    (here / "latin.jsonl.gz").write_bytes(gzip.compress(latin))
    (here / "packages" / "sum").mkdir(parents=True)
    (here / "packages" / "sum" / "problem.yaml").write_text("name: Sum\n", encoding="utf-8")
    checkpoint(here / "model")
    checkpoint(here / "endless", eos_token_id=None)
    checkpoint(here / "scaled", logit_scale=1)
    checkpoint(here / "capped", final_logit_softcapping=30.0)
    for kept in (0, 20, -1):
        weights = checkpoint(here / f"cut {kept}") / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:kept])
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (checkpoint(here / "half") / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return here


def jsonl(name: str, **more: Any) -> dict[str, Any]:
    return {"source": "jsonl", "path": name, "evaluation": 0} | more


def evaluated(name: str, **more: Any) -> dict[str, Any]:
    sets = [{"source": "jsonl", "path": "evaluation.jsonl"}]
    return {"source": "jsonl", "path": name, "evaluation_sets": sets} | more


HUMAN = {"corpus": {"sources": ["human"], "reference_samples": 0}}


@pytest.mark.parametrize(
    ("problems", "sections", "named"),
    [
        ({}, {}, None),
        (evaluated("good.jsonl"), {}, None),
        ({}, {"corpus": {"files": ["response.jsonl"]}}, None),
        (evaluated("train.jsonl", only="train"), {}, None),
        (jsonl("one right.jsonl"), {}, None),
        ({}, {"reference": {"model": "./model"}}, None),
        ({}, {"reference": {"model": "./scaled"}}, None),
        (jsonl("absent.jsonl"), {}, "absent.jsonl"),
        ({}, {"corpus": {"files": ["absent.jsonl"]}}, "absent.jsonl"),
        ({"source": "kattis", "path": "absent"}, {}, "absent"),
        ({"source": "kattis", "path": "packages"}, {}, "sum"),
        (jsonl("no statement.jsonl"), {}, "no statement.jsonl:2"),
        ({}, {"corpus": {"files": ["no program.jsonl"]}}, "no program.jsonl:1"),
        (jsonl("latin.jsonl"), {}, "latin.jsonl:301"),
        (jsonl("latin.jsonl.gz"), {}, "latin.jsonl.gz:301"),
        (evaluated("train.jsonl", only="tests"), {}, "'tests'"),
        (evaluated("one train.jsonl", only="train"), {}, "1 training problem"),
        ({"train": 1}, {}, "1 training problem"),
        (jsonl("no tests.jsonl"), {}, "1 training problem"),
        (jsonl("wrong.jsonl"), {}, "'p0'"),
        (jsonl("good.jsonl"), HUMAN, "train.sources.offline"),
        ({}, {"reference": {"model": "./absent"}}, "absent"),
        ({}, {"reference": {"model": "./packages"}}, "config.json"),
        ({}, {"reference": {"model": "./packages", "gguf_file": "other.gguf"}}, "other.gguf"),
        ({}, {"reference": {"model": "./endless"}}, "endless"),
        ({}, {"reference": {"model": "./capped"}}, "final_logit_softcapping"),
        ({}, {"reference": {"model": "./model", "template": "chat"}}, "template"),
        (jsonl("good.jsonl", max_prompt_tokens=3), {"reference": {"model": "./model"}}, "problems.max_prompt_tokens"),
        *(({}, {"reference": {"model": f"./cut {kept}"}}, "model.safetensors") for kept in (0, 20, -1)),
        ({}, {"reference": {"model": "./half"}}, "model-00002-of-00002.safetensors"),
    ],
)
def test_what_would_stop_a_run_is_named_and_nothing_else(
    files: Path, problems: dict[str, Any], sections: dict[str, Any], named: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    found = faults(run(problems, **sections), files)
    assert [named in fault for fault in found] == ([] if named is None else [True])


def test_text_that_is_not_utf_8_is_refused_by_the_reader_too(files: Path) -> None:
    for name in ("latin.jsonl", "latin.jsonl.gz"):
        with pytest.raises(InvalidProblem, match=f"{name}:301"):
            list(read_records(files / name))


def without(*packages: str) -> Machine:
    return Machine(installed=lambda name: name not in packages)


def with_room(size: int) -> Machine:
    return Machine(free_bytes=lambda _: size)


def test_programs_and_packages_that_are_not_there_are_named(tmp_path: Path) -> None:
    wanted = run(engine={"python": "/no/such/python"}, train={"report_to": ["tensorboard", "wandb"]})
    engine, tracker = faults(wanted, tmp_path, machine=without("wandb"))
    assert "/no/such/python" in engine
    assert "wandb" in tracker


def test_adapters_for_layers_that_the_model_has_not_are_named(tmp_path: Path) -> None:
    small = {"model": str(small_model(tmp_path / "model"))}
    assert faults(run(reference=small, train={"lora": {"modules": ["q_proj", "c_attn"]}}), tmp_path) == []
    (fault,) = faults(run(reference=small, train={"lora": {"modules": ["c_attn"]}}), tmp_path)
    assert "c_attn" in fault
    assert "q_proj" in fault
    (fault,) = faults(run(train={"lora": {"rank": 4}}), tmp_path, machine=without("peft"))
    assert "peft" in fault


def test_a_large_file_is_looked_at_for_a_while_only(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    lines(path, *[PROBLEM | {"problem_id": str(i)} for i in range(500)])
    with path.open("a", encoding="utf-8") as file:
        file.write("{broken")
    large = run({"source": "jsonl", "path": str(path)})
    seconds = iter(range(1000))
    require(large, Path.cwd(), clock=lambda: float(next(seconds)))
    assert next(seconds) < 10, "a second passed with every record, and two were granted"
    with pytest.raises(NotReady):
        require(large, Path.cwd(), clock=lambda: 0.0)


def test_what_was_imported_fills_the_corpus(tmp_path: Path) -> None:
    wanted = run(corpus={"sources": ["other_model"], "reference_samples": 0})
    with Warehouse.open(tmp_path / "warehouse") as store:
        (fault,) = faults(wanted, tmp_path, str(tmp_path / "warehouse"))
        assert "corpus" in fault or "offline" in fault
        rows = [row | {"source": "other_model"} for row in trajectories(1)]
        store.append("import", {"trajectories": rows}, run_id="import")
    assert faults(wanted, tmp_path, str(tmp_path / "warehouse")) == []
    assert len(faults(wanted, tmp_path, str(tmp_path / "nothing"))) == 1


def test_room_on_the_disk_is_looked_for_where_the_run_will_write(tmp_path: Path) -> None:
    (fault,) = faults(run(), tmp_path / "home" / "not" / "made", machine=with_room(1))
    assert str(tmp_path) in fault


@pytest.mark.parametrize(
    ("train", "dtype", "states"),
    [
        ({"keep_checkpoints": 1}, "float32", 2 * 12),
        ({"keep_checkpoints": 2}, "bfloat16", 3 * 14),
        ({"keep_checkpoints": 2, "algorithm": "ppo"}, "float32", 2 * 3 * 12),
    ],
)
def test_room_is_wanted_for_every_checkpoint_and_the_one_being_written(
    tmp_path: Path, train: dict[str, Any], dtype: str, states: int
) -> None:
    folder = checkpoint(tmp_path / "model")
    on_policy = {
        "sources": {"online": {"share": 1.0}, "offline": {"share": 0.0}},
        "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
    }
    wanted = run(
        reference={"model": str(folder), "dtype": dtype},
        train={
            "steps": 1,
            "snapshot_interval": 1,
        }
        | train
        | (on_policy if "algorithm" in train else {}),
    )
    kept = 2 * (folder / "model.safetensors").stat().st_size
    needed = (1 << 30) + kept + 64 * states  # a model of 8 x 8
    assert faults(wanted, tmp_path, machine=with_room(needed)) == []
    assert len(faults(wanted, tmp_path, machine=with_room(needed - 1))) == 1


def test_no_room_is_wanted_for_a_value_model_of_which_adapters_alone_are_trained(tmp_path: Path) -> None:
    folder = small_model(tmp_path / "model")
    train = {
        "algorithm": "ppo",
        "lora": {"rank": 1},
        "steps": 1,
        "sources": {"online": {"share": 1.0}, "offline": {"share": 0.0}},
        "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
    }
    adapted = adapter_bytes(folder, 1) // 4
    needed = (1 << 30) + 4 * adapted + 2 * adapted * 3 * 12  # one kept policy, three checkpoints
    wanted = run(reference={"model": str(folder), "template": "chat"}, train=train)
    assert faults(wanted, tmp_path, machine=with_room(needed)) == []
    assert len(faults(wanted, tmp_path, machine=with_room(needed - 1))) == 1


def test_an_engine_and_walls_that_are_not_here_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    bare.chmod(0o755)

    def refuse(**_: Any) -> None:
        raise SandboxUnavailable("seccomp is missing")

    monkeypatch.setattr("tasks.checks.preflight.Judge", refuse)
    engine, walls = faults(run(engine={"kind": "vllm", "python": str(bare)}), tmp_path)
    assert str(bare) in engine
    engine, _ = faults(run(engine={"kind": "vllm", "python": str(tmp_path / "gone")}), tmp_path)
    assert f"{tmp_path}/gone" in engine
    assert "seccomp" in walls


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as refused:
        check(
            {"source": "jsonl", "path": str(tmp_path / "absent.jsonl")},
            reference={"model": str(tmp_path / "no-model")},
            corpus={"files": [str(tmp_path / "no-file.jsonl")]},
        )
    text = str(refused.value)
    assert all(name in text for name in ("absent.jsonl", "no-model", "no-file.jsonl"))


def test_a_name_on_a_hub_that_does_not_answer_is_one_line_and_asked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    found = faults(run({"source": "taco", "hub": "BAAI/TACO"}, reference={"model": "somebody/on-the-hub"}), tmp_path)
    assert time.monotonic() - began < 15
    assert ["BAAI/TACO[train]" in found[0], "'somebody/on-the-hub'" in found[1], len(found)] == [True, True, 2]
    assert all("\n" not in fault for fault in found)
    assert not [record for record in caplog.records if "etry" in record.getMessage()]


def test_packages_that_are_no_folder_are_named_unless_a_container_has_them(public_folder: Path, tmp_path: Path) -> None:
    there, absent = public_folder, str(tmp_path / "absent")
    packages = [str(there), absent]
    (told,) = faults(run(sandbox={"packages": packages, "backend": "embedded"}), tmp_path)
    assert absent in told
    assert str(there) not in told
    check(sandbox={"packages": [str(there)]})
    assert absent not in "".join(
        faults(run(sandbox={"packages": packages, "backend": "docker", "image": "mine"}), tmp_path)
    )


def test_libraries_that_a_later_stage_would_miss_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = {"openai", "datasets"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in missing else object())
    corpus = {"other_models": [{"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big"}]}
    evaluate = {"transfer": [{"source": "taco", "hub": "BAAI/TACO"}]}
    wanted = run(corpus=corpus | {"sources": ["other_model"]}, evaluate=evaluate)
    found = faults(wanted, tmp_path)
    assert [text.partition("`")[2].partition("`")[0] for text in found] == [
        "pip install -e '.[hub]'",
        "pip install -e '.[endpoint]'",
    ]


def test_an_evaluation_is_looked_at_for_what_it_needs_alone(tmp_path: Path) -> None:
    problems = lines(tmp_path / "problems.jsonl", PROBLEM)
    evaluate = {"transfer": [{"source": "jsonl", "path": problems}]}
    tree = {"recipe": "eval", "subject": {"kind": "checkpoint"}, "evaluate": evaluate}
    require(config.validate(tree | {"reference": {"model": "miniature"}}), tmp_path)
    tree |= {"reference": {"model": str(tmp_path / "none")}, "sandbox": {"packages": [str(tmp_path / "absent")]}}
    with pytest.raises(NotReady):
        require(config.validate(tree), tmp_path)
