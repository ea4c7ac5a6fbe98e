# What clients are told of the devices.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

a_client_is_told_the_truth() {
  client c
  ask c devices
  is devices 2
  is "$RXE_DEVICE.transport" ROCE
  is "$SIW_DEVICE.transport" IWARP
  local device
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    is "$device.state" ACTIVE
    is "$device.addresses" "$(address_of "$device")"
    is "$device.endpoints" 1
  done
  # siw takes no address but that of the registering process.
  is "$RXE_DEVICE.any_address" 1
  is "$SIW_DEVICE.any_address" 0
  # siw would register with REMOTE_ATOMIC, and has no atomics; neither has on-demand paging.
  [[ ,$(field "$RXE_DEVICE.access"), = *,REMOTE_ATOMIC,* ]]
  [[ ,$(field "$SIW_DEVICE.access"), != *,REMOTE_ATOMIC,* ]]
  [[ ,$(field "$RXE_DEVICE.access"),$(field "$SIW_DEVICE.access"), != *,ON_DEMAND,* ]]
}

mrctl_shows_them() {
  local table
  table=$("${client_as[@]}" mrctl devices)
  echo "$table"
  grep -Eq "^$RXE_DEVICE +RoCE +active .* $RXE_ADDR\$" <<<"$table"
  grep -Eq "^$SIW_DEVICE +iWARP +active .* $SIW_ADDR\$" <<<"$table"
  grep -q "^$SIW_DEVICE: library's addresses only" <<<"$table"
  grep -q '"transport": "IWARP"' <<<"$("${client_as[@]}" mrctl devices --json)"
}

# A client without access to /dev/infiniband, which is what mrd is for.
clients_have_no_device_of_their_own() {
  not "${client_as[@]}" test -r /dev/infiniband/rdma_cm
  not "${client_as[@]}" peer --probe "$RXE_ADDR"
}

a_link_that_goes_down_is_seen() {
  client c
  ip link set dummy-siw down
  # The daemon looks once a second at most.
  within "$PATIENCE_MS" state_is DOWN
  is "$RXE_DEVICE.state" ACTIVE
  ip link set dummy-siw up
  within "$PATIENCE_MS" state_is ACTIVE
}
state_is() {
  ask c devices
  is "$SIW_DEVICE.state" "$1"
}

start_daemon || exit 1
scenario "devices as a client is told" a_client_is_told_the_truth
scenario "devices as mrctl shows them" mrctl_shows_them
scenario "clients have no device of their own" clients_have_no_device_of_their_own
scenario "a link that goes down is seen" a_link_that_goes_down_is_seen
topic_end
