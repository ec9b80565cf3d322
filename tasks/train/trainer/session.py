"""Everything a trainer process holds, opened in the right order and closed again."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tasks.checkpoints.checkpoint import policy_id
from tasks.scoring.errors import StoredLogprobsMismatch
from tasks.scoring.example import Example
from tasks.scoring.packing import lay_out
from tasks.scoring.policy import Policy, load_policy
from tasks.scoring.reference import Reference, ReferenceStore, fingerprint, load_reference
from tasks.train.shared import published_weights, time_limits
from tasks.train.shared.errors import GuardTripped, ReferenceDrift, ResumeImpossible, TrainerError
from tasks.train.shared.job import TrainJob
from tasks.train.shared.soft_values import frozen_values, verdicts_until
from tasks.train.shared.stop import Stop
from tasks.train.trainer import checkpoint, publisher
from tasks.train.trainer.algorithm import Algorithm, SoftPolicyOptimization
from tasks.train.trainer.batch_mix import BatchMix, first_lost
from tasks.train.trainer.deepspeed_engine import DeepSpeedEngine
from tasks.train.trainer.examples import Examples
from tasks.train.trainer.ppo_step import ProximalPolicyOptimization
from tasks.train.trainer.recorder import COMMIT_EVERY, Recorder
from tasks.train.trainer.state import MixState, ReferenceSteps
from warehouse import Warehouse
from warehouse.lake import STORED
from warehouse.queries import query

CANARIES = query(__name__, "canaries")

WITH_VERDICTS = ("trajectories", "token_values")
"""What the sources of a mix are drawn from, whose verdicts stay those that training began with."""

LAST_RECORDED = "SELECT coalesce(max(step), 0) FROM train_batches WHERE run_id = ?"
LAST_STORED = f"SELECT coalesce(max(step), 0) FROM {STORED}.train_batches WHERE run_id = ?"
"""The same with what was put aside since."""


@dataclass(slots=True)
class RankZeroState:
    """What only the first process has: the warehouse and everything that reads or writes it."""

    warehouse: Warehouse
    mix: BatchMix
    store: ReferenceStore
    recorder: Recorder
    canaries: list[Example]
    """Prompts of the run, of which the first half is given and the second half scored."""
    last_recorded: int
    """Last step that this run had recorded when the process started."""
    publications: publisher.Publications


@dataclass(slots=True)
class Session:
    """A trainer process, ready for the step after `step`.

    There is one in every process of a run, and `rank_zero` is what only the first of them has: it alone reads and
    writes the warehouse. A method whose docstring says Collective must be called by all processes, in the same order,
    since it waits for the others: it shares what the first has read, gathers weights, or writes a checkpoint in pieces.
    So no process may return or raise between two of them on its own: what one finds wrong it hands to
    `engine.raise_together`, which raises it in all.
    """

    job: TrainJob
    engine: DeepSpeedEngine
    algorithm: Algorithm
    policy: Policy
    reference: Reference
    rank_zero: RankZeroState | None
    stop: Stop
    step: int = 0
    published: published_weights.Published | None = None
    references: ReferenceSteps = field(default_factory=ReferenceSteps)
    warned: set[str] = field(default_factory=set[str])
    updates: int = 0
    """Optimizer updates when the present batch was drawn."""
    before: MixState = field(default_factory=MixState)
    """The state of the mix when the present batch was drawn."""

    def next_batch(self, step: int) -> tuple[list[Example], dict[str, Sequence[float]]]:
        """The examples of `step` and what is stored of log pi_0; empty on all but the first process. Collective."""
        self.updates = self.engine.updates
        return self.engine.first_does(lambda: self._drawn(step)) or ([], {})

    def _drawn(self, step: int) -> tuple[list[Example], dict[str, Sequence[float]]]:
        """What `next_batch` gives, once the workers have sampled it.

        Raises Interrupted, GuardTripped, and PublishingFailed where that happened since the last step.
        """
        assert self.rank_zero is not None
        self._take_note(wait=False)
        self.before = self.rank_zero.mix.state()
        batch = self.rank_zero.mix.next(step, self.stop)
        try:
            return batch, self.rank_zero.store.lookup(batch, ahead=self.rank_zero.mix.ahead())
        except StoredLogprobsMismatch as error:
            raise ReferenceDrift.over([error.trajectory_id], str(error)) from error

    def publish(self, step: int, *, announced: bool = True) -> float:
        """Publish the weights of `step` for evaluation and, if they are `announced`, for the rollout workers.

        Returns the seconds that training waited for it.

        In the background, training waits for the publication before and for the gathering of the weights. Collective.
        """
        began = time.monotonic()
        self.settle()
        canaries = self._scored_canaries()
        train, model = self.job.train, self.policy.causal_lm
        beside = step > 0 and publisher.in_background(train, model)
        wanted = partial(publisher.is_published, train)
        state = self.engine.consolidated(model, wanted, apart=beside) if step else {}
        gathered = publisher.Gathered(step, model, state, canaries, announced=announced and not self.references.nominee)
        self.engine.first_does(lambda: self._publish(gathered, beside=beside))
        return time.monotonic() - began

    def _publish(self, gathered: publisher.Gathered, *, beside: bool) -> None:
        assert self.rank_zero is not None
        work = partial(publisher.write, self.job, gathered)
        if beside:
            self.rank_zero.publications.begin(gathered.step, work)
        else:
            self._note(work())

    def settle(self) -> None:
        """Wait for the publication that is under way, if one is. Collective. Raises PublishingFailed."""
        self.engine.first_does(lambda: self._take_note(wait=True))

    def _take_note(self, *, wait: bool) -> None:
        """Record the publication that the thread has come to the end of. Raises PublishingFailed."""
        assert self.rank_zero is not None
        published = self.rank_zero.publications.taken(wait=wait)
        if published is not None:
            self._note(published)

    def _note(self, published: published_weights.Published) -> None:
        assert self.rank_zero is not None
        self.published = published
        if published.step == 0:
            return
        row = publisher.policy_row(self.job, published, self.policy.causal_lm)
        batch = f"policy/{self.job.run_id}/{published.step:08d}/{published.policy_id}"
        self.rank_zero.warehouse.append(batch, {"policies": [row]}, run_id=self.job.run_id)

    def hand_over(self) -> None:
        """Give the workers weights where they find none: at the start, or after shared memory was emptied. Collective.

        They sample from the nominee while there is one.
        """
        if self.references.nominee == 0:
            self.publish(self.step)
            self.settle()  # until then nobody samples, and nobody would ask how it went
            return
        nominee = published_weights.folder_of(self.job.kept, self.references.nominee)
        self.engine.first_does(lambda: published_weights.keep(published_weights.read(nominee), self.job.weights))

    def save(self, *, drawing: bool = False) -> None:
        """Have a checkpoint of the present step, once what is being published is whole. Collective.

        `drawing`: the next batch was being drawn, so that some of its sources are ahead; resumed, it is drawn whole.
        """
        state = MixState() if self.rank_zero is None or drawing else self.rank_zero.mix.state()
        self._checkpoint(self.before if drawing else state)

    def _checkpoint(self, mix: MixState) -> None:
        """One that is there already is of the same step of the same run, and stays."""
        self.settle()
        if self.rank_zero is not None:
            self.rank_zero.recorder.flush()
        there = self.rank_zero is not None and checkpoint.is_there(self.job, self.step)
        if not self.engine.share(there):
            checkpoint.save(self.job, self.engine, self.step, mix, self.references)

    def checkpoint_before_abort(self, error: GuardTripped) -> GuardTripped:
        """The error that ends the run, after a checkpoint where nothing is spoilt; it says how to go on. Collective."""
        if self.engine.updates == self.updates:
            self._checkpoint(self.before)
            state = f"a checkpoint of step {self.step} was written; resumed, the run takes the same batch again"
        else:
            state = "nothing was saved; resumed, the run continues from its last checkpoint"
        advice = "lower train.optimizer.learning_rate in a new run"
        if self.rank_zero is not None and error.trajectory_ids:
            batches = " ".join(self._batches_of(self.rank_zero, error))
            advice = f"to go on without them: `spo quarantine {batches}`, then resume; or {advice}"
        return type(error).over(error.trajectory_ids, f"{error}. In step {self.step + 1}; {state}; {advice}")

    @staticmethod
    def _batches_of(rank_zero: RankZeroState, error: GuardTripped) -> list[str]:
        """What to put aside: the trajectories' batches, or those of what is stored of them under the reference."""
        warehouse, ids = rank_zero.warehouse, list(error.trajectory_ids)
        if isinstance(error, ReferenceDrift):
            rows = warehouse.rows(query(__name__, "scores"), (ids, rank_zero.store.fingerprint))
        else:
            rows = warehouse.rows(query(__name__, "batches"), (ids,))
        return [str(row["batch_id"]) for row in rows]

    def scored(self, examples: Sequence[Example]) -> list[Tensor]:
        """log pi_theta of each example's response tokens (T, float32), by the pass of training itself. Collective."""
        with torch.no_grad():
            logp_N = self.engine.forward(lay_out(examples, self.policy.layout).to(self.engine.device))[0]
        return list(logp_N.float().split([len(example.response_ids) for example in examples]))

    def _scored_canaries(self) -> list[published_weights.Canary]:
        """The canaries by the pass that training itself takes. Collective."""
        few: list[Example] = self.engine.share([] if self.rank_zero is None else self.rank_zero.canaries)
        if not few:
            return []
        return [
            published_weights.Canary(e.prompt_ids, e.response_ids, tuple(p.tolist()))
            for e, p in zip(few, self.scored(few), strict=True)
        ]


