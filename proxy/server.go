package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// Limits of a listener. There is no bound on the time of a whole request: it would cut long uploads. A body that stalls has its own.
const (
	headerTimeout = 10 * time.Second
	clientIdle    = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Bounds of one HTTP/2 connection. Its receive window holds what all of its streams may have unread: with less, a body that waits for the
// gate would keep the bodies of its neighbours out, and one of those may be the write that it waits for.
const (
	maxStreams   = 100
	streamWindow = 256 << 10
	maxFrame     = 64 << 10 // a longer one keeps the frames of other streams waiting
)

// Server serves a handler with limits on what a client may do to it, and stops in order.
type Server struct {
	http  http.Server
	certs *Certs // nil if the certificate does not come from files

	stall       time.Duration // longest silence of a client that reads its answer
	connections *Connections  // nil if they are not counted
}

// NewServer returns a server that speaks HTTP/1.1 and, if t is not nil, TLS 1.2 or later with HTTP/2 beside it. The error is about the
// files in t. They are read again when they change, and by [Server.Reload].
func NewServer(h http.Handler, t *policies.ListenerTLS, log *slog.Logger) (*Server, error) {
	if t == nil {
		return NewServerWith(h, nil, log), nil
	}
	certs, err := LoadCerts(cmp.Or(t.Section, "listen.tls"), "client_ca", CertFiles{Cert: t.Cert, Key: t.Key, CA: t.ClientCA}, log)
	if err != nil {
		return nil, err
	}
	s := NewServerWith(h, certs.serverConfig(modeOf(t)), log)
	s.certs = certs
	return s, nil
}

// NewServerWith is NewServer with a TLS configuration that the caller has made; nil is none. It is not changed.
func NewServerWith(h http.Handler, t *tls.Config, log *slog.Logger) *Server {
	s := &Server{stall: clientStall, http: http.Server{
		Handler:                      h,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  clientIdle,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * is the upstream's to answer
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Protocols:                    new(http.Protocols),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: maxStreams * streamWindow,
			MaxReadFrameSize: maxFrame,
			// A stream's own deadline resets the stream, which needs a connection that still takes bytes.
			WriteByteTimeout: clientStall,
		},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}}
	s.http.Protocols.SetHTTP1(true)
	if t == nil {
		return s
	}
	s.http.Protocols.SetHTTP2(true)
	s.http.TLSConfig = t.Clone()
	s.http.TLSConfig.MinVersion = max(t.MinVersion, tls.VersionTLS12)
	s.http.TLSConfig.NextProtos = protocolNames()
	return s
}

// onlyHTTP1 has the server offer no HTTP/2.
func (s *Server) onlyHTTP1() {
	s.http.Protocols.SetHTTP2(false)
	t := s.http.TLSConfig
	t.NextProtos = []string{"http/1.1"}
	if of := t.GetConfigForClient; of != nil {
		t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := of(hello)
			if c != nil {
				c.NextProtos = t.NextProtos
			}
			return c, err
		}
	}
}

// Reload reads the certificate's files now. After an error the certificate from before stays in use.
func (s *Server) Reload() error {
	if s.certs == nil {
		return nil
	}
	return s.certs.Reload()
}

type connKey struct{}

// connAs returns the connection of a request, or the one of type T that it wraps. ctx is that of the request.
func connAs[T net.Conn](ctx context.Context) (found T, ok bool) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	for c != nil {
		if found, ok = c.(T); ok {
			return found, true
		}
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = w.NetConn()
	}
	return found, false
}

// resetOnClose has the client's connection end with a reset. Over HTTP/2 the server resets the stream of a handler that panics, and the
// connection has other streams.
func resetOnClose(r *http.Request) {
	if r.ProtoMajor != 1 {
		return
	}
	if t, ok := connAs[*net.TCPConn](r.Context()); ok {
		_ = t.SetLinger(0) // fails only on a connection that is dead already
	}
}

// Serve answers requests that come to ln until [Server.Shutdown] is called; then it returns nil at once.
func (s *Server) Serve(ln net.Listener) error {
	var err error
	ln = &clientListener{Listener: ln, server: s}
	if s.http.TLSConfig != nil {
		err = s.http.ServeTLS(ln, "", "")
	} else {
		err = s.http.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits until the requests under way are answered. When ctx ends first it cuts them off and returns the
// error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close() // the error of ctx says it all
	}
	if s.connections != nil {
		s.connections.leaving.Wait() // a second at most
	}
	return err
}
