"""How many responses a corpus has to draw, to ask for and to judge, for `spo plan`.

Known programs are judged in rounds (tasks/corpus/known_programs.py), and before the first nobody knows how many follow:
the first is counted. Rows of `corpus.files` are not.
"""

from __future__ import annotations

from collections.abc import Mapping

from tasks.config import RunConfig
from tasks.corpus import other_models
from tasks.corpus.known_programs import PYTHON, ROUND
from tasks.run.prompt_set import PromptSet
from tasks.run.stage import Amount, Context
from warehouse.queries import query

TAKEN_IN = query(__name__, "taken_in")


def of_recipe(config: RunConfig) -> Amount:
    """What the recipe asks for, while nobody knows how many programs its problems come with."""
    problems, human = config.problems.train, "human" in config.corpus.sources
    answers = problems * sum(model.samples for model in config.corpus.other_models)
    uncounted = ["the known programs"] * human + _files(config)
    return _amount(problems * _samples(config), "", 0, answers, uncounted)


def of_prompts(context: Context, prompts: PromptSet, drawn: Mapping[str, int]) -> Amount:
    """What these prompts lack; `drawn` are the samples of pi_0 that the corpus has, by problem."""
    config = context.config
    samples = sum(max(0, _samples(config) - drawn.get(name, 0)) for name in prompts.prompts)
    programs = _first_round(context, prompts) if "human" in config.corpus.sources else 0
    answers = sum(len(other_models.unanswered(context, prompts, model)) for model in config.corpus.other_models)
    known = f"{sum(drawn.values())} known" if _samples(config) else ""
    return _amount(samples, known, programs, answers, _files(config))


def _amount(samples: int, known: str, programs: int, answers: int, uncounted: list[str]) -> Amount:
    """Samples of pi_0 alone are called samples, whose time a probe tells; with others beside them, responses."""
    counted = {f"{programs} known programs in a first round": programs, f"{answers} answers of other models": answers}
    others = [text for text, number in counted.items() if number]
    of_pi_0 = [f"{samples} of pi_0"] if samples and others else []
    told = [*of_pi_0, *filter(None, [known]), *others, *(f"and {one}" for one in uncounted)]
    mixed = bool(others) or (not samples and bool(uncounted))
    units = samples + programs + answers
    return Amount(units, "responses" if mixed else "samples", ", ".join(told), open_ended=bool(uncounted))


def _samples(config: RunConfig) -> int:
    """Samples of pi_0 that each problem is to have."""
    return config.corpus.reference_samples if "reference" in config.corpus.sources else 0


def _files(config: RunConfig) -> list[str]:
    return ["what is in files"] if config.corpus.files else []


def _first_round(context: Context, prompts: PromptSet) -> int:
    """Known programs that are judged first, of each problem those that no run has taken in."""
    rows = context.warehouse.rows(TAKEN_IN, [prompts.prompt_ids, prompts.suites])
    there = {row["problem_id"]: int(row["n"]) for row in rows}
    found = 0
    for problem in prompts.problems:
        first = min(ROUND, sum(solution.language in PYTHON for solution in problem.solutions))
        found += max(0, first - there.get(problem.problem_id, 0))
    return found
