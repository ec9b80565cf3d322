"""Decontamination on real statements: planted copies of evaluation problems, and the verdict on the real pair of sets.

    python -m benchmarks.decontamination TRAIN.jsonl.gz EVALUATION.jsonl.gz [--only codecontests/]

Both files are in the project's own layout. First every evaluation statement is planted among the training problems in
each of these disguises; a planted copy has no tests, so its statement alone can give it away:

  white space        every run of white space becomes another one, lines are broken elsewhere
  renamed            one-letter names become other letters, numbers other numbers, everywhere
  reordered          paragraphs in another order
  all of them        and every tenth word is dropped

Found are the pairs that `tasks.problems.decontamination` reports; a pair counts as right when it is a planted copy with
its original. Pairs that are reported without any planting are listed for a person to check, and left out of the count;
so are the nearest ones that are not reported.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

from tasks.problems.decontamination import Overlap, Thresholds, overlaps
from tasks.problems.problem import Problem
from tasks.problems.sources import read_file

NEAREST = 0.15
Disguise = Callable[[str, Random], str]


def white_space(statement: str, random: Random) -> str:
    """The same words with other white space between them."""
    return "".join(word + random.choice([" ", "  ", "\n", "\n\n", "\t"]) for word in statement.split())


def renamed(statement: str, random: Random) -> str:
    """Other one-letter names and other numbers."""
    letters = list("abcdefghijklmnopqrstuvwxyz")
    random.shuffle(letters)
    names = dict(zip("abcdefghijklmnopqrstuvwxyz", letters, strict=True))
    text = re.sub(r"\b[b-hj-z]\b", lambda match: names[match[0]], statement)
    return re.sub(r"\d+", lambda match: str(int(match[0]) + random.randrange(1, 9)), text)


def reordered(statement: str, random: Random) -> str:
    """Paragraphs, or sentences where there is one paragraph only, in another order."""
    parts = re.split(r"\n\s*\n", statement)
    separator = "\n\n"
    if len(parts) < 3:
        parts, separator = re.split(r"(?<=[.!?])\s+", statement), " "
    random.shuffle(parts)
    return separator.join(parts)


def everything(statement: str, random: Random) -> str:
    """All of it, with words missing."""
    words = reordered(renamed(statement, random), random).split(" ")
    return white_space(" ".join(word for word in words if random.random() > 0.1), random)


DISGUISES: dict[str, Disguise] = {
    "white space": white_space,
    "renamed": renamed,
    "reordered": reordered,
    "all of them": everything,
}


def main() -> None:
    """Print recall and precision for each disguise, then the real pairs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("evaluation", type=Path)
    parser.add_argument("--only", default="", help="training problems whose id starts with this")
    arguments = parser.parse_args()
    train = [p for p in read_file(arguments.train) if p.problem_id.startswith(arguments.only)]
    evaluation = read_file(arguments.evaluation)
    started = time.process_time()
    real = overlaps(train, evaluation)
    seconds = time.process_time() - started
    print(f"{len(train)} training and {len(evaluation)} evaluation problems, {seconds:.1f} CPU s a comparison")
    known = {(pair.train_id, pair.evaluation_id) for pair in real}
    print(f"{'disguise':<14}{'planted':>8}{'found':>7}{'right':>7}{'recall':>8}{'precision':>10}  missed")
    for name, disguise in DISGUISES.items():
        print(_measured(name, disguise, train, evaluation, known))
    print(f"\nwithout planting, {len(real)} pairs:")
    titles = {p.problem_id: p.title for p in (*train, *evaluation)}
    for pair in real:
        print(_shown(pair, titles))
    nearest = [pair for pair in overlaps(train, evaluation, Thresholds(containment=NEAREST)) if pair not in real]
    print(f"nearest pairs below the threshold ({100 * NEAREST:.0f}% or more of the telling phrases), kept:")
    for pair in nearest[:10]:
        print(_shown(pair, titles))


def _measured(
    name: str, disguise: Disguise, train: list[Problem], evaluation: list[Problem], known: set[tuple[str, str]]
) -> str:
    random = Random(name)
    copies = [
        replace(p, problem_id=f"copy/{p.problem_id}", statement=disguise(p.statement, random), hidden_tests=())
        for p in evaluation
    ]
    mixed = [*train, *copies]
    random.shuffle(mixed)
    found = {(pair.train_id, pair.evaluation_id) for pair in overlaps(mixed, evaluation)} - known
    planted = {(f"copy/{p.problem_id}", p.problem_id) for p in evaluation}
    right = found & planted
    missed = ", ".join(sorted(original for _, original in planted - right)[:4])
    recall, precision = len(right) / len(planted), len(right) / max(1, len(found))
    return f"{name:<14}{len(planted):>8}{len(found):>7}{len(right):>7}{recall:>8.3f}{precision:>10.3f}  {missed}"


def _shown(pair: Overlap, titles: dict[str, str]) -> str:
    return (
        f"  {pair.train_id} ({titles[pair.train_id]}) = {pair.evaluation_id} ({titles[pair.evaluation_id]}): "
        f"{pair.reason}; {100 * pair.containment:.0f}% of the telling phrases, Jaccard {pair.jaccard:.2f}, "
        f"{pair.shared_tests} tests"
    )


if __name__ == "__main__":
    main()
