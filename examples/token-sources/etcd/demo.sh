#!/usr/bin/env bash
# Plays the lines of README.md with etcdctl and curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}"
export ETCDCTL_ENDPOINTS="${ETCDCTL_ENDPOINTS:-http://127.0.0.1:2379}"

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for job in $(jobs -p); do
		kill -KILL -- "-$job" || true
	done
	rm -f A C C.key
}
trap finish EXIT

note() { printf '# %s\n' "$1"; }

# run WANT LINE: prints and runs a line; the answer has to hold WANT.
run() {
	printf '$ %s\n' "$2"
	answer=$(eval "$2" | tr -d '\r') || true # a line may well end with an error
	[ -z "$answer" ] || printf '%s\n' "$answer"
	case $answer in
	*"${1:-$answer}"*) ;;
	*)
		printf 'demo.sh: expected %s\n' "$1" >&2
		printf 'demo.sh: if it was played here before, clean up first (README.md, "Clean up"): the marks remain\n' >&2
		exit 1
		;;
	esac
}

# begin LINE: prints a line and runs it in this shell, whose jobs and files it changes.
begin() {
	printf '$ %s\n' "$1"
	eval "$1"
}

note 'A takes the lock, and etcdctl tells the command under it the revision. A writes'
begin "etcdctl lock --ttl 3 rides/7 -- sh -c 'echo \$ETCD_LOCK_REV >A; exec sleep 300' &"
run '' 'until [ -s A ]; do sleep 0.1; done; cat A'
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"Fencing-Token: \$(cat A)\" -d 'driver A' \$PROXY/etcd/7 | grep -E '^(HTTP|Fencing)'"
note 'A is paused, with the etcdctl that renews its lease. B waits until the lease has run out, and writes under the lock'
begin 'kill -STOP %1'
run 'Fencing-Status: admitted' "etcdctl lock rides/7 -- sh -c 'echo \$ETCD_LOCK_REV; curl -si -X PUT -H \"Fencing-Token: \$ETCD_LOCK_REV\" -d \"driver B\" \$PROXY/etcd/7' | grep -E '^([0-9]+\$|HTTP|Fencing)'"
note 'A wakes up and does not know'
begin 'kill -CONT %1'
run 'Fencing-Status: stale' "curl -si -X PUT -H \"Fencing-Token: \$(cat A)\" -d 'driver A' \$PROXY/etcd/7 | grep -E '^(HTTP|Fencing)'"
run 'driver B' 'curl -s $STORE/etcd/7'

kill -KILL %1
wait %1 2>/dev/null || true

note 'never both numbers on one resource. A holds the lock of ride 8, B and then C wait for it'
waiting() { run '' "until [ \$(etcdctl get --prefix --keys-only rides/8/ | grep -c rides) = $1 ]; do sleep 0.1; done"; }
begin 'etcdctl lock --ttl 3 rides/8 -- sleep 300 2>/dev/null &'
waiting 1
begin "etcdctl lock rides/8 -- sh -c 'curl -s -X PUT -H \"Fencing-Token: \$ETCD_LOCK_REV\" -d \"driver B\" \$PROXY/etcd/8' &"
waiting 2
begin "etcdctl lock rides/8 -- sh -c 'echo \$ETCD_LOCK_REV >C; etcdctl get -w fields \$ETCD_LOCK_KEY | grep Create >C.key; exec sleep 300' &"
waiting 3
note 'A gives it up, B writes with its revision and gives it up, C holds it and takes the create revision of its key'
begin 'kill %1'
run 'CreateRevision' 'until [ -s C.key ]; do sleep 0.1; done; cat C C.key'
run 'Fencing-Status: stale' "curl -si -X PUT -H \"Fencing-Token: \$(grep -o '[0-9]*' C.key)\" -d 'driver C' \$PROXY/etcd/8 | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"Fencing-Token: \$(cat C)\" -d 'driver C' \$PROXY/etcd/8 | grep -E '^(HTTP|Fencing)'"
