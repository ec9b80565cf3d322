"""Take the pictures of docs/guides/ui.md from the pages over a warehouse, in the Chromium of this machine.

    SPO_HOME=... python scripts/ui_pictures.py docs/pictures

The warehouse should hold two finished runs or more. Needs the extra `dev` (playwright) and Chromium.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from flows.settings import warehouse_location
from warehouse import Warehouse

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FOUND = "SELECT problem_id FROM new_solutions GROUP BY problem_id ORDER BY count(*) DESC, problem_id LIMIT 1"
SEARCHED = """SELECT trajectory_id FROM token_values SEMI JOIN (SELECT * FROM trajectories WHERE source <> 'human')
    USING (trajectory_id) WHERE starts_with(search_id, 'annotation/')
    GROUP BY ALL ORDER BY count(DISTINCT position) FILTER (pivotal) DESC, trajectory_id LIMIT 1"""
RUNS = "SELECT run_id FROM stages WHERE stage = 'evaluate' GROUP BY run_id ORDER BY min(arrival) LIMIT 2"


def addresses() -> dict[str, tuple[str, int, bool]]:
    """Name of each picture: address, width in pixels, and whether it is dark."""
    with Warehouse.open(warehouse_location(), read_only=True) as store:
        problem, searched = store.value(FOUND), store.value(SEARCHED)
        runs = [row["run_id"] for row in store.rows(RUNS)]
    tokens = urlencode({"id": searched, "colour": "success"})
    return {
        "ui-runs": ("/", 1280, False),
        "ui-compare": ("/compare?" + urlencode({"run": runs}, doseq=True), 1280, True),
        "ui-problem": (f"/problem?{urlencode({'id': problem, 'by': 'found'})}#programs", 1280, False),
        "ui-prompt": (f"/prompt?{urlencode({'id': problem})}", 390, True),
        "ui-tokens": (f"/trajectory?{tokens}#tokens", 1280, False),
    }


def wait_until_filled(address: str) -> None:
    """Wait for the first reading of the responses, until which some pages answer 503."""
    while True:
        try:
            urllib.request.urlopen(address + "/problems", timeout=120).close()
            return
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.5)


def take(page: Page, address: str, target: Path) -> None:
    """One picture of what a window shows."""
    response = page.goto(address)
    if response is None or response.status != 200:
        raise RuntimeError(f"{address} is not there: {response and response.status}")
    page.screenshot(path=str(target))


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "flows.cli.main", "ui", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in server.stdout)
            address = next(match[0] for match in found if match)
            wait_until_filled(address)
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
                for name, (path, width, dark) in addresses().items():
                    scheme = "dark" if dark else "light"
                    height = 844 if width < 600 else 860
                    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
                    context.set_default_timeout(120_000)
                    take(context.new_page(), address + path, target / f"{name}.png")
                    print(target / f"{name}.png")
                browser.close()
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
