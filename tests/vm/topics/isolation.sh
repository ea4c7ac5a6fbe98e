# What a peer can no longer reach, or never could.
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

after_deregistering() {
  serve c "$1"
  connect_peer p "$1" "$port"
  does p write 0 seed:8192:1 --confirm
  ask c deregister r
  fails_to_write p "$1"
  ask c expect b 0 seed:8192:1
}

# Another region of the client's is not the one that ended.
other_regions_stand() {
  serve c "$1"
  ask c register other b 0 4096 write,remote_read "$1"
  local other
  other=$(field "rkey0.$1")
  connect_peer p "$1" "$port" --remote-addr "$addr" --rkey "$other"
  connect_peer q "$1" "$port"
  ask c deregister r
  fails_to_write q "$1"
  does p write 0 hex:0102 --confirm
  ask c expect b 0 hex:0102
}

after_the_clients_death() {
  serve c "$1"
  ask c write b 0 seed:8192:1
  connect_peer p "$1" "$port"
  # Somebody who has the memory still sees it.
  local memory
  exec {memory}<"$(memory_of c)"
  end_by c KILL
  # Deregistered, or disconnected already: the daemon may be quicker than the peer's next write.
  does p write 0 hex:deadbeef --confirm --expect-error
  does p wait 10
  [[ $(od -An -tx1 -N 4 <&"$memory") = " 01 84 07 8a" ]]
}

# S12: the passive half. A key is good in its own session's domain only.
keys_of_another_session() {
  with_region a "$1"
  ask a write b 0 seed:8192:1
  local key=$rkey at=$addr
  serve b "$1"
  connect_peer w "$1" "$port" --remote-addr "$at" --rkey "$key"
  fails_to_write w "$1"
  connect_peer r "$1" "$port" --remote-addr "$at" --rkey "$key"
  fails_to_read r "$1"
  ask a expect b 0 seed:8192:1
  # Of its own session it is good.
  ask a listen "$(address_of "$1")" r
  connect_peer p "$1" "$(field port)"
  does p write 0 hex:0a --confirm
  ask a expect b 0 hex:0a
}

# A key that was good once does not become good again for others.
keys_of_the_past() {
  serve c "$1"
  local key=$rkey
  ask c deregister r
  ask c register r b 0 8192 write,remote_read "$1"
  [[ $(field "rkey0.$1") != "$key" ]]
  ask c write b 0 seed:8192:1
  connect_peer p "$1" "$port" --remote-addr "$addr" --rkey "$key"
  fails_to_write p "$1"
  ask c expect b 0 seed:8192:1
}

start_daemon || exit 1
each_device "after Deregister" after_deregistering
each_device "Deregister leaves other regions" other_regions_stand
each_device "after the client's death" after_the_clients_death
each_device "S12: keys of another session" keys_of_another_session
each_device "keys of the past" keys_of_the_past
topic_end
