package main

import (
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies"
)

// addresses are those of the listeners. What is off is empty.
type addresses struct{ listen, admin, leases, forward string }

// announce is what serve prints when it is ready.
func (at addresses) announce(cfg *policies.Config) string {
	var b strings.Builder
	admin := "off"
	if at.admin != "" {
		admin = "on " + at.admin
	}
	switch {
	case at.listen != "":
		fmt.Fprintf(&b, "fenceproxy: serving on %s, forwarding to %s, admin %s\n", at.listen, cfg.Upstream, admin)
	default:
		fmt.Fprintf(&b, "fenceproxy: serving, admin %s\n", admin)
	}
	if at.forward != "" {
		fmt.Fprintf(&b, "fenceproxy: forward mode on %s, to %s\n", at.forward, strings.Join(storeNames(cfg), ", "))
	}
	if at.leases != "" {
		fmt.Fprintf(&b, "fenceproxy: leases on %s\n", at.leases)
	}
	return b.String()
}

// storeNames lists the stores of forward mode.
func storeNames(cfg *policies.Config) []string {
	var names []string
	for i := range cfg.Forward.Stores {
		names = append(names, cfg.Forward.Stores[i].Upstream.String())
	}
	return names
}
