#!/bin/sh
# Install the Kubeflow Pipelines SDK in the separate environment .venv-pipeline, because it pins other
# versions of requests and urllib3. The environment also uses the packages of .venv, such as TensorFlow
# and `servegate` itself. You can run it again at any time.
#
# Usage: scripts/pipeline-deps.sh
set -eu
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
wanted="kfp==2.17.0 kfp-kubernetes==2.17.0 kfp-pipeline-spec==2.17.3 kfp-server-api==2.17.3 kubernetes==30.1.0 requests==2.33.0 urllib3==2.7.0"
folder=.venv-pipeline

state="$wanted $(cd "$venv" && pwd) $(cksum <constraints.txt)"
if [ "$(cat "$folder/.packages" 2>/dev/null || true)" != "$state" ]; then
    printf 'installing %s into %s (half a minute)\n' "${wanted%% *}" "$folder" >&2
    "$venv/bin/python" -m venv --clear "$folder"
    grep -vE '^(requests|urllib3)==' constraints.txt >"$folder/constraints.txt"
    # shellcheck disable=SC2086  # a list of packages
    "$folder/bin/python" -m pip install --disable-pip-version-check --no-compile \
        -c "$folder/constraints.txt" $wanted >&2
    where='import sysconfig; print(sysconfig.get_path("purelib"))'
    "$venv/bin/python" -c "$where" >"$("$folder/bin/python" -c "$where")/servegate.pth"
    ln -sf "$(cd "$venv/bin" && pwd)/servegate" "$folder/bin/servegate"
    echo "$state" >"$folder/.packages"
fi
