"""`spo eval`: pass@k of any model on any problems, and two evaluations compared."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flows.settings import warehouse_location
from tasks.errors import CodedError

if TYPE_CHECKING:
    from tasks.run.manifests import ModelEvaluation

console = Console(highlight=False, soft_wrap=True, markup=False)
HUB = "hf:"


class EvaluationFailed(CodedError):
    """The evaluation ended early; the same command goes on where it was."""


class SetLayout(StrEnum):
    """Fields of the problems."""

    jsonl = "jsonl"
    humaneval = "humaneval"
    mbpp = "mbpp"
    humanevalplus = "humanevalplus"
    mbppplus = "mbppplus"
    livecodebench = "livecodebench"
    codecontests = "codecontests"
    taco = "taco"
    apps = "apps"
    kattis = "kattis"
    basics = "basics"


def evaluate(
    models: Annotated[
        list[str],
        typer.Argument(help="Checkpoint folder, hub name, .gguf file, or file of samples; with --compare two runs."),
    ],
    set_: Annotated[str | None, typer.Option("--set", help="Problems: file, folder, hf:OWNER/NAME, or basics.")] = None,
    layout: Annotated[SetLayout | None, typer.Option(help="Layout of the problems; default: by their fields.")] = None,
    only: Annotated[str | None, typer.Option(help="Only problems whose field `split` has this value.")] = None,
    since: Annotated[str | None, typer.Option(help="livecodebench: first release day.")] = None,
    until: Annotated[str | None, typer.Option(help="livecodebench: day after the last release.")] = None,
    most: Annotated[int | None, typer.Option(help="Most problems to use.")] = None,
    samples: Annotated[int, typer.Option(help="Samples per problem.")] = 20,
    k: Annotated[list[int], typer.Option("--k", help="The k of pass@k; repeatable.")] = [1, 10],  # noqa: B006
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 0.4,
    top_p: Annotated[float, typer.Option(help="Nucleus.")] = 0.95,
    max_tokens: Annotated[int, typer.Option(help="Length limit of an answer.")] = 512,
    endpoint: Annotated[str | None, typer.Option(help="OpenAI-compatible server of the model.")] = None,
    settings: Annotated[
        list[str], typer.Option("--setting", "-s", help="Field of the configuration, e.g. engine.kind=vllm.")
    ] = [],  # noqa: B006
    compare: Annotated[bool, typer.Option("--compare", help="Compare two evaluations or runs.")] = False,
) -> None:
    """Evaluate a model: exact pass@k with intervals, and problems that this warehouse trained on."""
    if compare:
        _compare(models)
        return
    if len(models) != 1 or set_ is None:
        raise typer.BadParameter("needs one model and --set PROBLEMS, or two runs with --compare")
    place = _place(set_, layout) | {"only": only, "since": since, "until": until, "most": most}
    ks = sorted(set(k))
    tree: dict[str, Any] = subject_of(models[0], endpoint, temperature, top_p, max_tokens)
    stored = tree["subject"]["kind"] == "samples"  # as many as there are
    tree["evaluate"] = {
        "samples": max(ks) if stored else samples,
        "ks": ks,
        "behaviour": {"temperature": [temperature, temperature], "top_p": top_p},
        "transfer": [{name: value for name, value in place.items() if value is not None}],
    }
    tree["engine"] = {"max_response_tokens": max_tokens}
    tree["problems"] = {"max_prompt_tokens": 4096}
    _run(_checked(tree, settings))


def _place(name: str, layout: SetLayout | None) -> dict[str, Any]:
    if name == "basics":
        return {"source": "basics"}
    if name.startswith(HUB):
        if layout is None:
            raise typer.BadParameter("a data set of the hub needs --layout: the fields of its problems")
        return {"source": str(layout), "hub": name.removeprefix(HUB), "hub_split": "test"}
    path = str(Path(name).expanduser().absolute())
    if not Path(path).exists() and not any(Path(path).parent.glob(Path(path).name)):
        raise typer.BadParameter(
            f"there is no file or folder {path}, nor one of this pattern; for a data set of the hub write {HUB}{name}"
        )
    if layout is None:
        from tasks.problems.sources import layout_of

        return {"source": layout_of(Path(path)), "path": path}
    return {"source": str(layout), "path": path}


def subject_of(model: str, endpoint: str | None, temperature: float, top_p: float, max_tokens: int) -> dict[str, Any]:
    """The settings that name the model: an endpoint, a GGUF file, a file of samples, a folder, or a name of the hub."""
    path = Path(model).expanduser().absolute()
    if endpoint is not None:
        asked = {"name": model, "endpoint": endpoint, "model": model, "max_tokens": max_tokens}
        asked |= {"temperature": temperature, "top_p": top_p}
        return {"subject": {"kind": "endpoint", "endpoint": asked}}
    if path.suffix == ".gguf":
        reference = {"model": str(path.parent), "gguf_file": path.name}
        return {"subject": {"kind": "checkpoint"}, "reference": reference}
    if path.is_file():
        return {"subject": {"kind": "samples", "path": str(path)}}
    if not path.is_dir() and (model.startswith((".", "/", "~")) or model.count("/") > 1):  # else a name of the hub
        raise typer.BadParameter(f"there is no folder {path}, nor a file of samples")
    return {"subject": {"kind": "checkpoint"}, "reference": {"model": str(path) if path.is_dir() else model}}


def _checked(tree: dict[str, Any], settings: list[str]) -> dict[str, Any]:
    """The tree with `--setting` over it, paths from this folder on. Raises InvalidConfig and NotReady."""
    from flows.cli.run_commands import check, overrides
    from tasks import config as configuration

    configuration.merge(tree, overrides(settings))
    tree["recipe"] = configuration.EVALUATION
    found = configuration.absolute(configuration.validate(tree, origin="spo eval"), Path.cwd())
    check(found)
    return found.model_dump(mode="json")


def _run(settings: dict[str, Any]) -> None:
    from flows.cli import watch
    from flows.server import embedded
    from tasks.run import runs
    from warehouse import Warehouse

    embedded.ready(console.print)
    flow_run_id = watch.submit("spo/eval", {"settings": settings})
    ended = watch.watch(flow_run_id, console)
    if ended.state != "COMPLETED":
        raise EvaluationFailed(
            f"it ended as {ended.state}: {ended.message}; without its cause the same command goes on where it was\n"
            f"log: prefect flow-run logs {flow_run_id}"
        )
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        run_id = str(runs.created_by(store, str(flow_run_id)))
        _show(run_id, _manifest(store, run_id))


def _manifest(store: Any, run_id: str) -> ModelEvaluation:
    from tasks.run.manifests import ModelEvaluation
    from tasks.run.stage import finished

    found = finished(store, ModelEvaluation, run_id=run_id)
    assert found is not None
    return found


def _show(run_id: str, found: ModelEvaluation) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "pass@k", "95% interval"):
        table.add_column(heading, justify="right" if heading else "left")
    rows = [(name, point) for name, points in found.sets.items() for point in points]
    rows += [("not trained on here", point) for point in found.clean]
    for name, point in rows:
        interval = f"{100 * point.low:.1f} .. {100 * point.high:.1f}"
        table.add_row(f"{name} pass@{point.k}", f"{point.value:.1%}", interval)
    console.print(table)
    console.print(f"{found.title}: {found.described}")
    for line in _notes(found):
        console.print(line)
    console.print(f"run {run_id}; `spo eval --compare {run_id} RUN` compares it, `spo report {run_id}` shows it")


def _notes(found: ModelEvaluation) -> list[str]:
    trained = sorted({pair.evaluation_id for pair in found.overlaps})
    notes = [f"{number:,} samples {reason} were left out" for reason, number in found.left_out.items()]
    if found.unfit:
        notes.append(found.unfit)
    if found.claimed:
        notes.append(f"{found.disagreeing:,} of {found.claimed:,} verdicts are not those of the file")
    if trained:
        shown = ", ".join(trained[:5]) + (f" and {len(trained) - 5} more" if len(trained) > 5 else "")
        notes.append(f"warning: {len(trained)} of the problems are training problems of this warehouse: {shown}")
    else:
        notes.append("none of the problems is a training problem of this warehouse")
    return notes


def _compare(runs: list[str]) -> None:
    from flows.cli.report_commands import compare

    if len(runs) != 2:
        raise typer.BadParameter("--compare takes two runs: eval-1 eval-2, or RUN@STEP")
    compare(runs[0], runs[1])
