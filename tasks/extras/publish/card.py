"""Cards: what a stranger needs to know before using a policy, or the trajectories of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tasks.config import TrainConfig, toml_text
from tasks.estimators import PairedDifference, average_paired_difference
from tasks.evaluate.eval_samples import Scores, policy_pass_at_k, samples_text
from tasks.extras.publish.facts import Publishable, without_paths
from tasks.report.table_sections import markdown_table, percent
from tasks.run.intervals import interval_text

PAPER = "[Soft Policy Optimization](https://arxiv.org/abs/2503.05453)"
METHODS = {
    "likelihood": "rejection fine-tuning",
    "a_star_po": "A*-PO",
    "oapl": "OAPL",
    "tba": "TBA",
    "grpo": "GRPO",
    "rloo": "RLOO",
    "max_rl": "MaxRL",
    "pass_at_k": "pass@k policy optimization",
    "asymre": "AsymRE",
    "dpo": "DPO",
}
"""What the objectives that are not the paper's are called."""
LIMITS = """\
- It writes programs, which may do anything: run them in a sandbox only, never where they can reach something of value.
- Passing tests is what it was rewarded for. A program that passes may still be wrong, slow or unsafe.
- It is not meant to answer questions, to give advice, or to decide anything about people. Nothing was done to make it
  refuse harmful requests.
- The figures hold for the problems, the prompt and the way of sampling stated here, and for no others. Where the
  training problems overlap with a benchmark, its result says nothing.
- Whatever is wrong with the model that it was trained from is likely to be wrong with it, too."""


def model_card(found: Publishable, name: str, licence: str, pictures: Sequence[str]) -> str:
    """The policy's README.md; `name` is what it is loaded by, `pictures` are files beside it."""
    parts = [
        _front(_metadata(found, name, licence)),
        f"# {name}\n",
        _what(found),
        "## Use\n",
        _usage(found, name),
        *_evaluation(found),
        *(f"![{picture.removesuffix('.png').replace('_', ' ')}]({picture})\n" for picture in pictures),
        "## Training data\n",
        _training_data(found),
        "## What it must not be used for\n",
        LIMITS + "\n",
        "## Licence\n",
        _licence(found, licence),
        "## Recipe\n",
        _recipe(found),
    ]
    return "\n".join(parts)


def adapter_card(found: Publishable, name: str, model_name: str, licence: str) -> str:
    """The adapter's README.md; `model_name` is the policy with the adapter merged in."""
    base = found.base_model or "BASE_MODEL"
    arguments = "".join(f", {argument}={value!r}" for argument, value in found.base_arguments.items())
    metadata = _metadata(found, name, licence) | {"library_name": "peft"}
    where = "" if found.base_model else f"\n`BASE_MODEL` is the folder of the model trained from: {found.base_title}.\n"
    return "\n".join(
        [
            _front(metadata),
            f"# {name}\n",
            f"The low-rank adapter of [{model_name}]({model_name}) alone: added to the model it was trained from, it "
            f"gives that policy. The card of {model_name} says what it is, how good, and what not to use it for.\n",
            "```python",
            "from peft import PeftModel",
            "from transformers import AutoModelForCausalLM\n",
            f"base = AutoModelForCausalLM.from_pretrained({base!r}{arguments})",
            f"model = PeftModel.from_pretrained(base, {name!r})",
            "```",
            where,
            *_own_temperature(
                found, "This policy is sampled from it at temperature {0:g}, not 1: the reference policy was."
            ),
        ]
    )


def data_card(found: Publishable, name: str, counts: Mapping[str, int], licence: str) -> str:
    """The README.md of the trajectories; `counts` are rows by configuration."""
    configs = [
        {"config_name": part, "data_files": [{"split": "train", "path": f"{part}/*.parquet"}]}
        for part, rows in counts.items()
        if rows
    ]
    metadata: dict[str, Any] = {"configs": configs, "tags": ["code", "reinforcement-learning"]}
    metadata |= {"license": licence} if licence else {}
    rows = ", ".join(f"{count:,} {part}" for part, count in counts.items())
    return "\n".join(
        [
            _front(metadata),
            f"# {name}\n",
            f"What run `{found.history.run_id}` drew or was trained on: {rows}. Programs were executed and judged; "
            f"{_rewards(found)}.{_claimed(found)} Hidden tests and evaluation problems are not part of it.\n",
            "```python",
            "from datasets import load_dataset\n",
            f'rows = load_dataset({name!r}, "trajectories", split="train")',
            f'prompts = load_dataset({name!r}, "prompts", split="train")  # joined by prompt_id',
            "print(rows[0]['text'], rows[0]['reward'])",
            "```\n",
            _table(
                ("column", "meaning"),
                [{"column": f"`{name}`", "meaning": meaning} for name, meaning in DATA_COLUMNS.items()],
            ),
            "## Where the problems come from\n",
            _table(("set", "source", "licence", "problems"), _problem_rows(found, "train")),
            "The statements in `prompts` are under their own licences. Programs may do anything: use a sandbox.\n",
        ]
    )


