package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// upstream is the store behind the proxy.
type upstream struct {
	transport    *http.Transport
	scheme, host string
	preserveHost bool
	timeout      time.Duration
}

// idleTimeout is how long a connection to the upstream is kept for reuse. It is short, because a write that meets a connection which the
// upstream is about to close is in doubt; common servers close after 5 seconds or more.
const idleTimeout = 2 * time.Second

// newUpstream leaves none of net/http's defaults on that could send a write elsewhere, twice or altered: no proxy from the environment,
// no HTTP/2 (which resends on GOAWAY), no transparent gzip, certificates verified.
func newUpstream(c policies.Upstream) (*upstream, error) {
	up := &upstream{scheme: c.URL.Scheme, host: c.URL.Host, preserveHost: c.PreserveHost, timeout: c.Timeout}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	up.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if c.Socket != "" {
				network, addr = "unix", c.Socket
			}
			conn, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newUpstreamConn(conn), nil
		},
		Protocols:             protocols,
		DisableCompression:    true,
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	if c.URL.Scheme == "https" {
		up.transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		if c.CA != "" {
			pem, err := os.ReadFile(c.CA)
			if err != nil {
				return nil, fmt.Errorf("upstream.tls.ca: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("upstream.tls.ca: %s holds no PEM certificate", c.CA)
			}
			up.transport.TLSClientConfig.RootCAs = pool
		}
	}
	return up, nil
}

// url returns the URL of a request target at the upstream. The target stays as the client sent it: net/http sends Opaque verbatim,
// whereas it would encode Path anew when it holds a byte that a URL should not.
func (u *upstream) url(target string) *url.URL {
	path, query, hasQuery := strings.Cut(target, "?")
	out := &url.URL{Scheme: u.scheme, Host: u.host, RawQuery: query, ForceQuery: hasQuery && query == ""}
	if strings.HasPrefix(path, "//") {
		// Opaque would become an absolute target. Such a path reaches this point only if a policy reads it literally or if it
		// is a read; RawPath is sent as it is as long as it is a legal encoding of Path.
		out.RawPath = path
		if p, err := url.PathUnescape(path); err == nil {
			out.Path = p
			return out
		}
	}
	out.Opaque = path
	return out
}

// upstreamConn counts what was written, so that the fence knows whether anything of a request has left. It is closed with a reset
// (RFC 9293 section 3.6): a store that sees an orderly end in the middle of an upload may take what came for the whole.
type upstreamConn struct {
	net.Conn
	written atomic.Int64
}

func newUpstreamConn(c net.Conn) net.Conn {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only on a connection that is dead already
	}
	return &upstreamConn{Conn: c}
}

func (c *upstreamConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.written.Add(int64(n))
	}
	return n, err
}

// errUpstreamSilent is the cause when the upstream neither took nor sent a byte for the whole timeout.
var errUpstreamSilent = errors.New("the upstream did not answer in time")

// leg is one request to the upstream.
type leg struct {
	conn   *upstreamConn
	before int64 // what conn had written before this request
	cancel context.CancelCauseFunc
	timer  *time.Timer
	after  time.Duration
}

// start returns req with a context that ends when the upstream is silent for too long. It does not end when the client goes away, if
// detach is set: a write that was forwarded goes on, and the proxy waits for its outcome.
func (u *upstream) start(req *http.Request, detach bool) (*http.Request, *leg) {
	l := &leg{after: u.timeout}
	ctx := req.Context()
	if detach {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(u.timeout, func() { l.cancel(errUpstreamSilent) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		c := info.Conn
		if t, ok := c.(*tls.Conn); ok {
			c = t.NetConn()
		}
		if uc, ok := c.(*upstreamConn); ok {
			l.conn, l.before = uc, uc.written.Load()
		}
	}})
	return req.WithContext(ctx), l
}

// progress says that a byte went either way.
func (l *leg) progress() { l.timer.Reset(l.after) }

// pause stops the clock while the proxy waits for the client.
func (l *leg) pause() { l.timer.Stop() }

// end frees what the leg holds. The answer must have been read to its end, or its connection is reset.
func (l *leg) end() {
	l.timer.Stop()
	l.cancel(nil)
}

// sent reports whether any byte of the request may have reached the upstream.
func (l *leg) sent() bool { return l.conn != nil && l.conn.written.Load() > l.before }

// silent reports whether err came about because the upstream was silent.
func silent(ctx context.Context, err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(context.Cause(ctx), errUpstreamSilent) || errors.As(err, &timeout) && timeout.Timeout()
}
