#!/bin/sh
# aws cli (tested with 1.45): AWS_SDK_UA_APP_ID puts the token into User-Agent, and the policy looks for it there. Nothing to install. It is on
# every request. Versions that do not know the variable (2.9) ignore it, and their writes are refused for want of a token.
set -eu
PROXY=${PROXY:-http://127.0.0.1:8080} TOKEN=${TOKEN:?the number that came with the lease}
export AWS_SDK_UA_APP_ID="fence-$TOKEN" AWS_DEFAULT_REGION="${AWS_DEFAULT_REGION:-us-east-1}"

s3() { "${AWS:-aws}" --endpoint-url "$PROXY" s3 "$@"; }

case ${1:-} in
upload) s3 cp --no-progress "$2" "s3://$3" ;;
download) s3 cp --no-progress "s3://$2" "$3" ;;
copy) s3 cp --no-progress "s3://$2" "s3://$3" ;;
delete) s3 rm "s3://$2" ;;
*)
	echo 'usage: awscli.sh upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY' >&2
	exit 2
	;;
esac
