"""Engines in child processes behind the Protocol: one or several, to which the requests of a call are spread.

A sample is decided by its prompt, seed and index alone, so it does not matter which engine draws it. Engines that
decode to the end what they have read (transformers) get pieces, whose bounds depend on the requests alone: then not
even the float noise of a log-probability depends on how many engines there are. Engines that take requests while they
decode (vLLM) get a few at a time, as many as they have room for.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tasks.checkpoints.errors import EngineError
from tasks.config import EngineConfig
from tasks.config.placeholders import filled
from tasks.engines import wire
from tasks.engines.engine_process import EngineProcess, Inbox, Pending, raise_error
from tasks.engines.protocol import Completion, Request, RequestReader, ScoredSequence

TOGETHER = 16
"""Requests in a row that go to the same rolling engine: often they share a prompt, which is then computed once."""
SPARE = 8
"""One part in so many of its rows is sent to a rolling engine beyond what fits, so that no row waits for the next."""


class ProcessEngine:
    """`len(places)` engine processes as one engine. All of them have the same weights."""

    def __init__(
        self,
        config: EngineConfig,
        checkpoint: Path,
        *,
        dtype: str,
        adapter_rank: int | None = None,
        places: Sequence[Sequence[str]] = ((),),
        launcher: Sequence[str] = (),
    ) -> None:
        """`places`: the GPUs of each process, nothing on a machine without. `launcher`: the command that starts them
        elsewhere (`shards.launcher`). The rest as for `open_engine`.

        Raises EngineError (MissingModel, UnsupportedArchitecture, EngineDied) as the engines do.
        """
        self._most = config.max_batch
        self._processes: list[EngineProcess] = []
        said = {"engine": config.model_dump(mode="json"), "checkpoint": str(Path(checkpoint).absolute())}
        said |= {"dtype": dtype, "adapter_rank": adapter_rank, "version": wire.VERSION}
        with contextlib.ExitStack() as failed:
            for index, gpus in enumerate(places):
                environment = {"OMP_NUM_THREADS": str(config.threads)}
                environment |= {"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}
                before = filled(launcher, "shards.launcher", index=index)
                process = EngineProcess(config.python, environment, launcher=before)
                failed.callback(process.close)
                self._processes.append(process)
            first, *_ = [header for header, _ in self._ask_all("open", said)]
            failed.pop_all()
        self.name: str = first["name"]
        self.logprob_kind: Literal["raw", "processed"] = first["logprob_kind"]
        self.rolling: bool = first["rolling"]
        self.policy_id: str = first["policy_id"]

    @property
    def pids(self) -> list[int]:
        """The numbers of the processes."""
        return [process.pid for process in self._processes]

    def sample(self, requests: Iterable[Request | None]) -> Iterator[Completion]:
        """The requests' responses, each as soon as it is finished, whichever engine draws it."""
        self._require_open()
        spread = _Spread(RequestReader(requests), self.rolling, self._most)
        try:
            spread.begin(self._processes)
            while spread.under_way:
                yield spread.next()
                spread.hand_out()
        finally:
            spread.end()

    def score(self, sequences: Sequence[ScoredSequence]) -> list[list[float]]:
        """Raw log-probabilities of each response's tokens."""
        answers = self._in_pieces("score", sequences)
        return [scores for _, arrays in answers for scores in wire.lists_in(arrays)]

    def refresh(self, checkpoint: Path) -> None:
        """Load the weights of `checkpoint` in every process. Raises EngineError as the engines do.

        Where only some could load them, the engine is closed first: they would sample from different policies.
        """
        self._require_open()
        header = {"checkpoint": str(Path(checkpoint).absolute())}
        answers, errors = _answered([process.ask("refresh", header) for process in self._processes])
        held = {answer["policy_id"] for answer, _ in answers}
        if len(held) > 1 or (held and errors):
            self.close()
        if errors:
            raise errors[0]
        if len(held) > 1:
            raise EngineError(
                f"{checkpoint} was changed while engine processes read it; the engine is closed now",
                code="ChangedMeanwhile",
            )
        (self.policy_id,) = held

    def close(self) -> None:
        """End the processes; their memory is free afterwards."""
        processes, self._processes = self._processes, []
        for process in processes:
            process.dismiss()
        for process in processes:
            process.close()

    def _in_pieces(self, asked: str, sequences: Sequence[ScoredSequence]) -> list[wire.Frame]:
        """The answers for pieces of the sequences, whose bounds depend on the sequences alone, in order."""
        self._require_open()
        pending: list[Pending] = []
        for number, start in enumerate(range(0, len(sequences), self._most)):
            process = self._processes[number % len(self._processes)]
            pending.append(process.ask(asked, {}, wire.sequences_out(sequences[start : start + self._most])))
        return _answers(pending)

    def _ask_all(self, asked: str, header: dict[str, Any]) -> list[wire.Frame]:
        return _answers([process.ask(asked, header) for process in self._processes])

    def _require_open(self) -> None:
        if not self._processes:
            raise EngineError("the engine is closed; open another one", code="EngineClosed")


def _answers(pending: Sequence[Pending]) -> list[wire.Frame]:
    """All answers. Raises the first error once nothing is on its way any more."""
    answers, errors = _answered(pending)
    if errors:
        raise errors[0]
    return answers


def _answered(pending: Sequence[Pending]) -> tuple[list[wire.Frame], list[EngineError]]:
    """What comes, answers and errors, waited for to the last."""
    answers: list[wire.Frame] = []
    errors: list[EngineError] = []
    for one in pending:
        try:
            answers.append(one.answer())
        except EngineError as error:
            errors.append(error)
    return answers, errors


@dataclass(slots=True)
class _Spread:
    """One call of `sample`, spread over the processes."""

    reader: RequestReader
    rolling: bool
    most: int
    """Samples that an engine decodes at once."""
    inbox: Inbox = field(default_factory=queue.SimpleQueue)
    calls: dict[EngineProcess, int] = field(default_factory=dict[EngineProcess, int])
    load: dict[EngineProcess, int] = field(default_factory=dict[EngineProcess, int])
    """Samples that each has under way."""

    @property
    def under_way(self) -> bool:
        """Whether anything is."""
        return any(self.load.values())

    def begin(self, processes: Sequence[EngineProcess]) -> None:
        """Open the call in every process and give them the first requests."""
        self.load = dict.fromkeys(processes, 0)
        self.calls = {process: process.begin("sample", self.inbox, {}) for process in processes}
        self.hand_out()

    def hand_out(self) -> None:
        """Give requests to whoever has room, the idlest first, while there are any."""
        room = self.most + max(1, self.most // SPARE)
        while True:
            idlest = min(self.load, key=lambda process: self.load[process])
            free = room - self.load[idlest] if self.rolling else self.most * (not self.load[idlest])
            if free <= 0:
                return
            first = self.reader.read
            requests = self.reader.take(min(free, TOGETHER) if self.rolling else free)
            if not requests:
                return
            settings, arrays = wire.requests_out(requests)
            idlest.add(self.calls[idlest], "more", {"first": first, "requests": settings}, arrays)
            self.load[idlest] += sum(request.n for request in requests)

    def next(self) -> Completion:
        """The next completion of any process. Raises EngineError."""
        process, header, arrays = self.inbox.get()
        raise_error(header)
        self.load[process] -= 1
        return wire.completion_in(header, arrays)

    def end(self) -> None:
        """Want nothing more, whatever is under way."""
        for process, call in self.calls.items():
            process.add(call, "end", {})
            process.forget(call)
