#!/usr/bin/env bash
# Plays the recipes that are named, or all that can be played: ./demo.sh etcd redis. It starts no server.
set -euo pipefail
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- etcd zookeeper redis postgres
for recipe; do
	"./$recipe/demo.sh"
done
