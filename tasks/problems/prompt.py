"""Problems shown to a model, and programs written as the model would answer.

`chat` uses the tokenizer's own chat template. `few_shot` is for base and very small models: worked examples of the
problem's style (examples.py) as comments with programs, then the task. Such a model rarely writes an end token after
its program, it goes on with the next task; so the few-shot template has a stop mark: a response ends with the token
that completes the next `# Task:`, and that token takes the place of the end token (`complete_length`). The cut is a
function of the sampled tokens alone, so the cut response is distributed exactly as if sampling had stopped there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from tasks.config import ReferenceConfig
from tasks.problems.examples import EXAMPLES
from tasks.problems.problem import Problem, ProblemError
from tasks.programs.extraction import TASK_MARK
from tasks.programs.stubs import function_task

MINIATURE_TOKEN = "<|task|>"
"""Opens the prompt of the miniature reference policy; its tokenizer is recognised by this token."""

_INSTRUCTION = (
    "Solve this problem with a Python 3 program that reads standard input and writes standard output. "
    "Answer with the program alone, in one ```python block."
)
_FUNCTION_INSTRUCTION = (
    "Solve this problem with Python 3. Answer with the complete function alone, in one ```python block."
)

_ANSWER = "The answer is 7."


class UnknownTemplate(ProblemError):
    """The prompt template does not fit the tokenizer."""


class Template(Protocol):
    """How a problem becomes a prompt and a program becomes a response."""

    @property
    def template_id(self) -> str:
        """Name and version; changes whenever the same problem would be rendered differently."""
        ...

    @property
    def stop_mark(self) -> str | None:
        """Text that ends a response in place of the end token; None: only the end token does."""
        ...

    def render(self, problem: Problem) -> str:
        """The prompt as text; the statement is never shortened."""
        ...

    def encode(self, tokenizer: Any, problem: Problem) -> list[int]:
        """The prompt as token ids."""
        ...

    def response_from_program(self, program: str) -> str:
        """The text a model would answer with, without the end token."""
        ...


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    """The tokenizer's chat template around an instruction and the statement; `bare`: the statement alone."""

    tokenizer: Any
    bare: bool = False
    end_id: int | None = None
    """The special token that the chat template writes behind an answer; None: the tokenizer's own end."""

    @property
    def template_id(self) -> str:
        """`chat-1-5f0c1d2e`, with a hash of the chat template's text, which no hash of the tokenizer covers.

        `chat-2-...` where it writes the date, which is `DAY`. `miniature-1` without the instruction: that template is
        the project's own.
        """
        if self.bare:
            return "miniature-1"
        dated = "strftime_now" in json.dumps(self.tokenizer.chat_template)
        return f"chat-{2 if dated else 1}-{_short_hash(self.tokenizer.chat_template)}"

    @property
    def stop_mark(self) -> None:
        """A chat model ends with its end token."""
        return

    def render(self, problem: Problem) -> str:
        """The conversation up to where the model answers."""
        content = problem.statement
        if not self.bare:
            instruction = _INSTRUCTION if problem.style == "stdin" else _FUNCTION_INSTRUCTION
            content = f"{instruction}\n\n{_statement(problem)}"
        messages = [{"role": "user", "content": content}]
        said = {"tokenize": False, "add_generation_prompt": True, "strftime_now": DAY.strftime}
        return str(self.tokenizer.apply_chat_template(messages, **said))

    def encode(self, tokenizer: Any, problem: Problem) -> list[int]:
        """The chat template writes every special token itself, so none is added."""
        return _ids(tokenizer, self.render(problem), special=False)

    def response_from_program(self, program: str) -> str:
        """The program in a Python block, whose fence is longer than any in the program; alone when `bare`."""
        longest = max((len(one) for one in re.findall(r"(?m)^ {0,3}(`{3,})", program)), default=2)
        fence = "`" * (longest + 1)
        return program if self.bare else f"{fence}python\n{program}\n{fence}"


DAY = datetime(2024, 7, 26)
"""The day on which chat templates that write the date are rendered: a prompt must not change at midnight."""
FEW_SHOT = "few_shot-3"
"""Changes when the few-shot template renders problems otherwise; what a single one reads is in its prompt's id."""


