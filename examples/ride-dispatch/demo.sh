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
	rm -f ./?.id ./?.saw ./?.answer tap
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

note 'five drivers are offered the ride; each app sees that it has no driver'
begin 'for driver in A B C D E; do ./driver.sh $driver & done'
run '5 404' "until [ \"\$(cat ?.saw 2>/dev/null | wc -l)\" -eq 5 ]; do sleep 0.1; done; sort ?.saw | uniq -c"
note 'the phone of E is paused, and the other four tap'
begin 'kill -STOP %5'
run '1 201' "touch tap; until [ \"\$(cat ?.answer 2>/dev/null | wc -l)\" -eq 4 ]; do sleep 0.1; done; sort ?.answer | uniq -c"
begin 'winner=$(grep -l 201 ?.answer | cut -c 1) loser=$(grep -l 412 ?.answer | cut -c 1 | sed -n 1p)'
run 'the winner drives' "[ \"\$(curl -s \$STORE/rides/7/driver)\" = \"driver \$winner\" ] && echo 'the winner drives'"
note 'the winner goes on with its id; a loser tries to write something else of the ride'
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"Hold-Id: \$(cat \$winner.id)\" -d 'on my way' \$PROXY/rides/7/state | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: stale' "curl -si -X PUT -H \"Hold-Id: \$(cat \$loser.id)\" -d 'cancelled' \$PROXY/rides/7/state | grep -E '^(HTTP|Fencing)'"
run 'on my way' "curl -s \$STORE/rides/7/state"
note 'the winner gives the ride back, and the loser takes it'
run 'Fencing-Status: admitted' "curl -si -X DELETE -H \"Hold-Id: \$(cat \$winner.id)\" \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"Hold-Id: \$(cat \$loser.id)\" -d \"driver \$loser\" \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
note 'E wakes up: its app saw a free ride, and the driver has tapped'
begin 'kill -CONT %5'
run '412' "until [ -s E.answer ]; do sleep 0.1; done; cat E.answer"
run 'the second one drives' "[ \"\$(curl -s \$STORE/rides/7/driver)\" = \"driver \$loser\" ] && echo 'the second one drives'"
