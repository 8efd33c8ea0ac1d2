#!/bin/sh
# cadaver: no option for headers. It goes through a hop that adds the token (hop.cfg), at $HOP. cadaver ends with 0 whatever happened, so
# the script looks at what it printed.
set -eu
HOP=${HOP:-http://127.0.0.1:8070}

dav() {
	out=$(printf '%s\nquit\n' "$1" | cadaver "$HOP/" 2>&1)
	printf '%s\n' "$out"
	case $out in *succeeded*) ;; *) return 1 ;; esac
}

case ${1:-} in
upload) dav "put $2 /$3" ;;
download) dav "get /$2 $3" ;;
copy) dav "copy /$2 /$3" ;;
delete) dav "delete /$2" ;;
*)
	echo 'usage: cadaver.sh upload FILE PATH | download PATH FILE | copy PATH PATH | delete PATH' >&2
	exit 2
	;;
esac
