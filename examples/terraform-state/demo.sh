#!/bin/sh
# Plays the lines of README.md with terraform and curl and stops at the first answer that is not what it should be. It starts nothing.
set -eu
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"
export CHECKPOINT_DISABLE=1 TF_IN_AUTOMATION=1 TF_INPUT=0

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

export A="$PROXY/states/rides?fencing-token=33" B="$PROXY/states/rides?fencing-token=34"
note 'A holds the lease with token 33 and applies'
run 'successfully initialized' "TF_HTTP_ADDRESS=\$A terraform init -no-color | grep initialized"
run 'driver = "A"' "TF_HTTP_ADDRESS=\$A terraform apply -no-color -auto-approve -var driver=A | grep -E '^(Apply|driver)'"
note 'A pauses, its lease ends, B gets 34 and applies'
run 'driver = "B"' "TF_HTTP_ADDRESS=\$B terraform apply -no-color -auto-approve -var driver=B | grep -E '^(Apply|driver)'"
note 'A wakes up: it is stopped when it reads the state. terraform shows the status alone, curl the reason'
run '412' "TF_HTTP_ADDRESS=\$A terraform apply -no-color -auto-approve -var driver=A 2>&1 | grep -E '^(Error|Apply)'"
run 'The fencing token is stale' "curl -s \$A | grep title"
note 'the same with the token as user name: reads pass, so A is stopped when it saves the state'
run '412' "TF_HTTP_ADDRESS=\$PROXY/states/rides TF_HTTP_USERNAME=fence-33 terraform apply -no-color -auto-approve -var driver=A 2>&1 | grep -E '^(Error saving|Apply)'"
run 'driver = "C"' "TF_HTTP_ADDRESS=\$PROXY/states/rides TF_HTTP_USERNAME=fence-35 terraform apply -no-color -auto-approve -var driver=C | grep -E '^(Apply|driver)'"
note 'two tokens that differ are no token'
run 'malformed' "curl -s -X PUT -u fence-35: -d '{}' \"\$PROXY/states/rides?fencing-token=36\" | grep title"
run '"value": "C"' "curl -s \$STORE/states/rides | grep -m1 '\"value\"'"
