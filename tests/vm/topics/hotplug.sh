# Devices that go away under live leases and traffic, and come back. `rdma link delete` waits in the kernel
# until nobody holds the device any more: that it returns is what says that the daemon has let go of it.
# shellcheck shell=bash
# shellcheck disable=SC1091,SC2031  # the guest's paths; scenarios are shells of their own
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Of a device that was added anew the number is another one; the rest is to be as before.
without_numbers() { sed 's/^[0-9]*: //' | sort; }
res() { rdma res | without_numbers; }
holdings() {
  local fds=(/proc/"$daemon"/fd/*) pin
  pin=$(awk '$1 == "VmPin:" { print $2 }' "/proc/$daemon/status")
  echo "fds=${#fds[@]} pinned=$pin memfds=$(grep -c '/memfd:' "/proc/$daemon/maps" || true) $(res | tr '\n' ' ')"
}
devices_are_as_before() { [[ $(res) = $(without_numbers <<<"$devices_before") ]]; }

other_than() { if [[ $1 = "$RXE_DEVICE" ]]; then echo "$SIW_DEVICE"; else echo "$RXE_DEVICE"; fi; }

# unplug DEVICE: begins; unplugged waits for its end, and for that of the kernel's own work on it.
unplug() {
  rdma link delete "$1" &
  deletion=$!
  unplug_began=$(checks_now)
}
unplugged() {
  within "$PATIENCE_MS" deleted || { who_holds; return 1; }
  wait "$deletion"
  local took=$((($(checks_now) - unplug_began) / 1000))
  echo "rdma link delete took $took ms"
  ((took <= 5 * SECOND_MS))
  not grep -q "dev $1 \|link $1/" <<<"$(rdma res show mr; rdma res show qp; rdma res show cm_id; rdma res show pd)"
}
deleted() { ! kill -0 "$deletion" 2>/dev/null; }
# What the kernel waits for, and which processes have a device open or mapped.
who_holds() {
  cat "/proc/$deletion/stack"
  grep -l '/dev/infiniband/uverbs' /proc/[0-9]*/maps
  find /proc/[0-9]*/fd -lname '/dev/infiniband/uverbs*'
}

plug() {
  case $1 in
    "$RXE_DEVICE") rdma_plug rxe "$1" "$RXE_ADDR" dummy-rxe ;;
    "$SIW_DEVICE") rdma_plug siw "$1" "$SIW_ADDR" dummy-siw ;;
  esac
}

# The client's peer reaches its memory on a device that has just come.
serves_anew() {
  ask "$1" register new b 0 8192 write,remote_read "$2"
  addr=$(field addr0)
  ask "$1" listen "$(address_of "$2")" new
  is device "$2"
  connect_peer fresh "$2" "$(field port)"
  does fresh write 0 seed:4096:77 --confirm
  ask "$1" expect b 0 seed:4096:77
  finish fresh
  ask "$1" disconnect
  ask "$1" deregister new
}

# S28
under_traffic() {
  local device=$1 other
  other=$(other_than "$1")
  serve bystander "$other" 65536
  connect_peer q "$other" "$port"
  tell q loop 100 0 4096

  serve c "$device" 65536
  local c_port=$port
  ask c register ten:10 b 0 4096 write "$device"
  ask c register both b 0 4096 write all
  with_region d "$device"
  connect_peer p "$device" "$c_port"
  tell p loop 100 0 4096
  sleep 1

  unplug "$device"
  # The stock peer holds the device too, and ends once its connection broke.
  hear p
  [[ $answer = "op=loop "* && $answer != *" status=ok "* ]]
  end_by p KILL
  unplugged "$device"

  # r, ten and a half of both; the listener and the connection.
  ask c event DEVICE_REMOVED "$device"
  is leases 12
  is endpoints 2
  ask d event DEVICE_REMOVED "$device"
  is leases 1
  is endpoints 0
  ask c devices
  is devices 1
  ask c leases
  is leases 1
  ask c status
  is regions 1
  is pinned_bytes 4096
  is endpoints 0
  refused DEVICE_REMOVED c register x b 0 4096 write "$device"
  refused DEVICE_UNKNOWN c register x b 0 4096 write nobody0
  refused LEASE_UNKNOWN c deregister r

  plug "$device"
  local name
  for name in c d bystander; do ask "$name" event DEVICE_ADDED "$device"; done
  ask c devices
  is devices 2
  is "$device.state" ACTIVE
  serves_anew c "$device"
  serves_anew d "$device"
  ask c deregister both

  # All along, the other device's peer has read and written.
  kill -TERM "${talker_pid[q]}"
  hear q
  [[ $answer = "op=loop status=ok "* ]]
  finish q || true
}

