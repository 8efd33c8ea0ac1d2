#!/bin/sh
# aws cli 2, any version (Debian's 2.9 too): a plugin of six lines, awscli/fence.py, sets the header before the request is signed.
set -eu
PROXY=${PROXY:-http://127.0.0.1:8080}
export TOKEN="${TOKEN:?the number that came with the lease}" AWS_DEFAULT_REGION="${AWS_DEFAULT_REGION:-us-east-1}"
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

# These two sections belong into ~/.aws/config; here they go into a file of their own.
AWS_CONFIG_FILE=$(mktemp)
export AWS_CONFIG_FILE
trap 'rm -f "$AWS_CONFIG_FILE"' EXIT
cat >"$AWS_CONFIG_FILE" <<EOF
[plugins]
cli_legacy_plugin_path = $here/awscli
fence = fence
EOF

s3() { "${AWS:-aws}" --endpoint-url "$PROXY" s3 "$@"; }

case ${1:-} in
upload) s3 cp --no-progress "$2" "s3://$3" ;;
download) s3 cp --no-progress "s3://$2" "$3" ;;
copy) s3 cp --no-progress "s3://$2" "s3://$3" ;;
delete) s3 rm "s3://$2" ;;
*)
	echo 'usage: awscli-plugin.sh upload FILE BUCKET/KEY | download BUCKET/KEY FILE | copy BUCKET/KEY BUCKET/KEY | delete BUCKET/KEY' >&2
	exit 2
	;;
esac
