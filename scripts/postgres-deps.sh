#!/bin/sh
# Bring the PostgreSQL that tests start for themselves. No service of it is left running. Safe to run
# again at any time.
#
# Usage: scripts/postgres-deps.sh
set -eu

say() { printf '%s\n' "$*" >&2; }

if command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "error: PostgreSQL is missing"
    say "  try: sudo apt-get install postgresql"
    exit 1
fi
say "installing postgresql"
# Debian starts a service when it installs one; an exit status of 101 forbids it.
forbid=/usr/sbin/policy-rc.d
if [ ! -e "$forbid" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$forbid"
    chmod 755 "$forbid"
    trap 'rm -f "$forbid"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >/dev/null
apt-get install -y -qq --no-install-recommends postgresql >/dev/null
