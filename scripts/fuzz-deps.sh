#!/bin/sh
# Install atheris, a coverage-guided fuzzer, in the separate folder .venv-fuzz. It has wheels for Linux
# x86-64 and Python 3.11 and 3.12.
#
# Usage: scripts/fuzz-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
wanted="atheris==3.0.0"
folder=.venv-fuzz/site

version=$("$venv/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [ "$(cat "$folder/.packages" 2>/dev/null || true)" != "$wanted $version" ]; then
    printf 'installing %s into %s\n' "$wanted" "$folder" >&2
    rm -rf "$folder"
    "$venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --only-binary=:all: \
        --target "$folder" "$wanted"
    echo "$wanted $version" >"$folder/.packages"
fi
