#!/bin/sh
# rclone: --header, on every request. Not --header-upload: on S3 it prints "Don't know how to set key" and writes without the token.
# Without no_check_bucket each copy begins with an attempt to make the bucket, which is a write of its own.
set -eu
PROXY=${PROXY:-http://127.0.0.1:8080} TOKEN=${TOKEN:?the number that came with the lease}
export RCLONE_CONFIG_FENCED_TYPE=s3 RCLONE_CONFIG_FENCED_PROVIDER=Other RCLONE_CONFIG_FENCED_ENV_AUTH=true \
	RCLONE_CONFIG_FENCED_ENDPOINT="$PROXY" RCLONE_CONFIG_FENCED_REGION=us-east-1 RCLONE_CONFIG_FENCED_NO_CHECK_BUCKET=true

fenced() { rclone --config '' --header "Fencing-Token: $TOKEN" "$@"; }

case ${1:-} in
upload) fenced copyto "$2" "fenced:$3" ;;
download) fenced copyto "fenced:$2" "$3" ;;
copy) fenced copyto "fenced:$2" "fenced:$3" ;;
delete) fenced deletefile "fenced:$2" ;;
*)
	echo 'usage: rclone.sh upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY' >&2
	exit 2
	;;
esac
