#!/bin/sh
# Install KServe's Python package in the separate environment .venv-kserve, because it pins other
# versions of packages that Servegate also uses. You can run it again at any time.
#
# Usage: scripts/kserve-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
wanted="kserve==0.21.0"
folder=.venv-kserve

[ -x "$folder/bin/python" ] || "$venv/bin/python" -m venv "$folder"
if [ "$(cat "$folder/.packages" 2>/dev/null || true)" != "$wanted" ]; then
    printf 'installing %s into %s (half a minute, 320 MB)\n' "$wanted" "$folder" >&2
    "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-compile "$wanted"
    echo "$wanted" >"$folder/.packages"
fi
