package main

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// warnReachable warns of a store that is configured on loopback and listens for others too: whoever they are, they walk round the fence. It
// asks only the addresses of this machine, and returns within a second.
func (s *sidecar) warnReachable(ctx context.Context) {
	u := s.cfg.Upstream
	if u.URL == nil || u.Socket != "" {
		return
	}
	at, _ := policies.Authority(u.URL.Scheme, u.URL.Host) // it was checked
	host, port, err := net.SplitHostPort(at)
	if err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return // a store on another machine: warned of by the configuration
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return
	}
	var others []netip.Addr
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			others = append(others, p.Addr())
		}
	}
	n, _ := strconv.ParseUint(port, 10, 16) // canonical
	if open := listening(ctx, others, uint16(n)); len(open) > 0 {
		s.log.Warn("something listens at the store's port for other machines too; if it is the store, they walk round the fence: bind it to 127.0.0.1", "addresses", open)
	}
}

// listening returns the addresses at which somebody takes connections to the port.
func listening(ctx context.Context, addrs []netip.Addr, port uint16) []string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	found := make(chan string, len(addrs))
	for _, a := range addrs {
		go func() { // ends with ctx
			at := netip.AddrPortFrom(a, port).String()
			c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
			if err != nil {
				found <- ""
				return
			}
			_ = c.Close() // nothing was sent
			found <- at
		}()
	}
	var open []string
	for range addrs {
		if at := <-found; at != "" {
			open = append(open, at)
		}
	}
	slices.Sort(open)
	return open
}