@dataclass(frozen=True, slots=True)
class FewShotTemplate:
    """Worked examples as `# Task:` comments with programs, then the problem as the last comment."""

    @property
    def template_id(self) -> str:
        """Name and version."""
        return FEW_SHOT

    @property
    def stop_mark(self) -> str:
        """The beginning of the task that the model would invent next."""
        return "\n" + TASK_MARK

    def render(self, problem: Problem) -> str:
        """Examples and task; lines of the statement after the first are comments, too.

        Statements of functions are put so that a program follows (stubs.py). The examples are the same for every
        problem of a style, so that engines compute their states once.
        """
        shown = [f"{_commented(task)}\n{program}\n" for task, program in EXAMPLES[problem.style]]
        task = function_task(problem.statement) if problem.style == "function" else _statement(problem)
        return "\n".join([*shown, _commented(task) + "\n"])

    def encode(self, tokenizer: Any, problem: Problem) -> list[int]:
        """With the special tokens that the tokenizer puts before plain text."""
        return _ids(tokenizer, self.render(problem), special=True)

    def response_from_program(self, program: str) -> str:
        """The program and the stop mark, as the model would go on."""
        return f"{program}\n{self.stop_mark}"


def version_of(config: ReferenceConfig) -> dict[str, str]:
    """What a stage's key must say of how prompts are rendered, before the tokenizer is there; nothing for `chat`.

    A chat template is the tokenizer's own; its hash is in the template's id, which stage `prepare` leaves.
    """
    return {} if config.template == "chat" else {"template": FEW_SHOT}


def template_for(config: ReferenceConfig, tokenizer: Any) -> Template:
    """The template that `config.template` names, fitting `tokenizer`. Raises UnknownTemplate."""
    has_chat = bool(getattr(tokenizer, "chat_template", None))
    if config.template == "chat" and not has_chat:
        raise UnknownTemplate(
            f"reference.template is 'chat', but the tokenizer of {config.model!r} has no chat template; use few_shot"
        )
    if config.template == "few_shot" or not has_chat:
        return FewShotTemplate()
    ends = ends_of_turn(tokenizer)
    return ChatTemplate(tokenizer, bare=MINIATURE_TOKEN in tokenizer.get_vocab(), end_id=ends[0] if ends else None)


def end_of(template: Template, tokenizer: Any) -> int:
    """The token that ends a response of the template that has no stop mark."""
    own = template.end_id if isinstance(template, ChatTemplate) else None
    return int(tokenizer.eos_token_id) if own is None else own


def other_end(template: Template, tokenizer: Any) -> int | None:
    """The token that ends a response, where that is another one than the tokenizer's own end."""
    end = end_of(template, tokenizer)
    return None if end == tokenizer.eos_token_id else end


def ends_of_turn(tokenizer: Any) -> tuple[int, ...]:
    """The special tokens that the chat template writes behind an answer; none if it shows no answers."""
    turns = [{"role": "user", "content": "How many?"}, {"role": "assistant", "content": _ANSWER}]
    _, found, behind = str(tokenizer.apply_chat_template(turns, tokenize=False)).rpartition(_ANSWER)
    if not found:
        return ()
    special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
    special |= set(tokenizer.all_special_ids)
    return tuple(token for token in _ids(tokenizer, behind, special=False) if token in special)


def encode_response(template: Template, tokenizer: Any, program: str) -> list[int]:
    """`program` as a complete response: token ids up to and including the end token, or the stop mark's last token."""
    return encode_text(template, tokenizer, template.response_from_program(program), ended=True)


def encode_text(template: Template, tokenizer: Any, text: str, *, ended: bool) -> list[int]:
    """A response that was written elsewhere, as token ids; `ended`: with the end token, or up to the stop mark."""
    mark = template.stop_mark
    if mark is None or not ended:
        return [*_ids(tokenizer, text, special=False), *([end_of(template, tokenizer)] if ended else [])]
    ids = _ids(tokenizer, text if mark in text else f"{text.rstrip()}\n{mark}", special=False)
    length = complete_length(template, tokenizer, ids)
    return ids if length is None else ids[:length]


def complete_length(template: Template, tokenizer: Any, token_ids: Sequence[int]) -> int | None:
    """Number of tokens up to and including the one that completes the stop mark; None where it does not occur.

    A response that the length limit cut after this point is complete: keep this many tokens and call it stopped.
    """
    mark = template.stop_mark
    if mark is None or mark not in _text(tokenizer, token_ids):
        return None
    low, high = 1, len(token_ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if mark in _text(tokenizer, token_ids[:middle]) else (middle + 1, high)
    return low


def _short_hash(chat_template: Any) -> str:
    """8 hex digits of a chat template: a text, or several by name."""
    text = chat_template if isinstance(chat_template, str) else json.dumps(chat_template, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _statement(problem: Problem) -> str:
    return problem.statement.strip()


def _commented(text: str) -> str:
    first, *rest = text.splitlines() or [""]
    return "\n".join([f"{TASK_MARK} {first}", *(f"# {line}".rstrip() for line in rest)])


def _ids(tokenizer: Any, text: str, *, special: bool) -> list[int]:
    return [int(token) for token in tokenizer(text, add_special_tokens=special)["input_ids"]]


def _text(tokenizer: Any, token_ids: Sequence[int]) -> str:
    return str(tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))
