package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/fenceproxy/fenceproxy/policies"
)

// Forward serves clients that reach their stores by HTTP_PROXY and HTTPS_PROXY. Requests for the stores of the configuration go the same way
// as those of [Proxy.Handler]: policies, gate, upstream. To see the ones that are sent by https it opens TLS with the operator's CA. goproxy
// answers CONNECT, and ties tunnels to other hosts, where that is wanted.
type Forward struct {
	p      *Proxy
	mode   policies.ForwardMode
	legs   map[*policies.Store]*upstream
	leaves *leaves // nil: no store is reached by https
	goes   *goproxy.ProxyHttpServer
	plain  *httputil.ReverseProxy
	guard  *guard
	log    *slog.Logger

	inner   *Server // of the requests in opened tunnels
	opened  *tunnels
	opening sync.WaitGroup // tunnels whose first byte is waited for
	waiting sync.Map       // the same tunnels
}

// NewForward returns a forward proxy that shares everything but the stores with p. It connects nowhere; the error is about files.
func (p *Proxy) NewForward(mode policies.ForwardMode) (*Forward, error) {
	f := &Forward{p: p, mode: mode, legs: map[*policies.Store]*upstream{}, log: p.log, opened: newTunnels()}
	for i := range f.mode.Stores {
		store := &f.mode.Stores[i]
		up, err := newUpstream(store.Upstream, p.log)
		if err != nil {
			return nil, err
		}
		f.legs[store] = up
	}
	if mode.CA.Cert != "" {
		var err error
		if f.leaves, err = newLeaves(mode.CA, p.log); err != nil {
			return nil, err
		}
	}
	f.guard = newGuard(&f.mode, p.target)
	f.goes, f.plain = f.goproxy(), f.plainProxy()
	f.inner = NewServerWith(http.HandlerFunc(f.within), nil, p.log)
	f.inner.http.Protocols.SetHTTP2(true) // for the tunnels that come with TLS
	f.inner.Limit(p.limits, nil)          // the connections were counted when they were accepted
	return f, nil
}

// NewServer returns the server of the forward listener. It speaks HTTP/1.1, with TLS too: CONNECT takes the connection over.
func (f *Forward) NewServer(t *policies.ListenerTLS) (*Server, error) {
	s, err := NewServer(http.HandlerFunc(f.front), t, f.log)
	if err == nil && t != nil {
		s.onlyHTTP1()
	}
	return s, err
}

// goproxy returns what answers CONNECT: it hands the connections of stores to open, and ties others to the host that they are for, which
// front has seen to be allowed. Its own ways with TLS (a CA whose key is published) and with the environment's proxies are never taken.
func (f *Forward) goproxy() *goproxy.ProxyHttpServer {
	g := goproxy.NewProxyHttpServer()
	g.Logger = log.New(io.Discard, "", 0)
	g.ConnectDial = nil
	g.Tr = &http.Transport{Proxy: nil, Protocols: http1()}
	g.Tr.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := f.dial(ctx, network, address)
		if err != nil {
			return nil, &notConnectedError{err}
		}
		return c, nil
	}
	g.ConnectionErrHandler = func(w io.Writer, ctx *goproxy.ProxyCtx, err error) {
		if !is[*notConnectedError](err) { // the tunnel was open: what is written now would be taken for the host's
			return
		}
		code, status := http.StatusBadGateway, ""
		if errors.Is(err, errGuarded) {
			code, status = http.StatusForbidden, statusHeader+": "+statusRefused+"\r\n"
		}
		f.log.Info("not passed on", "host", ctx.Req.RequestURI, keyError, err)
		_, _ = fmt.Fprintf(w, "HTTP/1.1 %d %s\r\n%sContent-Length: 0\r\nConnection: close\r\n\r\n", code, http.StatusText(code), status) // the client may be gone
	}
	hijack := &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: f.open}
	pass := &goproxy.ConnectAction{Action: goproxy.ConnectAccept}
	g.OnRequest().HandleConnectFunc(func(host string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
		switch v := viaOf(ctx.Req.Context()); {
		case v == nil || v.err != nil:
			return goproxy.RejectConnect, host
		case v.store != nil:
			return hijack, host
		}
		return pass, host
	})
	g.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) { // nothing else is sent here
		return r, goproxy.NewResponse(r, "text/plain", http.StatusBadRequest, "not a CONNECT\n")
	})
	return g
}

// plainProxy returns what carries requests for unlisted hosts that come without a tunnel. goproxy's own way would pass an answer that broke off
// for a whole one.
func (f *Forward) plainProxy() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.Host, r.Out.URL.RawQuery = r.In.Host, r.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if vs, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = vs
				}
			}
		},
		// No connection is kept: what one client may reach, another may not.
		Transport: &http.Transport{Proxy: nil, DialContext: f.dial, DisableCompression: true, DisableKeepAlives: true, Protocols: http1(), ResponseHeaderTimeout: f.p.stall},
		ErrorLog:  slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			f.log.Info("not passed on", "host", r.URL.Host, keyError, err)
			if errors.Is(err, errGuarded) {
				w.Header().Set(statusHeader, statusRefused)
				http.Error(w, errGuarded.Error(), http.StatusForbidden)
				return
			}
			http.Error(w, "the host could not be reached", http.StatusBadGateway)
		},
	}
}

// notConnectedError is why there is no tunnel.
type notConnectedError struct{ err error }

func (e *notConnectedError) Error() string { return e.err.Error() }
func (e *notConnectedError) Unwrap() error { return e.err }

