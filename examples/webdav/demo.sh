#!/usr/bin/env bash
# Plays the lines of README.md with curl and cadaver and stops at the first answer that is not what it should be. It starts nothing.
set -euo pipefail
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"
export HOP33="${HOP33:-http://127.0.0.1:8033}" HOP34="${HOP34:-http://127.0.0.1:8034}"

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

note 'A holds the lease of ride 7 with token 33 and writes. A pauses, its lease ends, B gets 34 and writes'
run 'Fencing-Status: admitted' "curl -si -X MKCOL -H 'Fencing-Token: 33' \$PROXY/dav/rides/ | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$PROXY/dav/rides/7 | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Fencing-Token: 34' -d 'driver B' \$PROXY/dav/rides/7 | grep -E '^(HTTP|Fencing)'"
note 'A wakes up, and spells it in another way'
run 'Fencing-Status: stale' "curl -si -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$PROXY/dav/rides/7 | grep -E '^(HTTP|Fencing)'"
run 'dav/rides/7' "curl -s -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$PROXY/dav/%72ides/%37/ | grep -oE 'The fencing token is [a-z]+|<F:resource>[^<]*'"
run 'driver B' "curl -s -w '\\n' \$STORE/dav/rides/7"
note 'cadaver has no option for headers and goes through a hop'
run '' "echo 'driver D' >ride.txt"
run 'succeeded' "echo 'put ride.txt /dav/rides/9' | cadaver \$HOP34 | grep -oE 'succeeded|failed|412.*'"
run '412 The fencing token is stale' "echo 'put ride.txt /dav/rides/9' | cadaver \$HOP33 | grep -oE 'succeeded|failed|412.*'"
note 'COPY writes its Destination, MOVE both of its ends. Ride 8 is held by C with 36'
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Fencing-Token: 36' -d 'driver C' \$PROXY/dav/rides/8 | grep -E '^(HTTP|Fencing)'"
run 'dav/rides/8' "curl -s -X COPY -H 'Fencing-Token: 35' -H \"Destination: \$PROXY/dav/rides/8\" \$PROXY/dav/rides/7 | grep -oE 'The fencing token is [a-z]+|<F:resource>[^<]*'"
run 'Fencing-Status: admitted' "curl -si -X MOVE -H 'Fencing-Token: 35' -H \"Destination: \$PROXY/dav/rides/7-closed\" \$PROXY/dav/rides/7 | grep -E '^(HTTP|Fencing)'"
note 'a tree goes with the token of the newest in it, or not at all'
run 'Fencing-Status: stale' "curl -si -X DELETE -H 'Fencing-Token: 35' \$PROXY/dav/rides/ | grep -E '^(HTTP|Fencing)'"
run 'driver C' "curl -s -w '\\n' \$STORE/dav/rides/8"
run 'Fencing-Status: admitted' "curl -si -X DELETE -H 'Fencing-Token: 36' \$PROXY/dav/rides/ | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: stale' "curl -si -X PUT -H 'Fencing-Token: 35' -d 'driver B' \$PROXY/dav/rides/10 | grep -E '^(HTTP|Fencing)'"
note 'the tree has a mark of its own'
run 'dav/rides?tree 36' "fenceproxy marks list --admin \$ADMIN | awk '{print \$1, \$2}'"
