#!/bin/sh
# Install the C compiler with which tests build a stub of NVIDIA's library. You can run it again at any
# time.
#
# Usage: scripts/compiler-deps.sh
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

if ! command -v gcc >/dev/null; then
    install_packages gcc libc6-dev
fi
