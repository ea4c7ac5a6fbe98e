# Domains with a name, which sessions share on purpose, on real devices. (The private ones: isolation.sh.)
# shellcheck shell=bash
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# member NAME DEVICE DOMAIN: a client with a buffer b and a region r in the domain. Sets addr and rkey.
member() {
  client "$1"
  ask "$1" open_domain "$3"
  ask "$1" buffer b 8192
  ask "$1" write b 0 seed:8192:1
  ask "$1" register r b 0 8192 write,remote_read "$2" "domain=$3"
  addr=$(field addr0)
  rkey=$(field "rkey0.$2")
}

# in_domain PEER NAME DEVICE DOMAIN OPTION...: a peer of a member's.
in_domain() {
  local peer=$1 name=$2 device=$3 domain=$4
  shift 4
  ask "$name" listen "$(address_of "$device")" r "domain=$domain"
  connect_peer "$peer" "$device" "$(field port)" "$@"
}

# S12: the half that is shared on purpose.
members_use_each_others_keys() {
  member a "$1" team
  local of_a=(--remote-addr "$addr" --rkey "$rkey")
  member b "$1" team
  in_domain p b "$1" team "${of_a[@]}"
  does p read 0 seed:8192:1
  does p write 4000 seed:200:9 --confirm
  ask a expect b 4000 seed:200:9
  # B's own too, on such a connection.
  in_domain q b "$1" team
  does q write 0 hex:0a0b --confirm
  ask b expect b 0 hex:0a0b

  # Nothing of that holds over B's private connections, nor for those who are no members.
  ask b register own b 0 4096 write,remote_read "$1"
  ask b listen "$(address_of "$1")" own
  connect_peer private "$1" "$(field port)" "${of_a[@]}"
  fails_to_write private "$1"
  serve stranger "$1"
  connect_peer w "$1" "$port" "${of_a[@]}"
  fails_to_write w "$1"
  ask a expect b 4000 seed:200:9

  # It ends with A's lease, not with the domain.
  ask a deregister r
  fails_to_write p "$1"
  ask a expect b 4000 seed:200:9
  does q write 0 hex:0c0d --confirm
  ask b expect b 0 hex:0c0d
}

a_members_death_leaves_the_others() {
  member a "$1" team
  local of_a=(--remote-addr "$addr" --rkey "$rkey")
  member b "$1" team
  local of_b=(--remote-addr "$addr" --rkey "$rkey")
  in_domain to_a b "$1" team "${of_a[@]}"
  in_domain to_b b "$1" team
  # Over a connection of A's to B's memory.
  in_domain over_a a "$1" team "${of_b[@]}"
  does to_a write 0 hex:01 --confirm
  does over_a write 0 hex:02 --confirm
  end_by a KILL
  within "$SECOND_MS" regions_are 1 "$1"
  fails_to_write to_a "$1"
  does over_a wait 10
  does to_b write 0 hex:0304 --confirm
  ask b expect b 0 hex:0304
  # And new ones of new members.
  member c "$1" team
  local of_c=(--remote-addr "$addr" --rkey "$rkey")
  in_domain to_c b "$1" team "${of_c[@]}"
  does to_c write 0 hex:0506 --confirm
  ask c expect b 0 hex:0506
}
regions_are() { [[ $(rdma_count mr "$2" "$daemon") = "$1" ]]; }

# The kernel's protection domains: one for all members, from the first lease to the last.
protection_domains() {
  local base
  base=$(rdma_count pd "$1" "$daemon")
  pds() { rdma_expect_count pd $((base + $1)) "$device" "$daemon"; }
  local device=$1
  client a
  client b
  ask a open_domain team
  ask b open_domain team existing
  pds 0
  local name
  for name in a b; do
    ask "$name" buffer b 8192
    ask "$name" register r b 0 4096 write "$1" domain=team
    pds 1
  done
  ask a register more:5 b 0 100 write "$1" domain=team
  pds 1
  # Another domain, and the private one, are others.
  ask a open_domain second
  ask a register second b 0 4096 write "$1" domain=second
  pds 2
  ask a register own b 0 4096 write "$1"
  pds 3
  ask a deregister second
  ask a close_domain second
  pds 2
  # With the last member the name is free; what lies in it stays until it is ended.
  ask a close_domain team
  refused DOMAIN_UNKNOWN a register x b 0 4096 write "$1" domain=team
  ask b close_domain team
  refused DOMAIN_UNKNOWN b open_domain team existing
  ask b deregister r
  ask a deregister more
  pds 2
  ask a deregister r
  pds 1
  # Of the same name, and another.
  ask b open_domain team
  ask b register r b 0 4096 write "$1" domain=team
  pds 2
  end_by b KILL
  within "$SECOND_MS" regions_are 1 "$1"
  pds 1
}

# stranger NAME: a client of another user, in no group but the sockets'.
stranger() {
  talker "$1" setpriv --reuid 4713 --regid 4713 --groups "$CLIENTS_GID" \
    --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs client_probe
  ask "$1" attach "$1"
}

# Owner, group and mode, as of a file.
who_may_open() {
  client a
  stranger s
  ask s buffer b 4096
  ask a open_domain private
  is owner "$CLIENT_UID"
  is mode 0600
  refused DOMAIN_FORBIDDEN s open_domain private
  refused DOMAIN_FORBIDDEN s open_domain private existing
  refused DOMAIN_UNKNOWN s register r b 0 4096 write "$RXE_DEVICE" domain=private
  refused DOMAIN_UNKNOWN s listen "$RXE_ADDR" r domain=private
  ask s domains
  is domains 0

  ask a open_domain group mode=0660 group="$CLIENTS_GID"
  ask s open_domain group existing
  ask a open_domain others mode=0606
  ask s open_domain others existing
  # Whose group is not the stranger's.
  ask a open_domain not_its_group mode=0660 group="$CLIENT_UID"
  refused DOMAIN_FORBIDDEN s open_domain not_its_group existing
  # Members by right, as the first one is.
  ask s register r b 0 4096 write "$RXE_DEVICE" domain=group
  ask s domains
  is domains 2
  ask a domains
  is domains 4
  refused DOMAIN_UNKNOWN a open_domain nobodys existing
}

start_daemon || exit 1
each_device "S12: members of a domain use each other's keys" members_use_each_others_keys
each_device "a member's death leaves the others" a_members_death_leaves_the_others
each_device "protection domains come and go" protection_domains
scenario "who may open a domain" who_may_open
topic_end
