#!/bin/sh
# Plays the lines of README.md with curl and "fenceproxy token", and stops at the first answer that is not what it should be. It starts nothing.
set -eu
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}"

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

# sign NAME ARGS: what the lock service would hand out.
sign() {
	printf '$ %s=$(fenceproxy token sign %s)\n' "$1" "$2"
	eval "$1=\$(fenceproxy token sign $2)"
}

# put TOKEN PATH VALUE WANT
put() {
	run "$4" "curl -si -X PUT -H \"Fencing-Token: $1\" -d '$3' \$PROXY$2 | grep -E '^(HTTP|Fencing|Www)'"
}

case ${1:-before} in
before)
	note 'the lock signs: ride 7, token 34, ten minutes'
	sign TOKEN '--key lock.key --resource rides/7 --token 34 --ttl 10m'
	put '$TOKEN' /rides/7/driver 'driver B' 'Fencing-Status: admitted'
	note 'an outsider has no key'
	put 9000000000000000000 /rides/7/driver outsider 'error="unsigned"'
	note 'a holder of ride 7 tries ride 8'
	put '$TOKEN' /rides/8/driver 'driver B' 'error="other-resource"'
	note 'a token ends'
	sign SHORT '--key lock.key --resource rides/7 --token 34 --ttl 1s'
	sleep 2
	put '$SHORT' /rides/7/driver 'driver B' 'error="expired"'
	note 'a lower one is stale, as ever'
	sign OLD '--key lock.key --resource rides/7 --token 33 --ttl 10m'
	put '$OLD' /rides/7/driver 'driver A' 'Fencing-Status: stale'
	run 'driver B' "curl -s \$STORE/rides/7/driver"
	note 'the new key is not known yet'
	sign NEW '--key new.key --resource rides/7 --token 35 --ttl 10m'
	put '$NEW' /rides/7/driver 'driver C' 'error="invalid"'
	;;
both)
	note 'both keys are known'
	sign TOKEN '--key lock.key --resource rides/7 --token 34 --ttl 10m'
	put '$TOKEN' /rides/7/driver 'driver B' 'Fencing-Status: admitted'
	sign NEW '--key new.key --resource rides/7 --token 35 --ttl 10m'
	put '$NEW' /rides/7/driver 'driver C' 'Fencing-Status: admitted'
	;;
*)
	printf 'usage: demo.sh [before|both]\n' >&2
	exit 2
	;;
esac
