"""The whole input of a trainer process and of its workers: one JSON file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.config import RunConfig, TrainConfig
from tasks.sampling.reference_counts import CountsFilter


class TrainJob(BaseModel):
    """What to train, from where, and where to put it. Written by the train stage, read by every process of the run."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    run_id: str
    warehouse: str
    """Location of the warehouse."""
    run_dir: Path
    """Folder for checkpoints, published weights, TensorBoard files and the manifest."""
    reference: Path
    """Checkpoint folder of pi_0."""
    config: RunConfig
    counts: CountsFilter
    problems_batch: str
    """Warehouse batch of the run's problems, tests and solutions."""
    prompts_batch: str
    """Warehouse batch of the run's prompts."""
    corpus_id: str | None = None
    """Offline corpus; needed by the source 'offline'."""
    known_shares: dict[str, float] = {}
    """Problem that pi_0 never solved -> the probability that it gives the corpus's correct programs."""
    search_id: str | None = None
    """Pivotal search whose token values to use; None: every one made with this reference."""
    rollouts_until: int | None = None
    """Snapshot that shows the last rollout of that search; those of later searches are not drawn from."""
    earlier_until: int | None = None
    """Snapshot up to which trajectories of earlier runs may be used; needed by the source 'earlier'."""
    pairs_until: int | None = None
    """Snapshot up to which pairs of pi_0's samples may be used; needed by the source 'pairs'."""
    value_start: float = 0.0
    """Return that PPO's value model expects of every state at first, reward units."""
    weights_dir: Path | None = None
    """Where weights are handed over to the workers; None: `run_dir/weights`. It may lie in shared memory: what has to
    outlast the run is kept in `run_dir/weights` as well."""
    end_on_stdin_eof: bool = False
    """Stop with a checkpoint when standard input closes: the starting process is gone."""

    @property
    def online_per_batch(self) -> int:
        """Online sequences in an optimizer step that takes new ones (`train.sampling_interval`)."""
        return self.train.sampled_by(1)

    @property
    def selection_bounds(self) -> dict[str, Any]:
        """What bounds the selection of 'earlier', and but for the snapshot those of 'pairs' and 'pivotal_rollouts': a
        snapshot, a limit in tokens, prompts and problems.
        """
        return {
            "until": self.earlier_until,
            "limit": self.config.engine.max_response_tokens,
            "prompts_batch": self.prompts_batch,
            "problems_batch": self.problems_batch,
        }

    @property
    def train(self) -> TrainConfig:
        """The training section of the configuration."""
        return self.config.train

    @property
    def weights(self) -> Path:
        """Folder through which the workers get weights."""
        return self.weights_dir or self.kept

    @property
    def kept(self) -> Path:
        """Folder of the weights that outlast the run."""
        return self.run_dir / "weights"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.run_dir / "checkpoints"

    @property
    def manifest(self) -> Path:
        """The result, written when training has finished."""
        return self.run_dir / "manifest.json"

    def write(self, path: Path) -> Path:
        """The job as JSON in `path`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.model_dump_json(indent=2), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: Path) -> TrainJob:
        """The job of a JSON file."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))
