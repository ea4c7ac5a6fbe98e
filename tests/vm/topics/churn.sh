# Long runs: what comes and goes many times leaves nothing, and all counts agree.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# "rss maps fds" of the daemon: memory of its own, without the pages of mapped buffers.
footprint() {
  local fds=(/proc/"$daemon"/fd/*)
  echo "$(awk '$1 == "RssAnon:" { print $2 }' "/proc/$daemon/status")" \
    "$(wc -l <"/proc/$daemon/maps")" "${#fds[@]}"
}

# S06: CYCLES DEVICE, twice: what is kept for a while - a thousand answered requests, mapped buffers - is
# full after the first time.
cycles_leave_no_trace() {
  client c
  patience=300 ask c cycles "$1" 1 "$2"
  local before after rss maps fds
  before=$(footprint)
  patience=300 ask c cycles "$1" 2 "$2"
  after=$(footprint)
  echo "cycles: $before KiB resident, mappings, descriptors; then $after" | tee -a "$scratch/said"
  read -r rss maps fds <<<"$before"
  # shellcheck disable=SC2086  # three words
  set -- $after
  (($1 - rss < 1024 && $2 - maps < 16 && $3 - fds < 8))
  rdma_expect_count mr 0 "" "$daemon"
}

# walk CLIENTS OPERATIONS SEED: on both devices.
walk() {
  local code=0 said
  said=$(client_probe walk "$daemon" "$1" "$2" "$3" "$SECOND_MS" "$RXE_DEVICE,$SIW_DEVICE" \
    "${client_as[@]}" client_probe 2>&1) || code=$?
  echo "$said"
  echo "$said" >>"$scratch/said"
  return "$code"
}

start_daemon || exit 1
scenario "$RXE_DEVICE: S06: 20,000 cycles" cycles_leave_no_trace 10000 "$RXE_DEVICE"
scenario "a random walk of 20 clients: books, kernel and pins agree" walk 20 2000 20240705
sed 's/^/        /' "$scratch/said"
topic_end
