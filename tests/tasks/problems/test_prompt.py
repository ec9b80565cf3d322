"""What a model sees, and where its answer ends."""

import copy
import re
import textwrap

import pytest

from tasks.config import PretrainConfig, ReferenceConfig
from tasks.prepare.pretrain import train_tokenizer
from tasks.problems import basics
from tasks.problems.examples import EXAMPLES
from tasks.problems.miniature import generate
from tasks.problems.problem import Problem
from tasks.problems.prompt import (
    ChatTemplate,
    FewShotTemplate,
    complete_length,
    encode_response,
    other_end,
    template_for,
)
from tasks.programs.extraction import extract_program
from tasks.programs.stubs import function_task, task_of
from tests.refusals import refused


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(PretrainConfig())


@pytest.fixture(scope="module")
def problem() -> Problem:
    return generate(1, 1, 0)[0]


def test_miniature_prompt_is_the_bare_statement_between_its_tokens(tokenizer, problem) -> None:
    template = template_for(ReferenceConfig(), tokenizer)
    assert template.render(problem) == f"<|task|>{problem.statement}<|answer|>"
    assert tokenizer.decode(template.encode(tokenizer, problem)) == template.render(problem)


def test_response_ends_with_the_end_token_and_gives_its_program_back(tokenizer, problem) -> None:
    template = template_for(ReferenceConfig(), tokenizer)
    for solution in problem.solutions:
        ids = encode_response(template, tokenizer, solution.program)
        assert ids[-1] == tokenizer.eos_token_id
        assert ids.count(tokenizer.eos_token_id) == 1
        assert extract_program(tokenizer.decode(ids, skip_special_tokens=True)) == solution.program


def test_miniature_programs_are_short_in_tokens(tokenizer) -> None:
    template = template_for(ReferenceConfig(), tokenizer)
    lengths = [len(encode_response(template, tokenizer, s.program)) for p in generate(40, 40, 0) for s in p.solutions]
    assert max(lengths) <= 60
    assert sum(lengths) / len(lengths) < 30


def test_chat_template_instructs_and_asks_for_a_python_block(tokenizer, problem) -> None:
    template = ChatTemplate(tokenizer)
    assert problem.statement in template.render(problem)
    assert "standard input" in template.render(problem)
    assert extract_program(template.response_from_program("print(1)")) == "print(1)"


def test_another_chat_template_is_another_template_and_the_projects_own_keeps_its_name(tokenizer) -> None:
    names = set()
    for text in ("{{ messages }}", "{{ messages }}\n", {"default": "{{ messages }}", "tools": "{{ tools }}"}):
        changed = copy.deepcopy(tokenizer)
        changed.chat_template = text
        names.add(ChatTemplate(changed).template_id)
        assert ChatTemplate(changed, bare=True).template_id == "miniature-1"
    assert len(names) == 3
    assert all(re.fullmatch("chat-1-[0-9a-f]{8}", name) for name in names)


def test_few_shot_prompt_ends_with_the_commented_statement(problem) -> None:
    prompt = FewShotTemplate().render(problem)
    assert prompt.endswith(f"# Task: {problem.statement}\n")
    assert prompt.count("# Task:") == len(EXAMPLES[problem.style]) + 1


def test_few_shot_statement_is_commented_on_every_line(problem) -> None:
    from dataclasses import replace

    prompt = FewShotTemplate().render(replace(problem, statement="One.\n\nTwo.\n"))
    assert prompt.endswith("# Task: One.\n#\n# Two.\n")


def test_few_shot_puts_a_statement_that_is_code_into_words(problem) -> None:
    from dataclasses import replace

    statement = (
        "from typing import List\n\n\n"
        'def first(xs: List[int], n=1):\n    import math\n    """ The first n.\n    >>> first([3])\n    [3]\n    """\n'
    )
    task = "# Task: The first n.\n# >>> first([3])\n# [3]\n# Write a function first(xs, n=1) that does this.\n"
    template = FewShotTemplate()
    assert template.render(replace(problem, statement=statement, style="function")).endswith(f"\n{task}")
    assert template.render(replace(problem, statement=statement, style="stdin")).endswith('\n#     """\n')
    helped = "import math\n\n\ndef half(x):\n    return x / 2\n\n\ndef quarter(x):\n    'A quarter.'\n"
    assert template.render(replace(problem, statement=helped, style="function")).endswith(
        "# Task: A quarter.\n#\n# import math\n#\n# def half(x):\n#     return x / 2\n"
        "# Write a function quarter(x) that does this. Begin with the code above.\n"
    )
    for other in ("def f(x):\n    return x\n", "Write f.", "def f(x):\n    'Doc.'\n    return x\n", "f(1)\n", ""):
        assert task_of(other) is None
    asserted = replace(problem, statement="Write g.\n\nIt must pass:\n\nassert g(1) == 2\n", style="function")
    assert template.render(asserted).endswith("# Task: Write g. It must pass: assert g(1) == 2\n")
    assert function_task("One.\nTwo.\n\nThree.\n") == "One.\nTwo.\n\nThree."


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_escapes_of_a_docstring_stay_as_they_were_written(quotes: str) -> None:
    stub = f"def f(text):\n    {quotes}Drop them.\n    >>> f('ab\\ncd')\n    'b\\ncd'\n    {quotes}\n"
    assert task_of(stub) == "Drop them.\n>>> f('ab\\ncd')\n'b\\ncd'\nWrite a function f(text) that does this."
    joined = 'def f(x):\n    "One, " "two."\n'
    assert task_of(joined) == "One, two.\nWrite a function f(x) that does this."


