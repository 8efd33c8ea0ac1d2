package proxy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// Limit bounds what clients may do to the server. connections, which several servers may share, counts the connections that it accepts; nil
// counts none, which is right where a connection was counted already: inside a tunnel. It is called before [Server.Serve].
func (s *Server) Limit(l policies.Limits, connections *Connections) {
	s.http.ReadHeaderTimeout = cmp.Or(l.HeaderTimeout, headerTimeout)
	s.http.MaxHeaderBytes = cmp.Or(int(l.MaxHeader), maxHeader)
	s.stall, s.connections = cmp.Or(l.BodyTimeout, clientStall), connections
	if s.http.HTTP2 != nil {
		s.http.HTTP2.WriteByteTimeout = s.stall
	}
}

// Connections counts connections, of each client and of all, and bounds both. It is safe for concurrent use.
type Connections struct {
	perClient int // 0: any number
	all       int // as well
	metrics   *Metrics

	farewells chan struct{}  // holds one element for each connection that is turned away with an answer
	leaving   sync.WaitGroup // the same

	mu sync.Mutex // guards the fields below; never held across I/O
	// +checklocks:mu
	open int
	// +checklocks:mu
	of map[netip.Addr]int // never 0: its size is bounded by open
}

// maxFarewells bounds the connections that are turned away with an answer at a time. Others are closed without one.
const maxFarewells = 64

// NewConnections returns a count of connections with the bounds in l. m may be nil.
func NewConnections(l policies.Limits, m *Metrics) *Connections {
	if m == nil {
		m = NewMetrics(nil)
	}
	return &Connections{
		perClient: l.ConnectionsPerClient, all: l.Connections, metrics: m, of: map[netip.Addr]int{}, farewells: make(chan struct{}, maxFarewells),
	}
}

// take counts a connection, or returns the limit that it is beyond.
func (c *Connections) take(client netip.Addr) (limit string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.perClient > 0 && client.IsValid() && c.of[client] >= c.perClient:
		return limitPerClient
	case c.all > 0 && c.open >= c.all:
		return limitConnections
	}
	c.open++
	c.of[client]++
	c.metrics.connections.Inc()
	return ""
}

func (c *Connections) giveBack(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.of[client]--; c.of[client] == 0 {
		delete(c.of, client)
	}
	c.metrics.connections.Dec()
}

// turnAway ends a connection that is one too many: with an answer if it speaks plain HTTP, else before its handshake, which costs more than
// the answer is worth.
func (c *Connections) turnAway(conn net.Conn, limit string, plain bool) {
	c.metrics.refused.WithLabelValues(limit).Inc()
	c.metrics.limited.WithLabelValues(limit).Inc()
	if plain {
		select {
		case c.farewells <- struct{}{}:
			c.leaving.Go(func() { // ends within a second
				farewell(conn, limit)
				<-c.farewells
			})
			return
		default:
		}
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0) // nothing is kept of it, not even by the kernel
	}
	conn.Close()
}

// farewell answers and waits until the client has read that: closing a connection on which bytes wait resets it, and takes the answer away.
func farewell(conn net.Conn, limit string) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	code, title := http.StatusTooManyRequests, "This client has too many connections"
	if limit == limitConnections {
		code, title = http.StatusServiceUnavailable, "The proxy has too many connections"
	}
	p := Problem{
		Type: "urn:fenceproxy:" + strings.ReplaceAll(limit, "_", "-"), Title: title, Status: code, Forwarded: "no",
		Detail: "Nothing was read from this one (limits." + limit + "). Close those that are idle, or come back later.",
	}
	body := p.append(nil)
	_, err := fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nCache-Control: no-store\r\n%s: %s\r\nRetry-After: 1\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", code, http.StatusText(code), statusHeader, statusLimited, len(body), body)
	if w, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		_ = w.CloseWrite()
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, 256<<10))
	}
}

// clientListener makes a [clientConn] of each connection that it accepts.
type clientListener struct {
	net.Listener
	server *Server
}

