"""Near-duplicate programs: speed, growth, memory and planted duplicates, ours beside peers on the same rows.

    python benchmarks/dedup.py                       10,000 and 100,000 rows, peers where they are installed
    python benchmarks/dedup.py --rows 1000000        one size
    python benchmarks/dedup.py --without-peers

Rows are synthetic programs; one in ten is a planted near duplicate of an earlier one (Jaccard at least the threshold).
A peer that is not installed is named and left out (`pip install datasketch rensa`). One process for each measurement.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import resource
import time
from collections.abc import Callable
from random import Random

from tasks.problems.dedup import THRESHOLD, near_duplicates, program_tokens, shingles

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
    """datasketch's MinHash and LSH with as many permutations; the first hit is taken for the original."""
    import datasketch as peer

    index = peer.MinHashLSH(threshold=THRESHOLD, num_perm=64)
    result: list[int] = []
    for row, shingle_set in enumerate(_shingle_bytes(programs)):
        sketch = peer.MinHash(num_perm=64)
        sketch.update_batch(shingle_set)
        hits = list(index.query(sketch))
        result.append(min(hits) if hits else row)
        index.insert(row, sketch)
    return result


def rensa(programs: list[str]) -> list[int]:
    """rensa's RMinHash and LSH with as many permutations; hits are decided by its estimate, as its guide does."""
    import rensa as peer

    index = peer.RMinHashLSH(threshold=THRESHOLD, num_perm=64, num_bands=16)
    sketches: list[object] = []
    result: list[int] = []
    for row, shingle_set in enumerate(_shingle_bytes(programs)):
        sketch = peer.RMinHash(num_perm=64, seed=42)
        sketch.update([shingle.decode() for shingle in shingle_set])
        hits = [hit for hit in index.query(sketch) if sketches[hit].jaccard(sketch) >= THRESHOLD]
        result.append(min(hits) if hits else row)
        index.insert(row, sketch)
        sketches.append(sketch)
    return result


METHODS: dict[str, Callable[[list[str]], list[int]]] = {"ours": ours, "datasketch": datasketch, "rensa": rensa}


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
    started = time.process_time()
    found = METHODS[name](programs)
    cpu_s = time.process_time() - started
    memory_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    called = {row for row, first in enumerate(found) if first != row}
    checked = shingles(programs, program_tokens)
    true = {row for row, origin in source.items() if checked.similarity(row, origin) >= THRESHOLD}
    hit = {row for row in true if found[row] == found[source[row]] or found[row] == source[row]}
    right = {row for row in called if checked.similarity(row, found[row]) >= THRESHOLD}
    return cpu_s, memory_mib, len(hit) / max(1, len(true)), len(right) / max(1, len(called))


def _shingle_bytes(programs: list[str]) -> list[list[bytes]]:
    result: list[list[bytes]] = []
    for program in programs:
        tokens = program_tokens(program)
        result.append(list({" ".join(tokens[i : i + 5]).encode() for i in range(max(1, len(tokens) - 4))}))
    return result


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
