#!/bin/sh
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts nothing.
set -eu
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}" LEASES="${LEASES:-http://127.0.0.1:8082}"

note() { printf '# %s\n' "$1"; }

# run WANT LINE: prints and runs a line; the answer has to hold WANT.
run() {
	printf '$ %s\n' "$2"
	answer=$(eval "$2" | tr -d '\r')
	printf '%s\n' "$answer"
	case $answer in
	*"$1"*) ;;
	*)
		printf 'demo.sh: expected %s\n' "$1" >&2
		printf 'demo.sh: if it was played here before, clean up first (README.md, "Clean up"): the marks remain\n' >&2
		exit 1
		;;
	esac
}

note 'A takes the lease for two seconds, and writes with the token that comes with it'
run '"token": "1"' "curl -s -X POST -d '{\"ttl\": \"2s\", \"owner\": \"A\"}' \$LEASES/v1/leases/rides/7 | grep -E 'name|token'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Fencing-Token: 1' -d 'driver A' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
note 'B stands in line; A pauses, and its lease ends'
run '"token": "2"' "curl -s -X POST -d '{\"ttl\": \"1m\", \"wait\": \"1m\", \"owner\": \"B\"}' \$LEASES/v1/leases/rides/7 | grep -E 'name|token'"
note 'A wakes up; B has not written yet'
run 'Fencing-Status: stale' "curl -si -X PUT -H 'Fencing-Token: 1' -d 'driver A' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Fencing-Token: 2' -d 'driver B' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
run 'driver B' "curl -s \$STORE/rides/7/driver"
note 'C does not wait'
run '409 Conflict' "curl -si -X POST -d '{\"ttl\": \"1m\"}' \$LEASES/v1/leases/rides/7 | grep -E '^HTTP|owner'"
