"""Everything that is wrong with a run, found in seconds and before it is submitted, as one list.

A look, not the work: the first records of each file are understood as its layout says, a model's weights are not
loaded, a few known solutions are judged. What comes after is checked by the stage that reads it.

Errors
------
NotReady
"""

from __future__ import annotations

import importlib.util
import shutil
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import InvalidSuite, Judge, SandboxError, SandboxUnavailable, Submission, Suite, TestCase, Verdict
from tasks.checkpoints import checkpoint, inspection, model_sources, packaged_models
from tasks.checkpoints.errors import EngineError
from tasks.config import NAMED_MODELS, EvaluationSet, InvalidConfig, OtherModelConfig, ReferenceConfig, RunConfig
from tasks.corpus import files, other_models
from tasks.engines import vllm_environment
from tasks.engines.devices import visible_gpus
from tasks.engines.positions import longest_prompt
from tasks.errors import CodedError
from tasks.prepare import reference_solutions
from tasks.prepare.stage import limited
from tasks.problems.first_look import Clock, first_problems, look
from tasks.problems.problem import Problem, ProblemError
from tasks.problems.prompt import template_for
from tasks.problems.records import InvalidProblem
from tasks.problems.sources import in_two_sets, none_released, set_names, split_of, within
from tasks.run import placement
from tasks.run.errors import Oversubscribed, StageError
from warehouse import Warehouse, WarehouseMissing
from warehouse.queries import query

JUDGED = 3
"""Problems whose own solution is judged; only when all of them fail something is wrong with the set as a whole."""
LEAST_FREE_BYTES = 1 << 30
CHECKPOINT_BYTES = {"float32": 12, "bfloat16": 14}
"""Of one trained number: float32 value, both moments of AdamW, and the bfloat16 value where that is what computes."""


class NotReady(CodedError):
    """The run could not work; the message lists everything that is wrong."""


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@dataclass(frozen=True, slots=True)
class Machine:
    """The packages and the room on the disk of this machine."""

    installed: Callable[[str], bool] = _installed
    """By the name of a package."""
    free_bytes: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free


HERE = Machine()


@dataclass(slots=True)
class _Faults:
    """What is wrong, in the order in which it was found."""

    messages: list[str]
    machine: Machine = HERE

    def add(self, message: str) -> None:
        if message not in self.messages:
            self.messages.append(message)

    @contextmanager
    def taken(self) -> Generator[None]:
        """What is raised inside is one more fault."""
        try:
            yield
        except (ProblemError, EngineError, SandboxError, StageError) as error:
            self.add(str(error))


def require(config: RunConfig, home: Path, warehouse: str | None = None, *, clock: Clock = time.monotonic) -> None:
    """Raise NotReady, with everything that is wrong at once, unless a run of `config` could begin."""
    found = evaluation_faults(config, clock) if config.subject else faults(config, home, warehouse, clock=clock)
    if len(found) == 1:
        raise NotReady(found[0])
    if found:
        listed = "\n".join(f"  {number}. {message}" for number, message in enumerate(found, start=1))
        raise NotReady(f"{len(found)} things keep this run from starting:\n{listed}")


def evaluation_faults(config: RunConfig, clock: Clock = time.monotonic) -> list[str]:
    """The same of an evaluation alone (`subject`): its problems, the model, its engine and the sandbox."""
    assert config.subject is not None
    found = _Faults([])
    problems = _understood_of(config.evaluate.transfer, found, clock)
    if config.subject.endpoint is not None:
        _look_at_other_model(config.subject.endpoint, found)
    elif config.subject.kind == "checkpoint":
        folder = _look_at_model(config.reference, found)
        if folder is not None and not found.messages:
            _render(config, folder, problems, found)
        _look_at_engine(config, found)
    _judge(config, problems, found)
    return found.messages


