"""When does purely online SPO collapse, and which sequences drive it? The miniature policy, one process, no corpus.

    python -m benchmarks.stability --home FOLDER [--settings ce-0.1@3e-4,squared@1e-4,...] [--seeds 1] [--steps 99]

A setting is a loss (`ce-EPSILON`, `squared`, `advantage`), a learning rate, and modifiers (see MODIFIERS).
Every setting trains on its own samples alone, by the project's own sampler, sandbox, policy, objectives and guards.
`FOLDER` keeps the reference policy and its Q0 samples, so that they are paid for once. Every tenth step prints:

  pass        share of the batch that passes          length, stop  mean response tokens, share with the end token
  pi_0        log pi_0 per token of the samples        entropy       of the policy, nats per token
  norm        gradient norm before clipping           clipped       share of the failures with y_T above 0
  norm+ norm- norm!  gradient norm of the passes alone, of the failures with y_T <= 0, of those above 0
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from flows.settings import RECIPES
from tasks import config as configs
from tasks.prepare import stage as prepare
from tasks.q0 import stage as q0
from tasks.run import prompt_set, runs
from tasks.run.manifests import PrepareManifest
from tasks.run.sampling import counts_filter, open_sampler
from tasks.run.stage import Context, run_stage
from tasks.sampling.sampler import Sampler
from tasks.scoring.example import Example
from tasks.scoring.packing import lay_out, plan
from tasks.scoring.policy import Policy, load_policy
from tasks.scoring.reference import Reference
from tasks.train.rollout_worker.prompt_schedule import PromptSchedule
from tasks.train.shared import published_weights
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import prompt_values
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.guards import CollapseWatch
from tasks.train.trainer.metrics import Figures, summarize
from tasks.train.trainer.schedule import rate_factor
from tasks.train.trainer.spo_step import spo_pack_loss
from warehouse import Warehouse

EVERY = 10
GROUPS = ("+", "-", "!")
"""Passes; failures with y_T at most 0; failures with y_T above 0."""


MODIFIERS: dict[str, dict[str, Any]] = {
    "fresh": {"model_update_interval": 1},
    "t1": {"behaviour": {"temperature": [1.0, 1.0], "top_p": 1.0}},
    "large": {"batch_size": 256},
    "slow-start": {"optimizer": {"warmup_steps": 40}},
}


def setting(name: str) -> dict[str, Any]:
    """The training section that a name such as `ce-0.1@1e-4+fresh` stands for: loss, rate, modifiers."""
    head, *modifiers = name.split("+")
    loss, _, rate = head.partition("@")
    objective = {"ce": {}, "squared": SQUARED, "advantage": ADVANTAGE}[loss.split("-")[0]]
    train: dict[str, Any] = {
        "sources": {"online": {"share": 1.0, "objectives": [objective]}},
        "optimizer": {"learning_rate": float(rate), "warmup_steps": 5},
    }
    if loss.startswith("ce-"):
        train["clip_epsilon"] = float(loss.removeprefix("ce-"))
    for modifier in modifiers:
        configs.merge(train, MODIFIERS[modifier])
    return train


SQUARED = {"kind": "terminal", "loss": "squared"}
ADVANTAGE = {"kind": "advantage", "loss": "sigmoid"}
DEFAULT = "ce-0.01@3e-4,ce-0.1@3e-4,ce-0.7@3e-4,squared@1e-4,advantage@3e-4"


@dataclass(slots=True)
class Trial:
    """One setting in training."""

    job: TrainJob
    prompts: PromptSchedule
    examples: Examples
    sampler: Sampler
    policy: Policy
    reference: Reference
    optimizer: torch.optim.Optimizer
    folder: Path

    def run(self, steps: int) -> Iterator[tuple[int, Figures]]:
        """(step, its figures), step after step."""
        train = self.job.train
        for step in range(1, steps + 1):
            if (step - 1) % train.model_update_interval == 0:
                self._refresh()
            batch = self._sample(step)
            figures = self._update(step, batch)
            yield step, figures

    def _refresh(self) -> None:
        model = self.policy.causal_lm
        found = published_weights.publish(self.folder, 0, model, model.state_dict(), like=self.job.reference)
        self.sampler.engine.refresh(found.folder)

    def _sample(self, step: int) -> list[Example]:
        train = self.job.train
        drawn = self.prompts.draw(0, step, responses=train.batch_size, per_prompt=train.responses_per_prompt)
        rows = [item.row for item in self.sampler.run(drawn, source="online")]
        rows.sort(key=lambda row: (row["prompt_id"], row["seed"], row["trajectory_id"]))
        return self.examples.build(rows, "online")

    def _update(self, step: int, batch: Sequence[Example]) -> Figures:
        groups = plan(batch, self.job.train.packing, most_tokens=self.job.train.micro_batch_tokens)
        norms = dict.fromkeys(GROUPS, float("nan"))
        self.optimizer.zero_grad()
        records: list[Any] = []
        ref_logp = 0.0
        for group in groups:
            pack = lay_out([batch[i] for i in sorted(group)], self.job.train.packing)
            ref_logp_N, _ = self.reference.logprobs(pack, {})
            logp_N, entropy_N = self.policy(pack)
            loss_B, found = spo_pack_loss(pack, logp_N, ref_logp_N, entropy_N, self.job.train)
            if step % EVERY == 1 and len(groups) == 1:
                norms = self._group_norms(loss_B, [_group(record) for record in found])
            (loss_B.sum() / len(batch)).backward()
            records += found
            ref_logp += float(ref_logp_N.sum())
        norm = self._step(step)
        figures = summarize(records) | {"grad_norm": norm, "learning_rate": 0.0}
        figures["ref_logp"] = ref_logp / sum(record.length for record in records)
        return figures | {f"norm{name}": value for name, value in norms.items()}

    def _group_norms(self, loss_B: torch.Tensor, groups: Sequence[str]) -> dict[str, float]:
        """Gradient norm of each group's part of the loss."""
        parameters = list(self.policy.parameters())
        norms: dict[str, float] = {}
        for name in GROUPS:
            chosen = torch.tensor([group == name for group in groups])
            if not chosen.any():
                norms[name] = 0.0
                continue
            part = loss_B[chosen].sum() / len(groups)
            gradients = torch.autograd.grad(part, parameters, retain_graph=True, allow_unused=True)
            norms[name] = float(torch.stack([g.square().sum() for g in gradients if g is not None]).sum().sqrt())
        return norms

    def _step(self, step: int) -> float:
        optimizer = self.job.train.optimizer
        for group in self.optimizer.param_groups:
            group["lr"] = optimizer.learning_rate * rate_factor(step - 1, self.job.train)
        norm = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), optimizer.max_grad_norm)
        self.optimizer.step()
        return float(norm)