// Accept implements [net.Listener].
func (l *clientListener) Accept() (net.Conn, error) {
	s := l.server
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if _, ok := conn.(*tls.Conn); ok {
			return conn, nil // of a tunnel: there is a clientConn beneath, and the server has to see the session
		}
		c := &clientConn{Conn: conn, stall: s.stall, count: s.connections}
		if c.count == nil {
			return c, nil
		}
		c.client = clientOf(conn.RemoteAddr().String())
		if limit := c.count.take(c.client); limit != "" {
			c.count.turnAway(conn, limit, s.http.TLSConfig == nil)
			continue
		}
		return c, nil
	}
}

// clientConn is a connection on which no write waits for long for a client that takes nothing. A client that takes something, however little,
// is waited for.
type clientConn struct {
	net.Conn
	stall  time.Duration
	client netip.Addr
	count  *Connections // nil if it is not counted
	once   sync.Once    // gives it back

	mu sync.Mutex // guards writeBy, and the deadline of Conn that goes with it
	// +checklocks:mu
	writeBy time.Time // what SetWriteDeadline was called with
}

// NetConn returns the connection itself.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// CloseWrite is what the server calls before it closes a connection on which bytes may wait.
func (c *clientConn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return errors.ErrUnsupported
}

// CloseRead lets whoever took the connection over close one half of it.
func (c *clientConn) CloseRead() error {
	if r, ok := c.Conn.(interface{ CloseRead() error }); ok {
		return r.CloseRead()
	}
	return errors.ErrUnsupported
}

// Close implements [net.Conn].
func (c *clientConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		if c.count != nil {
			c.count.giveBack(c.client)
		}
	})
	return err
}

// SetDeadline implements [net.Conn].
func (c *clientConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements [net.Conn].
func (c *clientConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeBy = t
	_, err := c.armLocked()
	return err
}

// armLocked bounds the next write. own says that the bound is the connection's, not the one that was asked for.
//
// +checklocks:c.mu
func (c *clientConn) armLocked() (own bool, err error) {
	by := time.Now().Add(c.stall)
	own = c.writeBy.IsZero() || by.Before(c.writeBy)
	if !own {
		by = c.writeBy
	}
	return own, c.Conn.SetWriteDeadline(by)
}

// Write implements [net.Conn].
func (c *clientConn) Write(p []byte) (done int, err error) {
	for {
		c.mu.Lock()
		own, err := c.armLocked()
		c.mu.Unlock()
		if err != nil {
			return done, err
		}
		n, err := c.Conn.Write(p[done:])
		done += n
		if err == nil || !own || !errors.Is(err, os.ErrDeadlineExceeded) {
			return done, err
		}
		if n == 0 {
			if c.count != nil {
				c.count.metrics.limited.WithLabelValues(limitSlowReader).Inc()
			}
			return done, err
		}
	}
}

// Write implements [http.ResponseWriter]. Over HTTP/1 the connection has a bound on the silence of a client that reads; over HTTP/2 a client
// can stop one stream and read others, so that each has its own, while something is written. An event stream may be silent.
func (x *exchange) Write(p []byte) (n int, err error) {
	_ = x.bounded(func() error {
		n, err = x.ResponseWriter.Write(p)
		return err
	})
	return n, err
}

// FlushError is what [http.ResponseController] calls.
func (x *exchange) FlushError() error {
	return x.bounded(http.NewResponseController(x.ResponseWriter).Flush)
}

// bounded writes, and does not wait for a stream for longer than a client may be silent.
func (x *exchange) bounded(write func() error) error {
	if x.in.ProtoMajor == 1 {
		return write()
	}
	asked := x.writeBy // of the answer to a fenced write
	by := time.Now().Add(x.p.stall)
	if !asked.IsZero() && asked.Before(by) {
		return write()
	}
	x.streamDeadline(by)
	err := write()
	if err == nil { // a stream that is over would be reset once more
		x.streamDeadline(asked)
	}
	return err
}

func (x *exchange) streamDeadline(t time.Time) {
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(t) // every stream has one
}

// boundRest bounds what the server still has to write when the handler has returned.
func (x *exchange) boundRest() {
	if x.in.ProtoMajor != 1 && x.in.Context().Err() == nil {
		x.streamDeadline(time.Now().Add(x.p.stall))
	}
}
