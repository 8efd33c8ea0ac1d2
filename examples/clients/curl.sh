#!/bin/sh
# curl: the token is a header. For S3 --aws-sigv4 signs it with the rest; without x-amz-content-sha256 stores that check signatures say 400.
set -eu
PROXY=${PROXY:-http://127.0.0.1:8080} TOKEN=${TOKEN:?the number that came with the lease}

s3() {
	curl -sS --fail-with-body --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
		-H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' -H "Fencing-Token: $TOKEN" "$@"
}

case ${1:-} in
upload) s3 -T "$2" "$PROXY/$3" ;;
download) s3 -o "$3" "$PROXY/$2" ;;
copy) s3 -X PUT -H "x-amz-copy-source: /$2" "$PROXY/$3" ;;
delete) s3 -X DELETE "$PROXY/$2" ;;
*)
	echo 'usage: curl.sh upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY' >&2
	exit 2
	;;
esac
