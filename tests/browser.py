"""A page of a file in a real browser, without a network."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


def opened(page: Path, profile: Path) -> str:
    """What the browser made of the page; it must have written nothing to its console."""
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    flags += f"--disable-component-update --disable-sync --enable-logging=stderr --user-data-dir={profile}"
    command = [str(BROWSER), *flags.split(), "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "CONSOLE" not in done.stderr
    return done.stdout
