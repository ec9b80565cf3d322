"""Measures of the documents' and docstrings' style; tests/test_style.py holds them.

python scripts/style.py              the measures
python scripts/style.py --longest    and the longest sentences and lines
"""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "sandbox", "warehouse", "benchmarks", "scripts")
BAD_START = re.compile(r"(What|Whether|Which|Where|How|Who)\b")
LONGEST_LINE = 150
LIST_ITEM = re.compile(r"\s*(?:[*-]|\d+\.)\s+")


@dataclass(frozen=True, slots=True)
class Measures:
    """Sizes and lengths; words are separated by white space, and a code span is one word."""

    readme_lines: int
    readme_tables: int
    words_before_command: int
    markdown_words: int
    markdown_lines: int
    sentences: int
    median_words: float
    share_short: float
    """Share of the sentences with at most 28 words."""
    long_lines: int
    bad_docstrings: int
    docstrings: int


def pages(pattern: str = "*.md") -> list[Path]:
    """The documents that git knows."""
    listed = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def prose(text: str) -> Iterator[str]:
    """Lines outside code blocks, tables, headings and comments."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    before = ""
    for line in text.splitlines():
        code = line.startswith("    ") and not before.strip().startswith(("*", "-")) and not LIST_ITEM.match(line)
        if not code and not line.startswith(("|", "#", "![")):
            yield line
        before = line if line.strip() else before


def sentences(text: str) -> Iterator[str]:
    """Sentences of paragraphs and list items, links as their text and code spans as one word."""
    blocks: list[str] = []
    for line in prose(text):
        if not line.strip() or LIST_ITEM.match(line):
            blocks.append("")
            line = LIST_ITEM.sub("", line)
        blocks[-1:] = [f"{blocks[-1] if blocks else ''} {line.strip()}"]
    for block in blocks:
        plain = re.sub(r"`[^`]*`", "CODE", re.sub(r"\]\([^)]*\)|\*\*", "", block))
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9*\"'(\[]|pi_)", plain):
            if len(sentence.split()) > 1:
                yield sentence.strip()


def docstrings() -> Iterator[tuple[Path, str]]:
    """Docstrings of modules, classes and functions, and texts below fields."""
    for path in (path for path in pages("*.py") if path.relative_to(ROOT).parts[0] in PACKAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            body = getattr(node, "body", None)
            for one in body if isinstance(body, list) else []:
                if (
                    isinstance(one, ast.Expr)
                    and isinstance(one.value, ast.Constant)
                    and isinstance(one.value.value, str)
                ):
                    yield path, one.value.value.strip()


def before_command(readme: str) -> list[str]:
    """The README's words between its title and its first command, without those of pictures."""
    before = re.split(r"^(?:git|make|pip|python|spo) ", readme, maxsplit=1, flags=re.MULTILINE)[0]
    text = re.sub(r"!\[[^]]*\]\([^)]*\)|^#.*$|^```.*$", "", before, flags=re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", text).split()


def measured() -> Measures:
    """The measures of the checkout."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in pages()]
    shown = [readme, *(path.read_text(encoding="utf-8") for path in pages("docs/*.md"))]
    lengths = [len(sentence.split()) for text in shown for sentence in sentences(text)]
    starts = [text for _, text in docstrings()]
    return Measures(
        readme_lines=len(readme.splitlines()),
        readme_tables=len(re.findall(r"^\|[-| :]+\|$", readme, re.MULTILINE)),
        words_before_command=len(before_command(readme)),
        markdown_words=sum(len(text.split()) for text in texts),
        markdown_lines=sum(len(text.splitlines()) for text in texts),
        sentences=len(lengths),
        median_words=statistics.median(lengths),
        share_short=sum(length <= 28 for length in lengths) / len(lengths),
        long_lines=sum(len(line) > LONGEST_LINE for text in shown for line in prose(text)),
        bad_docstrings=sum(bool(BAD_START.match(text)) for text in starts),
        docstrings=len(starts),
    )


def longest() -> None:
    """Print the longest sentences, and the lines of prose that are too long."""
    for path in [ROOT / "README.md", *pages("docs/*.md")]:
        text = path.read_text(encoding="utf-8")
        for sentence in sentences(text):
            if (length := len(sentence.split())) > 28:
                print(f"{path.relative_to(ROOT)}: {length} words: {sentence}")
        for line in prose(text):
            if len(line) > LONGEST_LINE:
                print(f"{path.relative_to(ROOT)}: {len(line)} characters: {line}")


if __name__ == "__main__":
    found = measured()
    for name in Measures.__slots__:
        value = getattr(found, name)
        print(f"{name:22} {value:.3f}" if isinstance(value, float) else f"{name:22} {value}")
    if "--longest" in sys.argv:
        longest()
