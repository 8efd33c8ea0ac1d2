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
	"sync"
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
			if t, ok := conn.(*net.TCPConn); ok {
				_ = t.SetLinger(0) // fails only on a connection that is dead already
			}
			return &upstreamConn{Conn: conn, raw: conn}, nil
		},
		Protocols:             protocols,
		DisableCompression:    true,
		MaxIdleConns:          0,
		MaxIdleConnsPerHost:   1024,
		IdleConnTimeout:       idleTimeout,
		ExpectContinueTimeout: time.Second,
	}
	if c.URL.Scheme == "https" {
		config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.URL.Hostname()}
		if c.CA != "" {
			pem, err := os.ReadFile(c.CA)
			if err != nil {
				return nil, fmt.Errorf("upstream.tls.ca: %w", err)
			}
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("upstream.tls.ca: %s holds no PEM certificate", c.CA)
			}
			config.RootCAs = pool
		}
		up.transport.DialTLSContext = dialTLS(up.transport.DialContext, config)
	}
	return up, nil
}

type dialFunc func(ctx context.Context, network, addr string) (net.Conn, error)

// dialTLS returns a dialer for connections over TLS.
func dialTLS(dial dialFunc, config *tls.Config) dialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		t := tls.Client(conn, config)
		if err := t.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return &upstreamConn{Conn: t, raw: conn}, nil
	}
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

// upstreamConn counts what was written of requests, so that the fence knows whether anything has left. It is closed with a reset
// (RFC 9293 section 3.6): a store that sees an orderly end in the middle of an upload may take what came for the whole. A Unix socket
// knows no reset.
type upstreamConn struct {
	net.Conn          // what requests are written to; with TLS that is not raw
	raw      net.Conn // the connection itself
	written  atomic.Int64
}

// Close says nothing to the upstream: TLS would announce an orderly end before the reset.
func (c *upstreamConn) Close() error { return c.raw.Close() }

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
	before int64         // what conn had written before this request
	wrote  chan struct{} // gets an element when the request was written to its end
	cancel context.CancelCauseFunc
	after  time.Duration

	mu sync.Mutex // guards the fields below: a body may still be sent while the answer comes
	// +checklocks:mu
	timer *time.Timer
	// +checklocks:mu
	untimed bool // the clock does not start any more
}

// start returns req with a context that ends when the upstream is silent for too long. It does not end when the client goes away, if
// detach is set: a write that was forwarded goes on, and the proxy waits for its outcome.
func (u *upstream) start(req *http.Request, detach bool) (*http.Request, *leg) {
	l := &leg{after: u.timeout, wrote: make(chan struct{}, 1)}
	ctx := req.Context()
	if detach {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(u.timeout, func() { l.cancel(errUpstreamSilent) })
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if uc, ok := info.Conn.(*upstreamConn); ok {
				l.conn, l.before = uc, uc.written.Load()
			}
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err != nil {
				return
			}
			select {
			case l.wrote <- struct{}{}:
			default: // a read that is not fenced was sent again
			}
		},
	})
	return req.WithContext(ctx), l
}

// cutBody is called when the answer has ended. An upstream may answer without having read the body; what it did not take until shortly
// after, it does not get, since the next write is about to be let in.
func (l *leg) cutBody() {
	select {
	case <-l.wrote:
	case <-time.After(50 * time.Millisecond): // as long as net/http waits before it gives the connection up
		_ = l.conn.Close() // it is reset, which cannot fail in a way that matters
	}
}

// progress starts the clock anew: a byte went either way, or the upstream is waited for.
func (l *leg) progress() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.untimed {
		l.timer.Reset(l.after)
	}
}

// pause stops the clock while the proxy waits for the client.
func (l *leg) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}

// untime stops the clock for good.
func (l *leg) untime() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untimed = true
	l.timer.Stop()
}

// end frees what the leg holds. The answer must have been read to its end, or its connection is reset.
func (l *leg) end() {
	l.untime()
	l.cancel(nil)
}

// sent reports whether any byte of the request may have reached the upstream.
func (l *leg) sent() bool { return l.conn != nil && l.conn.written.Load() > l.before }

// silent reports whether err came about because the upstream was silent.
func silent(ctx context.Context, err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(context.Cause(ctx), errUpstreamSilent) || errors.As(err, &timeout) && timeout.Timeout()
}
