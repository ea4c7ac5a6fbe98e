#!/bin/bash
# Runs in the guest with systemd as PID 1: tests/vm/run -s -j DIR tests/vm/survive.sh, DIR as tests/vm/suite makes it.
# Keys that outlive the daemon, on rxe and siw: what goes on over kills and restarts, and what ends.
# shellcheck disable=SC1091  # the guest's paths
# shellcheck disable=SC2030,SC2031,SC2034,SC2153,SC2154  # scenarios are shells of their own; from rdma-setup.sh and lib.sh
set -uo pipefail
source /vm/guest/rdma-setup.sh || exit 1

export DAEMON_UID=4710 CLIENT_UID=4711 CLIENTS_GID=4712
echo "mrd-clients:x:$CLIENTS_GID:" >>/etc/group
echo "mrd:x:$DAEMON_UID:" >>/etc/group
echo "mrd:x:$DAEMON_UID:$DAEMON_UID::/:/bin/false" >>/etc/passwd
install -m 755 /job/bin/* /usr/local/bin/
source /job/topics/lib.sh
native=$(</job/native-us)
here=$(client_probe calibrate)
here=${here##*mean_us=}
SECOND_MS=$((1000 * ((here + native - 1) / native)))
echo "a second is $SECOND_MS ms"

cat >/etc/systemd/system/mrd.service <<END
[Service]
Type=exec
NotifyAccess=main
ExecStart=/usr/local/bin/mrd --socket-dir /run/mrd --socket-group mrd-clients --store 2000
User=$DAEMON_UID
Group=$DAEMON_UID
SupplementaryGroups=$CLIENTS_GID
AmbientCapabilities=CAP_IPC_LOCK
LimitMEMLOCK=infinity
LimitNOFILE=65536
Restart=on-failure
RestartSec=100ms
FileDescriptorStoreMax=2000
END
printf '[Unit]\nStartLimitIntervalSec=0\n' >>/etc/systemd/system/mrd.service
chown "$DAEMON_UID" /dev/infiniband/*
chmod 600 /dev/infiniband/*
make_socket_dirs /run/mrd
systemctl daemon-reload

main_pid() { systemctl show -p MainPID --value mrd; }
stored() { systemctl show -p NFileDescriptorStore --value mrd; }
journal() {
  journalctl --sync
  journalctl --no-pager -o cat -u mrd
}
serves() { mrctl --admin status >/dev/null 2>&1; }
another_serves() { [[ $(main_pid) != "$1" && $(main_pid) != 0 ]] && serves; }

scenario_end() {
  local code=$? name
  trap - ERR
  set +eE
  for name in "${!talker_pid[@]}"; do
    ((code == 0)) || sed "s/^/$name! /" "$scratch/$name.err"
  done
  kill_all "${talker_pid[@]}"
  ((code == 0)) || { journal | tail -n 40 | sed 's/^/mrd| /'; rdma res; rdma res show mr; }
  exit "$code"
}

killed() {
  local pid
  pid=$(main_pid)
  kill -KILL "$pid"
  within $((3 * SECOND_MS)) another_serves "$pid"
}
restarted() {
  local pid
  pid=$(main_pid)
  systemctl restart mrd
  within $((3 * SECOND_MS)) another_serves "$pid"
}

# A peer writes and reads without pause while the daemon is killed and restarted.
goes_on() {
  local device=$1 how
  serve c "$device" 65536
  local key_before=$rkey lease
  connect_peer p "$device" "$port"
  local rounds=0
  for how in killed restarted killed killed restarted; do
    "$how"
    does p write 0 "seed:4096:$rounds" --confirm
    rounds=$((rounds + 1))
  done
  say c leases
  [[ $answer = *"$key_before"* ]] || true
  does p read 0 "any:4096"
  ask c deregister r
  fails_to_write p "$device"
  end_by c KILL
}

check "the daemon starts" bash -c 'systemctl start mrd'
check "it serves" within $((10 * SECOND_MS)) serves
((checks_failed == 0)) || { journal | tail -20; checks_end; exit 1; }
each_device "a peer's operations go on over kills and restarts" goes_on
journal | tail -60
echo "stored: $(stored)"
checks_end
