#!/bin/sh
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts nothing.
set -eu
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"

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

note 'the holder of 34 writes, then 33 comes late'
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Fencing-Token: 34' -d 'driver B' \$PROXY/rides/7 | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: stale' "curl -si -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$PROXY/rides/7 | grep -E '^(HTTP|Fencing)'"
run 'driver B' "curl -s \$PROXY/rides/7"
note 'a write that no policy covers is refused'
run 'Fencing-Status: unmatched' "curl -si -X PUT -H 'Fencing-Token: 34' -d 'x' \$PROXY/elsewhere | grep -E '^(HTTP|Fencing)'"
