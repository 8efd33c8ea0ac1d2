#!/usr/bin/env bash
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}" SEAT=flights/7/seats/12A

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for job in $(jobs -p); do
		kill -KILL -- "-$job" || true
	done
	rm -f ./?.id ./?.hold ./?.paid ./?.booking
}
trap finish EXIT

note() { printf '# %s\n' "$1"; }

# run WANT LINE: prints and runs a line; the answer has to hold WANT.
run() {
	printf '$ %s\n' "$2"
	answer=$(eval "$2" | tr -d '\r') || true # a line may well end with an error
	[ -z "$answer" ] || printf '%s\n' "$answer"
	case $answer in
	*"$1"*) ;;
	*)
		printf 'demo.sh: expected %s\n' "$1" >&2
		printf 'demo.sh: if it was played here before, clean up first (README.md, "Clean up"): the marks remain\n' >&2
		exit 1
		;;
	esac
}

# begin LINE: prints a line and runs it in this shell, whose jobs and names it changes.
begin() {
	printf '$ %s\n' "$1"
	eval "$1"
}

# write WANT WHO WHAT
write() { run "$1" "curl -si -X PUT -H \"Hold-Id: \$(cat $2.id)\" -d $2 \$PROXY/\$SEAT/$3 | grep -E '^HTTP|\"policy\"'"; }

# takes WHO: once the hold before it has run out
takes() {
	run "$1" "until curl -s -o /dev/null -w '%{http_code}' -X PUT -H \"Hold-Id: \$(cat $1.id)\" -d $1 \$PROXY/\$SEAT/hold | grep -q 201; do sleep 0.2; done; curl -s \$STORE/\$SEAT/hold"
}

begin 'for buyer in B C; do od -An -N16 -tx1 /dev/urandom | tr -d " \n" >$buyer.id; done'
note 'A holds the seat and pays; B comes too late'
begin './buyer.sh A &'
run '201' 'until [ -s A.hold ]; do sleep 0.1; done; cat A.hold'
write '"policy": "seats"' B hold
note 'A is paused in the payment; B gets the seat when the hold has run out'
begin 'kill -STOP %1'
takes B
note 'a second device of A confirms before B does'
write '"policy": "seats"' A booking
write '201' B booking
note 'A wakes up, and the bank has said yes'
begin 'touch A.paid; kill -CONT %1'
run '412' 'until [ -s A.booking ]; do sleep 0.1; done; cat A.booking'
run 'B' 'curl -s $STORE/$SEAT/booking'
note 'the hold of B runs out too; C gets a hold on the seat that is sold'
takes C
write '"policy": "bookings"' C booking
run '204' 'curl -si -X DELETE -H "Hold-Id: $(cat C.id)" $PROXY/$SEAT/hold | grep -E "^HTTP"'
run 'B' 'curl -s $STORE/$SEAT/booking'
