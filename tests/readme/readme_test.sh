#!/bin/bash
# README's client program does what README says, against a daemon on fabric soft.
set -euo pipefail
dir=$(mktemp -d /tmp/mrd-readme.XXXXXX)
daemon/mrd --fabric=soft --socket-dir "$dir/run" 2>"$dir/log" &
mrd=$!
trap 'kill $mrd; wait $mrd; rm -rf "$dir"' EXIT
for _ in $(seq 200); do
  grep -q ' ready: ' "$dir/log" && break
  sleep 0.05
done
output=$(MRD_SOCKET_DIR=$dir/run tests/readme/example)
echo "$output"
grep -qE '^address 0x[0-9a-f]+ lkey 0x[0-9a-f]+ rkey 0x[0-9a-f]+$' <<<"$output"
grep -qE '^peers connect to port [1-9][0-9]*$' <<<"$output"
