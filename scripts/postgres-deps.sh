#!/bin/sh
# Bring the PostgreSQL that tests start for themselves. No service of it is left running. Safe to run
# again at any time.
#
# Usage: scripts/postgres-deps.sh
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    install_packages postgresql
fi
