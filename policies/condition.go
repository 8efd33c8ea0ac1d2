package policies

import (
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// verdict is whether a request meets a condition. maybe: two readers of the request would disagree.
type verdict uint8

const (
	no verdict = iota
	maybe
	yes
)

// pair is a condition on a header or a query parameter; "*" asks for its presence only.
type pair struct {
	name, value string
}

// conditions are what a policy asks of a request besides its path.
type conditions struct {
	methods []string // nil: every method that is not Safe
	host    string   // lower case; "*.example.com" for every name below; empty for any
	query   []pair
	headers []pair
}

func (c *conditions) takes(method string) bool {
	if c.methods == nil {
		return !Safe(method)
	}
	for _, m := range c.methods {
		if m == method {
			return true
		}
	}
	return false
}

// Safe reports whether a method only reads: GET, HEAD, OPTIONS (RFC 9110 section 9.2.1) and PROPFIND (RFC 4918 section 9.1), without which
// no WebDAV client opens a store. Every other method counts as a write, unknown ones included.
func Safe(method string) bool {
	return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "PROPFIND"
}

// meets judges host, headers and query.
func (c *conditions) meets(e *evaluation) verdict {
	if c.host != "" && !hostMatches(c.host, hostName(e.r.Host)) {
		return no
	}
	v := yes
	for _, h := range c.headers {
		some, all := false, true
		for _, value := range e.r.Header[h.name] {
			ok := h.value == "*" || value == h.value
			some, all = some || ok, all && ok
		}
		switch {
		case !some:
			return no
		case !all || nominated(e.r.Header, h.name):
			v = maybe
		}
	}
	for _, q := range c.query {
		some, all := false, true
		ok := dialect.EachParameter(e.query, func(name, value string) bool {
			if name == q.name {
				ok := q.value == "*" || value == q.value
				some, all = some || ok, all && ok
			}
			return true
		})
		switch {
		case !ok:
			v = maybe
		case !some:
			return no
		case !all:
			v = maybe
		}
	}
	return v
}

// hostName is a Host header in lower case without port and trailing dot.
func hostName(host string) string {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		host = host[:i]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func hostMatches(pattern, host string) bool {
	if suffix, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(host) > len(suffix) && strings.HasSuffix(host, suffix)
	}
	return pattern == host
}

// covers reports whether every request that meets d meets c.
func (c *conditions) covers(d *conditions) bool {
	switch {
	case c.methods == nil && d.methods != nil:
		for _, m := range d.methods {
			if Safe(m) {
				return false
			}
		}
	case c.methods != nil && d.methods == nil:
		return false
	case c.methods != nil:
		for _, m := range d.methods {
			if !c.takes(m) {
				return false
			}
		}
	}
	if c.host != "" && c.host != d.host && (d.host == "" || !hostMatches(c.host, strings.TrimPrefix(d.host, "*"))) {
		return false
	}
	return pairsCover(c.headers, d.headers) && pairsCover(c.query, d.query)
}

func pairsCover(c, d []pair) bool {
	for _, want := range c {
		met := false
		for _, has := range d {
			met = met || has.name == want.name && (want.value == "*" || want.value == has.value)
		}
		if !met {
			return false
		}
	}
	return true
}
