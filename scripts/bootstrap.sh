#!/bin/sh
# Create the environment in .venv: find a Python that the real Triton has a stub for, install what
# Debian packages separately (venv, libpython), and install the locked packages. You can run it again
# at any time.
#
# Usage: scripts/bootstrap.sh [EXTRAS]      e.g. local  or  local,dev
set -eu
cd "$(dirname "$0")/.."
extras=${1:-local}
venv=${VENV:-.venv}

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $1"; say "  try: $2"; exit 1; }

# Install Debian packages as root, or print their names.
packages() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing $*"
        export DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null 2>&1 || {
            apt-get update -qq >/dev/null
            apt-get install -y -qq --no-install-recommends "$@" >/dev/null
        }
    else
        fail "these packages are missing: $*" "sudo apt-get install $*"
    fi
}

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

find_python() {
    for name in "${PYTHON:-}" python3 python3.12 python3.11; do
        if [ -n "$name" ] && command -v "$name" >/dev/null && fits "$name"; then
            command -v "$name"
            return
        fi
    done
}

python=$(find_python)
if [ -z "$python" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing Python"
    apt-get update -qq >/dev/null
    packages python3
    python=$(find_python)
fi
[ -n "$python" ] || fail "Python 3.11 or 3.12 is needed" "apt-get install python3.11, or PYTHON=/path/to/python3.12 make …"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

needed=""
"$python" -c 'import ensurepip, venv' 2>/dev/null || needed="$needed python$version-venv"
"$python" - <<'PY' || needed="$needed libpython$version"
import ctypes, pathlib, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
if not pathlib.Path(sysconfig.get_config_var("LIBDIR") or "/", name).exists():
    try:
        ctypes.CDLL(name)
    except OSError:
        sys.exit(1)
PY
command -v curl >/dev/null || needed="$needed curl"
command -v git >/dev/null || needed="$needed git"
# shellcheck disable=SC2086  # a list of package names
[ -z "$needed" ] || packages $needed

if [ ! -x "$venv/bin/python" ]; then
    say "creating $venv with Python $version"
    "$python" -m venv "$venv"
fi
wanted=$(cat pyproject.toml constraints.txt scripts/bootstrap.sh scripts/web/*.json scripts/web/*.py | sha256sum | cut -c1-16)
stamp="$venv/.servegate-$(echo "$extras" | tr ',' '-')"

# Whether all these extras are already installed.
installed() {
    for found in "$venv"/.servegate-*; do
        [ "$(cat "$found" 2>/dev/null || true)" = "$wanted" ] || continue
        missing=
        for extra in $(echo "$extras" | tr ',' ' '); do
            case "-${found##*/.servegate-}-" in *"-$extra-"*) ;; *) missing=1 ;; esac
        done
        [ -n "$missing" ] || return 0
    done
    return 1
}

if ! installed; then
    case ",$extras," in *,convert,*) size=" (2 GB, TensorFlow among them)" ;; *) size= ;; esac
    say "installing the locked packages into $venv$size; this takes minutes the first time"
    # Python then compiles modules when they are imported, instead of all of them now.
    "$venv/bin/python" -m pip install --disable-pip-version-check --no-compile -c constraints.txt -e ".[$extras]" >&2
    echo "$wanted" >"$stamp"
fi