def faults(
    config: RunConfig,
    home: Path,
    warehouse: str | None = None,
    *,
    clock: Clock = time.monotonic,
    machine: Machine = HERE,
) -> list[str]:
    """Everything that would keep a run of `config` from working, each in words that say what to do.

    `warehouse` is the location of what was imported for the corpus; None: nothing was.
    """
    found = _Faults([], machine)
    problems = _look_at_problems(config, found, clock)
    for path in config.corpus.files:
        with found.taken():
            look(Path(path), None, files.check_record, clock)
    folder = _look_at_models(config, found)
    if folder is not None and not found.messages:
        _render(config, folder, problems, found)
    _look_at_mix(config, problems, warehouse, found)
    _look_at_disk(config, home, folder, found)
    _look_at_engine(config, found)
    _look_at_trackers(config, found)
    _look_at_head(folder, found)
    _look_at_adapters(config, folder, found)
    _look_at_gpus(config, found)
    _judge(config, problems, found)
    return found.messages


# problems


def _look_at_problems(config: RunConfig, found: _Faults, clock: Clock) -> list[Problem]:
    """The first problems that can be judged; complains of what cannot be read, and of too few."""
    known: list[Problem] = []
    taken: list[Problem] = []
    with found.taken():
        read, whole = first_problems(config.problems, clock)
        known = [problem for problem in read if problem.unjudgeable_reason is None]
        if whole and config.problems.source != "miniature":
            _count(config, read, known, found)
        taken = known if whole and len(known) <= config.problems.train else []  # else some are chosen
    own = _understood_of(config.problems.evaluation_sets, found, clock, beside=taken)
    known = [*known, *own, *_understood_of(config.evaluate.transfer, found, clock)]
    if config.problems.source == "miniature" and config.problems.train < 2:
        found.add(_too_few(config.problems.train))
    return known


def _understood_of(
    sets: Sequence[EvaluationSet], found: _Faults, clock: Clock, beside: Sequence[Problem] = ()
) -> list[Problem]:
    """The first problems of each set that can be judged; complains of what cannot be read, of sets of which nothing
    would be left, and of what two of them have, or one and the problems `beside`."""
    known: list[Problem] = []
    seen = {problem.problem_id: "the problems to train on" for problem in beside}
    with found.taken():
        set_names(sets)
    for one in sets:
        with found.taken():
            read, whole = first_problems(one, clock)
            asked = [problem for problem in read if within(problem, one)]
            if whole and not asked:
                raise none_released(one)
            twice = next((problem.problem_id for problem in asked if problem.problem_id in seen), None)
            if twice and one.most is None:
                raise InvalidProblem(in_two_sets(twice, seen[twice], one.place))
            seen |= {problem.problem_id: one.place for problem in asked if one.most is None}
            known += [problem for problem in asked if problem.unjudgeable_reason is None]
    return known


def _count(config: RunConfig, read: list[Problem], good: list[Problem], found: _Faults) -> None:
    """Complain where a file that was read to its end leaves fewer than two problems to train on."""
    split = not config.problems.evaluation_sets
    train = [p for p in good if not split or split_of(p.problem_id, config.problems) == "train"]
    if min(len(train), config.problems.train) < 2:
        reasons = sorted({problem.unjudgeable_reason for problem in read if problem.unjudgeable_reason})
        found.add(_too_few(min(len(train), config.problems.train)) + (f" ({'; '.join(reasons)})" if reasons else ""))


def _too_few(number: int) -> str:
    return (
        f"{number or 'no'} training problem{'' if number == 1 else 's'}: at least two are needed, since one alone is "
        f"learnt by heart; raise problems.train, or give it more problems (problems.path, problems.hub)"
    )


# models


def _look_at_models(config: RunConfig, found: _Faults) -> Path | None:
    """The reference's checkpoint folder, where it is one that can be looked into; complains of every model's faults."""
    folder = _look_at_model(config.reference, found)
    for model in config.corpus.other_models:
        _look_at_other_model(model, found)
    return folder


def _look_at_other_model(model: OtherModelConfig, found: _Faults) -> None:
    if model.endpoint is None:
        _look_at_model(ReferenceConfig(model=model.model), found)
        return
    with found.taken():
        other_models.require_client(model)


