#!/usr/bin/env bash
# Everything `make run` and `make test` need, into one virtual environment; does nothing when it is up to date.
# Usage: scripts/install.sh [FOLDER]    (default .venv; TORCH=cuda installs the CUDA build of PyTorch)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
python=${PYTHON:-python3}
torch=2.13.0
cpu_index=${TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}

fail() { echo "install: $*" >&2; exit 1; }

apt_install() { # packages of Debian and Ubuntu that this machine lacks
    command -v apt-get >/dev/null || fail "needs $*; install it with this system's package manager"
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo"
    [ -z "$sudo" ] || command -v sudo >/dev/null || fail "needs $*; as root: apt-get install $*"
    echo "install: apt-get install $*"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

command -v "$python" >/dev/null || apt_install python3 python3-venv python3-dev
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old, 3.11 or newer is needed; name one with PYTHON=python3.12 make ..."
"$python" -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv

stamp="$venv/.installed"
build=${TORCH:-$(cut -s -d/ -f2 "$stamp" 2>/dev/null || true)} # unless it is said, what is there stays
build=${build:-cpu}
wanted=$(cat requirements.lock pyproject.toml scripts/install.sh | sha256sum | cut -d' ' -f1)/$build
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

echo "install: creating the environment in $venv (a few minutes, about 2 GB)"
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check -qq "$@"; }
right="torch.__version__.split('+')[0] == '$torch'"
if [ "$(uname -s)" != Darwin ] && [ -n "${TORCH:-}" ]; then # there is one build for macOS
    right="$right and ('cuda' if torch.version.cuda else 'cpu') == '$build'"
fi
if ! "$venv/bin/python" -c "import torch; assert $right" 2>/dev/null; then
    pip uninstall -y torch # pip takes the other build of the same version for the one that is asked for
    if [ "$build" = cuda ] || [ "$(uname -s)" = Darwin ]; then
        pip install "torch==$torch"
    else # the +cpu build has no CUDA packages; it is on PyTorch's own index
        pip install "torch==$torch+cpu" 2>/dev/null || pip install "torch==$torch+cpu" --extra-index-url "$cpu_index" ||
            fail "no CPU build of torch $torch found on $cpu_index"
    fi
fi
pip install -r requirements.lock
pip install --no-deps --no-build-isolation -e .
echo "$wanted" >"$stamp"
echo "install: done"
