"""What this machine's processor can do."""

from __future__ import annotations

from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
MULTIPLIES_BFLOAT16 = {"avx512_bf16", "amx_bf16"}
"""Names that Linux gives to instructions which multiply bfloat16 numbers."""


def computes_bfloat16(cpu_info: Path = CPU_INFO) -> bool:
    """Whether bfloat16 is the faster one on this processor; False also where nothing tells (no Linux)."""
    try:
        lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return not MULTIPLIES_BFLOAT16.isdisjoint(flags.split())
