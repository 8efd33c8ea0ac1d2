#!/bin/sh
# report.sh NAME RUN: the nightly job. It works until the figures of the day are there, and writes its report with the leader's token.
set -eu
echo $$ >"$1.pid"
echo "report by $1 begins, token $FENCING_TOKEN"
until [ -e figures ]; do sleep 0.1; done
curl -si -X PUT -H "Fencing-Token: $FENCING_TOKEN" -d "report by $1" "$PROXY/jobs/report/$2" | grep -E '^(HTTP|Fencing)'