DATA_COLUMNS = {
    "trajectory_id": "identity of the response",
    "problem_id, prompt_id": "what it answers; the prompt is in `prompts`",
    "source, engine": "how it came about, and who drew it",
    "policy_start, step": "the policy that drew it, and its optimizer step",
    "temperature, top_p, seed": "how it was drawn",
    "token_ids, sampled_logprobs, logprob_kind": "its tokens, and their log-probabilities (nats) where known",
    "text, finish_reason": "the response as text; `length`: it was cut off",
    "reward, verdict, tests_passed, tests_total": "how it was judged",
    "times_trained": "how many batches of the run it was in",
}
"""Of the configuration `trajectories`."""


def _metadata(found: Publishable, name: str, licence: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["code", "reinforcement-learning", "soft-policy-optimization"],
    }
    metadata |= {"license": licence} if licence else {}
    metadata |= {"base_model": found.base_model} if found.base_model else {}
    results = [
        {
            "task": {"type": "text-generation", "name": "program synthesis"},
            "dataset": {"type": set_name, "name": set_name},
            "metrics": [
                {
                    "type": f"pass@{k}",
                    "name": f"pass@{k}",
                    "value": round(policy_pass_at_k({set_name: own}, k).value, 4),
                }
                for k in found.config.evaluate.ks
            ],
        }
        for set_name, own in _scores(found).items()
    ]
    return metadata | ({"model-index": [{"name": name, "results": results}]} if results else {})


def _front(metadata: Mapping[str, Any]) -> str:
    """The card's YAML; every value is JSON, which is YAML."""
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items()]
    return "\n".join(["---", *lines, "---", ""])


def _what(found: Publishable) -> str:
    kind = _method(found.config.train)
    adapted = (
        f", by an adapter of rank {found.config.train.lora.rank} that is merged in" if found.config.train.lora else ""
    )
    return (
        f"A policy that writes Python programs for programming problems. It was trained from {found.base_title} with "
        f"{kind} for {found.policy.step} optimizer steps{adapted}: programs were sampled, executed against tests, and "
        f"the verdicts were its rewards.{_claimed(found)}\n"
    )


def _rewards(found: Publishable) -> str:
    """What the data set's column `reward` holds, and what training made of it."""
    stored = "rewards are 0 (every test passed) and -1"
    if found.config.train.reward == "binary":
        return stored
    return f"{stored}; training took the share of tests passed - 1 instead (`tests_passed`, `tests_total`)"


def _claimed(found: Publishable) -> str:
    """What is said of imported trajectories that were believed; nothing where there are none."""
    number = sum(row["claimed"] for row in found.trained_on)
    if not number:
        return ""
    return (
        f" Of the trajectories trained on, {number:,} have the rewards that their source claims (verdict `claimed`): "
        f"these programs were not executed here, and none of them counts as correct."
    )


def _method(train: TrainConfig) -> str:
    """What trained it, by the names that people know."""
    if train.algorithm == "ppo":
        return "PPO"
    others = [METHODS[kind] for kind in sorted(train.objective_kinds) if kind in METHODS]
    paper = [f"{PAPER} (SPO)"] if train.objective_kinds - METHODS.keys() else []
    return " and ".join([*paper, *others])


def _usage(found: Publishable, name: str) -> str:
    most = found.config.engine.max_response_tokens
    special = "" if found.special_tokens else ", add_special_tokens=False"
    chat = "the tokenizer's chat template" if not found.special_tokens else "worked examples before the task"
    return "\n".join(
        [
            "```python",
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n",
            f"tokenizer = AutoTokenizer.from_pretrained({name!r})",
            f"model = AutoModelForCausalLM.from_pretrained({name!r})",
            f"prompt = {found.example!r}",
            f'ids = tokenizer(prompt, return_tensors="pt"{special})',
            f"answer = model.generate(**ids, max_new_tokens={most}, do_sample=False)",
            'print(tokenizer.decode(answer[0, ids["input_ids"].shape[1] :], skip_special_tokens=True))',
            "```\n",
            f"The prompt is written as in training ({chat}): another one gives other results.\n",
            *_own_temperature(
                found,
                "The weights hold a temperature of {0:g} (`reference.temperature`): sampled at 1 they are the policy "
                "that was trained, which began as the model that it was trained from at {0:g}.",
            ),
        ]
    )


