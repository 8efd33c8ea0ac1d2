package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// edge is where requests come in. It refuses what cannot be fenced whatever the policies say, has the policies decide, and hands the
// rest to the dispatcher. It sees the headers before any hop-by-hop rule removes one of them: a client that names the token header in
// Connection must not get rid of the token that way.
func (p *Proxy) edge(w http.ResponseWriter, r *http.Request) { p.serve(w, r, nil) }

// serve is edge for requests of both modes; v is nil unless the request came in forward mode.
func (p *Proxy) serve(w http.ResponseWriter, r *http.Request, v *via) {
	x := &exchange{ResponseWriter: w, p: p, in: r, start: time.Now(), set: p.policies.Load(), via: v, up: p.upstream}
	if v != nil {
		x.up = v.up
	}
	x.body = newClientBody(r.Body)
	defer func() {
		broken := recover()
		x.end(broken != nil)
		if broken == nil {
			return
		}
		if err, ok := broken.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
			p.log.Error("panic in a request", keyError, fmt.Sprint(broken), "stack", string(debug.Stack()))
		}
		panic(broken)
	}()
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) || r.Method == http.MethodConnect {
		// net/http accepts Content-Length beside Transfer-Encoding and hides it, and it hides Transfer-Encoding in HTTP/1.0. Whoever
		// sent them may mean another request to begin elsewhere (RFC 9112 section 6.1): nothing more is read from this connection. Nor
		// after a CONNECT that is refused, when the client may take what it sends for bytes of a tunnel.
		x.closeConn = true
	}
	if err := x.refusal(); err != nil {
		x.reject(err)
		return
	}
	x.decision = x.set.Decide(&policies.Request{
		Method: r.Method, Target: x.target, Authority: x.authority(), Reserved: x.reserved(), Host: r.Host, Header: r.Header, RemoteAddr: r.RemoteAddr, Client: x.clientNames(),
	})
	x.bindUpload()
	if f := x.decision.Forward; f != nil && f.Target != "" {
		x.target = f.Target
	}
	if err := cmp.Or(x.early(), x.tooLong()); err != nil {
		x.reject(err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	r.Body = x.body
	p.root.ServeHTTP(x, r)
}

// early returns an error for what need not go further: what the policies reject, and a token that is stale already. The gate judges again
// when the body is in; here it saves the client its upload.
func (x *exchange) early() error {
	d := &x.decision
	switch {
	case d.Action == policies.Reject && !d.Observed:
		return d.Err
	case d.Action == policies.Fence && !d.NeedsBody && !x.observed() && x.holds():
		return x.p.holds.Check(d.Resources[0], d.TokenText)
	case d.Action == policies.Fence && !d.NeedsBody && !x.observed():
		return x.p.gate.Check(x.write())
	}
	return nil
}

// observed reports whether the policy only watches: what would be refused is let through and marked.
func (x *exchange) observed() bool {
	return x.decision.Policy != nil && x.decision.Policy.Mode == policies.Observe
}

// end runs on every way out of a request, panics included. An answer that nobody closed is closed, so that the gate is released; the
// server does not wait for the rest of a body that nobody wants; and an answer that broke off ends with a reset, since the end of the
// connection alone would make it a complete one to an HTTP/1.0 client.
func (x *exchange) end(broken bool) {
	x.body.left.Store(true)
	if x.answer != nil {
		_ = x.answer.Close() // it never fails in a way that matters here
	}
	if !x.body.ended.Load() {
		x.readDeadline(-1)
	}
	if broken {
		resetOnClose(x.in)
	} else {
		x.boundRest()
	}
}

// refusal returns an error for requests that no policy can allow, and otherwise sets x.target.
func (x *exchange) refusal() error {
	r := x.in
	switch {
	case x.via != nil && x.via.err != nil:
		return x.via.err
	case r.Method == http.MethodConnect:
		return &refusedError{http.StatusMethodNotAllowed, "CONNECT would open a tunnel past the fence"}
	case r.Method == http.MethodTrace:
		return &refusedError{http.StatusMethodNotAllowed, "TRACE is not forwarded"}
	case r.ProtoMajor == 2 && malformedH2(r) != "":
		return &refusedError{http.StatusBadRequest, malformedH2(r)}
	case r.ProtoMajor == 1 && r.Header.Get("Upgrade") != "":
		return &refusedError{http.StatusBadRequest, "an upgraded connection cannot be fenced; send the request without Upgrade, over plain HTTP/1.1"}
	case dropsCondition(r.Header) != "":
		return &refusedError{http.StatusBadRequest, "Connection names " + dropsCondition(r.Header) + ", which would not reach the store then"}
	case r.ProtoMajor == 1 && r.ProtoMinor == 0 && !policies.Safe(r.Method) && r.Header.Get("Content-Length") == "":
		// net/http ignores Transfer-Encoding in HTTP/1.0 and would forward an empty body.
		return &refusedError{http.StatusLengthRequired, "an HTTP/1.0 write needs a Content-Length"}
	}
	if err := x.findTarget(); err != nil {
		return err
	}
	if !verbatim(x.target) {
		return &policies.AmbiguousError{Reason: "the path begins with // and holds bytes that must be encoded in a URL"}
	}
	return nil
}

// findTarget sets x.target, in origin form, and takes the host out of the URL: goproxy would take an absolute one for forward mode.
func (x *exchange) findTarget() (err error) {
	r := x.in
	x.target = r.RequestURI
	switch {
	case x.via != nil:
		if x.target, err = x.via.forwardTarget(r); err != nil {
			return err
		}
	case !strings.HasPrefix(x.target, "/") && (x.target != "*" || r.Method != http.MethodOptions):
		target, ok := ownTarget(r)
		if !ok {
			return &policies.AmbiguousError{Reason: "the request target names another host; this is not a forward proxy: send the path alone"}
		}
		x.target = target
	}
	if r.URL.Host != "" {
		in := *r.URL
		in.Scheme, in.Host, in.User = "", "", nil
		x.in.URL = &in
	}
	return nil
}

// endToEnd are headers that change what a write does. Connection must not name them (RFC 9110 section 7.6.1); a proxy that followed it
// would turn a conditional write into an unconditional one.
var endToEnd = map[string]bool{
	"If": true, "If-Match": true, "If-None-Match": true, "If-Modified-Since": true, "If-Unmodified-Since": true, "If-Range": true,
	"Authorization": true, "Content-Encoding": true, "Content-Range": true, "Content-Type": true, "Content-Md5": true, "Digest": true,
	"Content-Digest": true, "Repr-Digest": true, "Cookie": true, "Depth": true, "Overwrite": true, "Destination": true, "Lock-Token": true, "Range": true,
}

// dropsCondition returns a header that Connection names and must not, or "".
func dropsCondition(h http.Header) string {
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			name = http.CanonicalHeaderKey(strings.Trim(name, " \t"))
			if len(h[name]) > 0 && (endToEnd[name] || strings.HasPrefix(name, "X-Amz-") || strings.HasPrefix(name, "X-Http-Method") || name == "X-Method-Override") {
				return name
			}
		}
	}
	return ""
}

// ownTarget returns the origin form of an absolute target that names this very listener (RFC 9112 section 3.2.2 wants it accepted).
func ownTarget(r *http.Request) (string, bool) {
	if r.URL.Host == "" || r.URL.User != nil || r.URL.Opaque != "" {
		return "", false
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return "", false
	}
	addr, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return "", false
	}
	host, port := r.URL.Hostname(), r.URL.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[r.URL.Scheme]
	}
	ip, err := netip.ParseAddr(host)
	same := err == nil && ip.Unmap() == addr.Addr().Unmap() || strings.EqualFold(host, "localhost") && addr.Addr().Unmap().IsLoopback()
	if !same || port != itoa(int(addr.Port())) {
		return "", false
	}
	return originForm(r.RequestURI), true
}
