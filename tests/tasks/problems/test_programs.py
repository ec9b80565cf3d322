"""From text to program, and what makes two programs the same."""

import pytest

from tasks.problems.prompt import ChatTemplate, FewShotTemplate
from tasks.programs.extraction import extract_program, normal_hash, program_hash

FENCE = "```"
FENCED = f'def f(x):\n    """Twice x.\n\n    {FENCE}python\n    f(3)\n    {FENCE}\n    """\n    return 2 * x'
UNDERLINED = f'"""\nTitle\n~~~~~\n{FENCE}\nf(1)\n{FENCE}\n"""\nprint(2 * int(input()))'
IN_A_DOCSTRING = f'def f(x):\n    """Twice x.\n\n    >>> f(1)  {FENCE}2{FENCE}\n    """\n    return 2 * x'


@pytest.mark.parametrize(
    "text, program",
    [
        ("print(1)", "print(1)"),
        ("\nprint(1)\n\n", "print(1)"),
        (f"Here it is:\n{FENCE}python\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"{FENCE}\nprint(1)\n{FENCE}", "print(1)"),
        (f"print(1)\n{FENCE}", "print(1)"),
        (f"print(1)\n{FENCE}\n\nThis prints 1.", "print(1)"),
        (f"print(1)\r\n{FENCE}\r\n\r\nThis prints 1.", "print(1)"),
        (f"print(1)\n{FENCE}\n\nThis prints 1:\n\n{FENCE}\n1\n{FENCE}", "print(1)"),
        (f"print(1)\n{FENCE}\n\nOr shorter:\n\n{FENCE}python\nprint(+1)\n{FENCE}", "print(+1)"),
        (f"print(1)\n{FENCE}\n# Task: Print 2.\nprint(2)\n{FENCE}\n", "print(1)"),
        (f"print(1)\n{FENCE}\nprint(2)\n{FENCE}", "print(2)"),
        (f"Solution\n{FENCE}\nprint 2\n{FENCE}", "print 2"),
        (f"{FENCE}python\nprint(1)\n{FENCE}\nOr:\n{FENCE}python\n{FENCE}\n", "print(1)"),
        (f"Print(1) does it.\n{FENCE}\nprint(1)\n{FENCE}", "print(1)"),
        (f"{FENCE}py\r\nprint(1)\r\n{FENCE}", "print(1)"),
        (f"{FENCE}python\nprint(1)\n{FENCE}\nBetter:\n{FENCE}python\nprint(2)\n{FENCE}", "print(2)"),
        (f"{FENCE}python\nprint(1)\n{FENCE}\nOutput:\n{FENCE}\n1\n{FENCE}", "print(1)"),
        (f"{FENCE}text\n5\n{FENCE}\n{FENCE}python\nprint(1)", "print(1)"),
        ("print(1)\n\n# Task: Print 2.\nprint(2)", "print(1)"),
        ("# Task: Print 2.\nprint(2)", ""),
        (f"1. So:\n\n   {FENCE}python\n   if 1:\n       print(1)\n\n   {FENCE}\n2. Done", "if 1:\n    print(1)"),
        (f"  {FENCE}python\nif 1:\n  print(1)\n  {FENCE}", "if 1:\n  print(1)"),
        ("~~~python\nprint(1)\n~~~\nIt prints 1.", "print(1)"),
        (f"````python\nprint('''\n{FENCE}\n''')\n````", f"print('''\n{FENCE}\n''')"),
        (f"{FENCE}python3.11\nprint(1)\n{FENCE}\n{FENCE}text\n1\n{FENCE}", "print(1)"),
        (f'{FENCE}{{.python title="x"}}\nprint(1)\n{FENCE}\n{FENCE}c\n1\n{FENCE}', "print(1)"),
        (f"{FENCE}pycon\n>>> 1\n{FENCE}\n{FENCE}\nprint(1)\n{FENCE}", "print(1)"),
        (f"Sure:\n{FENCE}python\n# Task: print 1\nprint(1)\n{FENCE}\nIt prints 1.", "# Task: print 1\nprint(1)"),
        (f"print(1)\n# Task: next\n{FENCE}python\nprint(2)\n{FENCE}", "print(1)"),
        (f"{FENCE}python\nprint(1)\n# Task: next\nprint(2)", "print(1)"),
        (f"Here is the program: {FENCE}python\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"Here is the program: {FENCE}\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"Sure! {FENCE}python\nprint(1)\n{FENCE}", "print(1)"),
        (f"- {FENCE}python\n  if 1:\n      print(1)\n  {FENCE}\n- Done", "if 1:\n    print(1)"),
        (f"<think>\n{FENCE}python\nprint(0)\n</think>\n{FENCE}python\nprint(1)\n{FENCE}\n", "print(1)"),
        (f"<think>I write {FENCE}python\nx\n{FENCE} </think>\n\n{FENCE}python\nprint(1)\n{FENCE}\n", "print(1)"),
        (f"{FENCE}python\nprint(0)\n{FENCE} python\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"{FENCE}python\nprint(1){FENCE} ", "print(1)"),
        (f"{FENCE}python\nprint('{FENCE}')\n{FENCE}\nIt prints {FENCE}", f"print('{FENCE}')"),
        (f"A block ends with {FENCE} as ever.\n{FENCE}python\nprint(1)\n{FENCE}", "print(1)"),
        (f"The output is {FENCE}7{FENCE}\n\n{FENCE}\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"The output is {FENCE}7{FENCE}.\n\n{FENCE}\nprint(1)\n{FENCE}", "print(1)"),
        (f"{FENCE}7{FENCE}\nit is:\n{FENCE}\nprint(1)\n{FENCE}\nNot {FENCE}8{FENCE}, {FENCE}7{FENCE}\n", "print(1)"),
        (f"{FENCE}\nprint(1)\n{FENCE}\nThe output is {FENCE}7{FENCE}\nThat is all.", "print(1)"),
        (f"Instead of {FENCE}print(0){FENCE} write {FENCE}python\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"Between {FENCE} and {FENCE}, {FENCE}python\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (f"The mark is {FENCE} as in {FENCE}python\nprint(1)\n{FENCE}\nIt prints 1.", "print(1)"),
        (IN_A_DOCSTRING, IN_A_DOCSTRING),
        (f"{FENCE}\nprint(1)\n{FENCE}\nIt is a block marked {FENCE}python\nand it prints 1.", "print(1)"),
        (f"{FENCE}python\nprint(1)\n{FENCE}\nIt is a block marked {FENCE}python\nand it prints 1.", "print(1)"),
        (f"{FENCE}python\nprint(1)\n{FENCE}python\nIt prints 1.", "print(1)"),
        (f"{FENCE}python\nprint(1)\n{FENCE}python", "print(1)"),
        (f"{FENCE}python\nprint(0)\n{FENCE}\nBetter: {FENCE}python\nprint(1)", "print(1)"),
        (f"{FENCE}python\nprint(0)\n\n{FENCE}python\nprint(1)", "print(1)"),
        ("for i in range(2):\n    print(i)\n", "for i in range(2):\n    print(i)"),
        ("  print(1)", "  print(1)"),
        ("", ""),
        (FENCED, FENCED),
        (f"{FENCE}python\n{FENCED}\n{FENCE}\nDone.", FENCED),
        (f"{FENCE}python\n{FENCED.replace(FENCE + 'python', FENCE)}\n{FENCE}", FENCED.replace(FENCE + "python", FENCE)),
        (UNDERLINED, UNDERLINED),
        (f"x = 1  # see {FENCE}\nprint(x)\n# Task: another", f"x = 1  # see {FENCE}\nprint(x)"),
    ],
)
def test_program_is_found_in_text(text: str, program: str) -> None:
    assert extract_program(text) == program


def test_comments_and_layout_do_not_change_the_identity() -> None:
    assert program_hash("x = 1  # one\nprint( x )\n") == program_hash("x=1\n\nprint(x)")


def test_names_and_constants_change_the_identity() -> None:
    assert len({program_hash(text) for text in ("x = 1", "y = 1", "x = 2", "x = '1'")}) == 4


def test_docstrings_count_for_behaviour_and_not_for_duplicates() -> None:
    with_docstring, without = 'def f():\n    """Says."""\n    return 1', "def f():\n    return 1"
    assert program_hash(with_docstring) != program_hash(without)
    assert normal_hash(with_docstring) == normal_hash(without)


def test_function_of_a_docstring_alone_equals_one_that_passes() -> None:
    assert normal_hash('def f():\n    """Says."""') == normal_hash("def f():\n    pass")


def test_text_that_is_not_python_is_identified_by_itself() -> None:
    assert program_hash("print(") == program_hash("print(")
    assert program_hash("print(") != program_hash("print( ")


@pytest.mark.parametrize("text", ["\x00", "(" * 5000, "x = '\ud800'", "-" * 60000 + "1"])
def test_hostile_text_has_an_identity(text: str) -> None:
    assert len(program_hash(text)) == 32
    assert len(normal_hash(text)) == 32


@pytest.mark.parametrize("program", [FENCED, UNDERLINED, IN_A_DOCSTRING, "print(1)"])
def test_a_program_is_found_again_in_what_a_model_would_answer_with(program: str) -> None:
    for template in (ChatTemplate(None), ChatTemplate(None, bare=True), FewShotTemplate()):
        assert extract_program(template.response_from_program(program)) == program
