"""What a card says of a run: gathered from the warehouse, without a path of this machine.

Errors
------
NothingToPublish
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from tasks.checkpoints import checkpoint
from tasks.checkpoints.packaged_models import PACKAGED
from tasks.config import RunConfig
from tasks.errors import CodedError
from tasks.problems.problem import Problem
from tasks.problems.prompt import template_for
from tasks.report import run_history
from tasks.report.run_history import RunHistory
from tasks.run.manifests import KeptPolicy, PrepareManifest, TrainManifest
from tasks.run.runs import PROJECT
from tasks.run.stage import Context, finished
from tasks.sampling.sampler import sampling_label
from warehouse.queries import query

EXAMPLE = Problem(
    problem_id="example",
    problem_set="example",
    split="evaluation",
    title="Sum",
    statement="Read two integers from one line. Print their sum.",
)
"""What the card's example asks."""


class NothingToPublish(CodedError):
    """The run has no such policy; the message says what there is, or what to run."""


@dataclass(frozen=True, slots=True)
class Publishable:
    """A trained policy and what is known of it."""

    history: RunHistory
    policy: KeptPolicy
    reference: Path
    base_model: str | None
    """The reference policy's name on the hub; None when it has none."""
    base_title: str
    """What the reference policy is, in words."""
    prepared: PrepareManifest
    problems: Sequence[Mapping[str, Any]]
    """Problems by split, set, source and licence."""
    trained_on: Sequence[Mapping[str, Any]]
    """Trajectories by source and by who drew them."""
    project: str
    """Version of this project."""
    snapshot: int
    example: str
    """The prompt of `EXAMPLE`, complete."""
    special_tokens: bool
    """Whether the tokenizer adds its special tokens to a prompt."""

    @property
    def config(self) -> RunConfig:
        """The run's settings."""
        return self.history.config

    @property
    def base_arguments(self) -> dict[str, str]:
        """What `from_pretrained` must be told besides the reference policy's name: which revision, which GGUF file."""
        reference = self.config.reference
        given = {"revision": reference.revision if self.base_model else None, "gguf_file": reference.gguf_file}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def adapted(self) -> bool:
        """Whether the run trained an adapter."""
        return self.config.train.lora is not None

    @property
    def sampling(self) -> str:
        """How the evaluation sampled."""
        return sampling_label(self.config.evaluate.behaviour, self.config.engine.max_response_tokens)


def gather(context: Context, step: int | None = None) -> Publishable:
    """The run's policy of `step`, the last one without it, and what is known of it. Raises NothingToPublish."""
    trained = finished(context.warehouse, TrainManifest, run_id=context.run_id)
    prepared = finished(context.warehouse, PrepareManifest, run_id=context.run_id)
    if trained is None or prepared is None or not trained.policies:
        raise NothingToPublish(
            f"run {context.run_id!r} has trained no policy yet; `spo resume {context.run_id}` continues it"
        )
    policy = _chosen(trained.policies, step, context.run_id)
    tokenizer = checkpoint.load_tokenizer(policy.path)
    template = template_for(context.config.reference, tokenizer)
    store = context.warehouse
    name, title = _base(context.config)
    return Publishable(
        history=run_history.read(store, context.home, context.run_id),
        policy=policy,
        reference=prepared.reference,
        base_model=name,
        base_title=title,
        prepared=prepared,
        problems=store.rows(query(__name__, "problems"), [prepared.problems_batch]),
        trained_on=store.rows(query(__name__, "trained_on"), training_of(context, policy, prepared)),
        project=version(PROJECT),
        snapshot=store.snapshot(),
        example=template.render(EXAMPLE),
        special_tokens=template.stop_mark is not None,
    )


def trainer_of(context: Context, policy: KeptPolicy) -> str:
    """The run that trained the policy: this one, or one whose training it took over."""
    return run_history.trained_by(context.warehouse, policy.policy_id, context.run_id)


def training_of(context: Context, policy: KeptPolicy, prepared: PrepareManifest) -> dict[str, Any]:
    """What the queries are asked of: the run, who trained the policy, until which step, and the run's problems."""
    trainer = trainer_of(context, policy)
    return {"run": context.run_id, "trainer": trainer, "step": policy.step, "problems": prepared.problems_batch}


def without_paths(tree: Any) -> Any:
    """The tree with the last part of a path in the place of the path: a folder here says nothing elsewhere."""
    if isinstance(tree, Mapping):
        return {name: without_paths(value) for name, value in cast("Mapping[str, Any]", tree).items()}
    if isinstance(tree, list | tuple):
        return [without_paths(value) for value in cast("Sequence[Any]", tree)]
    local = isinstance(tree, str) and (tree.startswith(("~", "./", "../")) or Path(tree).is_absolute())
    return Path(str(tree)).name if local else tree


def _chosen(policies: Sequence[KeptPolicy], step: int | None, run_id: str) -> KeptPolicy:
    found = {policy.step: policy for policy in policies}
    if step is not None and step not in found:
        raise NothingToPublish(f"run {run_id!r} kept no weights of step {step}; it has {', '.join(map(str, found))}")
    policy = policies[-1] if step is None else found[step]
    if not checkpoint.is_complete(policy.path):
        raise NothingToPublish(
            f"the weights of step {policy.step} of run {run_id!r} are gone from {policy.path}; "
            f"`spo run --like {run_id}` trains them anew"
        )
    return policy


def _base(config: RunConfig) -> tuple[str | None, str]:
    """The reference policy's name on the hub, if it has one, and what it is in words."""
    reference = config.reference
    if reference.model == "miniature":
        return None, "a small policy that the project pretrains on its built-in task"
    if reference.model in PACKAGED:
        return None, PACKAGED[reference.model].title
    file = [f"file {reference.gguf_file}"] if reference.gguf_file else []
    if Path(reference.model).expanduser().exists() or Path(reference.model).is_absolute():
        return None, _detailed(without_paths(str(Path(reference.model).absolute())), file)
    revision = [f"revision {reference.revision}"] if reference.revision else []
    return reference.model, _detailed(reference.model, revision + file)


def _detailed(title: str, details: Sequence[str]) -> str:
    return f"{title} ({', '.join(details)})" if details else title
