#!/bin/sh
# Makes the hosts of this example, or takes them away. Each is a network namespace, with links to the others and to nothing else: the
# interfaces and rules of the machine itself stay as they are. Run as root. NET=NAME changes the beginning of their names.
#
#	store   10.99.0.1  fd99::1   the store, and the switch that the next three are plugged into
#	app     10.99.0.2  fd99::2   clients, and the proxy beside them
#	other   10.99.0.3  fd99::3   a client that nobody redirects
#	gate    10.99.0.4  fd99::4   a router
#	guest   10.98.0.2  fd98::2   clients behind the router
set -eu
net="${NET:-fence}"

down() {
	for host in guest gate other app store; do
		if [ -e "/run/netns/$net-$host" ]; then ip netns del "$net-$host"; fi
	done
}

# host NAME: a host with nothing but loopback.
host() {
	ip netns add "$net-$1"
	ip -n "$net-$1" link set lo up
}

# address HOST INTERFACE NUMBER: 10.99.0.2 and fd99::2 for 99 and 2. nodad: the address can be used at once.
address() {
	ip -n "$net-$1" link set "$2" up
	ip -n "$net-$1" address add "10.$3.0.$4/24" dev "$2"
	ip -n "$net-$1" address add "fd$3::$4/64" dev "$2" nodad
}

up() {
	trap 'down' EXIT # half a network is none
	host store
	ip -n "$net-store" link add switch type bridge
	address store switch 99 1
	n=2
	for name in app other gate; do
		host "$name"
		ip -n "$net-$name" link add eth0 type veth peer name "$name" netns "$net-store"
		ip -n "$net-store" link set "$name" master switch up
		address "$name" eth0 99 "$n"
		n=$((n + 1))
	done
	host guest
	ip -n "$net-guest" link add eth0 type veth peer name guests netns "$net-gate"
	address gate guests 98 1
	address guest eth0 98 2
	ip -n "$net-guest" route add default via 10.98.0.1
	ip -n "$net-guest" route add default via fd98::1
	ip -n "$net-store" route add 10.98.0.0/24 via 10.99.0.4
	ip -n "$net-store" route add fd98::/64 via fd99::4
	ip netns exec "$net-gate" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'
	trap - EXIT
}

case "${1:-}" in
up | down) "$1" ;;
*)
	echo 'usage: network.sh up|down' >&2
	exit 2
	;;
esac
