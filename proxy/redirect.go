package proxy

import (
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies"
)

// redirect sees to it that an answer does not lead the client past the proxy. A Location at the store itself, as that names itself, becomes
// one at the authority that the client used. A fenced write that the store wants sent elsewhere ends here: the client that followed would
// write there with no fence. In forward mode the client's next request comes to the proxy
// wherever it goes.
func (x *exchange) redirect(resp *http.Response) *http.Response {
	location := resp.Header.Get("Location")
	if location == "" || x.up == nil || x.via != nil && !x.via.mode.Tunnel {
		return resp
	}
	again := x.decision.Action == policies.Fence && !x.observed() && repeats(resp.StatusCode)
	if again && (len(resp.Header["Location"]) > 1 || unclear(location)) {
		return x.leadsAway(resp, "a place that clients read differently")
	}
	scheme, rest, absolute := strings.Cut(location, "://")
	if strings.HasPrefix(location, "//") {
		scheme, rest, absolute = x.up.scheme, location[2:], true
	}
	if !absolute || strings.ContainsAny(scheme, "/?#") {
		return resp // a path, which the client reads from where it is
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, rest := rest[:end], rest[end:]
	if x.via != nil { // with unlisted: tunnel the client's next request is seen only if it is for a store
		at, ok := policies.Authority(strings.ToLower(scheme), authority)
		if (!ok || x.via.mode.Find(at) == nil) && again {
			return x.leadsAway(resp, authority)
		}
		return resp
	}
	host, port := hostPort(scheme, authority)
	mine, _ := hostPort(x.scheme(), x.in.Host)
	switch {
	case strings.EqualFold(authority, x.in.Host) && (x.scheme() == "http" || !strings.EqualFold(scheme, "http") || strings.HasPrefix(location, "//")): // the client's own
	case x.up.is(host, port, mine):
		to := rest
		if x.in.Host != "" {
			to = x.scheme() + "://" + x.in.Host + rest
		} else if !strings.HasPrefix(rest, "/") {
			to = "/" + rest
		}
		resp.Header.Set("Location", to)
	case again:
		return x.leadsAway(resp, authority)
	}
	return resp
}

// unclear reports whether a Location names a host to some clients and not to others: browsers take a backslash for a slash, and need none at
// all behind a scheme that they know (https://url.spec.whatwg.org/#special-scheme).
func unclear(location string) bool {
	if strings.Contains(location, "\\") {
		return true
	}
	i := strings.IndexAny(location, ":/?#")
	return i >= 0 && location[i] == ':' && !strings.HasPrefix(location[i:], "://")
}

// repeats reports whether a client sends the request itself again, elsewhere (RFC 9110 section 15.4). Some do for 301 and 302 too.
func repeats(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// scheme is the one in which the client speaks, as far as can be told: a balancer before the proxy may have ended TLS.
func (x *exchange) scheme() string {
	if x.in.TLS != nil || strings.EqualFold(x.in.Header.Get("X-Forwarded-Proto"), "https") {
		return "https"
	}
	return "http"
}

// hostPort splits an authority, and says the port of the scheme where it names none.
func hostPort(scheme, authority string) (host, port string) {
	u := url.URL{Host: authority}
	if host, port = strings.ToLower(u.Hostname()), u.Port(); port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(scheme)]
	}
	return host, port
}

// is reports whether a host and port are those of the upstream. A store takes the host from the request, which is that of the client, mine,
// and the port from its own listener.
func (u *upstream) is(host, port, mine string) bool {
	own, ownPort := hostPort(u.scheme, u.host)
	if port != ownPort {
		return false
	}
	return host == own || host == mine || local(host) && local(own)
}

func local(host string) bool { return host == "localhost" || net.ParseIP(host).IsLoopback() }

// leadsAway refuses an answer that sends a fenced write to another host.
func (x *exchange) leadsAway(resp *http.Response, authority string) *http.Response {
	_, _ = io.Copy(io.Discard, resp.Body) // to its end: the write has its outcome then
	resp.Body.Close()
	x.p.log.Warn("a redirect of the store was not passed on: it leads past the fence", keyResource, string(x.resource()), "status", resp.StatusCode, "to", clip(authority))
	r := x.admitted(http.StatusBadGateway)
	r.problem = "redirected"
	r.title = "The store sends the write elsewhere"
	r.detail = "It answered " + itoa(resp.StatusCode) + " with a Location at " + clip(authority) + ", where this write would not be fenced, so the redirect " +
		"was not passed on. The operator has to name that host as the upstream, or to put a proxy before it."
	return x.response(r)
}
