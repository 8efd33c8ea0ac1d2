package policies

import (
	"net"
	"strconv"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

func checkAddress(v value, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(host, "/ \t") {
		v.errorf("write host:port without a scheme: 127.0.0.1:8080, or :8080 for every address", "%q is not an address", clip(address))
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		v.errorf("", "the port %q is not a number from 0 to 65535", clip(port))
	}
}

// reverse is the address of the listener before the upstream, if there is one.
func (c *Config) reverse() string {
	if c.Upstream.URL == nil {
		return ""
	}
	return c.Listen.Address
}

// crossCheck finds what only shows when the sections are seen together.
func (c *Config) crossCheck(root section) {
	c.checkMaxBody(root)
	if c.Policies != nil {
		c.checkAllow(root)
	}
	c.warnExposed(root)
	busy := func(a, b string) bool { return a == b && a != "" && !strings.HasSuffix(a, ":0") }
	if busy(c.Listen.Address, c.Admin.Listen.Address) {
		root.at("admin").errorf("give it another port", "the admin listener has the address of the proxy itself, %s", c.Admin.Listen.Address)
	}
	for other, address := range map[string]string{"proxy itself": c.Listen.Address, "admin listener": c.Admin.Listen.Address} {
		if busy(c.Leases.Listen.Address, address) {
			root.at("leases").errorf("give it another port", "the listener for leases has the address of the %s, %s", other, address)
		}
	}
	for other, address := range map[string]string{"proxy itself": c.reverse(), "admin listener": c.Admin.Listen.Address, "listener for leases": c.Leases.Listen.Address} {
		if busy(c.Forward.Listen.Address, address) {
			root.at("forward").errorf("give it another port", "the listener of forward mode has the address of the %s, %s", other, address)
		}
	}
	if c.Upstream.URL == nil && root.has("forward") && root.has("listen") {
		root.at("listen").errorf("name an upstream, or leave it out", "it has no effect: without an upstream there is the listener of forward.listen alone")
	}
	if c.Upstream.URL != nil && c.Upstream.Socket == "" && busy(c.Listen.Address, c.Upstream.URL.Host) {
		root.at("upstream").errorf("", "the upstream is the proxy itself, %s", c.Listen.Address)
	}
	if c.Policies != nil && !c.Upstream.PreserveHost && c.Policies.namesBuckets() {
		root.at("upstream").errorf("set preserve_host: true", "identity.virtual_host_base reads the bucket from the host, which preserve_host: false takes away from the store")
	}
	if c.Policies != nil && !c.Upstream.PreserveHost && c.Policies.Speaks(dialect.WebDAV) {
		root.at("upstream").warnf("set preserve_host: true", "WebDAV stores compare the host of Destination with Host, which preserve_host: false changes: MOVE and COPY will fail")
	}
	if c.Policies != nil && root.has("spool") && c.Policies.allStream() {
		root.at("spool").warnf("", "it has no effect: every policy streams (request_body: stream)")
	}
}
