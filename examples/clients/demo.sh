#!/bin/sh
# Plays the lines of README.md with curl.sh, or with another script of this folder: ./demo.sh ./rclone.sh. It starts nothing.
set -eu
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}"
snippet=${1:-./curl.sh}

# run WANT LINE: prints and runs a line; the answer has to hold WANT.
run() {
	printf '$ %s\n' "$2"
	answer=$(eval "$2" | tr -d '\r')
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

run '' "echo 'driver B' >ride.txt"
run 'done' "TOKEN=34 $snippet upload ride.txt rides/7 >/dev/null && echo done"
run 'done' "TOKEN=34 $snippet download rides/7 copy.txt >/dev/null && echo done"
run 'driver B' 'cat copy.txt'
run 'done' "TOKEN=34 $snippet copy rides/7 rides/7-copy >/dev/null && echo done"
run 'done' "TOKEN=34 $snippet delete rides/7-copy >/dev/null && echo done"
run '' "echo 'driver A' >ride.txt"
run 'The fencing token is stale' "TOKEN=33 $snippet upload ride.txt rides/7 2>&1 | grep -o 'The fencing token is stale' | head -1"
