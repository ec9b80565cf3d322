"""The folders that are published: planned first, so that a dry run shows what a publication would write.

model          the policy: weights, tokenizer, chat template, generation settings, card, pictures
adapter        of a run with train.lora: the adapter alone
trajectories   what the run drew or was trained on, and its training prompts
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from tasks.checkpoints import adapter, checkpoint, inspection
from tasks.extras.publish import card
from tasks.extras.publish.facts import NothingToPublish, Publishable, training_of
from tasks.report import chart_sections
from tasks.report.chart_rendering import Chart, save_png
from tasks.run.stage import Context
from warehouse.exchange import exporting
from warehouse.queries import query

PartName = Literal["model", "adapter", "trajectories"]
PARTS: tuple[PartName, ...] = ("model", "adapter", "trajectories")
CARD = "README.md"
GENERATION = "generation_config.json"
MERGED = "model.safetensors"
_OWN = {"published.json", checkpoint.POLICY_FILE, CARD}
"""Files that only the project reads, and what the card takes the place of."""


@dataclass(frozen=True, slots=True)
class Rows:
    """A file with a query's rows."""

    query: str
    parameters: dict[str, Any]
    count: int


@dataclass(frozen=True, slots=True)
class Merged:
    """Weights and config of the adapter in `folder` merged into its base."""

    folder: Path
    dtype: str


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file to be written: a copy, a text, a picture, rows, or merged weights with their config."""

    name: str
    content: Path | str | Chart | Rows | Merged

    @property
    def size(self) -> str:
        """How large it is, in words."""
        if isinstance(self.content, Path):
            return f"{self.content.stat().st_size:,} bytes"
        if isinstance(self.content, str):
            return f"{len(self.content.encode()):,} bytes"
        if isinstance(self.content, Merged):
            return f"about {inspection.weight_bytes(self.content.folder):,} bytes"
        return f"{self.content.count:,} rows" if isinstance(self.content, Rows) else "picture"


@dataclass(frozen=True, slots=True)
class Part:
    """A folder to be written, which is one repository on the hub."""

    name: PartName
    repository: str
    """`owner/name` on the hub, or the folder's name."""
    files: Sequence[PlannedFile]
    policy_id: str | None = None
    """Of the weights in it, where they are those that the run kept."""

    @property
    def card(self) -> str:
        """Its card."""
        return next(file.content for file in self.files if file.name == CARD and isinstance(file.content, str))


def plan(context: Context, found: Publishable, name: str, wanted: Iterable[str] = (), licence: str = "") -> list[Part]:
    """The parts as they would be written; without `wanted` all there are.

    `name` is what the policy will be called. Raises NothingToPublish for a part that there is not.
    """
    asked = list(wanted)
    names = [part for part in PARTS if part in (asked or _existing(found))]
    made = {"model": _model, "adapter": _adapter, "trajectories": _trajectories}
    return [made[part](context, found, name, licence) for part in names]


