#!/bin/sh
# Install what the tests of the web UI need: Debian's Chromium, and axe-core in .venv-browser. You can
# run it again at any time.
#
# Usage: scripts/browser-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
folder=.venv-browser

. scripts/debian.sh

# fonts: without one, every character has the width of an empty box
missing=""
# Playwright's node needs it, and Chromium does not install it
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