def algorithm_of(job: TrainJob) -> Algorithm:
    """The algorithm that the recipe names."""
    if job.train.algorithm == "ppo":
        return ProximalPolicyOptimization(job.train, job.config.seed, job.value_start)
    return SoftPolicyOptimization(job.train)


@contextmanager
def open_session(job: TrainJob) -> Generator[Session]:
    """The session of this process, continued from the newest complete checkpoint when there is one."""
    device = pick_device()
    make_deterministic(job)
    dtype = job.config.reference.dtype
    policy = load_policy(job.reference, job.train, dtype, trained=True).to(device)
    reference = Reference(policy) if job.train.lora else load_reference(job.reference, job.train, dtype, device)
    algorithm = algorithm_of(job)
    module = algorithm.module(policy, job.reference, dtype).to(device)
    groups = algorithm.parameter_groups(module)
    timeout_s = time_limits.group_timeout_s(job.reference, job.train)
    engine = DeepSpeedEngine(module, job.train, dtype=dtype, device=device, groups=groups, timeout_s=timeout_s)
    try:
        stop = Stop()
        stop.listen(stdin=job.end_on_stdin_eof)
        found = engine.share(checkpoint.newest(job) if engine.rank == 0 else None)
        if found is not None:
            checkpoint.load(job, engine, found)
        with _rank_zero(job, engine, found, str(device.type)) as rank_zero:
            session = Session(job, engine, algorithm, policy, reference, rank_zero, stop)
            if found is not None:
                session.step, session.references = found.step, found.references
            yield session
    finally:
        engine.close()


