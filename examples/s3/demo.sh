#!/bin/sh
# Plays the lines of README.md with curl and the aws cli and stops at the first answer that is not what it should be. It starts nothing.
set -eu
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"
export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demo-secret AWS_DEFAULT_REGION=us-east-1
unset AWS_SESSION_TOKEN AWS_PROFILE

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

note 'A holds the lease with token 33 and writes'
run 'Fencing-Status: admitted' "curl -sK s3.curl -i -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$PROXY/rides/7 | grep -E '^(HTTP|Fencing)'"
note 'A pauses, its lease ends, B gets 34 and writes'
run 'Fencing-Status: admitted' "curl -sK s3.curl -i -X PUT -H 'Fencing-Token: 34' -d 'driver B' \$PROXY/rides/7 | grep -E '^(HTTP|Fencing)'"
note 'A wakes up and believes that it still holds the lease'
run 'The fencing token is stale' "curl -sK s3.curl -X PUT -H 'Fencing-Token: 33' -d 'driver A' \$PROXY/rides/7 | grep -oE '<(Code|Message)>[^.<]*'"
run 'driver B' "curl -sK s3.curl -w '\\n' \$STORE/rides/7"
note 'a multipart upload by the aws cli, whose only way to send the token is the metadata of the new object'
run 'upload: ' "aws --endpoint-url \$PROXY s3 cp --no-progress --metadata fencing-token=34 big.bin s3://rides/big"
run 'The fencing token is stale' "aws --endpoint-url \$PROXY s3 cp --no-progress --metadata fencing-token=33 big.bin s3://rides/big 2>&1 | grep -o 'An error occurred.*is stale'"
note 'a batch is deleted whole or not at all'
run 'Fencing-Status: admitted' "curl -sK s3.curl -i -X PUT -H 'Fencing-Token: 35' -d 'driver C' \$PROXY/rides/8 | grep -E '^(HTTP|Fencing)'"
run '<Resource>rides/8</Resource>' "curl -sK s3.curl -H 'Fencing-Token: 34' -H \"Content-MD5: \$(openssl md5 -binary delete.xml | base64)\" --data-binary @delete.xml \"\$PROXY/rides?delete=\" | grep -o '<Resource>.*</Resource>'"
run 'driver B' "curl -sK s3.curl -w '\\n' \$STORE/rides/7"
run '<Key>7</Key>' "curl -sK s3.curl -H 'Fencing-Token: 35' -H \"Content-MD5: \$(openssl md5 -binary delete.xml | base64)\" --data-binary @delete.xml \"\$PROXY/rides?delete=\" | grep -o '<Key>.</Key>'"
