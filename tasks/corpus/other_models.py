"""Chain-of-thought answers of another model: from an OpenAI-compatible server, or sampled here.

Errors
------
OtherModelError
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tasks.checkpoints import checkpoint, model_sources
from tasks.config import OtherModelConfig, ReferenceConfig, RunConfig
from tasks.engines import open_engine
from tasks.engines.protocol import Completion, Request
from tasks.engines.randomness import derived_seed
from tasks.problems.problem import Problem
from tasks.problems.prompt import DAY
from tasks.run.errors import StageError
from tasks.run.prompt_set import PromptSet
from tasks.run.stage import Context
from warehouse.queries import query

ANSWERED = query(__name__, "answered")
TIMEOUT_S = 600.0
ATTEMPTS = 5


class OtherModelError(StageError):
    """Another model cannot be asked; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote."""

    text: str
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Question:
    """One answer wanted; `seed` decides it as far as the model's server heeds seeds."""

    problem: Problem
    seed: int


Ask: TypeAlias = Callable[[Sequence[Question]], list[Answer]]
"""The answers, in the order of the questions."""


def origin(config: OtherModelConfig) -> str:
    """What the warehouse has as the engine of the model's answers."""
    return f"other_model/{config.name}"


def seed_of(config: OtherModelConfig, problem_id: str, number: int) -> int:
    """By which an answer of the model is known, whichever run asked for it."""
    return derived_seed(origin(config), problem_id, number)


def unanswered(
    context: Context, prompts: PromptSet, config: OtherModelConfig, end: int | None = None
) -> list[tuple[str, int]]:
    """Problem and number of each answer that is wanted and not there; one that ends with another token than `end`,
    where that is given, is not there, nor is one that was too long for a smaller limit.
    """
    limit = context.config.engine.max_response_tokens
    rows = context.warehouse.rows(ANSWERED, [origin(config), prompts.prompt_ids, prompts.suites, end, end, limit])
    known = {(row["problem_id"], row["seed"]) for row in rows}
    wanted = ((p, number) for p in sorted(prompts.prompts) for number in range(config.samples))
    return [(p, number) for p, number in wanted if (p, seed_of(config, p, number)) not in known]


def prompt_of(config: OtherModelConfig, problem: Problem) -> str:
    """Instruction and statement."""
    return f"{config.prompt.replace('{style}', _style(problem))}\n\n{problem.statement.strip()}"


def _style(problem: Problem) -> str:
    """How the tests call the program."""
    if problem.style == "stdin":
        return "it reads standard input and writes standard output"
    if any("Solution()." in test.input for test in problem.tests):
        return f"it defines the class `Solution` with the method `{problem.entry_point}`"
    if not problem.entry_point:
        return "it defines what the problem asks for"
    return f"it defines `{problem.entry_point}`"


@contextmanager
def opened(config: OtherModelConfig, run: RunConfig, models: Path) -> Generator[Ask]:
    """A way to ask the model. `models`: where a converted checkpoint may be kept. Raises OtherModelError."""
    if config.endpoint is not None:
        with _client(config) as client:
            yield lambda questions: _asked(client, config, questions)
        return
    folder = model_sources.resolve(ReferenceConfig(model=config.model, dtype=run.reference.dtype), models)
    tokenizer: Any = checkpoint.load_tokenizer(folder)
    with closing(open_engine(run.engine, folder, dtype=run.reference.dtype)) as engine:

        def ask(questions: Sequence[Question]) -> list[Answer]:
            requests = [_request(config, tokenizer, question) for question in questions]
            found = {completion.request: completion for completion in engine.sample(requests)}
            return [_decoded(tokenizer, found[number]) for number in range(len(questions))]

        yield ask


def require_client(config: OtherModelConfig) -> None:
    """Raise OtherModelError unless the library is here that asks a model over the network."""
    if importlib.util.find_spec("openai") is None:
        raise OtherModelError(
            f"model {config.name!r} is asked over the network: `pip install -e '.[endpoint]'` in the project"
        )


def _client(config: OtherModelConfig) -> Any:
    require_client(config)
    import openai

    key = os.environ.get(config.key_variable, "none")
    return openai.OpenAI(base_url=config.endpoint, api_key=key, timeout=TIMEOUT_S, max_retries=ATTEMPTS)


def _asked(client: Any, config: OtherModelConfig, questions: Sequence[Question]) -> list[Answer]:
    import openai

    def one(question: Question) -> Answer:
        found = client.chat.completions.create(
            model=config.model,
            messages=[{"role": "user", "content": prompt_of(config, question.problem)}],
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
            seed=question.seed % 2**31,
        )
        choice = found.choices[0]
        return Answer(choice.message.content or "", "length" if choice.finish_reason == "length" else "stop")

    try:
        with ThreadPoolExecutor(config.requests) as pool:
            return list(pool.map(one, questions))
    except openai.OpenAIError as error:
        raise OtherModelError(
            f"model {config.name!r} at {config.endpoint} gave no answer ({type(error).__name__}: {error}); what it "
            f"answered before is stored: check the address, the model's name and ${config.key_variable}, then run again"
        ) from error


def _request(config: OtherModelConfig, tokenizer: Any, question: Question) -> Request:
    text = prompt_of(config, question.problem)
    if getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": text}]
        said = {"tokenize": False, "add_generation_prompt": True, "strftime_now": DAY.strftime}
        text = str(tokenizer.apply_chat_template(messages, **said))
    ids = tokenizer(text, add_special_tokens=not getattr(tokenizer, "chat_template", None))["input_ids"]
    return Request(
        prompt_ids=tuple(int(token) for token in ids),
        n=1,
        seed=question.seed,
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
    )


def _decoded(tokenizer: Any, completion: Completion) -> Answer:
    return Answer(str(tokenizer.decode(completion.token_ids, skip_special_tokens=True)), completion.finish_reason)
