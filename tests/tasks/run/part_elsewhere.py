"""One machine's part of Q0, as a node of a cluster does it: `python part_elsewhere.py`, asked in JSON on its input.

A script: where it runs the project is installed, its tests are not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tasks.config import ShardsConfig
from tasks.q0 import stage
from tasks.run import runs
from tasks.run.stage import Context
from warehouse import Warehouse

if __name__ == "__main__":
    asked = json.load(sys.stdin)
    with Warehouse.open(asked["warehouse"]) as store:
        config = runs.load_config(store, asked["run_id"]).model_copy(update={"shards": ShardsConfig()})
        context = Context(asked["run_id"], config, store, Path(asked["home"]), pin=asked["pin"])
        with stage.worker(context) as draw:  # an engine and a sandbox
            print(draw(asked["work"], 0))
