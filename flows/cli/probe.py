"""`spo plan --probe`: a few samples of the reference policy, and what they say of a run."""

from __future__ import annotations

from rich.console import Console

from flows.settings import home, warehouse_location
from tasks import config as configuration
from tasks.checks.probe import Probe, probe
from tasks.run.durations import duration
from warehouse import Warehouse


def show(console: Console, config: configuration.RunConfig) -> None:
    """Probe a run of `config` and print what was found. Raises what the stages prepare and q0 raise."""

    def tell(done: int, total: int, unit: str, note: str) -> None:
        if total and (10 * done) // total != (10 * max(0, done - 1)) // total:
            console.print(f"{done} of {total} {unit}, {note}", highlight=False)

    with Warehouse.open(warehouse_location()) as store:
        found = probe(store, config, home(), tell)
    for line in lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def lines(found: Probe) -> list[str]:
    """What the probe found, for people."""
    seen, (some, low, high) = found.responses, found.learnable
    whole = seen.number - seen.cut_off
    told = [
        f"Prompts    {some} of {len(found.known)} are solved sometimes and failed sometimes, as training needs; of all "
        f"prompts {100 * low:.0f} to {100 * high:.0f}% (95% interval)",
        f"Responses  {seen.accepted} of {seen.number} solve their task; {seen.cut_off} cut off at the length limit; "
        f"{seen.not_python} of {whole} finished ones hold no Python program; {_each(seen.tokens, seen.number)}",
    ]
    if found.tokens_per_s is not None:
        told.append(
            f"Speed      {found.tokens_per_s:,.0f} tokens and {found.drawn / found.seconds:.1f} responses a second, "
            f"sampled and judged ({found.drawn} in {duration(found.seconds)}, the engine's start included)"
        )
    else:
        told.append("Speed      every sample was there already, so that nothing was measured")
    for stage in found.work:
        if not stage.done:
            seconds = found.seconds_of(stage)
            time = stage.basis or "never measured here" if seconds is None else f"about {duration(seconds)}"
            told.append(f"{stage.stage:<10} {stage.amount.units:,} {stage.amount.unit}: {time}")
    told += [f"Warning    {warning}" for warning in found.warnings()]
    return told if found.warnings() else [*told, "Nothing looks wrong."]


def _each(tokens: int, number: int) -> str:
    return f"{tokens / number:.0f} tokens each" if number else "none"
