"""What works on this machine, part by part; nothing is changed."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console

from flows.server import embedded, record
from flows.settings import api_url, home, port, warehouse_location, warehouse_shown

PACKAGES = ("spo-pipeline", "torch", "transformers", "deepspeed", "prefect", "duckdb", "pyarrow")
OPTIONAL = ("ray", "docker")
VLLM_PYTHON = Path(".venv-vllm/bin/python")
"""Where scripts/install_vllm.sh makes an environment for vLLM, seen from the project's folder."""
LOW_DISK_BYTES = 5 << 30

Finding = tuple[bool, str]


def show(console: Console) -> bool:
    """Print every finding; True when something that the default run needs is missing."""
    broken = False
    for name, look in CHECKS.items():
        fine, text = look()
        broken = broken or not fine
        first, *more = text.splitlines() or [""]
        console.print(
            f"{'[green]ok [/]' if fine else '[red]bad[/]'} {name:<10} {first}", highlight=False, soft_wrap=True
        )
        for line in more:
            console.print(f"{'':14} {line}", highlight=False, soft_wrap=True)
    return broken


def _versions() -> Finding:
    found: list[str] = []
    for package in (*PACKAGES, *OPTIONAL):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} not installed" + (" (optional)" if package in OPTIONAL else ""))
    missing = any("not installed" in line and "optional" not in line for line in found)
    return not missing, f"Python {platform.python_version()}; " + ", ".join(found)


def _gpu() -> Finding:
    import torch

    from tasks.engines.processor import computes_bfloat16

    if not torch.cuda.is_available():
        faster = (
            " (faster in bfloat16: -s reference.dtype=bfloat16 for pretrained models)" if computes_bfloat16() else ""
        )
        return True, f"none seen by torch {torch.__version__}; training and sampling use the CPU{faster}"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return True, f"{len(names)} x {names[0]}"


def _sandbox() -> Finding:
    from sandbox import describe_walls

    found = describe_walls()
    lines = [f"{one.backend}: {', '.join(one.walls) if one.works else one.problem}" for one in found]
    return found[0].works, "\n".join(lines)


def _models() -> Finding:
    from tasks.checkpoints.errors import MissingModel
    from tasks.checkpoints.packaged_models import PACKAGED, located

    lines: list[str] = []
    for name, model in PACKAGED.items():
        try:
            lines.append(f"{name}: {model.title}, {located(name).stat().st_size / 1e6:.0f} MB in {model.package}")
        except MissingModel:
            lines.append(f"{name}: not installed (optional, for the recipe {name}): {model.install_command}")
    return True, "\n".join(lines)


def _engines() -> Finding:
    from tasks.engines.vllm_environment import vllm_version

    embedded_one = "transformers: in the process that samples; beside GPUs in one process for each (engine.processes)"
    if not VLLM_PYTHON.exists():
        return True, f"{embedded_one}\nvLLM: no {VLLM_PYTHON} (optional): scripts/install_vllm.sh makes it"
    works, said = vllm_version(VLLM_PYTHON.absolute())
    found = f"{said}; to use it: engine.kind=vllm engine.python={VLLM_PYTHON}"
    return works, f"{embedded_one}\nvLLM: {found if works else f'cannot be imported by {VLLM_PYTHON}: {said}'}"


def _disk() -> Finding:
    folder = next(path for path in (home(), *home().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    return free > LOW_DISK_BYTES, f"{free / 2**30:.1f} GiB free in {folder}"


def _server() -> Finding:
    alive = embedded.running()
    if embedded.usable():
        return True, f"answers at {api_url()}; worker {'running' if alive['worker'] else 'not running'}"
    if embedded.own_port() not in (None, port()):
        return False, f"it listens on port {embedded.own_port()}, and {api_url()} is asked"
    if alive["server"]:
        return False, f"its process is there, but {api_url()} does not answer; `spo down`, then `spo up`"
    if embedded.healthy():
        return False, f"another home's server answers at {api_url()}; `spo up` names a free port"
    return True, record.foreign_record() or "not running; `spo up` starts it"


def _warehouse() -> Finding:
    from warehouse import Warehouse, WarehouseError

    location = warehouse_location()
    if "://" not in location and not Path(location).exists():
        return True, f"{location} (not made yet)"
    try:
        with Warehouse.open(location, read_only=True) as store:
            runs = store.value("SELECT count(DISTINCT run_id) FROM runs")
            rows = store.value("SELECT count(*) FROM trajectories")
    except WarehouseError as error:
        return False, str(error)
    return True, f"{warehouse_shown()}: {runs} runs, {rows} trajectories"


CHECKS: dict[str, Callable[[], Finding]] = {
    "versions": _versions,
    "gpu": _gpu,
    "sandbox": _sandbox,
    "models": _models,
    "engines": _engines,
    "disk": _disk,
    "server": _server,
    "warehouse": _warehouse,
}
