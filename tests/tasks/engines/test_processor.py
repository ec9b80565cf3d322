"""What the processor says of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.engines.processor import computes_bfloat16


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu avx512f avx512_bf16 avx512_vbmi2", True),
        ("fpu avx512f amx_bf16 amx_tile", True),
        ("fpu avx512f avx512_bf16x avx512bw", False),
        ("fpu avx2", False),
    ],
)
def test_bfloat16_is_computed_where_an_instruction_multiplies_it(flags: str, expected: bool, tmp_path: Path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor\t: 0\nmodel name\t: a model named amx_bf16\nflags\t\t: {flags}\nbugs\t\t: spectre\n")
    assert computes_bfloat16(file) is expected


def test_where_nothing_tells_it_is_taken_for_absent(tmp_path: Path) -> None:
    assert not computes_bfloat16(tmp_path / "none")
