#!/bin/bash
# Runs in the guest with systemd as PID 1: tests/vm/run -s -j DIR tests/vm/kills.sh [EVERY], DIR as tests/vm/suite makes it.
# The daemon killed at every step of every operation, on rxe and siw (tests/vm/kills/main.cc); EVERY: on siw at each such step.
# First by a supervisor that starts it at once (tests/vm/dying), then some of it by systemd and the real units.
# shellcheck disable=SC1091  # the guest's paths
# shellcheck disable=SC2034,SC2153,SC2154  # from rdma-setup.sh and lib.sh
set -uo pipefail
source /vm/guest/rdma-setup.sh || exit 1
every=${1:-1}

install -m 755 /job/bin/{dying_mrd,kill_sweep,client_probe} /usr/local/bin/
install -m 644 /job/systemd/*.service /job/systemd/*.socket /etc/systemd/system/
for kind in sysusers tmpfiles; do install -D -m 644 "/job/systemd/$kind.d/mrd.conf" "/usr/lib/$kind.d/mrd.conf"; done
systemd-sysusers mrd.conf && systemd-tmpfiles --create mrd.conf || exit 1

DAEMON_UID=$(id -u mrd) CLIENTS_GID=$(getent group mrd | cut -d: -f3)
export DAEMON_UID CLIENTS_GID CLIENT_UID=4711
source /job/topics/lib.sh
source /job/topics/calibrate.sh
calibrate
devices=("$RXE_DEVICE=$RXE_ADDR" "$SIW_DEVICE=$SIW_ADDR")
control_dir=/run/mrd-dying control=/run/mrd-dying/control
install -d -o "$DAEMON_UID" -g "$DAEMON_UID" "$control_dir"

# sweep EVERY ONLY: its lines are checks.
sweep() {
  local line
  while IFS= read -r line; do
    case $line in
      "ok      "*) checks_passed=$((checks_passed + 1)) ;;
      "FAILED  "*) checks_failed=$((checks_failed + 1)) ;;
    esac
    echo "$line"
  done < <(kill_sweep "$control" "$SECOND_MS" "$1" "$2" "${devices[@]}" 2>&1 || echo "FAILED  the sweep's exit code is $?")
}
new_control() {
  rm -f "$control"
  truncate -s 4096 "$control"
  chown "$DAEMON_UID" "$control"
}

# --- Started again at once.
export MRD_SOCKET_DIR=/run/mrd-kills
make_socket_dirs "$MRD_SOCKET_DIR"
new_control
MRD_CONTROL=$control MRD_SUPERVISE=$MRD_SOCKET_DIR "${daemon_as[@]}" dying_mrd --store 2000 2>"$scratch/log" &
supervisor=$!
sweep "$every" ""
kill_all "$supervisor"
((checks_failed == 0)) || tail -n 60 "$scratch/log" | sed 's/^/mrd| /'

# --- Started again by systemd, which has what it stores.
export MRD_SOCKET_DIR=/run/mrd
new_control
mkdir -p /etc/systemd/system/mrd.service.d
cat >/etc/systemd/system/mrd.service.d/dying.conf <<END
[Service]
ExecStart=
ExecStart=/usr/local/bin/dying_mrd --store 2000
Environment=MRD_CONTROL=$control
ReadWritePaths=$control_dir
END
systemctl daemon-reload
check "systemd starts it" systemctl start mrd
failed_before=$checks_failed
sweep "$every" "the first region"
((checks_failed == failed_before)) || journalctl --no-pager -o cat -u mrd | tail -n 60 | sed 's/^/mrd| /'
checks_end
