#!/usr/bin/env bash
# Plays the lines of README.md with psql and curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}"
export PGHOST="${PGHOST:-127.0.0.1}" PGUSER="${PGUSER:-postgres}" # and PGPORT, PGPASSWORD, PGDATABASE

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for job in $(jobs -p); do
		kill -KILL -- "-$job" || true
	done
	rm -f A B
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

# write WANT NAME HOW
write() { run "Fencing-Status: $1" "curl -si -X PUT -H \"Fencing-Token: \$(cat $2)\" -d 'driver $2' \$PROXY/postgres/$3/7 | grep -E '^(HTTP|Fencing)'"; }

run '' 'psql -Xq -f schema.sql'
note 'an advisory lock. A takes it, draws a number, and writes'
begin 'psql -XqAt -v ride=7 -f hold.sql >/dev/null 2>&1 &'
run '' 'until [ -s A ]; do sleep 0.1; done; cat A'
write admitted A advisory
note 'A is paused and says nothing more. B waits until the server has ended the session, and writes under the lock'
begin 'kill -STOP %1'
run 'Fencing-Status: admitted' 'psql -XqAt -v ride=7 -f write.sql'
note 'A wakes up and does not know'
begin 'kill -CONT %1'
write stale A advisory
run 'driver B' 'curl -s $STORE/postgres/advisory/7'
note 'a table of leases. A takes one for a second and writes. Then it is paused: nothing renews it'
run '' "psql -XqAtc \"select take('rides/7', 'A', '1s')\" | tee A"
write admitted A table
note 'B takes it when it has run out, and writes'
run '' "until psql -XqAtc \"select expires < clock_timestamp() from leases where resource = 'rides/7'\" | grep -q t; do sleep 0.1; done"
run '' "psql -XqAtc \"select take('rides/7', 'B', '1min')\" | tee B"
write admitted B table
note 'A wakes up. It can neither write nor renew nor release'
write stale A table
run 'f|f' "psql -XqAtc \"select renew('rides/7', \$(cat A), '1min'), release('rides/7', \$(cat A))\""
run 'driver B' 'curl -s $STORE/postgres/table/7'
note 'what a cached sequence would hand out: to one session, to another, to the first again'
run '21' 'psql -XqAt -f cache.sql'