def _look_at_model(reference: ReferenceConfig, found: _Faults) -> Path | None:
    """A model that is a folder, or is written like a path; any other name is one on the hub."""
    name, folder = reference.model, Path(reference.model).expanduser()
    if name in packaged_models.PACKAGED:
        with found.taken():
            packaged_models.located(name)
    if name in NAMED_MODELS:
        return None
    if not folder.is_dir() and not folder.is_absolute() and not name.startswith("."):
        with found.taken():
            model_sources.require_reachable(reference)
        return None
    if reference.gguf_file is not None:
        if fault := inspection.gguf_fault(folder, reference.gguf_file):
            found.add(fault)
        return None
    wrong = list(inspection.faults(folder))
    for fault in wrong:
        found.add(fault)
    return None if wrong else folder


def _render(config: RunConfig, folder: Path, problems: list[Problem], found: _Faults) -> None:
    """Load the tokenizer and render prompts; complain when the template does not fit, or no prompt does."""
    try:
        tokenizer: Any = checkpoint.load_tokenizer(folder)
    except (OSError, ValueError, KeyError, EngineError) as error:
        found.add(f"the tokenizer in {folder} cannot be loaded: {str(error).partition(chr(10))[0]}")
        return
    with found.taken():
        template = template_for(config.reference, tokenizer)
        lengths = [len(template.encode(tokenizer, problem)) for problem in problems[:JUDGED]]
        most, why = longest_prompt(config, folder)
        if lengths and min(lengths) > most:
            bound = f"a prompt may have {most}{why}" if why else f"problems.max_prompt_tokens is {most}; raise it"
            found.add(f"the first {len(lengths)} prompts have {min(lengths)} tokens and more, {bound}")


# what a run needs besides


def _look_at_mix(config: RunConfig, problems: list[Problem], warehouse: str | None, found: _Faults) -> None:
    """Complain of a source of training that nothing will ever fill."""
    if config.train.algorithm != "spo":
        return
    offline = config.train.sources.get("offline")
    has_share = offline is not None and offline.share > 0
    if has_share and not (_fills_corpus(config, problems) or _imported(config, warehouse)):
        found.add(
            f"train.sources.offline has a share and stays empty: corpus.sources is {', '.join(config.corpus.sources)}, "
            "and there is no such response; add 'reference' to corpus.sources, `spo import` some, or set the share to 0"
        )


def _fills_corpus(config: RunConfig, problems: list[Problem]) -> bool:
    """Whether something may come into the offline corpus, as far as the configuration and the problems tell."""
    corpus = config.corpus
    if "human" in corpus.sources and (not problems or any(problem.solutions for problem in problems)):
        return True
    if "other_model" in corpus.sources and corpus.other_models:
        return True
    return bool(corpus.files or set(corpus.sources) - {"human", "other_model"})


def _imported(config: RunConfig, location: str | None) -> bool:
    """Whether the warehouse has responses of these sources; for whose problems, the corpus itself finds out."""
    if location is None:
        return False
    try:
        with closing(Warehouse.open(location, read_only=True)) as warehouse:
            return bool(warehouse.value(query(__name__, "imported"), (list(config.corpus.sources),)))
    except WarehouseMissing:
        return False


def _look_at_disk(config: RunConfig, home: Path, folder: Path | None, found: _Faults) -> None:
    """Complain when there is less room than the kept policies and the trainer's checkpoints will take."""
    train, rank = config.train, config.train.lora.rank if config.train.lora else 0
    weights = states = 0
    if folder is not None:
        parameters = inspection.parameter_count(folder)
        adapted = inspection.adapter_bytes(folder, rank) // 4
        weights = 4 * adapted if rank else inspection.weight_bytes(folder)
        trained = (adapted if rank else parameters) * (2 if train.algorithm == "ppo" else 1)  # its value model
        states = trained * CHECKPOINT_BYTES[config.reference.dtype] * (train.keep_checkpoints + 1)  # one being written
    kept = 1 + train.steps // (train.model_update_interval if rank else train.snapshot_interval)
    needed = LEAST_FREE_BYTES + weights * kept + states
    place = next(path for path in (home, *home.parents) if path.exists())
    free = found.machine.free_bytes(place)
    if free < needed:
        found.add(
            f"{free / 2**30:.1f} GiB are free in {place}, and {kept} kept policies ({weights * kept / 2**30:.1f} GiB) "
            f"with {train.keep_checkpoints + 1} checkpoints of the trainer ({states / 2**30:.1f}) need about "
            f"{needed / 2**30:.1f}; make room (`spo clean`), raise train.snapshot_interval, lower "
            f"train.keep_checkpoints, or set SPO_HOME elsewhere"
        )


