package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// Limits of a listener. There is no bound on the time of a whole request: it would cut long uploads. A body that stalls has its own.
const (
	headerTimeout = 10 * time.Second
	clientIdle    = 2 * time.Minute
	maxHeader     = 64 << 10
)

// Server serves a handler with limits on what a client may do to it, and stops in order.
type Server struct {
	http http.Server
}

// NewServer returns a server that speaks HTTP/1.1 and, if t is not nil, TLS 1.2 or later. The error is about the files in t.
func NewServer(h http.Handler, t *policies.ListenerTLS, log *slog.Logger) (*Server, error) {
	s := &Server{http: http.Server{
		Handler:                      h,
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  clientIdle,
		MaxHeaderBytes:               maxHeader,
		DisableGeneralOptionsHandler: true, // OPTIONS * is the upstream's to answer
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		Protocols:                    new(http.Protocols),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}}
	s.http.Protocols.SetHTTP1(true)
	if t == nil {
		return s, nil
	}
	cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("listen.tls: %w", err)
	}
	s.http.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}
	if t.ClientCA != "" {
		pem, err := os.ReadFile(t.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("listen.tls.client_ca: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("listen.tls.client_ca: %s holds no PEM certificate", t.ClientCA)
		}
		s.http.TLSConfig.ClientCAs, s.http.TLSConfig.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	return s, nil
}

type connKey struct{}

// resetOnClose has the client's connection end with a reset. ctx is that of a request on it.
func resetOnClose(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // fails only on a connection that is dead already
	}
}

// Serve answers requests that come to ln until [Server.Shutdown] is called; then it returns nil at once.
func (s *Server) Serve(ln net.Listener) error {
	var err error
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
	return err
}
