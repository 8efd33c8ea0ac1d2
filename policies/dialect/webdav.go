package dialect

import (
	"net"
	"net/url"
	"strings"
)

// webdav is RFC 4918. REPORT (RFC 3253) and SEARCH (RFC 5323) only read. DELETE and MOVE change everything beneath their target if that is
// a collection, and a request does not say whether it is one; COPY and MOVE onto a collection replace it with all that is in it. LOCK of a
// collection keeps everybody else from what is in it, and from adding to it and taking away whatever the Depth.
func webdav(r *Request) (Effect, error) {
	e := Effect{}
	switch r.Method {
	case "GET", "HEAD", "OPTIONS", "PROPFIND":
		return e, nil // only where a policy fences reads
	case "REPORT", "SEARCH":
		e.Reads = true
		return e, nil
	case "DELETE", "MOVE", "LOCK":
		e.Touch = Tree
	case "COPY":
		e.Touch = Nothing
	case "BIND", "UNBIND", "REBIND", "MERGE", "UPDATE", "BMOVE", "BCOPY", "BDELETE", "BPROPPATCH":
		// RFC 5842, RFC 3253 and Exchange: what else they touch stands in the body.
		return Effect{Touch: Anything, Depth: max(0, len(r.Segments)-1), Reason: r.Method + " names what it changes in its body"}, nil
	}
	e.Reason = "it may be a collection, which goes with everything in it"
	dest, given, err := destination(r)
	if err != nil {
		return Effect{}, err
	}
	switch {
	case given:
		e.Others = []Target{{Path: dest, Tree: true}}
	case r.Method == "COPY" || r.Method == "MOVE":
		return Effect{}, ambiguous(r.Method + " has no Destination header")
	}
	return e, nil
}

// destination returns the path of the Destination header (RFC 4918 section 10.3): an absolute URL of this very host, or a path. The scheme
// is not compared: a client behind a TLS terminator says https.
func destination(r *Request) (path string, given bool, err error) {
	raw, given, ok := single(r, "Destination")
	if !ok {
		return "", true, ambiguous("the header Destination is given more than once")
	}
	if !given {
		return "", false, nil
	}
	path = strings.Trim(raw, " \t")
	if scheme, rest, found := strings.Cut(path, "://"); found && !strings.ContainsAny(scheme, "/?#") {
		i := strings.IndexByte(rest, '/')
		if i < 0 {
			return "", true, ambiguous("the Destination has no path")
		}
		if authority := rest[:i]; !sameAuthority(scheme, authority, r.Host) {
			return "", true, &Refusal{Reason: "the Destination names another host than the request; this proxy fences one store"}
		}
		path = rest[i:]
	}
	switch {
	case path == "" || path[0] != '/' || strings.HasPrefix(path, "//"):
		return "", true, ambiguous("the Destination is neither a URL of this host nor a path that begins with one /")
	case strings.ContainsAny(path, "?#"):
		return "", true, ambiguous("the Destination holds a query or a fragment")
	}
	return path, true, nil
}

// sameAuthority compares host and port; the default port of the scheme may be left out on either side.
func sameAuthority(scheme, authority, host string) bool {
	if strings.ContainsAny(authority, "@\\") {
		return false
	}
	port := map[string]string{"http": "80", "https": "443"}[strings.ToLower(scheme)]
	return port != "" && strings.EqualFold(withPort(authority, port), withPort(host, port))
}

func withPort(authority, port string) string {
	u := url.URL{Host: authority}
	if p := u.Port(); p != "" {
		port = p
	}
	return net.JoinHostPort(strings.TrimSuffix(u.Hostname(), "."), port)
}
