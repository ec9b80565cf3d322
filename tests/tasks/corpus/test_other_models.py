"""Another model's answers over the network: what is asked, what comes back, and what a broken server is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from sandbox import TestCase
from tasks.config import OtherModelConfig, PretrainConfig, RunConfig
from tasks.corpus import other_models
from tasks.corpus.other_models import Answer, OtherModelError, Question
from tasks.prepare.pretrain import train_tokenizer
from tasks.problems.problem import Problem


class Server:
    """A small OpenAI-compatible server that writes what it is told to; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.status = 200
        self.most: int | None = None
        """Answers before it refuses; None: it never does."""
        self.write: Callable[[dict[str, Any]], str] = lambda body: f"Hm.\n```python\nprint({body['seed']})\n```"
        self.finish_reason = "stop"
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                outer.keys.add(self.headers["Authorization"])
                outer.status = 400 if outer.most is not None and len(outer.asked) > outer.most else outer.status
                self._send({"error": {"message": "broken"}} if outer.status != 200 else outer.answer(body))

            def _send(self, content: dict[str, Any]) -> None:
                data = json.dumps(content).encode()
                self.send_response(outer.status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/v1"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": self.write(body)}
        choice = {"index": 0, "finish_reason": self.finish_reason, "message": message}
        return {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}


@contextmanager
def serving() -> Iterator[Server]:
    """A server until the block ends; skips where its client is not installed."""
    pytest.importorskip("openai")
    found = Server()
    yield found
    found.http.shutdown()
    found.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


def problem(name: str, **changes: Any) -> Problem:
    return Problem(name, "set", "train", name, f"Solve {name}.", **changes)


def ask(config: OtherModelConfig, questions: list[Question]) -> list[Answer]:
    with other_models.opened(config, RunConfig(), Path()) as answers:
        return answers(questions)


def test_answers_come_in_the_order_of_the_questions(server: Server) -> None:
    config = OtherModelConfig(name="big", endpoint=server.address, model="big-1", requests=4)
    found = ask(config, [Question(problem(f"p{n}"), n) for n in range(20)])
    assert [answer.text.split("print(")[1].split(")")[0] for answer in found] == [str(n) for n in range(20)]
    assert {answer.finish_reason for answer in found} == {"stop"}


def test_the_server_is_asked_for_a_chain_of_thought_with_the_recipes_settings(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BIG_KEY", "secret")
    config = OtherModelConfig(
        name="big", endpoint=server.address, model="big-1", temperature=0.3, max_tokens=77, key_variable="BIG_KEY"
    )
    ask(config, [Question(problem("p", style="function", entry_point="twice"), 5)])
    asked = server.asked[0]
    content = asked["messages"][0]["content"]
    assert (asked["model"], asked["temperature"], asked["max_tokens"], asked["seed"]) == ("big-1", 0.3, 77, 5)
    assert "step by step" in content
    assert "defines `twice`" in content
    assert content.endswith("Solve p.")
    assert server.keys == {"Bearer secret"}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, "it reads standard input"),
        ({"style": "function", "entry_point": "twice"}, "it defines `twice`."),
        ({"style": "function"}, "it defines what the problem asks for."),
        (
            {"style": "function", "entry_point": "f", "hidden_tests": (TestCase("assert Solution().f(1) == 2\n", ""),)},
            "it defines the class `Solution` with the method `f`.",
        ),
    ],
)
def test_a_model_is_told_how_its_program_is_called(changes: dict[str, Any], expected: str) -> None:
    asked = other_models.prompt_of(OtherModelConfig(name="big", model="big-1"), problem("p", **changes))
    assert expected in asked


def test_an_answer_that_was_cut_off_says_so(server: Server) -> None:
    server.finish_reason = "length"
    config = OtherModelConfig(name="big", endpoint=server.address, model="big-1")
    assert ask(config, [Question(problem("p"), 1)])[0].finish_reason == "length"


def test_a_server_that_refuses_is_named(server: Server) -> None:
    server.status = 400
    config = OtherModelConfig(name="big", endpoint=server.address, model="big-1")
    with pytest.raises(OtherModelError):
        ask(config, [Question(problem("p"), 1)])


def test_a_server_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.setattr(other_models, "ATTEMPTS", 0)
    config = OtherModelConfig(name="big", endpoint="http://127.0.0.1:9/v1", model="big-1")
    with pytest.raises(OtherModelError):
        ask(config, [Question(problem("p"), 1)])


def test_a_model_that_is_sampled_here_is_asked_the_same_every_day() -> None:
    tokenizer: Any = train_tokenizer(PretrainConfig())
    tokenizer.chat_template = "Today: {{ strftime_now('%d %b %Y') }} {{ messages[0]['content'] }}"
    config = OtherModelConfig(name="other", model="folder")
    request = other_models._request(config, tokenizer, Question(problem("p"), 1))
    assert tokenizer.decode(request.prompt_ids).startswith("Today: 26 Jul 2024")
