#!/bin/sh
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts nothing.
#	demo.sh            while the proxy runs
#	demo.sh stopped    once it is stopped
set -eu
export STORE="${STORE:-http://10.99.0.1:9000}" NET="${NET:-fence}"

app() { ip netns exec "$NET-app" "$@"; }
other() { ip netns exec "$NET-other" "$@"; }

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

case "${1:-}" in
'')
	note 'B writes with 34, to the address of the store'
	run 'Fencing-Status: admitted' "app curl -si -X PUT -H 'Fencing-Token: 34' -d 'driver B' \$STORE/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	note 'A wakes up, and believes that the store itself refuses it'
	run 'Fencing-Status: stale' "app curl -si -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$STORE/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	run '10.99.0.1:9000' "app curl -s -o /dev/null -w '%{remote_ip}:%{remote_port}\n' \$STORE/rides/7/driver"
	run 'driver B' "app curl -s \$STORE/rides/7/driver"
	note 'the limit: a machine that nobody redirects'
	run '201 Created' "other curl -si -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$STORE/rides/7/driver | grep -E '^(HTTP|Fencing)'"
	run 'driver A' "app curl -s \$STORE/rides/7/driver"
	;;
stopped)
	note 'no proxy, no write'
	run 'exit code 7' "app curl -s -X PUT -H 'Fencing-Token: 35' -d 'driver C' \$STORE/rides/8/driver || echo \"no connection: exit code \$?\""
	run '404' "other curl -s -o /dev/null -w '%{response_code}\n' \$STORE/rides/8/driver"
	;;
*)
	echo 'usage: demo.sh [stopped]' >&2
	exit 2
	;;
esac
