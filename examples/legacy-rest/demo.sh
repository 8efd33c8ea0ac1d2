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

observe() {
	note 'the ride: 34 wrote, then 33 comes late'
	run 'admitted' "curl -si -X PUT -H 'X-Lock-Revision: 34' -d 'driver B' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	run 'would-reject; reason=stale' "curl -si -X PUT -H 'X-Lock-Revision: 33' -d 'driver A' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	note 'a client that nobody has taught to send the token'
	run 'would-reject; reason=missing' "curl -si -X PUT -d 'driver C' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	note 'the order that the JSON body names'
	run 'admitted' "curl -si -H 'X-Lock-Revision: 5' -d '{\"order\": {\"id\": 7, \"state\": \"paid\"}}' \$PROXY/orders | grep -E '^(HTTP|Fencing)'"
	note 'who would be hurt by enforcing?'
	run 'fenceproxy_writes_total{outcome="would-reject",policy="rides"} 2' "curl -s \$ADMIN/metrics | grep '^fenceproxy_writes_total'"
}

enforce() {
	note 'the same late write as before; 34 was kept while the policy observed'
	run 'Fencing-Status: stale' "curl -si -X PUT -H 'X-Lock-Revision: 33' -d 'driver A' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	run 'Fencing-Status: missing' "curl -si -X PUT -d 'driver C' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	run '"resource": "orders/7"' "curl -s -H 'X-Lock-Revision: 4' -d '{\"order\": {\"id\": 7, \"state\": \"open\"}}' \$PROXY/orders | grep -E '\"(type|resource)\"'"
	note 'the holder goes on'
	run 'Fencing-Status: admitted' "curl -si -X PUT -H 'X-Lock-Revision: 34' -d 'driver B' \$PROXY/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	run 'driver B' "curl -s \$STORE/rides/7/driver"
	run 'paid' "curl -s \$STORE/orders/7"
}

case ${1:-} in
observe | enforce) "$1" ;;
*) echo 'usage: demo.sh observe|enforce' >&2; exit 2 ;;
esac
