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
    ("loss would be ignored: objective 'grpo'", online({"kind": "grpo", "loss": "squared"})),
    ("reduction would be ignored", online({"kind": "max_rl", "reduction": "sum"})),
    ("normalize would be ignored", online({"kind": "rloo", "normalize": False})),
    ("clip_high would be ignored: objective 'tba'", online({"kind": "tba", "clip_high": 0.3})),
    ("clip_high would be ignored: truncation", online({"kind": "grpo", "clip_high": 0.3, "truncation": 2.0})),
    ("kl would be ignored", online({"kind": "max_rl", "kl": 0.1})),
    ("k would be ignored", online({"kind": "grpo", "k": 2})),
    ("baseline_shift would be ignored", online({"kind": "grpo", "baseline_shift": -0.2})),
    ("regression_beta would be ignored", online({"kind": "tba", "regression_beta": 0.1})),
    ("ratio_clip would be ignored", online({"kind": "grpo", "truncation": 2.0}, ratio_clip=0.1)),
    ("'offline' does not come in groups", OFFLINE_GROUPS),
    ("'grpo' needs responses drawn from the weights that sample", online({"kind": "grpo"}, behaviour={})),
    ("'oapl' needs responses drawn from the weights that sample", online({"kind": "oapl"}, behaviour={})),
    ("'rloo' is on-policy", online({"kind": "rloo"}, behaviour=EXACT | {"weights": "reference"})),
    ("'grpo' is on-policy, and the source 'replay'", replayed(kind="grpo")),
    ("'grpo' is on-policy, and the source 'replay'", between(kind="grpo")),
    ("'policy_gradient' belongs to 'online'", between(kind="policy_gradient")),
    ("truncation = 2.0", replayed(kind="pass_at_k")),
    ("set responses_per_prompt to 2", online({"kind": "tba"}, responses_per_prompt=1)),
    ("rollout_batch 30 is no multiple of responses_per_prompt 4", online({"kind": "tba"}, rollout_batch=30)),
    ("gives 126 of batch_size 126", online({"kind": "tba"}, batch_size=126)),
    ("pass@8 cannot be estimated", online({"kind": "pass_at_k", "k": 8})),
    ("cannot use fractional rewards", online({"kind": "max_rl"}, reward="fractional")),
    ("'thompson' go by chances of success", online({"kind": "terminal"}, reward="fractional", prompts="thompson")),
    (
        "weighs single responses",
        {"train": replayed(kind="tba")["train"] | {"replay": {"rule": "balanced"}}},
    ),
    ("'online' does not come in pairs", online({"kind": "dpo"})),
    ("'pairs' does not come in groups", paired(0.5, kind="tba")),
    ("half a pair", {"train": paired(0.5, kind="dpo")["train"] | {"batch_size": 2, "rollout_batch": 4}}),
    ("pairs would be ignored", {"train": {"pairs": {"per_problem": 2}}}),
]

IMPOSSIBLE: list[tuple[str, dict[str, Any]]] = [
    ("train.beta", {"train": {"beta": 0}}),
    ("train.beta", {"train": {"beta": -1}}),
    ("train.optimizer.learning_rate", {"train": {"optimizer": {"learning_rate": -1}}}),
    ("train.optimizer.learning_rate", {"train": {"optimizer": {"learning_rate": 0}}}),
    ("train.optimizer.betas", {"train": {"optimizer": {"betas": [2, 3]}}}),
    ("q0.prior", {"q0": {"prior": 0, "zero_successes": "keep"}}),
    ("q0.prior", {"q0": {"prior": -0.5, "zero_successes": "keep"}}),
    ("sandbox.cpu_limit_s", {"sandbox": {"cpu_limit_s": 0}}),
    ("sandbox.cpu_limit_s", {"sandbox": {"cpu_limit_s": -2}}),
    ("train.rendezvous_port", {"train": {"rendezvous_port": 65536}}),
    ("seed", {"seed": -1}),
    ("evaluate.ks", {"evaluate": {"ks": []}}),
    ("objectives", {"train": {"sources": {"online": {"share": 1.0, "objectives": []}}}}),
    ("add up to 1", {"train": {"sources": {}}}),
    ("add up to 1", {"train": {"sources": {"online": {"share": 0.5}}}}),
    ("reference.template", {"reference": {"template": "chatty"}}),
    ("low <= high", {"train": {"behaviour": {"temperature": [0.8, 0.1]}}}),
    ("even multiple of heads", {"reference": {"pretrain": {"hidden_size": 90}}}),
]

