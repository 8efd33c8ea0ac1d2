package main

import (
	"net"
	"net/netip"
	"slices"
	"testing"
)

func TestListeningFindsWhatOthersReach(t *testing.T) {
	one, two := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2") // two addresses of this machine
	all, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	own, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	port := func(ln net.Listener) uint16 { return ln.Addr().(*net.TCPAddr).AddrPort().Port() }
	for _, tt := range []struct {
		ln   net.Listener
		want []netip.Addr
	}{{all, []netip.Addr{one, two}}, {own, []netip.Addr{one}}} {
		var want []string
		for _, a := range tt.want {
			want = append(want, netip.AddrPortFrom(a, port(tt.ln)).String())
		}
		if got := listening(t.Context(), []netip.Addr{two, one}, port(tt.ln)); !slices.Equal(got, want) {
			t.Errorf("listening at %v = %q; want %q", tt.ln.Addr(), got, want)
		}
	}
}
