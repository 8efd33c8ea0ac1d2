#!/usr/bin/env bash
# Plays the lines of README.md with curl and PouchDB and stops at the first answer that is not what it should be. It starts nothing.
set -euo pipefail
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"
export JSON='Content-Type: application/json'
rev() { curl -s "$PROXY/rides/$1" | grep -oE '"_rev":"[^"]*' | cut -d'"' -f4; }

note() { printf '# %s\n' "$1"; }

# run WANT LINE: prints and runs a line; the answer has to hold WANT.
run() {
	printf '$ %s\n' "$2"
	answer=$(eval "$2" | tr -d '\r') || true # a line may well end with an error
	[ -z "$answer" ] || printf '%s\n' "$answer"
	case $answer in
	*"${1:-$answer}"*) ;;
	*)
		printf 'demo.sh: expected %s\n' "$1" >&2
		printf 'demo.sh: if it was played here before, clean up first (README.md, "Clean up"): the marks remain\n' >&2
		exit 1
		;;
	esac
}

note 'A holds the lease of ride 7 with token 33 and writes. A pauses, its lease ends, B gets 34 and writes'
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"\$JSON\" -H 'Fencing-Token: 33' -d '{\"driver\":\"A\"}' \$PROXY/rides/7 | grep -E '^(HTTP|Fencing)'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"\$JSON\" -H 'Fencing-Token: 34' -d '{\"driver\":\"B\"}' \"\$PROXY/rides/7?rev=\$(rev 7)\" | grep -E '^(HTTP|Fencing)'"
note 'A wakes up and, as programs do, takes the newest revision'
run 'Fencing-Status: stale' "curl -si -X PUT -H \"\$JSON\" -H 'Fencing-Token: 33' -d '{\"driver\":\"A\"}' \"\$PROXY/rides/7?rev=\$(rev 7)\" | grep -E '^(HTTP|Fencing)'"
run 'The fencing token is stale' "curl -s -X PUT -H 'Content-Type: text/plain' -H 'Fencing-Token: 33' -d 'A' \"\$PROXY/rides/7/photo?rev=\$(rev 7)\" | grep -oE '\"(error|reason|resource)\":\"[^\".]*'"
run 'Fencing-Status: admitted' "curl -si -X PUT -H 'Content-Type: text/plain' -H 'Fencing-Token: 34' -d 'B' \"\$PROXY/rides/7/photo?rev=\$(rev 7)\" | grep -E '^(HTTP|Fencing)'"
note 'a batch is written whole or not at all. Ride 8 is held by C with 36'
run 'Fencing-Status: admitted' "curl -si -X PUT -H \"\$JSON\" -H 'Fencing-Token: 36' -d '{\"driver\":\"C\"}' \$PROXY/rides/8 | grep -E '^(HTTP|Fencing)'"
run 'rides/8' "curl -s -H \"\$JSON\" -H 'Fencing-Token: 35' -d '{\"docs\":[{\"_id\":\"9\",\"driver\":\"B\"},{\"_id\":\"8\",\"driver\":\"B\"}]}' \$PROXY/rides/_bulk_docs | grep -oE '\"(error|reason|resource)\":\"[^\".]*'"
run 'not_found' "curl -s \$STORE/rides/9 | grep -o '\"error\":\"[^\"]*\"'"
run 'rides/8' "curl -s -X COPY -H 'Fencing-Token: 35' -H 'Destination: 8' \$PROXY/rides/7 | grep -oE '\"(error|reason|resource)\":\"[^\".]*'"
note 'a replication is batches'
run 'The fencing token is stale' "TOKEN=33 node replicate.mjs \$STORE/phone \$PROXY/rides 2>&1 | grep -oE '^repl[^.]*'"
run 'replicated 1' "TOKEN=34 node replicate.mjs \$STORE/phone \$PROXY/rides"
note 'a query is sent with POST and only reads'
run '"driver":"C"' "curl -s -H \"\$JSON\" -d '{\"selector\":{\"driver\":\"C\"}}' \$PROXY/rides/_find | grep -oE '\"driver\":\"[^\"]*\"'"
run 'rides/8 36' "fenceproxy marks list --admin \$ADMIN | awk '{print \$1, \$2}' | grep -v _local"
