#!/usr/bin/env bash
# Uploads the source of a conversion with curl, and prints the upload's id.
#
#     examples/conversion/upload.sh FOLDER MODEL [FILE…]
#
# FOLDER is sent with all its files, and each FILE beside them (samples.npz, say).
# SERVEGATE_ADMIN_URL is http://127.0.0.1:8080 unless it says something else; needs curl and jq.
set -euo pipefail
url=${SERVEGATE_ADMIN_URL:-http://127.0.0.1:8080}
folder=$1 model=$2
shift 2
declare -A path_of=()
files='[]'

add() { # a file, and its path within the upload
  local digest
  digest=$(sha256sum "$1" | cut -d' ' -f1)
  path_of[$digest]=$1
  files=$(jq -c --arg path "$2" --arg sha256 "$digest" --argjson size "$(stat -c %s "$1")" \
    '. + [{$path, $size, $sha256}]' <<<"$files")
}

while IFS= read -r -d '' file; do add "$file" "${file#"$folder"/}"; done \
  < <(find "$folder" -type f -print0)
for file in "$@"; do add "$file" "$(basename "$file")"; done

begun=$(jq -c --arg model "$model" '{$model, kind: "source", files: .}' <<<"$files" |
  curl -sS --fail-with-body "$url/api/uploads" -H 'content-type: application/json' -d @-)
id=$(jq -r .id <<<"$begun")
jq -r '.missing[] | "\(.sha256) \(.offset)"' <<<"$begun" | while read -r digest offset; do
  tail -c "+$((offset + 1))" "${path_of[$digest]}" |
    curl -sS --fail-with-body -X PATCH "$url/api/uploads/$id/blobs/$digest" -T - \
      -H 'content-type: application/offset+octet-stream' -H "upload-offset: $offset"
done
echo "$id"
