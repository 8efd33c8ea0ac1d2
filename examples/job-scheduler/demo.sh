#!/usr/bin/env bash
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}" LEASES="${LEASES:-http://127.0.0.1:8082}"

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for group in $(jobs -p) $(cat A.pid); do
		kill -KILL -- "-$group" || true
	done
	rm -f A.log A.pid B.pid figures
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

# begin LINE: prints a line and runs it in this shell, whose jobs it changes.
begin() {
	printf '$ %s\n' "$1"
	eval "$1" || true
}

note 'A becomes leader and starts the job. Then all of A is paused, also what renews its lease'
begin './scheduler.sh A 2026-11-30 >A.log 2>&1 &'
run 'token 1' 'until [ -s A.log ]; do sleep 0.1; done; cat A.log'
begin 'kill -STOP %1'
note 'the figures come. B stands in line, becomes leader when the lease of A has ended, and the job fires again'
begin 'touch figures'
run 'Fencing-Status: admitted' './scheduler.sh B 2026-11-30'
note 'A wakes up and writes what it has'
begin 'kill -CONT %1; wait %1'
run 'Fencing-Status: stale' 'cat A.log'
run 'report by B' 'curl -s $STORE/jobs/report/2026-11-30'
note 'nor may A write the result of another run'
run 'Fencing-Status: stale' "curl -si -X PUT -H 'Fencing-Token: 1' -d 'report by A' \$PROXY/jobs/report/2026-11-29 | grep -E '^(HTTP|Fencing)'"
note 'the next night, with lease run'
begin 'rm figures A.log A.pid'
begin 'fenceproxy lease run jobs/report --leases $LEASES --ttl 3s --wait 1m -- ./report.sh A 2026-12-01 >A.log 2>&1 </dev/null &'
run 'token 3' 'until [ -s A.log ]; do sleep 0.1; done; cat A.log'
begin 'kill -STOP %1 -$(cat A.pid)'
begin 'touch figures'
run 'Fencing-Status: admitted' 'fenceproxy lease run jobs/report --leases $LEASES --wait 1m -- ./report.sh B 2026-12-01'
note 'A wakes up: its job is stopped before it writes'
begin 'kill -CONT %1; wait %1'
run 'so the command was stopped' "sed 's/stopped: .*/stopped/' A.log"
run 'report by B' 'curl -s $STORE/jobs/report/2026-12-01'
