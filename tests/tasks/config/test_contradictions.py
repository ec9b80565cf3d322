"""What cannot be, and what would silently be ignored, is refused with what to change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flows import study_config
from flows.settings import RECIPES
from tasks import config
from tests.refusals import refused

FILE = {"problems": {"source": "jsonl", "path": "p.jsonl"}}
ONLINE_ONLY = {"online": {"share": 1.0}}
OFFLINE_ONLY = {"offline": {"share": 1.0}}
HALF_ONLINE = {"online": {"share": 0.5}, "offline": {"share": 0.5}}
EXACT = {"temperature": [1.0, 1.0], "top_p": 1.0}
OFFLINE_GROUPS = {"train": {"sources": {"offline": {"share": 1.0, "objectives": [{"kind": "asymre"}]}}}}
REPLAYED = {"online": {"share": 0.25}, "replay": {"share": 0.75}}
PPO = {"algorithm": "ppo", "sources": ONLINE_ONLY, "behaviour": EXACT}


def objective(**fields: Any) -> dict[str, Any]:
    """A training section whose online half has one objective."""
    return {"train": {"sources": {"online": {"share": 0.5, "objectives": [fields]}, "offline": {"share": 0.5}}}}


def online(*objectives: dict[str, Any], **train: Any) -> dict[str, Any]:
    """A training section of new responses alone, drawn from the policy itself."""
    source = {"share": 1.0, "objectives": list(objectives)}
    return {"train": {"sources": {"online": source}, "behaviour": EXACT} | train}


def replayed(**objective: Any) -> dict[str, Any]:
    """The same with half of every batch replayed, under the same objective."""
    sources = {name: {"share": 0.5, "objectives": [objective]} for name in ("online", "replay")}
    return {"train": {"sources": sources, "behaviour": EXACT}}


def between(**objective: Any) -> dict[str, Any]:
    """The same, replayed in every second step, with the objective given for new responses alone."""
    sources = {"online": {"share": 1.0, "objectives": [objective]}, "replay": {"share": 0.0}}
    return {"train": {"sources": sources, "behaviour": EXACT, "sampling_interval": 2}}


def paired(share: float, **objective: Any) -> dict[str, Any]:
    sources = {"online": {"share": 1 - share}, "pairs": {"share": share, "objectives": [objective]}}
    return {"train": {"sources": sources}}


METHODS: list[tuple[str, dict[str, Any]]] = [
    ("loss 'grpo'", online({"kind": "grpo", "loss": "squared"})),
    ("reduction", online({"kind": "max_rl", "reduction": "sum"})),
    ("normalize", online({"kind": "rloo", "normalize": False})),
    ("clip_high 'tba'", online({"kind": "tba", "clip_high": 0.3})),
    ("clip_high", online({"kind": "grpo", "clip_high": 0.3, "truncation": 2.0})),
    ("kl", online({"kind": "max_rl", "kl": 0.1})),
    ("k", online({"kind": "grpo", "k": 2})),
    ("baseline_shift", online({"kind": "grpo", "baseline_shift": -0.2})),
    ("regression_beta", online({"kind": "tba", "regression_beta": 0.1})),
    ("ratio_clip", online({"kind": "grpo", "truncation": 2.0}, ratio_clip=0.1)),
    ("'offline'", OFFLINE_GROUPS),
    ("'grpo'", online({"kind": "grpo"}, behaviour={})),
    ("'oapl'", online({"kind": "oapl"}, behaviour={})),
    ("'rloo'", online({"kind": "rloo"}, behaviour=EXACT | {"weights": "reference"})),
    ("'grpo' 'replay'", replayed(kind="grpo")),
    ("'grpo' 'replay'", between(kind="grpo")),
    ("'policy_gradient' 'online'", between(kind="policy_gradient")),
    ("'pass_at_k' 'replay'", replayed(kind="pass_at_k")),
    ("responses_per_prompt", online({"kind": "tba"}, responses_per_prompt=1)),
    ("rollout_batch 30 responses_per_prompt", online({"kind": "tba"}, rollout_batch=30)),
    ("126 batch_size", online({"kind": "tba"}, batch_size=126)),
    ("pass@8", online({"kind": "pass_at_k", "k": 8})),
    ("'max_rl'", online({"kind": "max_rl"}, reward="fractional")),
    ("'thompson'", online({"kind": "terminal"}, reward="fractional", prompts="thompson")),
    (
        "'balanced' 'first_in_first_out'",
        {"train": replayed(kind="tba")["train"] | {"replay": {"rule": "balanced"}}},
    ),
    ("'online'", online({"kind": "dpo"})),
    ("'pairs'", paired(0.5, kind="tba")),
    ("'pairs'", {"train": paired(0.5, kind="dpo")["train"] | {"batch_size": 2, "rollout_batch": 4}}),
    ("pairs", {"train": {"pairs": {"per_problem": 2}}}),
]

IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("train.beta", {"train": {"beta": 0}}),
    ("train.beta", {"train": {"beta": -1}}),
    ("train.optimizer.learning_rate", {"train": {"optimizer": {"learning_rate": -1}}}),
    ("train.optimizer.learning_rate", {"train": {"optimizer": {"learning_rate": 0}}}),
    ("train.optimizer.betas", {"train": {"optimizer": {"betas": [2, 3]}}}),
    ("prior", {"q0": {"prior": 0, "zero_successes": "keep"}}),
    ("prior", {"q0": {"prior": -0.5, "zero_successes": "keep"}}),
    ("sandbox.cpu_limit_s", {"sandbox": {"cpu_limit_s": 0}}),
    ("sandbox.cpu_limit_s", {"sandbox": {"cpu_limit_s": -2}}),
    ("train.rendezvous_port", {"train": {"rendezvous_port": 65536}}),
    ("seed", {"seed": -1}),
    ("evaluate.ks", {"evaluate": {"ks": []}}),
    ("train.sources.online.objectives", {"train": {"sources": {"online": {"share": 1.0, "objectives": []}}}}),
    ("train", {"train": {"sources": {}}}),
    ("train", {"train": {"sources": {"online": {"share": 0.5}}}}),
    ("reference.template", {"reference": {"template": "chatty"}}),
    ("train.behaviour", {"train": {"behaviour": {"temperature": [0.8, 0.1]}}}),
    ("reference.pretrain", {"reference": {"pretrain": {"hidden_size": 90}}}),
]

CONTRADICTORY: list[tuple[str, dict[str, Any]]] = [
    ("path 'miniature'", {"problems": {"path": "problems.jsonl"}}),
    ("hub_split 'miniature'", {"problems": {"hub_split": "test"}}),
    ("problems.depth reference.pretrain.depth", {"problems": {"depth": 2}}),
    ("problems.depth", {"problems": {"depth": 3}, "reference": {"pretrain": {"depth": 2}}}),
    ("depth 'basics'", {"problems": {"source": "basics", "depth": 2}}),
    ("hub_revision", {"problems": FILE["problems"] | {"hub_revision": "abc"}}),
    ("'miniature'", {"problems": FILE["problems"] | {"evaluation_sets": [{"path": "test.jsonl"}]}}),
    (
        "evaluation",
        {"problems": FILE["problems"] | {"evaluation": 5, "evaluation_sets": [{"source": "jsonl", "path": "t.jsonl"}]}},
    ),
    ("gguf_file", {"reference": {"gguf_file": "model.gguf"}}),
    ("vllm 'transformers'", {"engine": {"vllm": {"gpu_memory_utilization": 0.5}}}),
    ("reference.model", {"engine": {"kind": "vllm", "vllm": {"model": "other"}}}),
    ("tensor_parallel_size", {"engine": {"kind": "vllm", "vllm": {"tensor_parallel_size": 0}}}),
    ("tensor_parallel_size", {"engine": {"kind": "vllm", "vllm": {"tensor_parallel_size": "two"}}}),
    ("gpu_memory_utilization", {"engine": {"kind": "vllm", "vllm": {"gpu_memory_utilization": 1.5}}}),
    ("max_model_len 100", {"engine": {"kind": "vllm", "vllm": {"max_model_len": 100}}}),
    ("'here'", {"shards": {"address": "auto", "gpus": 1}}),
    (
        "'ray'",
        {"shards": {"runner": "ray", "launcher": ["srun"], "engines": 2}},
    ),
    ("launcher", {"shards": {"launcher": ["srun"]}}),
    ("launcher", {"shards": {"engines": 2}}),
    ("narrow_nats", {"q0": {"narrow_nats": 0.1}}),
    ("zero_top_up 100", {"q0": {"samples": 200, "zero_top_up": 100}}),
    ("prior", {"q0": {"prior": 1.0}}),
    (
        "pi_0",
        {"q0": {"zero_successes": "corpus"}, "corpus": {"reference_logprobs": False}},
    ),
    (
        "zero_successes train.reward 'fractional'",
        {"q0": {"zero_successes": "corpus"}, "train": {"reward": "fractional"}},
    ),
    (
        "zero_successes train.reward 'fractional'",
        {"q0": {"zero_successes": "keep", "prior": 1.0}, "train": {"reward": "fractional"}},
    ),
    ("requests", {"corpus": {"other_models": [{"name": "a", "model": "m", "requests": 2}]}}),
    ("corpus.other_models", {"corpus": {"other_models": [{"name": "a", "model": "m", "endpoint": "localhost:1"}]}}),
    ("have", {"corpus": {"other_models": [{"name": "a", "model": "m"}, {"name": "a", "model": "n"}]}}),
    (
        "other_models",
        {"corpus": {"sources": ["human"], "other_models": [{"name": "a", "model": "m"}]}},
    ),
    ("reference_samples", {"corpus": {"sources": ["human"], "reference_samples": 5}}),
    ("files", {"corpus": {"sources": ["reference"], "files": ["a.jsonl"]}}),
    ("names", {"corpus": {"sources": ["human", "human"]}}),
    ("'reference'", {"corpus": {"behaviour": {"weights": "latest"}}}),
    ("corpus.sources", {"corpus": {"sources": []}}),
    ("pivotal.trajectories", {"corpus": {"sources": []}, "train": {"sources": ONLINE_ONLY}}),
    (
        "'pivotal'",
        {"pivotal": {"trajectories": 0}, "train": {"sources": {"pivotal": {"share": 0.5}, "online": {"share": 0.5}}}},
    ),
    ("explore", {"pivotal": {"method": "bisection", "explore": 0.5}}),
    ("confidence", {"pivotal": {"explore": 0.9, "confidence": 0.5}}),
    ("trajectory", {"pivotal": {"looks": [50], "max_nodes": 2, "rollouts": 10}}),
    ("loss", objective(kind="policy_gradient", loss="squared")),
    ("reduction", objective(kind="terminal", reduction="sum")),
    ("'advantage' 'cross_entropy'", objective(kind="advantage")),
    (
        "'online'",
        {"train": {"sources": {"offline": {"share": 1.0, "objectives": [{"kind": "policy_gradient"}]}}}},
    ),
    ("'pivotal'", objective(kind="monte_carlo")),
    ("sigmoid_scale", {"train": {"sigmoid_scale": 2.0}}),
    ("ratio_clip", {"train": {"ratio_clip": 0.1}}),
    ("ppo", {"train": {"ppo": {"epochs": 2}}}),
    (
        "train objectives",
        {"train": PPO | {"sources": {"online": {"share": 1.0, "objectives": [{"loss": "squared"}]}}}},
    ),
    ("'latest' behaviour.temperature", {"train": PPO | {"behaviour": EXACT | {"weights": "reference"}}}),
    (
        "'online' 'ppo'",
        {"train": PPO | {"sources": {"online": {"share": 0.5}, "offline": {"share": 0.5}}}},
    ),
    (
        "reference_weights 'cpu'",
        {"train": {"lora": {}, "reference_weights": "cpu"}},
    ),
    (
        "'ppo' 'replay'",
        {"train": PPO | {"sources": {"online": {"share": 0.5}, "replay": {"share": 0.5}}}},
    ),
    (
        "'ppo' 'earlier'",
        {"train": PPO | {"sources": {"online": {"share": 0.5}, "earlier": {"share": 0.5}}}},
    ),
    ("'ppo' ppo.epochs", {"train": PPO | {"sampling_interval": 2}}),
    ("'online'", {"train": {"sources": {"replay": {"share": 0.5}, "offline": {"share": 0.5}}}}),
    ("replay", {"train": {"replay": {"uses": 2}}}),
    ("earlier", {"train": {"earlier": {"runs": 2}}}),
    ("'replay'", {"train": {"sampling_interval": 2}}),
    (
        "replay.uses",
        {"train": {"sources": REPLAYED, "replay": {"uses": 3}}},
    ),
    ("replay.window", {"train": {"sources": REPLAYED, "replay": {"uses": 9, "window": 2}}}),
    ("positive_weight", {"train": {"sources": REPLAYED, "replay": {"positive_weight": 2.0}}}),
    (
        "'online'",
        {"train": {"sources": REPLAYED | {"replay": {"share": 0.75, "objectives": [{"kind": "policy_gradient"}]}}}},
    ),
    (
        "train.earlier",
        {"train": {"sources": HALF_ONLINE, "earlier": {"from_step": 9, "to_step": 5}}},
    ),
    ("curriculum", {"train": {"curriculum": {"floor": 0.2}}}),
    ("prompts", {"train": {"sources": OFFLINE_ONLY, "prompts": "thompson"}}),
    ("reference_refresh_samples", {"train": {"reference_refresh_samples": 10}}),
    ("'online'", {"train": {"sources": OFFLINE_ONLY, "hand_over": "memory"}}),
    ("rollout_workers", {"train": {"rollout_workers": 0}}),
    ("hand_over 'disk'", {"train": {"worker_launcher": ["srun"], "hand_over": "memory"}}),
    ("'background'", {"train": PPO | {"publish": "background"}}),
    (
        "'background'",
        {"train": {"publish": "background", "max_batches_ahead": 0, "model_update_interval": 1, "batch_size": 64}},
    ),
    ("rollout_batch", {"train": {"rollout_batch": 2, "responses_per_prompt": 4}}),
    ("remote_shell", {"train": {"remote_shell": ["rsh"]}}),
    ("rendezvous_port", {"train": {"rendezvous_port": 1234}}),
    ("hostfile", {"train": {"hosts": ["one slots=0"]}}),
    ("contradicts", {"train": {"hosts": ["one slots=8", "two slots=8"], "processes": 4}}),
    ("sharded", {"train": {"lora": {}, "zero_stage": 3}}),
    ("'all-linear'", {"train": {"lora": {"modules": ["all-linear", "q_proj"]}}}),
    ("weights", {"evaluate": {"behaviour": {"weights": "reference"}}}),
    ("names", {"evaluate": {"ks": [1, 1]}}),
    (
        "evaluate.during_training problems.evaluation",
        {"problems": {"evaluation": 0}, "evaluate": {"during_training": True}},
    ),
]


@pytest.mark.parametrize(("named", "tree"), IMPOSSIBLE + CONTRADICTORY + METHODS)
def test_it_is_refused_and_the_message_names_it(named: str, tree: dict[str, Any]) -> None:
    with refused("InvalidConfig", *named.split()):
        config.validate(tree)


POSSIBLE: list[dict[str, Any]] = [
    {},
    FILE | {"engine": {"kind": "vllm", "vllm": {"max_model_len": 608}}},
    {"engine": {"kind": "vllm", "vllm": {"gpu_memory_utilization": 1, "tensor_parallel_size": 8, "seed": 3}}},
    {"q0": {"zero_successes": "keep", "prior": 1.0}},
    {"q0": {"samples": 100, "zero_top_up": 200}},
    {"q0": {"samples": 100, "adaptive": True, "narrow_nats": 0.1, "zero_top_up": 100}},
    {"corpus": {"sources": []}, "pivotal": {"trajectories": 0}, "train": {"sources": ONLINE_ONLY}},
    {"corpus": {"sources": ["human"], "reference_samples": 0}},
    {"train": PPO | {"ppo": {"epochs": 2}, "ratio_clip": 0.1}},
    objective(kind="advantage", loss="sigmoid") | {"seed": 2**32 - 1},
    {"train": {"hosts": ["one slots=8", "two slots=8"], "processes": 8, "rendezvous_port": 1234}},
    {"train": {"lora": {"modules": ["q_proj"]}, "zero_stage": 2}},
    {"sandbox": {"cpu_limit_s": None, "memory_limit_mb": 256}},
    {"problems": {"depth": 2}, "reference": {"pretrain": {"depth": 3}}},
    {"shards": {"runner": "ray", "address": "auto", "gpus": 0.5}},
    online({"kind": "grpo", "clip_high": 0.28}, ratio_clip=0.1),
    online({"kind": "asymre"}, behaviour={}),
    online({"kind": "tba"}, behaviour={"weights": "reference"}),
    replayed(kind="grpo", truncation=2.0),
    replayed(kind="oapl", regression_beta=0.01),
    paired(0.5, kind="dpo"),
    paired(0.5, kind="terminal"),
    {"train": {"sources": HALF_ONLINE | {"offline": {"share": 0.5, "objectives": [{"kind": "a_star_po"}]}}}},
]


@pytest.mark.parametrize("tree", POSSIBLE)
def test_what_is_read_is_taken(tree: dict[str, Any]) -> None:
    config.validate(tree)


def test_replay_learns_by_the_objectives_of_online_unless_it_names_its_own() -> None:
    taken = config.validate(between(kind="tba")).train.sources
    assert taken["replay"].objectives == taken["online"].objectives
    own = {"share": 0.5, "objectives": [{"kind": "terminal"}]}
    sources = {"online": {"share": 0.5, "objectives": [{"kind": "a_star_po"}]}, "replay": own}
    assert config.validate({"train": {"sources": sources}}).train.sources["replay"].objectives[0].kind == "terminal"


@pytest.mark.parametrize("name", sorted(path.stem for path in study_config.STUDIES.glob("*.toml")))
def test_every_arm_of_every_shipped_study_is_possible(name: str) -> None:
    study = study_config.load(name)
    assert {study.config(arm, seed=1).seed for arm in study.arms} == {1}


def test_a_depth_that_is_not_given_leaves_no_trace_in_what_identifies_a_run() -> None:
    dumped = config.validate({}).model_dump(mode="json")
    assert "depth" not in {*dumped["problems"], *dumped["reference"]["pretrain"]}


def test_null_takes_a_recipes_value_back(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_text(
        'seed = 5\n[engine]\nkind = "vllm"\nvllm = { max_model_len = 4096 }\n[sandbox]\ncpu_limit_s = 0.5\n',
        encoding="utf-8",
    )
    overrides = {"engine": {"kind": "transformers", "vllm": None}, "sandbox.cpu_limit_s": None}
    loaded = config.load("big", overrides, folder=tmp_path)
    assert (loaded.engine.vllm, loaded.sandbox.cpu_limit_s, loaded.seed) == ({}, None, 5)


def test_null_takes_a_whole_section_or_source_back() -> None:
    changes = {"train.sources.pivotal": None, "train.sources.offline.share": 0.5, "train.optimizer": None}
    train = config.load("tiny", changes, folder=RECIPES).train
    assert set(train.sources) == {"online", "offline"}
    assert train.optimizer == config.TrainConfig().optimizer


def test_none_takes_a_section_back_where_toml_has_no_null(tmp_path: Path) -> None:
    (tmp_path / "adapters.toml").write_text('base = "tiny"\n[train]\nlora = { rank = 4 }\n', encoding="utf-8")
    text = f'base = "{tmp_path}/adapters.toml"\n[train]\nlora = "none"\n'
    (tmp_path / "all-weights.toml").write_text(text, encoding="utf-8")
    adapters = config.load(str(tmp_path / "adapters.toml"), folder=RECIPES)
    assert adapters.train.lora is not None
    assert config.load(str(tmp_path / "all-weights.toml"), folder=RECIPES).train.lora is None
    assert config.load("smollm", {"train": {"lora": "none"}}, folder=RECIPES).train.lora is None
    with refused("InvalidConfig", "train.lora"):
        config.load("tiny", {"train": {"lora": "none"}}, folder=RECIPES)
