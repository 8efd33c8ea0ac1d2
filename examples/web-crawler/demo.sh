#!/usr/bin/env bash
# Plays the lines of README.md with curl and stops at the first answer that is not what it should be. It starts no server.
set -euo pipefail
set -m # each job is a process group, so that kill -STOP %1 stops all of it
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" STORE="${STORE:-http://127.0.0.1:9000}"

finish() {
	exec 2>/dev/null # bash would say which jobs were killed
	for group in $(jobs -p); do
		kill -KILL -- "-$group" || true
	done
	rm -f A.log frontier
}
trap finish EXIT

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

# begin LINE: prints a line and runs it in this shell, whose jobs and files it changes.
begin() {
	printf '$ %s\n' "$1"
	eval "$1" || true
}

note 'A has example.com with token 33. Links come as they are found'
begin 'mkfifo frontier'
begin './crawl.sh A example.com 33 <frontier >A.log &'
begin 'exec 3>frontier; printf "%s\n" index about >&3'
run '201 about' 'until grep -q about A.log; do sleep 0.1; done; cat A.log'
note 'A is paused half way, its lock ends, B gets 34 and crawls the domain again'
begin 'kill -STOP %1'
run '201 news' 'printf "%s\n" index about news | ./crawl.sh B example.com 34'
note 'A wakes up, with the rest of its links before it'
begin 'printf "%s\n" news contact >&3; exec 3>&-'
begin 'kill -CONT %1; wait %1'
run '412 news' 'cat A.log'
note 'a page that B never wrote'
run 'Fencing-Status: stale' "curl -si -X PUT -H 'Fencing-Token: 33' -d 'contact by A' \$PROXY/pages/example.com/contact | grep -E '^(HTTP|Fencing)'"
run 'news by B' 'curl -s $STORE/pages/example.com/news'
note "another domain's lock counts by itself"
run '201 index' 'echo index | ./crawl.sh C example.org 5'
note 'one crawler writes several pages at a time'
run '201' "curl -Z --no-progress-meter -X PUT -H 'Fencing-Token: 34' -d 'archive by B' -w '%{http_code}\n' \"\$PROXY/pages/example.com/archive/[1-4]\""
