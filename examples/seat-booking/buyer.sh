#!/bin/sh
# A buyer's app: holds the seat, waits for the bank, confirms. ./buyer.sh A
write() { curl -s -o /dev/null -w '%{http_code}\n' -X PUT -H "Hold-Id: $(cat "$1.id")" -d "$1" "$PROXY/$SEAT/$2"; }
od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$1.id" # whoever knows it can write
write "$1" hold >"$1.hold"
until [ -e "$1.paid" ]; do sleep 0.1; done
write "$1" booking >"$1.booking"