def test_few_shot_shows_the_same_examples_of_its_style_to_every_problem_of_it() -> None:
    template = FewShotTemplate()
    shown = {style: [template.render(p) for p in basics.problems() if p.style == style] for style in EXAMPLES}
    for style, prompts in shown.items():
        before = prompts[0][: prompts[0].rindex("# Task:")]
        assert all(prompt.startswith(before) for prompt in prompts)
        assert all(f"# Task: {task}\n{program}\n" in before for task, program in EXAMPLES[style])
    assert all("input()" not in prompt for prompt in shown["function"])
    assert all("def " not in prompt for prompt in shown["stdin"])


def test_worked_examples_are_sound() -> None:
    for style, examples in EXAMPLES.items():
        for task, program in examples:
            names: dict[str, object] = {}
            exec(program if style == "function" else f"def main():\n{textwrap.indent(program, '    ')}", names)
            name = re.search(r"function (\w+)\(", task)
            assert (style == "stdin") == (name is None)
            assert callable(names["main" if name is None else name[1]])


def test_few_shot_prompt_is_python() -> None:
    compile(FewShotTemplate().render(generate(1, 1, 0)[0]), "prompt", "exec")


def test_few_shot_response_ends_where_the_next_task_begins(tokenizer) -> None:
    template = FewShotTemplate()
    ids = encode_response(template, tokenizer, "print(1)")
    assert tokenizer.decode(ids).endswith("\n# Task:")
    assert extract_program(tokenizer.decode(ids)) == "print(1)"
    assert complete_length(template, tokenizer, ids) == len(ids)


def test_text_after_the_stop_mark_does_not_move_the_end(tokenizer) -> None:
    template = FewShotTemplate()
    answer = tokenizer("print(1)\n\n# Task:")["input_ids"]
    more = answer + tokenizer(" Print 2.\nprint(2)\n\n# Task: Print 3.")["input_ids"]
    length = complete_length(template, tokenizer, more)
    assert length is not None
    assert "\n# Task:" in tokenizer.decode(more[:length])
    assert "\n# Task:" not in tokenizer.decode(more[: length - 1])


def test_response_without_a_stop_mark_has_no_end(tokenizer) -> None:
    ids = tokenizer("print(1)\n")["input_ids"]
    assert complete_length(FewShotTemplate(), tokenizer, ids) is None
    assert complete_length(ChatTemplate(tokenizer), tokenizer, ids) is None


def test_a_chat_template_that_the_tokenizer_lacks_is_refused() -> None:
    plain = train_tokenizer(PretrainConfig())
    plain.chat_template = None
    with refused("UnknownTemplate", "chat"):
        template_for(ReferenceConfig(template="chat"), plain)


def test_auto_means_few_shot_for_a_tokenizer_without_chat_template() -> None:
    plain = train_tokenizer(PretrainConfig())
    plain.chat_template = None
    assert isinstance(template_for(ReferenceConfig(), plain), FewShotTemplate)


DATED = "Today: {{ strftime_now('%d %b %Y') }}{% for message in messages %}{{ message['content'] }}{% endfor %}"
TURNS = (
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '<|turn|>' }}{% endfor %}"
    "{% if not add_generation_prompt %}{{ eos_token }}{% endif %}"
)


def test_a_template_that_writes_the_date_says_the_same_every_day(tokenizer, problem) -> None:
    changed = copy.deepcopy(tokenizer)
    changed.chat_template = DATED
    template = ChatTemplate(changed)
    assert template.render(problem).startswith("Today: 26 Jul 2024")
    assert template.template_id.startswith("chat-2-")


def test_answers_written_elsewhere_end_as_the_chat_template_ends_them(tokenizer) -> None:
    changed = copy.deepcopy(tokenizer)
    changed.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    changed.chat_template = TURNS
    template = template_for(ReferenceConfig(), changed)
    ids = encode_response(template, changed, "print(1)")
    assert ids[-1] == changed.convert_tokens_to_ids("<|turn|>") != changed.eos_token_id
    assert other_end(template, changed) == ids[-1]
    assert other_end(FewShotTemplate(), changed) is None
    assert other_end(template_for(ReferenceConfig(), tokenizer), tokenizer) is None
    assert changed.eos_token_id not in ids
