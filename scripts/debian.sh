# Sourced by scripts that need Debian packages: install_packages NAME… as root, or print what to
# install. Debian starts the services of new packages; the exit status 101 prevents this.

say() { printf '%s\n' "$*" >&2; }

install_packages() {
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "error: these packages are missing: $*"
        say "  try: sudo apt-get install $*"
        exit 1
    fi
    say "installing $*"
    forbid=/usr/sbin/policy-rc.d
    if [ ! -e "$forbid" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$forbid"
        chmod 755 "$forbid"
        trap 'rm -f "$forbid"' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq >/dev/null
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
