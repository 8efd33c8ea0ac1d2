#!/usr/bin/env bash
# Plays the lines of README.md with redis-cli and curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"
export REDIS="${REDIS:-redis://127.0.0.1:6379}"

trap 'rm -f A B C' EXIT

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

# take NAME LEASE: the line that takes the lock.
take() { printf "redis-cli -u \$REDIS --eval lock.lua '{rides/7}:lock' '{rides/7}:fence' , %s %s" "$1" "$2"; }

# release WANT NAME: the lock is given up by who holds it.
release() { run "$1" "redis-cli -u \$REDIS --eval unlock.lua '{rides/7}:lock' , $2"; }

# write WANT NAME
write() { run "Fencing-Status: $1" "curl -si -X PUT -H \"Fencing-Token: \$(cat $2)\" -d 'driver $2' \$PROXY/redis/7 | grep -E '^(HTTP|Fencing)'"; }

note 'A takes the lock for a second and writes. Then it is paused: nothing renews the lease'
run '' "$(take A 1000) | tee A"
write admitted A
note 'B tries until the lease has run out, and writes'
run '' "until $(take B 60000) | grep . >B; do sleep 0.1; done; cat B"
write admitted B
note 'A wakes up. What it gives up is not its own any more'
write stale A
release 0 A
run 'driver B' 'curl -s $STORE/redis/7'
release 1 B
note 'the counter is lost, as by a failover to a replica that never saw it'
run 1 "redis-cli -u \$REDIS del '{rides/7}:fence'"
run 1 "$(take C 60000) | tee C"
write stale C
note 'A, B and whoever else had a number are stopped. Then the numbers count in a new epoch'
run '' "sed -i.bak 's/name: redis,/& epoch: 1,/' ../fenceproxy.yaml"
run '' 'kill -HUP "$(cat ../marks/LOCK)"'
run '' "until curl -s \$ADMIN/v1/policies | grep -q 'epoch 1'; do sleep 0.1; done"
write admitted C
