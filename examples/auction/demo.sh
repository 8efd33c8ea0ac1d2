#!/usr/bin/env bash
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}"

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for job in $(jobs -p); do
		kill -KILL -- "-$job" || true
	done
	rm -f ./?.bid ./?.answer tap
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

# bid WANT CENTS WHO
bid() { run "Fencing-Status: $1" "curl -si -X PUT -H 'Bid-Cents: $2' -d '$2 by $3' \$PROXY/items/1/bid | grep -E '^(HTTP|Fencing)'"; }

note 'A bids, B bids more; the 120 of C was sent before that and comes after it; D has the same idea as B'
bid admitted 100 A
bid admitted 130 B
bid stale 120 C
bid stale 130 D
run '130 by B' "curl -s \$STORE/items/1/bid"
note 'the app of D looks again, and is paused with 140 in its hand; E bids 150; D wakes up'
begin './bidder.sh D &'
run '140' "until [ -s D.bid ]; do sleep 0.1; done; cat D.bid"
begin 'kill -STOP %1'
bid admitted 150 E
begin 'touch tap; kill -CONT %1'
run '412' "until [ -s D.answer ]; do sleep 0.1; done; cat D.answer"
run '150 by E' "curl -s \$STORE/items/1/bid"
note 'no amount; a slip of the finger, which leaves no mark'
run 'Fencing-Status: missing' "curl -si -X PUT -d '160 by A' \$PROXY/items/1/bid | grep -E '^(HTTP|Fencing)'"
bid malformed 1000000000 A
bid admitted 160 A
note 'a hundred bids for item 2, 16 at a time, in no order'
run '100' "seq 1001 1100 | sort -R | xargs -P 16 -I{} curl -s -o /dev/null -w '%{http_code}\n' -X PUT -H 'Bid-Cents: {}' -d '{} cents' \$PROXY/items/2/bid | grep -cE '^(201|412)$'"
run '1100 cents' "curl -s \$STORE/items/2/bid"
