package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/leg"
)

// upstream is the store behind the proxy.
type upstream struct {
	client       *leg.Client     // for requests whose body is at hand
	transport    *http.Transport // for bodies that still come from the client
	scheme, host string
	preserveHost bool
	timeout      time.Duration
	certs        *Certs
}

// idleTimeout is how long a connection to the upstream is kept for reuse. It is short, because a write that meets a connection which the
// upstream is about to close is in doubt; common servers close after 5 seconds or more.
const idleTimeout = 2 * time.Second

// newUpstream leaves none of net/http's defaults on that could send a write elsewhere, twice or altered: no proxy from the environment,
// no HTTP/2 (which resends on GOAWAY), no transparent gzip, certificates verified.
func newUpstream(c policies.Upstream, log *slog.Logger) (*upstream, error) {
	certs, err := LoadCerts("upstream.tls", "ca", CertFiles{Cert: c.Cert, Key: c.Key, CA: c.CA}, log)
	if err != nil {
		return nil, err
	}
	dial := dialer(c, certs)
	up := &upstream{certs: certs, scheme: c.URL.Scheme, host: c.URL.Host, preserveHost: c.PreserveHost, timeout: c.Timeout}
	up.client = &leg.Client{
		Dial: func(ctx context.Context) (net.Conn, error) { return bare(dial(ctx)) }, Timeout: c.Timeout, IdleTimeout: idleTimeout, MaxIdle: maxIdle,
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	counted := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &countedConn{upstreamConn: conn}, nil
	}
	up.transport = &http.Transport{
		DialContext:           counted,
		DialTLSContext:        counted,
		Protocols:             protocols,
		DisableCompression:    true,
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   maxIdle,
		IdleConnTimeout:       idleTimeout,
		ExpectContinueTimeout: time.Second,
	}
	return up, nil
}

// close closes idle connections.
func (u *upstream) close() {
	u.transport.CloseIdleConnections()
	u.client.CloseIdle()
}

// maxIdle bounds the idle connections to the upstream.
const maxIdle = 1024

// dialer returns a function that connects to the upstream.
func dialer(c policies.Upstream, certs *Certs) func(context.Context) (*upstreamConn, error) {
	d := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	network, address := "tcp", c.URL.Host
	switch {
	case c.Socket != "":
		network, address = "unix", c.Socket
	case c.Dial != "":
		address = c.Dial
	case c.URL.Port() == "":
		address = net.JoinHostPort(c.URL.Hostname(), map[string]string{"http": "80", "https": "443"}[c.URL.Scheme])
	}
	plain := func(ctx context.Context) (*upstreamConn, error) {
		conn, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if t, ok := conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // fails only on a connection that is dead already
		}
		return &upstreamConn{Conn: conn, raw: conn}, nil
	}
	if c.URL.Scheme != "https" {
		return plain
	}
	return func(ctx context.Context) (*upstreamConn, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := plain(ctx)
		if err != nil {
			return nil, err
		}
		t := tls.Client(conn.raw, certs.clientConfig(c.URL.Hostname()))
		if err := t.HandshakeContext(ctx); err != nil {
			_ = conn.Close() // the handshake's error says more
			return nil, err
		}
		return &upstreamConn{Conn: t, raw: conn.raw}, nil
	}
}

// upstreamConn is a connection to the upstream. It is closed with a reset (RFC 9293 section 3.6): a store that sees an orderly end in the
// middle of an upload may take what came for the whole. A Unix socket knows no reset.
type upstreamConn struct {
	net.Conn          // what requests are written to; with TLS that is not raw
	raw      net.Conn // the connection itself
}

// Close says nothing to the upstream: TLS would announce an orderly end before the reset.
func (c *upstreamConn) Close() error { return c.raw.Close() }

// bare takes away a wrapper that hides nothing: without TLS, closing the connection itself is all that Close does. A client that sees the
// connection need not ask whether something above it holds bytes back.
func bare(c *upstreamConn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	if c.Conn == c.raw {
		return c.raw, nil
	}
	return c, nil
}

// NetConn returns the connection below TLS.
func (c *upstreamConn) NetConn() net.Conn { return c.raw }

// send forwards a request and returns the upstream's answer once its head has come. Its error, and that of reading the answer, is a
// [*leg.Error]. With detach the request goes on when the client goes away: a write that was forwarded must be waited for.
func (u *upstream) send(req *http.Request, x *exchange, b *body, detach bool) (*http.Response, error) {
	ctx := req.Context()
	if b.stream != nil {
		if detach {
			ctx = context.WithoutCancel(ctx)
		}
		resp, err := u.stream(ctx, req, x, b.stream)
		if err == nil && x.ownCase() != "" {
			leg.LowerNames(resp.Header, x.ownCase())
		}
		return resp, err
	}
	r := &leg.Request{Method: req.Method, Target: x.target, Host: req.Host, Header: req.Header, Patient: !detach, Informational: x.interim, OwnCase: x.ownCase()}
	req.Header.Del("Expect") // the body is here; waiting for 100 Continue would only hold the gate
	if b.spooled != nil {
		r.Body, r.Trailer = b.spooled.open(req.ContentLength), x.in.Trailer
	}
	if detach {
		ctx = context.Background()
	}
	return u.client.Do(ctx, r)
}

// url returns the URL of a request target at the upstream. The target stays as the client sent it: net/http sends Opaque verbatim,
// whereas it would encode Path anew when it holds a byte that a URL should not.
func (u *upstream) url(target string) *url.URL {
	path, query, hasQuery := strings.Cut(target, "?")
	out := &url.URL{Scheme: u.scheme, Host: u.host, RawQuery: query, ForceQuery: hasQuery && query == ""}
	if strings.HasPrefix(path, "//") {
		// Opaque would become an absolute target.
		out.RawPath = path
		out.Path, _ = url.PathUnescape(path) // verbatim has seen that it can be decoded
		return out
	}
	out.Opaque = path
	return out
}

// verbatim reports whether url can keep a target as it is. A path that begins with // and would have to be encoded anew might end up as
// that of another resource.
func verbatim(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "//") {
		return true
	}
	decoded, err := url.PathUnescape(path)
	return err == nil && (&url.URL{Path: decoded, RawPath: path}).EscapedPath() == path
}
