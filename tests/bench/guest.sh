#!/bin/bash
# Runs in the guest: tests/vm/run -j FOLDER tests/bench/guest.sh [OPTION OF bench...]
# FOLDER holds the programs mrd and bench; the figures of each device come there as DEVICE.json.
# Exit code: the worst of bench's.
# shellcheck disable=SC1091  # the guest's paths
set -uo pipefail
source /vm/guest/rdma-setup.sh || exit 2

/job/mrd --fabric=verbs >/job/mrd.log 2>&1 &
daemon=$!
worst=0
for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
  code=0
  /job/bench --socket-dir /run/mrd --device "$device" --json "/job/$device.json" \
    --label "$device: the kernel's soft RDMA, in a virtual machine" "$@" || code=$?
  ((code <= worst)) || worst=$code
done
kill "$daemon"
wait "$daemon" || { echo "mrd ended with $?:"; cat /job/mrd.log; exit 2; }
exit "$worst"