def _group(record: Any) -> str:
    if record.terminal == 0:
        return "+"
    return "!" if record.y_T > 0 else "-"


def prepared(home: Path) -> tuple[Context, Warehouse]:
    """A run of the recipe `tiny` whose reference policy and Q0 samples are there."""
    loaded = configs.load("tiny", folder=RECIPES)
    store = Warehouse.open(home / "warehouse")
    context = Context(runs.create(store, loaded, origin="stability"), loaded, store, home)
    for stage in (prepare.STAGE, q0.STAGE):
        run_stage(stage, context)
    return context, store


@contextmanager
def trial(context: Context, train: dict[str, Any], seed: int) -> Iterator[Trial]:
    """The trial of one setting and seed."""
    tree = context.config.model_dump(mode="json")
    tree["train"] |= {"sources": {}, "micro_batch_tokens": 1 << 20}
    configs.merge(tree, {"train": train, "seed": seed})
    loaded = configs.validate(tree)
    manifest = context.manifest(PrepareManifest)
    folder = manifest.reference
    with tempfile.TemporaryDirectory() as scratch:
        job = TrainJob(
            run_id="stability",
            warehouse=str(context.home / "warehouse"),
            run_dir=Path(scratch),
            reference=folder,
            config=loaded,
            counts=counts_filter(context, prompt_set.load(context, "train")),
            problems_batch=manifest.problems_batch,
            prompts_batch=manifest.prompts_batch,
        )
        policy = load_policy(folder, job.train, "float32", trained=True)
        reference = Reference(load_policy(folder, job.train, "float32", trained=False))
        optimizer = torch.optim.AdamW(
            policy.parameters(), betas=job.train.optimizer.betas, weight_decay=job.train.optimizer.weight_decay
        )
        values = prompt_values(context.warehouse, job)
        prompts = PromptSchedule.read(context.warehouse, job)
        examples = Examples(context.warehouse, job, values)
        with open_sampler(context, folder, job.train.behaviour) as sampler:
            yield Trial(job, prompts, examples, sampler, policy, reference, optimizer, Path(scratch))


COLUMNS = {
    "pass": "pass_fraction",
    "length": "length",
    "stop": "stop_fraction",
    "pi_0": "ref_logp",
    "entropy": "entropy",
    "y_T": "y_T",
    "clipped": "clipped_fraction",
    "norm": "grad_norm",
    "norm+": "norm+",
    "norm-": "norm-",
    "norm!": "norm!",
}


def show(context: Context, name: str, seed: int, steps: int) -> None:
    """Train one setting and print its table and the first warning of each kind."""
    print(f"\n{name}, seed {seed}\n step " + " ".join(f"{column:>8}" for column in COLUMNS), flush=True)
    passes: list[float] = []
    with trial(context, setting(name), seed) as running:
        watch = CollapseWatch(running.job.train.guards)
        told: set[str] = set()
        for step, figures in running.run(steps):
            passes.append(figures["pass_fraction"])
            if step % EVERY == 1 or step == steps:
                cells = " ".join(f"{figures.get(key, 0.0):8.3g}" for key in COLUMNS.values())
                print(f"{step:5d} {cells}", flush=True)
            for kind, warning in watch.warnings(figures).items():
                if kind not in told:
                    told.add(kind)
                    print(f"      step {step}: {warning}", flush=True)
    best = max(statistics.mean(passes[i : i + EVERY]) for i in range(max(1, len(passes) - EVERY + 1)))
    last = statistics.mean(passes[-EVERY:])
    print(f"{name}, seed {seed}: best ten steps {best:.0%}, last ten {last:.0%}", flush=True)


def main() -> None:
    """Train the chosen settings and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--settings", default=DEFAULT, help="LOSS@RATE[+MODIFIER...], comma-separated")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    context, store = prepared(arguments.home)
    with store:
        for name in arguments.settings.split(","):
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
                show(context, name, seed, arguments.steps)


if __name__ == "__main__":
    main()
