"""The identity of a program is the same for every text, every caller and every version of Python."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.programs.extraction import normal_hash, program_hash
from tasks.programs.identity import form
from tests.examples import examples
from tests.sandbox.interpreters import interpreters, told

ROOT = Path(__file__).parents[2]
SCRIPT = """
import importlib, json, types
for name in ("tasks", "tasks.problems"):  # without what their own start would import
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [sys.path[0] + "/" + name.replace(".", "/")]
from tasks.programs.extraction import normal_hash, program_hash
print(json.dumps([[program_hash(text), normal_hash(text)] for text in json.load(sys.stdin)]))
"""
OTHERS = {version: path for version, path in interpreters().items() if not sys.version.startswith(version + ".")}

PROGRAMS = {
    "sum": "a, b = map(int, input().split())\nprint(a + b)",
    "docstring": 'def f(x: int = 1, *a, k=2, **m) -> str:\n    """Says."""\n    return x if x else -k',
    "constants": "x = [1, 1.5, 2j, 'a\\u0301\\x00', b'b', None, True, ..., 10**40, 1e999, 0x1F, 'x' 'y']",
    "formatted": "w = 3; print(f'{w}', f\"a{w!r:>{w}}b\", f'{w=}', f'{{}}{w:}', f'', 'a' f'{w}' 'b', f'{w:%H:%M}')",
    "formatted, nested": "print(f\"{f'{1}'}{{{2}}}\")",
    "class": "@d\nclass A(B, m=C):\n    x: int\n    async def f(self):\n        async with a as b: await b\n",
    "match": "match x:\n    case [1, *r] | {'a': 1, **m} if r: pass\n    case A(b=None) as c: pass\n    case _: 1\n",
    "try": "try: pass\nexcept* (A, B) as e: pass\nelse: pass\nfinally: pass",
    "comprehension": "print({i: [*j] for i, *j in x if (y := i)}, {**a}, lambda *, k: (yield))",
    "warned": "1 is 1; '\\d'",
}
GOLDEN = {
    "sum": ("cac60baea61c8cb198454a2fe69c9b87", "cac60baea61c8cb198454a2fe69c9b87"),
    "docstring": ("9b0c76abe6859fc145eb5e8f2721f3fb", "ba6500d9efd4dac55c24d63e8f061059"),
    "constants": ("3aa2e0f02d1cec1c59d9a99745060793", "3aa2e0f02d1cec1c59d9a99745060793"),
    "formatted": ("d92c7b4ab73176524e667f7d733db27a", "d92c7b4ab73176524e667f7d733db27a"),
    "formatted, nested": ("8911bd29b9a2d5e7af602ce26681c743", "8911bd29b9a2d5e7af602ce26681c743"),
    "class": ("4163ae7f3b28d9058d58d028fc70be6a", "4163ae7f3b28d9058d58d028fc70be6a"),
    "match": ("46617d55b554c66f49b344e3360a75c7", "46617d55b554c66f49b344e3360a75c7"),
    "try": ("beb1f7687e3ffa351cc3b2d1afb14f3c", "beb1f7687e3ffa351cc3b2d1afb14f3c"),
    "comprehension": ("78ed4095f9f9bfc10e3f283fd22c4c40", "78ed4095f9f9bfc10e3f283fd22c4c40"),
    "warned": ("7d22fc79ab635215f4f7ca9969f3ce1b", "7d22fc79ab635215f4f7ca9969f3ce1b"),
}

WITHOUT_FORM = {
    "not python": "print(",
    "nothing but a byte": "\x00",
    "thousand operators": "x = " + " + ".join("1" * 1000),
    "ten thousand operators": "x = " + "+".join("1" * 10_000),
    "brackets": "(" * 150 + ")" * 150,
    "minus": "-" * 3000 + "1",
    "elifs": "if 0: pass\n" + "elif 1: pass\n" * 2000,
    "attributes": "x" + ".a" * 5000,
    "calls": "x" + "()" * 5000,
    "lambdas": "lambda: " * 200 + "1",
    "surrogate": "x = '\ud800'",
    "type statement": "type X = int",
    "type parameters": "def f[T](x: T) -> T: return x",
    "quotes again": "print(f'{a['b']}')",
    "backslash": "print(f'{chr(10).join('\\n')}')",
    "comment": "f'''{\n1  # one\n}'''",
    "raw specification": "rf'{x:\\n}'",
    "space after conversion": "f'{x!r }'",
    "nested twice": "f'{x:{y:{z}}}'",
    "starred": "f'{*a}'",
    "line break": "f'{x\n!r}'",
    "debugging in a specification": "f'{x:{y=}}'",
    "digits": "x = " + "1" * 5000,
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_hash_is_the_one_recorded(name: str):
    assert (program_hash(PROGRAMS[name]), normal_hash(PROGRAMS[name])) == GOLDEN[name]


@pytest.mark.parametrize("name", sorted(WITHOUT_FORM))
def test_what_versions_read_differently_is_identified_by_its_text(name: str):
    assert form(WITHOUT_FORM[name]) is None
    assert len(program_hash(WITHOUT_FORM[name])) == len(normal_hash(WITHOUT_FORM[name])) == 32
    assert program_hash(WITHOUT_FORM[name]) != program_hash(WITHOUT_FORM[name] + " ")


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_ordinary_programs_have_a_form(name: str):
    assert form(PROGRAMS[name]) is not None


@pytest.mark.child
@pytest.mark.parametrize("version", sorted(OTHERS))
def test_every_version_gives_the_same_hashes(version: str):
    texts = [*PROGRAMS.values(), *WITHOUT_FORM.values(), *project_files()]
    found = json.loads(told(OTHERS[version], SCRIPT, json.dumps(texts)))
    assert found == [[program_hash(text), normal_hash(text)] for text in texts]


def project_files() -> list[str]:
    """Real programs: files of this project."""
    return [path.read_text("utf-8") for folder in ("tasks", "sandbox") for path in sorted((ROOT / folder).glob("*.py"))]


def test_different_programs_differ():
    texts = [
        "x = 1",
        "x = 1.0",
        "x = True",
        "x = '1'",
        "x = b'1'",
        "x = -1",
        "x = 0x2",
        "x: 1",
        "x += 1",
        "x(1)",
        "x[1]",
    ]
    texts += ["f(a, b)", "f(a=b)", "f(*a)", "f(**a)", "'s1:a', 'b'", "'s1:a, b'", "{a: b}", "{**b}", "{a, b}"]
    assert len({program_hash(text) for text in texts}) == len(texts)


def test_it_is_the_same_deep_in_the_stack():
    program = PROGRAMS["class"]

    def deep(levels: int) -> str:
        return program_hash(program) if levels == 0 else deep(levels - 1)

    assert deep(500) == program_hash(program)


WORDS = r"""
f' f" ''' ' " { } {{ }} !r : = x 1 \ # ( ) [ ] + - , . * ** lambda: if else elif def class return for in rf' b' := @
-> \N{DIGIT_ONE} é type match case await print( 0x 1e5 _ async yield 0777 1if % ~ not ; x=1 f"{x}" {x!r} {x:{x}} {x=}
u'a' r"
"""
SPACES = [" ", "\n", "\n    ", "\t", "\r", "\x00", "\ufeff", "\ud800", "\\\n", "elif x:", "def f():", "if x:\n  "]
PIECES = [*WORDS.split(), *SPACES]
pieces = st.sampled_from(PIECES)
texts = st.one_of(st.text(max_size=60), st.lists(pieces, max_size=40).map("".join))


@examples(100, 2000)
@given(texts)
def test_every_text_has_an_identity(text: str):
    assert len(program_hash(text)) == len(normal_hash(text)) == 32
    assert program_hash(text) == program_hash(text)


@given(st.sampled_from(sorted(PROGRAMS)), st.integers(0, 200))
def test_comments_and_blank_lines_change_nothing(name: str, place: int):
    lines = PROGRAMS[name].split("\n")
    lines.insert(place % (len(lines) + 1), "# a comment")
    assert program_hash("\n".join(lines) + "\n\n") == program_hash(PROGRAMS[name])


@pytest.mark.child
@examples(2, 30)
@given(st.lists(texts, min_size=300, max_size=300))
def test_versions_agree_on_everything_a_model_can_write(many: list[str]):
    ours = [[program_hash(text), normal_hash(text)] for text in many]
    for path in OTHERS.values():
        theirs = json.loads(told(path, SCRIPT, json.dumps(many)))
        differing = [text for text, mine, other in zip(many, ours, theirs, strict=True) if mine != other]
        assert differing == []


@pytest.mark.child
@pytest.mark.parametrize(
    "program",
    [
        "\U00031350 = 1",  # an ideograph of Unicode 15: a name from Python 3.12 on
        "\U0001e030 = 1",  # a letter of Unicode 15 that stands for an old one
        "print(f'{\U00031350}')",
        r"print('\N{CJK UNIFIED IDEOGRAPH-31350}')",
    ],
)
def test_names_of_newer_characters_have_no_form(program: str):
    assert form(program) is None
    for path in OTHERS.values():
        assert json.loads(told(path, SCRIPT, json.dumps([program]))) == [[program_hash(program), normal_hash(program)]]


def test_newer_characters_in_strings_and_comments_keep_the_form():
    assert form("print('\U0001f389')  # \U00031350") == form("print('\U0001f389')")
    assert form("f'\U0001f389 {x}'") is not None
    assert form(r"print('\N{DIGIT ONE}')") == form("print('1')")
    assert form("höhe = 1") is not None


def test_the_form_does_not_depend_on_the_layout():
    text = PROGRAMS["match"]
    assert form(text) == form(text.replace("    ", "\t"))
