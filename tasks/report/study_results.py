"""Results of a study's runs as a file that grows, for machines that share no warehouse.

JSON Lines, a line for each arm and seed that ended: `{"arm": "online", "seed": 3, "settings": "5f0c...", "problems":
{"train": "4f1c...", "evaluation": ...}, "label": ..., "curve": {"pass@1": {"0": 0.15, ...}}, "measures": {...},
"spent": {"20": {"trajectories": ..., ...}}}`, or `"stopped": true` where the guards ended the run. Older lines do not
say their `problems`. Files of several machines are joined by writing one behind the other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tasks.report.arms import ArmResult, Spent


class BadResults(ValueError):
    """A file of results that cannot be read, or whose runs had other settings or problems than the study's arms."""


@dataclass(frozen=True, slots=True)
class Results:
    """What a file says of a study's arms, by arm and seed."""

    ended: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict[tuple[str, int], Mapping[str, Any]])
    here: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict[tuple[str, int], Mapping[str, Any]])
    """The `problems` alone of runs that are in no file yet."""

    @property
    def arms(self) -> set[str]:
        """The arms that it has results of."""
        return {arm for arm, _ in self.ended}

    def check_problems(self, arm: str, problems: Mapping[str, str], beside: Collection[str] = ()) -> None:
        """Refuse what cannot be compared with the runs in the file, and with those here. Raises BadResults.

        `problems`: digests by split, which must be those of the arm's other runs; `beside`: the arms that it is
        compared with, whose digest for evaluation must be the same.
        """
        for (name, seed), line in {**self.here, **self.ended}.items():
            theirs = line.get("problems", problems)
            compared = problems if name == arm else {"evaluation"} & set(problems) if name in beside else ()
            if other := [split for split in compared if theirs.get(split) != problems[split]]:
                of_file = (name, seed) in self.ended
                has = "has in the file of results" if of_file else "began with here"
                way = "name another file of results, or delete the old lines to run those again"
                raise BadResults(
                    f"arm {arm!r} has other problems ({', '.join(other)}) than arm {name!r}, seed {seed}, {has}: "
                    f"their settings choose others, or the built-in set or the file that they come from has changed; "
                    f"{way if of_file else 'put it back, or copy the study to a file of another name, to begin anew'}"
                )

    def missing(self, work: Sequence[tuple[str, int]], after: Mapping[str, Sequence[str]]) -> list[tuple[str, int]]:
        """The runs of `work` that it has no result of, and those whose trajectories such a run draws on (`after`)."""
        wanted = {run for run in work if run not in self.ended}
        for arm, seed in reversed(work):
            if (arm, seed) in wanted:
                wanted |= {(before, seed) for before in after[arm]}
        return [run for run in work if run in wanted]

    def added(self, name: str, found: ArmResult) -> ArmResult:
        """The arm's runs found here, and those of the file whose seeds are not among them."""
        here = {*found.seeds, *found.stopped}
        lines = {seed: line for (arm, seed), line in self.ended.items() if arm == name and seed not in here}
        whole = [(seed, line) for seed, line in lines.items() if not line.get("stopped")]
        return ArmResult(
            found.label,
            [*found.seeds, *(seed for seed, _ in whole)],
            [*found.curves, *({k: _by_step(at) for k, at in line["curve"].items()} for _, line in whole)],
            [*found.measures, *(line["measures"] for _, line in whole)],
            [*found.spent, *({s: Spent(**at) for s, at in _by_step(line["spent"]).items()} for _, line in whole)],
            [*found.stopped, *(seed for seed, line in lines.items() if line.get("stopped"))],
            [*found.problems, *(line.get("problems", {}) for _, line in whole)],
        )


def read(path: Path, settings: Mapping[str, str], groups: Iterable[Collection[str]] = ()) -> Results:
    """The lines of the study's arms; nothing where there is no file yet. `settings`: a digest by arm.

    Raises BadResults, also where a run of an arm had other settings than the arm has now, two runs of an arm other
    problems, or two arms of one of the `groups`, which are compared, other problems to be evaluated on.
    """
    ended: dict[tuple[str, int], Mapping[str, Any]] = {}
    for number, line in _lines(path):
        arm, seed = line["arm"], line["seed"]
        if arm not in settings:
            continue
        if line["settings"] != settings[arm]:
            raise BadResults(
                f"{path}, line {number}: arm {arm!r}, seed {seed} was run with other settings than the study has for "
                f"it now ({line['settings']}, not {settings[arm]}): delete the line to run it again, or name another "
                f"file"
            )
        Results(ended).check_problems(arm, line.get("problems", {}))
        ended.setdefault((arm, seed), line)
    found = Results(ended)
    for group in groups:
        for (arm, _), line in ended.items():
            if arm in group:
                found.check_problems(arm, line.get("problems", {}), group)
    return found


def append(path: Path, arms: Mapping[str, ArmResult], settings: Mapping[str, str]) -> int:
    """Write a line for each run of `arms` that the file does not know; how many there were. Raises BadResults."""
    known = read(path, settings).ended
    lines: list[str] = []
    for name, arm in arms.items():
        common = {"arm": name, "label": arm.label, "settings": settings[name]}
        rows = zip(arm.seeds, arm.problems, arm.curves, arm.measures, arm.spent, strict=True)
        ended = [
            {
                "seed": seed,
                "problems": problems,
                "curve": curve,
                "measures": measures,
                "spent": _evaluated(curve, spent),
            }
            for seed, problems, curve, measures, spent in rows
        ]
        ended += [{"seed": seed, "stopped": True} for seed in arm.stopped]
        lines += [json.dumps(common | run) + "\n" for run in ended if (name, run["seed"]) not in known]
    if lines:
        path.parent.mkdir(parents=True, exist_ok=True)
        there = path.read_text(encoding="utf-8") if path.exists() else ""
        with path.open("a", encoding="utf-8") as file:
            file.write(("\n" if there and not there.endswith("\n") else "") + "".join(lines))
    return len(lines)


def require_writable(path: Path) -> None:
    """Have the file, empty where there is none yet. Raises BadResults where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("a").close()
    except OSError as error:
        raise BadResults(f"{path} cannot be written: {error}; name another file of results") from error


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    if not path.exists():
        return
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line = json.loads(text)
            missing = {"arm", "seed", "settings"} - set(line)
        except (ValueError, TypeError) as error:
            raise BadResults(f"{path}, line {number} is no JSON object: {error}") from error
        if missing:
            raise BadResults(f"{path}, line {number} is no result of a study: it has no {', '.join(sorted(missing))}")
        yield number, line


def _evaluated(curve: Mapping[str, Mapping[int, float]], spent: Mapping[int, Spent]) -> dict[int, Any]:
    """What had been spent by the steps of the curve; nothing asks for the others."""
    steps = {step for values in curve.values() for step in values}
    return {step: asdict(at) for step, at in spent.items() if step in steps}


def _by_step(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(step): value for step, value in values.items()}