# remove_and_add TIMES DEVICE
remove_and_add() {
  local round port first=''
  client c
  ask c buffer b 65536
  for ((round = 1; round <= $1; round++)); do
    ask c register r:4 b 0 16384 write,remote_read "$2"
    ask c listen "$(address_of "$2")" r
    port=$(field port)
    connect_peer p "$2" "$port"
    does p write 0 seed:4096:"$round" --confirm
    unplug "$2"
    does p wait 30
    end_by p KILL
    unplugged "$2"
    ask c event DEVICE_REMOVED "$2"
    is leases 4
    is endpoints 2
    plug "$2"
    ask c event DEVICE_ADDED "$2"
    ask c status
    is regions 0
    is endpoints 0
    local now=(/proc/"$daemon"/fd/*)
    echo "round $round: ${#now[@]} descriptors"
    # What is made once is there since the first round.
    [[ -z $first ]] || within "$PATIENCE_MS" descriptors_are_at_most "$first"
    first=${first:-${#now[@]}}
  done
  serves_anew c "$2"
}
descriptors_are_at_most() {
  local now=(/proc/"$daemon"/fd/*)
  ((${#now[@]} <= $1))
}

# librdmacm alone would never close the host's last device.
the_last_device_too() {
  client c
  ask c buffer b 8192
  ask c register r b 0 8192 write all
  local device
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    unplug "$device"
    unplugged "$device"
    ask c event DEVICE_REMOVED "$device"
    is leases 1
  done
  ask c devices
  is devices 0
  refused DEVICE_UNKNOWN c register x b 0 4096 write -
  refused DEVICE_REMOVED c register x b 0 4096 write "$RXE_DEVICE"
  ask c status
  is regions 0
  is pinned_bytes 0
  for device in "$RXE_DEVICE" "$SIW_DEVICE"; do
    plug "$device"
    ask c event DEVICE_ADDED "$device"
    serves_anew c "$device"
  done
}

a_wildcard_listener_stays() {
  local device=$1
  client c
  ask c buffer b 8192
  ask c register r b 0 8192 write,remote_read all
  ask c listen 0.0.0.0 r
  local any_port
  any_port=$(field port)
  unplug "$device"
  unplugged "$device"
  ask c event DEVICE_REMOVED "$device"
  is endpoints 0
  plug "$device"
  ask c event DEVICE_ADDED "$device"
  # The new device has no region of the old listener's: the peer connects all the same.
  connect_peer p "$device" "$any_port"
  ask c connections 1 0
  finish p
  ask c disconnect
}

# By the device's own asynchronous event, at once.
ports_go_down_and_up() {
  local link=dummy-rxe before
  [[ $1 = "$RXE_DEVICE" ]] || link=dummy-siw
  before=$(grep -c "device $1: no port is up" "$daemon_log" || true)
  client c
  ip link set "$link" down
  within $((3 * SECOND_MS)) state_is "$1" DOWN
  within $((3 * SECOND_MS)) says $((before + 1)) "device $1: no port is up"
  ip link set "$link" up
  within $((3 * SECOND_MS)) state_is "$1" ACTIVE
  within $((3 * SECOND_MS)) says $((before + 1)) "device $1: a port is up"
  rdma_wait_usable "$1" "$(address_of "$1")"
}
state_is() {
  ask c devices
  is "$1.state" "$2"
}
says() { (($(grep -c "$2" "$daemon_log") >= $1)); }

source /vm/guest/rdma-plug.sh
start_daemon || exit 1
each_device "S28: removed under leases and traffic, and back" under_traffic
scenario "S28: the host's last device goes too" the_last_device_too
each_device "a listener on every device stays" a_wildcard_listener_stays
each_device "ports go down and up" ports_go_down_and_up
each_device "S28: 20 removals leave nothing" remove_and_add 20
topic_end
