#!/bin/sh
# s3cmd: --add-header, signed, on uploads and copies. It is missing on DELETE and on the parts of a multipart upload. For the parts say
# upload_token: create in the policy; DELETE goes through a hop that adds the header (hop.cfg), at $HOP.
set -eu
PROXY=${PROXY:-http://127.0.0.1:8080} HOP=${HOP:-http://127.0.0.1:8070} TOKEN=${TOKEN:?the number that came with the lease}

s3() {
	at=${1#http://}
	shift
	s3cmd --config=/dev/null --no-ssl --host="$at" --host-bucket="$at" --region=us-east-1 --no-progress --add-header="Fencing-Token: $TOKEN" "$@"
}

case ${1:-} in
upload) s3 "$PROXY" put "$2" "s3://$3" ;;
download) s3 "$PROXY" get --force "s3://$2" "$3" ;;
copy) s3 "$PROXY" cp "s3://$2" "s3://$3" ;;
delete) s3 "$HOP" del "s3://$2" ;;
*)
	echo 'usage: s3cmd.sh upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY' >&2
	exit 2
	;;
esac
