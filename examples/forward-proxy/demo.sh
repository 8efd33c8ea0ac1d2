#!/bin/sh
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts nothing.
set -eu
export FORWARD="${FORWARD:-http://127.0.0.1:3128}" STORE="${STORE:-http://127.0.0.1:9000}"
export HTTPS_PROXY="$FORWARD" HTTP_PROXY="$FORWARD" http_proxy="$FORWARD" CURL_CA_BUNDLE=ca.pem NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

note() { printf '# %s\n' "$1"; }

# run WANT LINE: prints and runs a line; the answer has to hold WANT.
run() {
	printf '$ %s\n' "$2"
	answer=$(eval "$2" | tr -d '\r' | sed 's/ *$//')
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

show="--suppress-connect-headers"
pick="grep -iE '^(HTTP|Fencing)'"

note 'B writes with 34, by the name that the store has for everybody'
run 'admitted' "curl -si $show -X PUT -H 'Fencing-Token: 34' -d 'driver B' https://rides.example.test/rides/7/driver | $pick"
note 'A wakes up'
run 'stale' "curl -si $show -X PUT -H 'Fencing-Token: 33' -d 'driver A' https://rides.example.test/rides/7/driver | $pick"
note 'without TLS the same store has the same mark'
run 'stale' "curl -si -X PUT -H 'Fencing-Token: 33' -d 'driver A' http://rides.example.test/rides/7/driver | $pick"
run 'driver B' "curl -s https://rides.example.test/rides/7/driver"
note 'other hosts are refused'
run '403' "curl -s -o /dev/null -w '%{http_connect}\n' https://other.example.test/ || true"
note 'a request that names another host than its tunnel'
run '421' "curl -si $show -H 'Host: other.example.test' https://rides.example.test/rides/7/driver | grep HTTP"