def write(context: Context, part: Part, folder: Path) -> Path:
    """The part's folder, complete. Raises NothingToPublish when it is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise NothingToPublish(f"{folder} is not empty: publish into a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file in part.files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(file.content, Path):
            shutil.copyfile(file.content, path)
        elif isinstance(file.content, str):
            path.write_text(file.content, encoding="utf-8")
        elif isinstance(file.content, Merged):
            _write_merged(file.content, folder)
        elif isinstance(file.content, Rows):
            exporting.copy_rows(context.warehouse, file.content.query, file.content.parameters, path)
        else:
            save_png(file.content, path)
    if part.policy_id is not None and part.policy_id not in checkpoint.computed_ids(folder):
        raise NothingToPublish(f"the weights in {folder} are not policy {part.policy_id}: the disk is damaged")
    return folder


def _write_merged(merged: Merged, folder: Path) -> None:
    """Raises NothingToPublish when what can be read of the folder is not what was written."""
    import torch

    checkpoint.write_merged(merged.folder, merged.dtype, folder)
    wanted = checkpoint.load_weights(merged.folder, merged.dtype).state_dict()
    found = checkpoint.load_weights(folder, merged.dtype).state_dict()
    if wanted.keys() != found.keys() or not all(torch.equal(wanted[name], found[name]) for name in wanted):
        raise NothingToPublish(f"the weights in {folder} are not those of {merged.folder}: the disk is damaged")


def _existing(found: Publishable) -> Sequence[PartName]:
    return [part for part in PARTS if part != "adapter" or adapter.is_adapter(found.policy.path)]


def _model(context: Context, found: Publishable, name: str, licence: str) -> Part:
    source, kept = adapter.base_of(found.policy.path), found.policy.policy_id
    files = [path for path in sorted(source.iterdir()) if path.is_file() and path.name not in _OWN]
    planned = [PlannedFile(path.name, path) for path in files]
    if source != found.policy.path:
        files, kept = checkpoint.companions(source), None
        merged = Merged(found.policy.path, context.config.reference.dtype)
        planned = [PlannedFile(MERGED, merged), *(PlannedFile(path.name, path) for path in files)]
    planned = [file for file in planned if file.name != GENERATION]
    planned.append(PlannedFile(GENERATION, generation_settings(source)))
    charts = list(chart_sections.learning([found.history]).charts)
    pictures = [PlannedFile(f"{chart.name}.png", chart) for chart in charts]
    text = card.model_card(found, name, licence, [picture.name for picture in pictures])
    return Part("model", name, [*planned, *pictures, PlannedFile(CARD, text)], kept)


def generation_settings(source: Path) -> str:
    """Generation settings that say where a response ends, and nothing else.

    The base's own may hold a temperature, a nucleus or a repetition penalty: another policy than was trained and
    evaluated.
    """
    stop = list(checkpoint.stop_ids(source))
    config = cast("dict[str, Any]", json.loads((source / "config.json").read_text(encoding="utf-8")))
    known = {name: config[name] for name in ("bos_token_id", "pad_token_id") if config.get(name) is not None}
    return json.dumps({"eos_token_id": stop[0] if len(stop) == 1 else stop, **known}, indent=2) + "\n"


def _adapter(context: Context, found: Publishable, name: str, licence: str) -> Part:
    folder = found.policy.path
    if not adapter.is_adapter(folder):
        reason = (
            "was trained without train.lora" if not found.adapted else "kept its weights merged, as version 0.1 did"
        )
        raise NothingToPublish(f"there is no adapter to publish: run {context.run_id!r} {reason}")
    own = f"{name}-adapter"
    base = {adapter.BASE_FIELD: found.base_model, "revision": found.base_arguments.get("revision")}
    settings = adapter.settings(folder) | base
    files = [
        PlannedFile(adapter.WEIGHTS, folder / adapter.WEIGHTS),
        PlannedFile(adapter.CONFIG, json.dumps(settings, indent=2) + "\n"),
    ]
    return Part("adapter", own, [*files, PlannedFile(CARD, card.adapter_card(found, own, name, licence))])


def _trajectories(context: Context, found: Publishable, name: str, licence: str) -> Part:
    own, store = f"{name}-trajectories", context.warehouse
    asked = training_of(context, found.policy, found.prepared)
    prompts = {"batch": found.prepared.prompts_batch, "problems": found.prepared.problems_batch}
    texts = {"trajectories": (query(__name__, "trajectories"), asked), "prompts": (query(__name__, "prompts"), prompts)}
    rows = {
        part: Rows(text, given, int(store.value(query(__name__, "count", rows=text), given)))
        for part, (text, given) in texts.items()
    }
    if not rows["trajectories"].count:
        raise NothingToPublish(f"run {context.run_id!r} has no trajectories")
    files = [PlannedFile(f"{part}/train-00000-of-00001.parquet", found) for part, found in rows.items()]
    text = card.data_card(found, own, {part: one.count for part, one in rows.items()}, licence)
    return Part("trajectories", own, [*files, PlannedFile(CARD, text)])