def _look_at_engine(config: RunConfig, found: _Faults) -> None:
    python = config.engine.python
    if config.engine.kind == "vllm" and (fault := vllm_environment.vllm_fault(python)):
        found.add(f"engine.kind is 'vllm': {fault}")
    elif config.engine.kind != "vllm" and python and not config.shards.launcher and shutil.which(python) is None:
        found.add(f"engine.python is {python!r}, which is no program here: give the path of a Python, or leave it out")


def _look_at_trackers(config: RunConfig, found: _Faults) -> None:
    for package in config.train.report_to:
        if not found.machine.installed(package):
            found.add(
                f"train.report_to names {package!r}, which is not installed: `pip install {package}`, or take it out"
            )


def _look_at_head(folder: Path | None, found: _Faults) -> None:
    """Complain of a model that could be sampled and not trained."""
    if folder is not None and (fault := inspection.head_fault(folder)):
        found.add(f"{fault}, and the trainer computes with a plain head alone: take another model")


def _look_at_adapters(config: RunConfig, folder: Path | None, found: _Faults) -> None:
    """Complain of adapters that cannot be made, or for layers that the model has not: training would end with it."""
    if config.train.lora is None:
        return
    if not found.machine.installed("peft"):
        found.add("train.lora needs the package peft: `pip install peft`, or take train.lora out of the recipe")
    if folder is None or "all-linear" in config.train.lora.modules:
        return
    there = inspection.layer_matrices(folder)
    if not any(name.rpartition(".")[2] in there for name in config.train.lora.modules):
        found.add(
            f"train.lora.modules names {', '.join(config.train.lora.modules)}, and the layers of {folder.name} have "
            f"{', '.join(sorted(there))}: name some of these, or 'all-linear'"
        )


def _look_at_gpus(config: RunConfig, found: _Faults) -> None:
    """Complain where training wants more GPUs than this machine has, or machines that nothing names here."""
    try:
        placement.place(config, visible_gpus())
    except (Oversubscribed, InvalidConfig) as error:
        found.add(str(error))


def _judge(config: RunConfig, problems: list[Problem], found: _Faults) -> None:
    """Judge some problems' own solutions, or a program of one line; complain when the sandbox or all of them fail."""
    absent = [path for path in config.sandbox.packages if not Path(path).is_dir()]
    if absent and config.sandbox.backend != "docker":
        found.add(
            f"sandbox.packages names {', '.join(absent)}, which is no folder here: programs could not import what they "
            f"need; `pip install --target FOLDER ...` makes one"
        )
        return
    try:
        with Judge(**config.sandbox.model_copy(update={"workers": 1}).judge_arguments()) as judge:
            (alive,) = judge.judge([Submission("print(1)", Suite("preflight", (TestCase("", "1"),)))])
            if alive.verdict != Verdict.accepted:
                found.add(f"the sandbox judges `print(1)` {alive.verdict} ({alive.detail}); look at `spo doctor`")
                return
            chosen = [p for p in problems if reference_solutions.programs(p)][:JUDGED]
            refused = reference_solutions.refused([limited(problem, config) for problem in chosen], judge)
    except (SandboxUnavailable, InvalidSuite, OSError) as error:
        found.add(f"{error}; look at `spo doctor`" if isinstance(error, SandboxUnavailable) else str(error))
        return
    if chosen and len(refused) == len(chosen):
        name, reason = next(iter(refused.items()))
        found.add(
            f"no problem's own solution passes its tests ({len(chosen)} tried), the first is {name!r}: {reason}; look "
            f"at its tests and at sandbox.cpu_limit_s, sandbox.memory_limit_mb and sandbox.packages"
        )