CONTRADICTORY: list[tuple[str, dict[str, Any]]] = [
    ("path would be ignored: source 'miniature'", {"problems": {"path": "problems.jsonl"}}),
    ("hub_split would be ignored: source 'miniature'", {"problems": {"hub_split": "test"}}),
    ("problems.depth 2 does not go with reference.pretrain.depth None", {"problems": {"depth": 2}}),
    ("problems.depth 3 does not go with", {"problems": {"depth": 3}, "reference": {"pretrain": {"depth": 2}}}),
    ("depth would be ignored: source 'basics'", {"problems": {"source": "basics", "depth": 2}}),
    ("hub_revision would be ignored", {"problems": FILE["problems"] | {"hub_revision": "abc"}}),
    ("source 'miniature'", {"problems": FILE["problems"] | {"evaluation_sets": [{"path": "test.jsonl"}]}}),
    (
        "evaluation would be ignored",
        {"problems": FILE["problems"] | {"evaluation": 5, "evaluation_sets": [{"source": "jsonl", "path": "t.jsonl"}]}},
    ),
    ("gguf_file would be ignored", {"reference": {"gguf_file": "model.gguf"}}),
    ("vllm would be ignored: kind is 'transformers'", {"engine": {"vllm": {"gpu_memory_utilization": 0.5}}}),
    ("set reference.model", {"engine": {"kind": "vllm", "vllm": {"model": "other"}}}),
    ("tensor_parallel_size", {"engine": {"kind": "vllm", "vllm": {"tensor_parallel_size": 0}}}),
    ("tensor_parallel_size", {"engine": {"kind": "vllm", "vllm": {"tensor_parallel_size": "two"}}}),
    ("gpu_memory_utilization", {"engine": {"kind": "vllm", "vllm": {"gpu_memory_utilization": 1.5}}}),
    ("max_model_len 100", {"engine": {"kind": "vllm", "vllm": {"max_model_len": 100}}}),
    ("address, gpus would be ignored: runner 'here'", {"shards": {"address": "auto", "gpus": 1}}),
    (
        "launcher, engines would be ignored: runner 'ray'",
        {"shards": {"runner": "ray", "launcher": ["srun"], "engines": 2}},
    ),
    ("launcher and engines go together", {"shards": {"launcher": ["srun"]}}),
    ("launcher and engines go together", {"shards": {"engines": 2}}),
    ("narrow_nats would be ignored", {"q0": {"narrow_nats": 0.1}}),
    ("zero_top_up 100 would be ignored", {"q0": {"samples": 200, "zero_top_up": 100}}),
    ("prior would be ignored", {"q0": {"prior": 1.0}}),
    (
        "reads what pi_0 thinks of the corpus",
        {"q0": {"zero_successes": "corpus"}, "corpus": {"reference_logprobs": False}},
    ),
    (
        "zero_successes would be ignored: with train.reward 'fractional'",
        {"q0": {"zero_successes": "corpus"}, "train": {"reward": "fractional"}},
    ),
    (
        "zero_successes, prior would be ignored: with train.reward 'fractional'",
        {"q0": {"zero_successes": "keep", "prior": 1.0}, "train": {"reward": "fractional"}},
    ),
    ("requests would be ignored", {"corpus": {"other_models": [{"name": "a", "model": "m", "requests": 2}]}}),
    ("starts with http", {"corpus": {"other_models": [{"name": "a", "model": "m", "endpoint": "localhost:1"}]}}),
    ("have one name", {"corpus": {"other_models": [{"name": "a", "model": "m"}, {"name": "a", "model": "n"}]}}),
    (
        "other_models would be ignored",
        {"corpus": {"sources": ["human"], "other_models": [{"name": "a", "model": "m"}]}},
    ),
    ("reference_samples would be ignored", {"corpus": {"sources": ["human"], "reference_samples": 5}}),
    ("files would be ignored", {"corpus": {"sources": ["reference"], "files": ["a.jsonl"]}}),
    ("names one twice", {"corpus": {"sources": ["human", "human"]}}),
    ("must be 'reference'", {"corpus": {"behaviour": {"weights": "latest"}}}),
    ("corpus.sources is empty", {"corpus": {"sources": []}}),
    ("pivotal.trajectories to 0", {"corpus": {"sources": []}, "train": {"sources": ONLINE_ONLY}}),
    (
        "the source 'pivotal' of training would have no search",
        {"pivotal": {"trajectories": 0}, "train": {"sources": {"pivotal": {"share": 0.5}, "online": {"share": 0.5}}}},
    ),
    ("explore would be ignored", {"pivotal": {"method": "bisection", "explore": 0.5}}),
    ("above confidence", {"pivotal": {"explore": 0.9, "confidence": 0.5}}),
    ("more than a trajectory may cost", {"pivotal": {"looks": [50], "max_nodes": 2, "rollouts": 10}}),
    ("loss would be ignored", objective(kind="policy_gradient", loss="squared")),
    ("reduction would be ignored", objective(kind="terminal", reduction="sum")),
    ("sigmoid belongs to advantage", objective(kind="advantage")),
    (
        "belongs to 'online'",
        {"train": {"sources": {"offline": {"share": 1.0, "objectives": [{"kind": "policy_gradient"}]}}}},
    ),
    ("belongs to 'pivotal'", objective(kind="monte_carlo")),
    ("sigmoid_scale would be ignored", {"train": {"sigmoid_scale": 2.0}}),
    ("ratio_clip would be ignored", {"train": {"ratio_clip": 0.1}}),
    ("ppo would be ignored", {"train": {"ppo": {"epochs": 2}}}),
    (
        "objectives would be ignored",
        {"train": PPO | {"sources": {"online": {"share": 1.0, "objectives": [{"loss": "squared"}]}}}},
    ),
    ("drawn from the policy itself", {"train": PPO | {"behaviour": EXACT | {"weights": "reference"}}}),
    (
        "learns from its own samples",
        {"train": PPO | {"sources": {"online": {"share": 0.5}, "offline": {"share": 0.5}}}},
    ),
    (
        "reference_weights 'cpu' would be ignored",
        {"train": {"lora": {}, "reference_weights": "cpu"}},
    ),
    (
        "'ppo' cannot use the source 'replay'",
        {"train": PPO | {"sources": {"online": {"share": 0.5}, "replay": {"share": 0.5}}}},
    ),
    (
        "'ppo' cannot use the source 'earlier'",
        {"train": PPO | {"sources": {"online": {"share": 0.5}, "earlier": {"share": 0.5}}}},
    ),
    ("samples every batch", {"train": PPO | {"sampling_interval": 2}}),
    ("give 'online' a share", {"train": {"sources": {"replay": {"share": 0.5}, "offline": {"share": 0.5}}}}),
    ("replay would be ignored", {"train": {"replay": {"uses": 2}}}),
    ("earlier would be ignored", {"train": {"earlier": {"runs": 2}}}),
    ("needs the source 'replay'", {"train": {"sampling_interval": 2}}),
    (
        "each would be used 4 times, replay.uses allows 3; set it to 4",
        {"train": {"sources": REPLAYED, "replay": {"uses": 3}}},
    ),
    ("set it to 3 or more", {"train": {"sources": REPLAYED, "replay": {"uses": 9, "window": 2}}}),
    ("positive_weight would be ignored", {"train": {"sources": REPLAYED, "replay": {"positive_weight": 2.0}}}),
    (
        "belongs to 'online'",
        {"train": {"sources": REPLAYED | {"replay": {"share": 0.75, "objectives": [{"kind": "policy_gradient"}]}}}},
    ),
    (
        "no step lies between",
        {"train": {"sources": HALF_ONLINE, "earlier": {"from_step": 9, "to_step": 5}}},
    ),
    ("curriculum would be ignored", {"train": {"curriculum": {"floor": 0.2}}}),
    ("prompts would be ignored", {"train": {"sources": OFFLINE_ONLY, "prompts": "thompson"}}),
    ("reference_refresh_samples would be ignored", {"train": {"reference_refresh_samples": 10}}),
    ("no rollout workers", {"train": {"sources": OFFLINE_ONLY, "hand_over": "memory"}}),
    ("needs rollout_workers > 0", {"train": {"rollout_workers": 0}}),
    ("set hand_over to 'disk'", {"train": {"worker_launcher": ["srun"], "hand_over": "memory"}}),
    ("publish 'background' would leave workers", {"train": PPO | {"publish": "background"}}),
    (
        "publish 'background' would leave workers",
        {"train": {"publish": "background", "max_batches_ahead": 0, "model_update_interval": 1, "batch_size": 64}},
    ),
    ("do not fit into a rollout_batch", {"train": {"rollout_batch": 2, "responses_per_prompt": 4}}),
    ("remote_shell would be ignored", {"train": {"remote_shell": ["rsh"]}}),
    ("rendezvous_port would be ignored", {"train": {"rendezvous_port": 1234}}),
    ("as in a hostfile", {"train": {"hosts": ["one slots=0"]}}),
    ("contradicts hosts", {"train": {"hosts": ["one slots=8", "two slots=8"], "processes": 4}}),
    ("lora cannot be sharded", {"train": {"lora": {}, "zero_stage": 3}}),
    ("'all-linear' stands alone", {"train": {"lora": {"modules": ["all-linear", "q_proj"]}}}),
    ("weights would be ignored", {"evaluate": {"behaviour": {"weights": "reference"}}}),
    ("ks names one k twice", {"evaluate": {"ks": [1, 1]}}),
    ("needs evaluation problems", {"problems": {"evaluation": 0}, "evaluate": {"during_training": True}}),
]


@pytest.mark.parametrize(("words", "tree"), IMPOSSIBLE + CONTRADICTORY + METHODS)
def test_it_is_refused_and_the_message_names_it(words: str, tree: dict[str, Any]) -> None:
    with pytest.raises(config.InvalidConfig) as refused:
        config.validate(tree)
    assert words in str(refused.value)


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
