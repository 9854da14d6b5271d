#!/bin/sh
# Bring the C compiler with which tests build a library that stands in for NVIDIA's. Safe to run
# again at any time.
#
# Usage: scripts/compiler-deps.sh
set -eu
cd "$(dirname "$0")/.."
. scripts/debian.sh

if ! command -v gcc >/dev/null; then
    install_packages gcc libc6-dev
fi