@contextmanager
def _rank_zero(
    job: TrainJob, engine: DeepSpeedEngine, found: checkpoint.Checkpoint | None, device: str
) -> Generator[RankZeroState | None]:
    if engine.rank:
        yield None
        return
    step, state = (0, MixState()) if found is None else (found.step, found.mix)
    with Warehouse.open(job.warehouse) as warehouse:
        warehouse.commit()
        warehouse.show_judged_until(verdicts_until(warehouse, job), WITH_VERDICTS)
        _require_same_reference(job)
        require_same_warehouse(warehouse, job, step)
        examples = Examples(warehouse, job, frozen_values(warehouse, job))
        last = int(warehouse.value(LAST_RECORDED, (job.run_id,)))
        store = open_store(warehouse, job, job.reference, device)
        recorder, publications = Recorder(warehouse, job, after=step), publisher.Publications()
        try:
            if (lost := first_lost(warehouse, job, step)) is not None:
                recorder.give_up(lost)
                last = lost - 1
            mix = BatchMix(examples, state, after=step)
            yield RankZeroState(warehouse, mix, store, recorder, _canaries(warehouse, job), last, publications)
        finally:
            publications.close()
            recorder.close()


def require_same_warehouse(warehouse: Warehouse, job: TrainJob, step: int) -> None:
    """Raise ResumeImpossible for a checkpoint of steps that the warehouse has never seen: it is another one's run."""
    if step > (last := int(warehouse.value(LAST_STORED, (job.run_id,)))):
        raise ResumeImpossible(
            f"{job.checkpoints} has a checkpoint of step {step}, but of run {job.run_id!r} {warehouse.location} has "
            f"{last} steps: the folder is that of another warehouse's run of the same name; give each warehouse a home "
            f"of its own (SPO_HOME), or move {job.run_dir} away to train from the beginning"
        )


def _canaries(warehouse: Warehouse, job: TrainJob) -> list[Example]:
    found: list[Example] = []
    for row in warehouse.rows(CANARIES, (job.prompts_batch,)):
        ids = tuple(row["token_ids"])
        given, scored = ids[: len(ids) // 2], ids[len(ids) // 2 :]
        found.append(Example(row["prompt_id"], "canary", "online", given, scored, 0.0, 0.0, stopped=False))
    return found


def pick_device() -> torch.device:
    """The device of this process: its GPU, where it sees one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def make_deterministic(job: TrainJob) -> None:
    """Seed torch and refuse kernels whose results vary, unless the recipe allows them."""
    torch.manual_seed(job.config.seed)
    if job.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _require_same_reference(job: TrainJob) -> None:
    found = policy_id(Path(job.reference))
    if found != job.counts.reference:
        raise TrainerError(
            f"the reference in {job.reference} is policy {found}, but the soft values belong to {job.counts.reference}"
        )


def open_store(warehouse: Warehouse, job: TrainJob, folder: Path, device: str) -> ReferenceStore:
    """The stored log-probabilities under the weights in `folder`."""
    own = fingerprint(folder, job.train, job.config.reference.dtype, device)
    unseen = 2 * COMMIT_EVERY * job.train.batch_size
    most_mb = job.train.reference_store_mb
    return ReferenceStore(warehouse, own, run_id=job.run_id, most_mb=most_mb, unseen=unseen)