func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// front finds out which store a request is for.
func (f *Forward) front(w http.ResponseWriter, r *http.Request) {
	v := f.via(r)
	ctx := context.WithValue(r.Context(), viaKey{}, v)
	switch {
	case v.err != nil:
		f.p.serve(w, r, v)
	case v.store != nil && r.Method == http.MethodConnect:
		f.goes.ServeHTTP(&replayingWriter{ResponseWriter: w}, r.WithContext(ctx))
	case v.store != nil:
		f.p.serve(w, r, v)
	case r.Method == http.MethodConnect:
		f.goes.ServeHTTP(w, r.WithContext(ctx))
	default:
		f.plain.ServeHTTP(w, r)
	}
}

// dial connects to an unlisted host, and leaves a line of each that the guard lets by.
func (f *Forward) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := f.guard.dial(ctx, network, address)
	if err == nil {
		f.log.Info("passed on unseen", "host", address)
	}
	return c, err
}

const notForward = "this is the listener of forward mode: send the URL of the store as the target (set HTTP_PROXY), or CONNECT (set HTTPS_PROXY)"

// via reads which host a request is for: RFC 9112 section 3.2.2 (absolute form) and 3.2.3 (CONNECT).
func (f *Forward) via(r *http.Request) *via {
	scheme, host := r.URL.Scheme, r.URL.Host
	if r.Method == http.MethodConnect {
		scheme, host = "", r.RequestURI
	}
	if host == "" || scheme == "https" { // https in a target would be sent in the clear to here
		return &via{err: &refusedError{http.StatusBadRequest, notForward}}
	}
	at, ok := policies.Authority(scheme, host)
	if !ok {
		return &via{err: &refusedError{http.StatusBadRequest, "the request target does not name a host and a port"}}
	}
	v := &via{mode: &f.mode, named: at, scheme: scheme, client: r.TLS}
	switch store := f.mode.Find(at); {
	case store != nil:
		v.store, v.up = store, f.legs[store]
	default:
		if ports := f.mode.NamesAt(at); !f.mode.Tunnel || len(ports) > 0 {
			v.err = &unlistedError{at, ports}
		}
	}
	return v
}

// within serves a request in an opened tunnel.
func (f *Forward) within(w http.ResponseWriter, r *http.Request) {
	t, ok := connAs[*tunnel](r.Context())
	if !ok {
		panic(http.ErrAbortHandler)
	}
	v := t.via
	v.scheme = "http"
	if _, ok := r.Context().Value(connKey{}).(*tls.Conn); ok { // not r.TLS, which an HTTP/2 client can unset by its :scheme
		v.scheme = "https"
	}
	f.p.serve(w, r, &v)
}

// open takes over the connection of a client that asked for a tunnel to a store.
func (f *Forward) open(r *http.Request, client net.Conn, _ *goproxy.ProxyCtx) {
	v := viaOf(r.Context())
	t := &tunnel{Conn: client, via: *v}
	f.waiting.Store(t, client)
	f.opening.Go(func() { // ends when the first byte came, with the deadline, or with Shutdown
		defer f.waiting.Delete(t)
		if err := f.begin(t); err != nil {
			f.log.Debug("a tunnel was not opened", keyError, err, "host", v.named)
			t.Close()
		}
	})
}

// begin answers a CONNECT and finds out by the first byte whether the client speaks TLS.
func (f *Forward) begin(t *tunnel) error {
	if err := t.SetDeadline(time.Now().Add(f.inner.http.ReadHeaderTimeout)); err != nil {
		return err
	}
	select {
	case <-f.opened.closed: // Shutdown may have bounded it before
		return net.ErrClosed
	default:
	}
	if _, err := io.WriteString(t, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return err
	}
	const handshake = 22 // RFC 8446 section 5.1
	first, err := t.peek()
	if err != nil {
		return err
	}
	if err := t.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if first != handshake {
		return f.opened.add(t)
	}
	if f.leaves == nil {
		return errors.New("the client speaks TLS, and no store of forward mode is reached by https")
	}
	return f.opened.add(tls.Server(t, f.tls(t.via.named)))
}

// tls is what a client is shown that opened a tunnel to the authority. The certificate is for the host that it asked CONNECT for, whatever
// name it sends in the handshake.
func (f *Forward) tls(named string) *tls.Config {
	host, _, _ := net.SplitHostPort(named) // canonical: it has both
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocolNames(),
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, err := f.leaves.certificate(host)
			if err != nil {
				f.log.Error("no certificate for a store of forward mode", keyError, err, "host", host)
			}
			return c, err
		},
	}
}

// Serve serves the requests in opened tunnels until [Forward.Shutdown] is called; then it returns nil at once.
func (f *Forward) Serve() error {
	if err := f.inner.Serve(f.opened); !errors.Is(err, net.ErrClosed) { // which is seen when Shutdown has closed the tunnels and not yet the server
		return err
	}
	return nil
}

// Shutdown opens no more tunnels and waits until the requests in them are answered. Connections to hosts that are passed on unseen are cut.
// When ctx ends first it cuts the rest off and returns the error of ctx.
func (f *Forward) Shutdown(ctx context.Context) error {
	_ = f.opened.Close() // never fails; no tunnel is added any more
	f.guard.close()
	f.waiting.Range(func(_, client any) bool {
		_ = client.(net.Conn).SetDeadline(time.Now()) // it has not said a word
		return true
	})
	err := f.inner.Shutdown(ctx)
	f.opening.Wait()
	for _, up := range f.legs {
		up.close()
	}
	return err
}
