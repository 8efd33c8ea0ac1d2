package policies

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits bound what clients may take of the proxy. A zero is no bound where the comment says so.
type Limits struct {
	MaxHeader     int64         // bytes of a request's head
	HeaderTimeout time.Duration // to send the head, the handshake of TLS included
	BodyTimeout   time.Duration // longest silence of a client in the middle of a body, and of one that reads its answer
	MinUploadRate int64         // bytes a second, averaged over a body; 0: none

	ConnectionsPerClient int // 0: any number
	Connections          int // of all clients together; 0: any number

	WaitersPerResource int
	Waiters            int // on all resources together

	NewResourcesPerClient int // first marks a second; 0: any number
}

func defaultLimits() Limits {
	return Limits{MaxHeader: 64 << 10, HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, WaitersPerResource: 1024, Waiters: 16384}
}

// Bounds of the limits themselves: beyond them a limit is a slip of the pen, or none.
const (
	leastHeader, mostHeader = 4 << 10, 16 << 20
	mostCounted             = 10_000_000
	mostResources           = 1_000_000_000
)

func (c *Config) decodeLimits(root section) {
	if !root.has("limits") {
		return
	}
	s := root.at("limits").section("max_header", "header_timeout", "body_timeout", "min_upload_rate", "connections_per_client", "connections",
		"waiters_per_resource", "waiters", "new_resources_per_client")
	l := &c.Limits
	s.size("max_header", &l.MaxHeader)
	if s.has("max_header") && (l.MaxHeader < leastHeader || l.MaxHeader > mostHeader) {
		s.at("max_header").errorf("", "%s is out of range: 4KiB to 16MiB", sizeText(l.MaxHeader))
	}
	s.duration("header_timeout", &l.HeaderTimeout, false)
	s.duration("body_timeout", &l.BodyTimeout, false)
	s.size("min_upload_rate", &l.MinUploadRate)
	s.count("connections_per_client", &l.ConnectionsPerClient, 0, mostCounted)
	s.count("connections", &l.Connections, 0, mostCounted)
	s.count("waiters_per_resource", &l.WaitersPerResource, 1, mostCounted)
	s.count("waiters", &l.Waiters, 1, mostCounted)
	s.count("new_resources_per_client", &l.NewResourcesPerClient, 0, mostCounted)
	if l.Connections > 0 && l.ConnectionsPerClient > l.Connections {
		s.at("connections_per_client").errorf("", "it has no effect: connections is %d", l.Connections)
	}
	if l.WaitersPerResource > l.Waiters && s.has("waiters_per_resource") {
		s.at("waiters_per_resource").errorf("", "it has no effect: waiters is %d", l.Waiters)
	}
}

// sizeText is a size as it is written: "1KiB", "1000".
func sizeText(n int64) string {
	for i, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if one := int64(1) << (40 - 10*i); n >= one && n%one == 0 {
			return strconv.FormatInt(n/one, 10) + unit
		}
	}
	return strconv.FormatInt(n, 10)
}

// count reads a whole number from least to most.
func (s section) count(key string, dst *int, least, most int) {
	v, ok := s.keys[key]
	if !ok {
		return
	}
	n, ok := v.integer()
	switch {
	case !ok:
	case n < least || n > most:
		v.errorf("", "%d is out of range: %d to %d", n, least, most)
	default:
		*dst = n
	}
}

// decodeMaxBody reads a policy's longest body.
func (o *settings) decodeMaxBody(s section) {
	s.size("max_body", &o.maxBody)
}

// checkMaxBody finds bodies that spool.max refuses before max_body can.
func (c *Config) checkMaxBody(root section) {
	if c.Policies == nil {
		return
	}
	for _, p := range c.Policies.all {
		if p.Stream || p.MaxBody <= c.Spool.Max || p.Mode == Off {
			continue
		}
		at := root.at("defaults")
		if v, ok := root.keys["policies"]; ok && p.Index < len(v.node.Content) {
			at = v.child(v.node.Content[p.Index], v.path)
		}
		at.warnf("raise spool.max, or set request_body: stream", "max_body of policy %s has no effect: spool.max refuses bodies above %d bytes before",
			p.Name, c.Spool.Max)
	}
}

// DescribeLimits lists the limits that are not those of an empty file, as they are written: "connections 100, min_upload_rate 1KiB".
func (c *Config) DescribeLimits() string {
	var out []string
	add := func(name string, differs bool, text string) {
		if differs {
			out = append(out, name+" "+text)
		}
	}
	l, d := c.Limits, defaultLimits()
	add("max_header", l.MaxHeader != d.MaxHeader, sizeText(l.MaxHeader))
	add("header_timeout", l.HeaderTimeout != d.HeaderTimeout, l.HeaderTimeout.String())
	add("body_timeout", l.BodyTimeout != d.BodyTimeout, l.BodyTimeout.String())
	add("min_upload_rate", l.MinUploadRate != d.MinUploadRate, sizeText(l.MinUploadRate))
	add("connections_per_client", l.ConnectionsPerClient != d.ConnectionsPerClient, strconv.FormatInt(int64(l.ConnectionsPerClient), 10))
	add("connections", l.Connections != d.Connections, strconv.FormatInt(int64(l.Connections), 10))
	add("waiters_per_resource", l.WaitersPerResource != d.WaitersPerResource, strconv.FormatInt(int64(l.WaitersPerResource), 10))
	add("waiters", l.Waiters != d.Waiters, strconv.FormatInt(int64(l.Waiters), 10))
	add("new_resources_per_client", l.NewResourcesPerClient != d.NewResourcesPerClient, strconv.FormatInt(int64(l.NewResourcesPerClient), 10))
	add("max_resources", c.TokenStore.MaxResources != 0, strconv.FormatInt(int64(c.TokenStore.MaxResources), 10))
	if c.Policies == nil || len(c.Policies.all) == 0 {
		return strings.Join(out, ", ")
	}
	all, first := c.Policies.all, c.Policies.all[0].MaxBody
	if !slices.ContainsFunc(all, func(p *Policy) bool { return p.MaxBody != first }) {
		add("max_body", first != 0, sizeText(first))
		return strings.Join(out, ", ")
	}
	for _, p := range all {
		add("max_body", p.MaxBody != 0, sizeText(p.MaxBody)+" of "+p.Name)
	}
	return strings.Join(out, ", ")
}