def _own_temperature(found: Publishable, sentence: str) -> list[str]:
    """`sentence` about the reference policy's temperature, unless that is the model's own."""
    temperature = found.config.reference.temperature
    return [] if temperature == 1 else [sentence.format(temperature) + "\n"]


def _scores(found: Publishable) -> Scores:
    """The policy's counts by problem set; empty when it was not evaluated."""
    return _scores_of(found, found.policy.policy_id)


def _scores_of(found: Publishable, policy_id: str) -> Scores:
    return next((point.scores for point in found.history.points if point.policy_id == policy_id), {})


def _evaluation(found: Publishable) -> list[str]:
    own = _scores(found)
    if not own:
        return ["## Evaluation\n", "This policy has not been evaluated.\n"]
    before = _scores_of(found, found.prepared.policy_id)
    rows = [_evaluated(set_name, k, before, own) for set_name in own for k in found.config.evaluate.ks]
    note = (
        f"Unbiased estimates, {samples_text(own)} ({found.sampling}), with 95% bootstrap intervals over problems"
        f"{'; the difference is paired' if before else ''}. {_overlaps(found)}\n"
    )
    return ["## Evaluation\n", _table(list(rows[0]), rows), note]


def _evaluated(set_name: str, k: int, before: Scores, after: Scores) -> dict[str, str]:
    """pass@k on a set before training, where that is known, and after it."""
    row = {"set": set_name, "problems": str(len(after[set_name])), "": f"pass@{k}"}
    last = {set_name: after[set_name]}
    if not before:
        return row | {"after": percent(policy_pass_at_k(last, k))}
    first = {set_name: before[set_name]}
    return row | {
        "before": percent(policy_pass_at_k(first, k)),
        "after": percent(policy_pass_at_k(last, k)),
        "difference": _difference(average_paired_difference(first, last, k)),
    }


def _difference(change: PairedDifference) -> str:
    return f"{100 * change.difference:+.1f} [{interval_text(change.low, change.high, ', ')}]"


def _overlaps(found: Publishable) -> str:
    pairs = found.prepared.overlaps
    if found.config.problems.source in {"miniature", "basics"} and not found.config.problems.evaluation_sets:
        return "The training problems are built to be others than those evaluated on."
    number = len({pair.train_id for pair in pairs})
    return f"{number} training problems were left out because they were evaluation problems in other words."


def _training_data(found: Publishable) -> str:
    parts = [_table(("set", "source", "licence", "problems"), _problem_rows(found, "train"))]
    rows = [
        {
            "trajectories of": str(row["source"]),
            "drawn by": str(row["writer"] or "unknown"),
            "number": f"{row['trajectories']:,}",
            "correct": f"{row['correct']:,}",
        }
        for row in found.trained_on
    ]
    return "\n".join([*parts, _table(("trajectories of", "drawn by", "number", "correct"), rows)])


def _problem_rows(found: Publishable, split: str) -> list[dict[str, str]]:
    return [
        {
            "set": str(without_paths(row["problem_set"])),
            "source": str(row["source"] or "not stated"),
            "licence": str(row["licence"]),
            "problems": str(row["problems"]),
        }
        for row in found.problems
        if row["split"] == split
    ]


def _licence(found: Publishable, licence: str) -> str:
    base = f"It was trained from {found.base_title}, whose licence applies to what is made from it."
    return f"{licence}. {base}\n" if licence else f"None is stated here. {base}\n"


def _recipe(found: Publishable) -> str:
    tree = without_paths(found.config.model_dump(mode="json"))
    facts = {
        "run": found.history.run_id,
        "policy": found.policy.policy_id,
        "reference policy": found.prepared.policy_id,
        "warehouse snapshot": str(found.snapshot),
        "written by": f"spo-pipeline {found.project}",
    }
    lines = "\n".join(f"- {name}: `{value}`" for name, value in facts.items())
    settings = f"```toml\n{toml_text.document(tree)}```"
    return f"{lines}\n\n<details><summary>every setting</summary>\n\n{settings}\n\n</details>\n"


def _table(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    found = list(rows)
    return "\n".join([*markdown_table(columns, found), ""]) if found else "None.\n"
