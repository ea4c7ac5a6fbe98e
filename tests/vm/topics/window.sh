# Addresses: rxe takes any, siw that of the registering process only, for which the daemon keeps a window.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

outside() {
  client c
  local address
  # Below the window and above it, over its ends, and where the daemon's own things may lie.
  for address in 0x100000000000 0x64fffffff000 0x6ffffffff000 0x710000000000 0x560000000000; do
    ask c memfd b 8192 at "$address"
    refused ADDRESS_UNUSABLE c register r b 0 8192 write "$SIW_DEVICE"
    ask c register r b 0 8192 write,remote_read "$RXE_DEVICE"
    ask c listen "$RXE_ADDR" r
    connect_peer p "$RXE_DEVICE" "$(field port)"
    (($(field remote_addr) == address))
    does p write 4090 seed:12:1 --confirm
    ask c expect b 4090 seed:12:1
    finish p
    ask c deregister r
    ask c drop b
  done
}

at_its_ends() {
  client c
  local address
  for address in 0x650000000000 0x6fffffffe000; do
    ask c memfd b 8192 at "$address"
    ask c register r b 0 8192 write,remote_read "$1"
    ask c listen "$(address_of "$1")" r
    connect_peer p "$1" "$(field port)"
    (($(field remote_addr) == address))
    does p write 4090 seed:12:1 --confirm
    ask c expect b 4090 seed:12:1
    finish p
    ask c deregister r
    ask c drop b
  done
}

# Two clients have different memory at the same address.
same_address() {
  local name
  for name in x y; do
    client "$name"
    ask "$name" memfd b 1M at 0x660000000000
  done
  # In turn, so that each must make way for the other.
  for name in x y x y; do
    ask "$name" register r b 0 1M write,remote_read "$1"
  done
  for name in x y; do
    ask "$name" listen "$(address_of "$1")" r
    connect_peer "peer_$name" "$1" "$(field port)"
    (($(field remote_addr) == 0x660000000000))
  done
  does peer_x write 5000 seed:100:1 --confirm
  does peer_y write 5000 seed:100:2 --confirm
  ask x expect b 5000 seed:100:1
  ask y expect b 5000 seed:100:2
  does peer_x read 5000 seed:100:1
  # Whose death is not the other's.
  end_by x KILL
  does peer_y write 5000 seed:100:3 --confirm
  ask y expect b 5000 seed:100:3
}

# Many at once, at one address: each waits for its turn, none gets another's memory.
same_address_at_once() {
  local i
  for i in 1 2 3 4; do
    client "c$i"
    ask "c$i" memfd b 16M at 0x670000000000
  done
  for i in 1 2 3 4; do tell "c$i" register r b 0 16M write,remote_read "$1"; done
  for i in 1 2 3 4; do
    hear "c$i"
    [[ $answer = ok* ]]
  done
  for i in 1 2 3 4; do
    ask "c$i" listen "$(address_of "$1")" r
    connect_peer "p$i" "$1" "$(field port)"
    does "p$i" write 0 seed:64:"$i" --confirm
  done
  for i in 1 2 3 4; do ask "c$i" expect b 0 seed:64:"$i"; done
}

start_daemon || exit 1
scenario "$SIW_DEVICE: addresses outside the window are refused, $RXE_DEVICE takes them" outside
each_device "addresses at the window's ends" at_its_ends
each_device "two clients at the same address" same_address
each_device "four clients at the same address at once" same_address_at_once
topic_end
