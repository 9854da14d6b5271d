#!/bin/sh
# Bring what the tests of the web UI look through: Debian's Chromium, and axe-core into .venv-browser.
# Safe to run again at any time.
#
# Usage: scripts/browser-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
folder=.venv-browser

. scripts/debian.sh

# fonts: without one, all texts are as wide as empty boxes
missing=""
# Playwright's own node needs it, and Chromium does not bring it
ldconfig -p 2>/dev/null | grep -q libatomic.so.1 || missing="libatomic1"
command -v chromium >/dev/null || command -v chromium-browser >/dev/null || missing="$missing chromium"
fc-list 2>/dev/null | grep -q . || missing="$missing fonts-dejavu-core"
# shellcheck disable=SC2086  # a list of package names
[ -z "$missing" ] || install_packages $missing

wanted=$(sha256sum scripts/web/package-lock.json | cut -d ' ' -f 1)
if [ "$(cat "$folder/.packages" 2>/dev/null || true)" != "$wanted" ]; then
    say "installing axe-core into $folder"
    mkdir -p "$folder"
    "$venv/bin/python" scripts/web/vendor.py --dev "$folder"
    echo "$wanted" >"$folder/.packages"
fi
