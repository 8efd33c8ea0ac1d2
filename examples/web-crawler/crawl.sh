#!/bin/sh
# crawl.sh NAME DOMAIN TOKEN: writes each page that its input names, and stops at the first that is refused.
set -eu
while read -r page; do
	code=$(curl -s -o /dev/null -w '%{http_code}' -X PUT -H "Fencing-Token: $3" -d "$page by $1" "$PROXY/pages/$2/$page")
	echo "$code $page"
	case $code in 2*) ;; *) exit 1 ;; esac # 412: another crawler has the domain
done
