#!/bin/sh
# Install PostgreSQL for the tests, which start it themselves. No service keeps running. You can run it
# again at any time.
#
# Usage: scripts/postgres-deps.sh
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

if ! command -v initdb >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    install_packages postgresql
fi
