"""Near-duplicate programs: speed, growth, memory and planted duplicates, ours beside peers on the same rows.

    python benchmarks/dedup.py                       10,000 and 100,000 rows, peers where they are installed
    python benchmarks/dedup.py --rows 1000000        one size
    python benchmarks/dedup.py --without-peers

Rows are synthetic programs; one in ten is a planted near duplicate of an earlier one (Jaccard at least the threshold).
A peer that is not installed is named and left out (`pip install datasketch text-dedup`). One process for each
measurement. `rensa` is the library that ours proposes pairs with, deciding by its own estimate. `text_dedup` is run as
its command line on a JSON Lines file of the rows' tokens, with as many permutations and bands.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from tasks.problems.dedup import (
    BANDS,
    PERMUTATIONS,
    SHINGLE_TOKENS,
    THRESHOLD,
    near_duplicates,
    program_tokens,
    shingles,
    similarity,
)

WORDS = [f"{a}{b}" for a in ("left", "right", "best", "total", "rows", "seen", "queue", "edge") for b in range(40)]
OPERATORS = ("+", "-", "*", "//", "%")


def main() -> None:
    """Print one line for each method and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--without-peers", action="store_true")
    arguments = parser.parse_args()
    print(f"{'method':<12}{'rows':>10}{'CPU s':>9}{'rows/s':>10}{'MiB':>7}{'recall':>8}{'precision':>10}")
    for rows in arguments.rows:
        for name in METHODS:
            if name == "ours" or not arguments.without_peers:
                print(_measured(name, rows), flush=True)


def planted(rows: int) -> tuple[list[str], dict[int, int]]:
    """`rows` programs, and for each planted duplicate the row that it was made from."""
    random = Random(0)
    programs: list[str] = []
    source: dict[int, int] = {}
    while len(programs) < rows:
        if programs and random.random() < 0.1:
            origin = random.randrange(len(programs))
            if origin not in source:
                source[len(programs)] = origin
                programs.append(_edited(programs[origin], random))
                continue
        programs.append("\n".join(_line(random) for _ in range(random.randint(8, 20))))
    return programs, source


def ours(programs: list[str]) -> list[int]:
    """`tasks.problems.dedup`: candidates by MinHash, decided by exact Jaccard."""
    return near_duplicates(programs)


def datasketch(programs: list[str]) -> list[int]:
    """datasketch's MinHash and LSH with as many permutations and bands; its estimate decides."""
    import datasketch as peer

    index = peer.MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, PERMUTATIONS // BANDS))
    sketches: list[Any] = []
    result: list[int] = []
    for row, found in enumerate(map(shingles, programs)):
        sketch = peer.MinHash(num_perm=PERMUTATIONS)
        sketch.update_batch([shingle.encode() for shingle in found])
        sketches.append(sketch)
        hits = [hit for hit in index.query(sketch) if sketches[hit].jaccard(sketch) >= THRESHOLD]
        result.append(min(hits) if hits else row)
        index.insert(row, sketch)
    return result


def rensa(programs: list[str]) -> list[int]:
    """rensa's RMinHash and LSH with as many permutations and bands; its estimate decides."""
    import rensa as peer

    index = peer.RMinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS, num_bands=BANDS)
    sketches: list[Any] = []
    result: list[int] = []
    for row, found in enumerate(map(shingles, programs)):
        sketch = peer.RMinHash(num_perm=PERMUTATIONS, seed=42)
        sketch.update(list(found))
        hits = [hit for hit in index.query(sketch) if sketches[hit].jaccard(sketch) >= THRESHOLD]
        result.append(min(hits) if hits else row)
        index.insert(row, sketch)
        sketches.append(sketch)
    return result


def text_dedup(programs: list[str]) -> list[int]:
    """text-dedup's command; a row that it removes counts as a duplicate of its planted twin, if it has one."""
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.jsonl")
        with rows.open("w") as file:
            file.writelines(json.dumps({"row": i, "text": _words(text)}) + "\n" for i, text in enumerate(programs))
        options = {"path": "json", "data_files": rows, "split": "train", "cache_dir": f"{folder}/cache"}
        options |= {"output": f"{folder}/kept", "column": "text", "batch_size": 10_000, "num_proc": 1}
        options |= {"ngram": SHINGLE_TOKENS, "num_perm": PERMUTATIONS, "b": BANDS, "r": PERMUTATIONS // BANDS}
        options |= {"threshold": THRESHOLD, "min_length": SHINGLE_TOKENS}
        arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        command = [sys.executable, "-m", "text_dedup.minhash", *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        kept = set(_kept_rows(Path(folder, "kept")))
    source = planted(len(programs))[1]
    twin = {origin: row for row, origin in source.items()} | source
    return [row if row in kept else twin.get(row, -1) for row in range(len(programs))]


def _words(program: str) -> str:
    """The program's tokens as words, since text-dedup looks at letters and digits only."""
    return " ".join(t if t.isalnum() else "op" + t.encode().hex() for t in program_tokens(program))


def _kept_rows(folder: Path) -> Iterator[int]:
    import datasets

    yield from datasets.load_from_disk(str(folder))["row"]


METHODS: dict[str, Callable[[list[str]], list[int]]] = {
    "ours": ours,
    "datasketch": datasketch,
    "rensa": rensa,
    "text_dedup": text_dedup,
}


def _measured(name: str, rows: int) -> str:
    if name != "ours" and importlib.util.find_spec(name) is None:
        return f"{name:<12}{rows:>10}  not installed"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        cpu_s, memory_mib, recall, precision = pool.apply(_run, (name, rows))
    return f"{name:<12}{rows:>10}{cpu_s:>9.1f}{rows / cpu_s:>10,.0f}{memory_mib:>7.0f}{recall:>8.4f}{precision:>10.4f}"


def _run(name: str, rows: int) -> tuple[float, float, float, float]:
    """CPU seconds, memory on top of the rows, and how many planted rows were found and how many found were right."""
    programs, source = planted(rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = _cpu_s()
    found = METHODS[name](programs)
    cpu_s = _cpu_s() - started
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    memory_mib = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, children) / 1024
    called = {row for row, first in enumerate(found) if first != row}
    true = {row for row, origin in source.items() if _alike(programs, row, origin)}
    hit = {row for row in true if found[row] in (found[source[row]], source[row]) or found[source[row]] == row}
    right = {row for row in called if found[row] >= 0 and _alike(programs, row, found[row])}
    return cpu_s, memory_mib, len(hit) / max(1, len(true)), len(right) / max(1, len(called))


def _cpu_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _alike(programs: list[str], row: int, other: int) -> bool:
    return similarity(shingles(programs[row]), shingles(programs[other])) >= THRESHOLD


def _line(random: Random) -> str:
    left, first, second = random.sample(WORDS, 3)
    return f"{left} = {first} {random.choice(OPERATORS)} {second}[{random.randrange(100)}]"


def _edited(program: str, random: Random) -> str:
    lines = program.splitlines()
    if random.random() < 0.5:
        lines.pop(random.choice([0, len(lines) - 1]))
    return "# a copy\n" + "\n\n".join(lines)


if __name__ == "__main__":
    main()
