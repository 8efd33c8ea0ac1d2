#!/usr/bin/env bash
# Plays the lines of README.md with git and stops at the first answer that is not what it should be. It starts nothing.
set -euo pipefail
cd "$(dirname "$0")"
export PROXY="${PROXY:-http://127.0.0.1:8080}" ADMIN="${ADMIN:-http://127.0.0.1:8081}" STORE="${STORE:-http://127.0.0.1:9000}"
# Whatever is set up for you is not asked.
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0
export GIT_AUTHOR_NAME=demo GIT_AUTHOR_EMAIL=demo@example.test GIT_COMMITTER_NAME=demo GIT_COMMITTER_EMAIL=demo@example.test

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

note 'A holds the lease of the repository with token 33 and pushes'
run '' "git clone -q \$PROXY/git/rides.git a 2>/dev/null"
run '' "echo 'driver A' >a/driver && git -C a add driver && git -C a commit -q -m 'driver A'"
run 'pushed' "git -C a -c http.extraHeader='Fencing-Token: 33' push -q origin HEAD:main >/dev/null 2>&1 && echo pushed"
note 'A pauses, its lease ends, B gets 34 and pushes'
run '' "git clone -q \$PROXY/git/rides.git b"
run '' "echo 'driver B' >b/driver && git -C b add driver && git -C b commit -q -m 'driver B'"
run 'pushed' "git -C b -c http.extraHeader='Fencing-Token: 34' push -q origin HEAD:main >/dev/null 2>&1 && echo pushed"
note 'A wakes up and pushes over it'
run '' "echo 'late driver A' >a/driver && git -C a add driver && git -C a commit -q -m 'late driver A'"
run '412' "git -C a -c http.extraHeader='Fencing-Token: 33' push --force origin HEAD:main 2>&1 | grep -o 'The requested URL.*'"
run 'The fencing token is stale' "curl -s -H 'Fencing-Token: 33' \"\$PROXY/git/rides.git/info/refs?service=git-receive-pack\" | grep -oE 'The fencing token is [a-z]+|<F:resource>[^<]*'"
run '428' "git -C a push --force origin HEAD:main 2>&1 | grep -o 'The requested URL.*'"
note 'the repository has what B pushed, and is whole'
run 'driver B' "git clone -q \$STORE/git/rides.git check && git -C check fsck --full && git -C check log --format=%s"
run 'git/rides.git 34' "fenceproxy marks list --admin \$ADMIN | awk '{print \$1, \$2}'"
