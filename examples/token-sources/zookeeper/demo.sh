#!/usr/bin/env bash
# Plays the lines of README.md with zkCli.sh and curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}"
export ZK="${ZK:-127.0.0.1:2181}"

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for job in $(jobs -p); do
		kill -KILL -- "-$job" || true
	done
	rm -f a b A B C ?.czxid ?.log
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

# write WANT NAME [WANT]: writes with the czxid of a holder, and with the name of its node.
write() {
	run "Fencing-Status: $1" "curl -si -X PUT -H \"Fencing-Token: \$(cat $2.czxid)\" -d 'driver $2' \$PROXY/zookeeper/7 | grep -E '^(HTTP|Fencing)'"
	run "Fencing-Status: ${3:-$1}" "curl -si -X PUT -H \"Fencing-Token: \$(cat $2)\" -d 'driver $2' \$PROXY/znode/7 | grep -E '^(HTTP|Fencing)'"
}

note 'A makes a node, which is the lowest and so the lock. It has two numbers. A writes with each, to a resource for each'
begin 'mkfifo a b'
begin 'zkCli.sh -server $ZK -timeout 3000 <a >>A.log 2>&1 & exec 3>a'
run '' "echo 'create /locks' >&3; echo 'create /locks/rides-7' >&3; echo 'create -s -e /locks/rides-7/lock- A' >&3"
run '/lock-' "until grep -om1 '/locks/.*-[0-9]\\{10\\}' A.log >A; do sleep 0.1; done; cat A"
run '' 'echo "stat $(cat A)" >&3'
run '0x' "until grep -q numChildren A.log; do sleep 0.1; done; sed -n 's/^cZxid = //p' A.log | tee A.czxid"
write admitted A
note 'B makes the next node and watches the one before it'
begin 'zkCli.sh -server $ZK -timeout 3000 <b >>B.log 2>&1 & exec 4>b'
run '' "echo 'create -s -e /locks/rides-7/lock- B' >&4"
run '/lock-' "until grep -om1 '/locks/.*-[0-9]\\{10\\}' B.log >B; do sleep 0.1; done; cat B"
run '' 'echo "stat -w $(cat A)" >&4; until grep -q numChildren B.log; do sleep 0.1; done'
note 'A is paused. When its session has run out, its node is gone, and B is the lowest'
begin 'kill -STOP %1'
run '' "until grep -q 'NodeDeleted path:/locks' B.log; do sleep 0.1; done"
run '' ': >B.log; echo "stat $(cat B)" >&4'
run '0x' "until grep -q numChildren B.log; do sleep 0.1; done; sed -n 's/^cZxid = //p' B.log | tee B.czxid"
write admitted B
note 'A wakes up and does not know'
begin 'kill -CONT %1'
write stale A
run 'driver B' 'curl -s $STORE/zookeeper/7 $STORE/znode/7'
note 'B ends, somebody tidies up the empty parent, and C is the next holder'
run '' ': >B.log; for c in "delete $(cat B)" "delete /locks/rides-7" "create /locks/rides-7" "create -s -e /locks/rides-7/lock- C"; do echo "$c" >&4; done'
run '/lock-' "until grep -om1 '/locks/.*-[0-9]\\{10\\}' B.log >C; do sleep 0.1; done; cat C"
run '' ': >B.log; echo "stat $(cat C)" >&4'
run '0x' "until grep -q numChildren B.log; do sleep 0.1; done; sed -n 's/^cZxid = //p' B.log | tee C.czxid"
write admitted C stale
