"""Everything that a run would stumble over is named before it is submitted, all at once and in seconds."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox import SandboxUnavailable
from tasks import config
from tasks.preflight import NotReady, faults, require
from tasks.problems.records import InvalidProblem, read_records
from tests.warehouse.conftest import trajectories
from warehouse import Warehouse

PROBLEM = {"problem_id": "a", "statement": "Print 1.", "input_tests": ["\n"], "output_tests": ["1\n"]}
RESPONSE = {"problem_id": "a", "program": "print(1)"}


def check(problems: dict[str, Any] | None = None, **sections: Any) -> None:
    require(run(problems, **sections), Path.cwd())


def run(problems: dict[str, Any] | None = None, **sections: Any) -> config.RunConfig:
    return config.validate({"problems": problems or {}} | sections)


def lines(path: Path, *records: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(path)


def test_what_can_be_read_is_taken(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", PROBLEM, PROBLEM | {"problem_id": "c"})
    sets = [{"source": "jsonl", "path": lines(tmp_path / "t.jsonl", PROBLEM | {"problem_id": "b"})}]
    check({"source": "jsonl", "path": path, "evaluation_sets": sets})
    check(corpus={"files": [lines(tmp_path / "r.jsonl", RESPONSE)]})
    check()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match=r"absent\.jsonl: cannot be read"):
        check({"source": "jsonl", "path": str(tmp_path / "absent.jsonl")})
    with pytest.raises(NotReady, match=r"absent\.jsonl: cannot be read"):
        check(corpus={"files": [str(tmp_path / "absent.jsonl")]})
    with pytest.raises(NotReady, match="is no folder of problem packages"):
        check({"source": "kattis", "path": str(tmp_path / "absent")})


def test_programs_and_packages_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "wandb" else object())
    with pytest.raises(NotReady) as caught:
        check(engine={"python": "/no/such/python"}, train={"report_to": ["tensorboard", "wandb"]})
    assert "engine.python is '/no/such/python', which is no program here" in str(caught.value)
    assert "train.report_to names 'wandb', which is not installed" in str(caught.value)


@pytest.mark.parametrize("name, value, told", [("final_logit_softcapping", 30.0, "= 30.0"), ("logit_scale", 1, "")])
def test_a_model_that_can_be_sampled_and_not_trained_is_named(
    name: str, value: float, told: str, tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path / "model")
    settings = json.loads((folder / "config.json").read_text()) | {name: value}
    (folder / "config.json").write_text(json.dumps(settings))
    found = faults(run(reference={"model": str(folder)}), tmp_path)
    assert [told in fault and name in fault for fault in found] == ([True] if told else [])


def test_adapters_for_layers_that_the_model_has_not_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"model": str(checkpoint(tmp_path / "model"))}
    monkeypatch.setattr("tasks.preflight.inspection.layer_matrices", lambda _: {"q_proj", "v_proj"})  # pyright: ignore
    assert faults(run(reference=small, train={"lora": {"modules": ["q_proj", "c_attn"]}}), tmp_path) == []
    (fault,) = faults(run(reference=small, train={"lora": {"modules": ["c_attn"]}}), tmp_path)
    assert "names c_attn, and the layers of model have q_proj, v_proj" in fault
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "peft" else object())
    assert "needs the package peft" in faults(run(train={"lora": {"rank": 4}}), tmp_path)[0]


def test_a_record_of_another_layout_is_named_with_line_and_field(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", PROBLEM, {"problem_id": "b"})
    with pytest.raises(NotReady, match=r"p\.jsonl:2: field 'statement'"):
        check({"source": "jsonl", "path": path})
    with pytest.raises(NotReady, match=r"r\.jsonl:1: field"):
        check(corpus={"files": [lines(tmp_path / "r.jsonl", {"problem_id": "a"})]})


@pytest.mark.parametrize("name", ["p.jsonl", "p.jsonl.gz"])
def test_text_that_is_not_utf_8_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    good = json.dumps(PROBLEM).encode()
    content = b"\n".join([good] * 300 + [good.replace(b"Print", b"Pr\xefnt")])
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(NotReady, match=rf"{name}:301: not UTF-8.*0xef"):
        check({"source": "jsonl", "path": str(path)})
    with pytest.raises(InvalidProblem, match=rf"{name}:301: not UTF-8"):
        list(read_records(path))


def test_a_package_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "sum").mkdir()
    (tmp_path / "sum" / "problem.yaml").write_text("name: Sum\n", encoding="utf-8")
    with pytest.raises(NotReady, match="sum"):
        check({"source": "kattis", "path": str(tmp_path)})


def test_a_model_given_as_a_path_must_be_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NotReady, match="no checkpoint folder"):
        check(reference={"model": str(tmp_path / "absent")})
    with pytest.raises(NotReady, match=r"no config\.json"):
        check(reference={"model": str(tmp_path)})
    with pytest.raises(NotReady, match=r"other\.gguf"):
        check(reference={"model": str(tmp_path), "gguf_file": "other.gguf"})


def test_a_large_file_is_looked_at_for_a_while_only(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    lines(path, *[PROBLEM | {"problem_id": str(i)} for i in range(500)])
    with path.open("a", encoding="utf-8") as file:
        file.write("{broken")
    large = run({"source": "jsonl", "path": str(path)})
    seconds = iter(range(1000))
    require(large, Path.cwd(), clock=lambda: float(next(seconds)))
    assert next(seconds) < 10, "a second passed with every record, and two were granted"
    with pytest.raises(NotReady, match=r"p\.jsonl:501: not valid JSON"):
        require(large, Path.cwd(), clock=lambda: 0.0)


def test_of_a_set_the_split_that_is_asked_for_is_looked_at(tmp_path: Path) -> None:
    records = [PROBLEM | {"problem_id": name, "split": "train"} for name in "abc"]
    other = PROBLEM | {"problem_id": "d", "split": "test", "statement": 1}
    path = lines(tmp_path / "p.jsonl", other, *records)
    sets = [{"source": "jsonl", "path": lines(tmp_path / "t.jsonl", PROBLEM | {"problem_id": "e"})}]
    asked = {"source": "jsonl", "path": path, "evaluation_sets": sets}
    check(asked | {"only": "train"})
    with pytest.raises(NotReady, match=r"p\.jsonl: no record whose field 'split' is 'tests'"):
        check(asked | {"only": "tests"})
    path = lines(tmp_path / "p.jsonl", *records[:1], *[one | {"split": "other"} for one in records[1:]])
    with pytest.raises(NotReady, match="1 training problem"):
        check(asked | {"only": "train"})


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


def test_a_model_is_looked_into_without_loading_it(tmp_path: Path) -> None:
    assert faults(run(reference={"model": str(checkpoint(tmp_path / "good"))}), tmp_path) == []
    (fault,) = faults(run(reference={"model": str(checkpoint(tmp_path / "endless", eos_token_id=None))}), tmp_path)
    assert "names no end token" in fault
    (fault,) = faults(run(reference={"model": str(tmp_path / "good"), "template": "chat"}), tmp_path)
    assert "has no chat template" in fault
    path = lines(tmp_path / "p.jsonl", PROBLEM, PROBLEM | {"problem_id": "b"})
    short = {"source": "jsonl", "path": path, "evaluation": 0, "max_prompt_tokens": 3}
    (fault,) = faults(run(short, reference={"model": str(tmp_path / "good")}), tmp_path)
    assert "problems.max_prompt_tokens is 3" in fault


@pytest.mark.parametrize("kept", [0, 20, -1])
def test_weights_that_were_cut_off_are_named(tmp_path: Path, kept: int) -> None:
    weights = checkpoint(tmp_path / "model") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:kept])
    (fault,) = faults(run(reference={"model": str(tmp_path / "model")}), tmp_path)
    assert "model.safetensors is no whole safetensors file" in fault
    assert "fetch it again" in fault


def test_a_shard_that_the_index_names_must_be_there(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model")
    index = {"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    (fault,) = faults(run(reference={"model": str(folder)}), tmp_path)
    assert "lacks model-00002-of-00002.safetensors" in fault


def test_one_training_problem_is_too_few(tmp_path: Path) -> None:
    (fault,) = faults(run({"train": 1}), tmp_path)
    assert "1 training problem: at least two" in fault
    path = lines(tmp_path / "p.jsonl", PROBLEM, {"problem_id": "b", "statement": "No tests."})
    (fault,) = faults(run({"source": "jsonl", "path": path, "evaluation": 0}), tmp_path)
    assert "1 training problem: at least two" in fault
    assert "no tests" in fault


def solved(program: str, number: int) -> dict[str, Any]:
    solution = {"code": program, "language": "python3", "correct": True}
    return PROBLEM | {"problem_id": f"p{number}", "solutions": [solution]}


def test_a_set_of_which_no_solution_passes_is_named(tmp_path: Path) -> None:
    wrong = lines(tmp_path / "wrong.jsonl", *(solved("print(2)", number) for number in range(5)))
    (fault,) = faults(run({"source": "jsonl", "path": wrong, "evaluation": 0}), tmp_path)
    assert "no problem's own solution passes its tests (3 tried)" in fault
    assert "'p0'" in fault
    one_right = lines(tmp_path / "p.jsonl", solved("print(1)", 0), *(solved("print(2)", n) for n in range(1, 5)))
    assert faults(run({"source": "jsonl", "path": one_right, "evaluation": 0}), tmp_path) == []


def test_a_source_of_the_mix_that_stays_empty_is_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", PROBLEM, PROBLEM | {"problem_id": "b"})
    corpus = {"sources": ["human"], "reference_samples": 0}
    (fault,) = faults(run({"source": "jsonl", "path": path, "evaluation": 0}, corpus=corpus), tmp_path)
    assert "train.sources.offline has a share and stays empty" in fault


def test_what_was_imported_fills_the_corpus(tmp_path: Path) -> None:
    wanted = run(corpus={"sources": ["other_model"], "reference_samples": 0})
    with Warehouse.open(tmp_path / "warehouse") as store:
        (fault,) = faults(wanted, tmp_path, str(tmp_path / "warehouse"))
        assert "`spo import` some" in fault
        rows = [row | {"source": "other_model"} for row in trajectories(1)]
        store.append("import", {"trajectories": rows}, run_id="import")
    assert faults(wanted, tmp_path, str(tmp_path / "warehouse")) == []
    assert len(faults(wanted, tmp_path, str(tmp_path / "nothing"))) == 1


def test_room_on_the_disk_is_looked_for_where_the_run_will_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.preflight.LEAST_FREE_BYTES", 1 << 60)
    (fault,) = faults(run(), tmp_path / "home" / "not" / "made")
    assert f"GiB are free in {tmp_path}" in fault


@pytest.mark.parametrize(
    ("train", "dtype", "states"),
    [
        ({"keep_checkpoints": 1}, "float32", 2 * 12),
        ({"keep_checkpoints": 2}, "bfloat16", 3 * 14),
        ({"keep_checkpoints": 2, "algorithm": "ppo"}, "float32", 2 * 3 * 12),
    ],
)
def test_room_is_wanted_for_every_checkpoint_and_the_one_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: dict[str, Any], dtype: str, states: int
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
    monkeypatch.setattr("tasks.preflight.shutil.disk_usage", lambda _: SimpleNamespace(free=needed))  # pyright: ignore
    assert faults(wanted, tmp_path) == []
    monkeypatch.setattr("tasks.preflight.shutil.disk_usage", lambda _: SimpleNamespace(free=needed - 1))  # pyright: ignore
    (fault,) = faults(wanted, tmp_path)
    assert f"{train['keep_checkpoints'] + 1} checkpoints of the trainer" in fault


def test_no_room_is_wanted_for_a_value_model_of_which_adapters_alone_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = checkpoint(tmp_path / "model")
    monkeypatch.setattr("tasks.preflight.inspection.adapter_bytes", lambda *_: 4 * 10)  # pyright: ignore
    monkeypatch.setattr("tasks.preflight.inspection.parameter_count", lambda *_: 1 << 40)  # pyright: ignore
    train = {
        "algorithm": "ppo",
        "lora": {"rank": 1},
        "steps": 1,
        "sources": {"online": {"share": 1.0}, "offline": {"share": 0.0}},
        "behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0},
    }
    needed = (1 << 30) + 4 * 10 + 2 * 10 * 3 * 12  # one kept policy, three checkpoints
    monkeypatch.setattr("tasks.preflight.shutil.disk_usage", lambda _: SimpleNamespace(free=needed))  # pyright: ignore
    assert faults(run(reference={"model": str(folder)}, train=train), tmp_path) == []


def test_an_engine_and_walls_that_are_not_here_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    bare.chmod(0o755)

    def refuse(**_: Any) -> None:
        raise SandboxUnavailable("seccomp is missing")

    monkeypatch.setattr("tasks.preflight.Judge", refuse)
    engine, walls = faults(run(engine={"kind": "vllm", "python": str(bare)}), tmp_path)
    assert f"vLLM is not installed for the interpreter {bare}; scripts/install_vllm.sh makes" in engine
    engine, _ = faults(run(engine={"kind": "vllm", "python": str(tmp_path / "gone")}), tmp_path)
    assert f"engine.python {tmp_path}/gone cannot be started" in engine
    assert walls == "seccomp is missing; look at `spo doctor`"


def test_everything_wrong_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as refused:
        check(
            {"source": "jsonl", "path": str(tmp_path / "absent.jsonl")},
            reference={"model": str(tmp_path / "no-model")},
            corpus={"files": [str(tmp_path / "no-file.jsonl")]},
        )
    text = str(refused.value)
    assert text.startswith("3 things keep this run from starting:\n  1. ")
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
    assert f"sandbox.packages names {absent}, which is no folder" in told
    assert str(there) not in told
    check(sandbox={"packages": [str(there)]})
    (other,) = faults(run(sandbox={"packages": packages, "backend": "docker", "image": "mine"}), tmp_path) or [""]
    assert "no folder" not in other


def test_libraries_that_a_later_stage_would_miss_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    missing = {"openai", "datasets"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in missing else object())
    corpus = {"other_models": [{"name": "big", "endpoint": "http://127.0.0.1:9/v1", "model": "big"}]}
    evaluate = {"transfer": [{"source": "taco", "hub": "BAAI/TACO"}]}
    found = faults(run(corpus=corpus | {"sources": ["other_model"]}, evaluate=evaluate), tmp_path)
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
    with pytest.raises(NotReady, match=r"(?s)2 things.*none.*sandbox.packages names"):
        require(config.validate(tree), tmp_path)
