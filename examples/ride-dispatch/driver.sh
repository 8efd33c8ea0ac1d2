#!/bin/sh
# A driver's app: looks whether ride 7 is free and takes it when the driver taps. ./driver.sh A
od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$1.id" # its Hold-Id: whoever knows it can write
curl -s -o /dev/null -w '%{http_code}\n' "$PROXY/rides/7/driver" >"$1.saw"
until [ -e tap ]; do sleep 0.1; done
curl -s -o /dev/null -w '%{http_code}\n' -X PUT -H "Hold-Id: $(cat "$1.id")" -d "driver $1" "$PROXY/rides/7/driver" >"$1.answer"
