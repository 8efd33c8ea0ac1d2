package proxy

import (
	"context"
	"io"
	"net"
	"net/netip"
	"time"
)

// FailSpool makes every write to a spool file fail with err.
func (p *Proxy) FailSpool(err error) {
	p.spool.wrap = func(io.Writer) io.Writer { return failingWriter{err} }
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// TransportProxies reports for each transport whether it has a proxy. The environment is read once in a process and never used for
// loopback addresses, so that a test cannot see it from outside.
func (p *Proxy) TransportProxies() []bool { return []bool{p.upstream.transport.Proxy != nil} }

// PanicOnForward makes forwarding panic before anything is sent.
func (p *Proxy) PanicOnForward() {
	p.upstream.client.Dial = func(context.Context) (net.Conn, error) { panic("on purpose") }
}

// SetStall bounds the silence of clients in place of clientStall. It is called before the first request.
func (p *Proxy) SetStall(d time.Duration) { p.stall = d }

// SpooledBytes is how much memory bodies take now, SpoolBudget how much they may.
func (p *Proxy) SpooledBytes() int64 { return p.spool.used.Load() }
func (p *Proxy) SpoolBudget() int64  { return p.spool.budget }

// SetSpoolFloor sets how many bytes bodies leave free on their volume. It is called before the first request.
func (p *Proxy) SetSpoolFloor(n uint64) { p.spool.floor = n }

// AppendProblem returns p as it is sent.
func AppendProblem(p Problem) []byte { return p.append(nil) }

// BodyOfFinishedRequest returns the body of a request whose handler has returned.
func BodyOfFinishedRequest(from io.ReadCloser) io.Reader {
	x := &exchange{body: newClientBody(from)}
	x.body.left.Store(true)
	return x.body
}

// SetStall bounds the time in which a connection takes no byte. It is called before the first connection.
func (s *Server) SetStall(d time.Duration) { s.http.HTTP2.WriteByteTimeout = d }

// LookAtEachHandshake has the files of the certificate looked at each time they are used.
func (s *Server) LookAtEachHandshake() { s.certs.every = 0 }

// SetGrace is how long a body may take before its rate counts. It is called before the first request.
func (p *Proxy) SetGrace(d time.Duration) { p.grace = d }

// SetNewcomerClock puts now in the place of the clock by which clients' first marks are counted. It is called before the first request.
func (p *Proxy) SetNewcomerClock(now func() time.Time) { p.newcomers.now = now }

// Newcomers is the table of clients that made first marks.
type Newcomers = newcomers

// NewNewcomers returns a table of at most most clients a generation.
func NewNewcomers(perSecond, most int, now func() time.Time) *Newcomers {
	n := newNewcomers(perSecond)
	n.most, n.now = most, now
	return n
}

// Take asks for first marks.
func (n *newcomers) Take(client netip.Addr, count int) error { return n.take(client, count) }

// Size is how many buckets there are.
func (n *newcomers) Size() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.young) + len(n.old)
}

// NewcomersOf is the table of a proxy; nil if there is no bound.
func NewcomersOf(p *Proxy) *Newcomers { return p.newcomers }

// ClientOf is what a client is counted by.
func ClientOf(remote string) netip.Addr { return clientOf(remote) }

// Open is how many connections are counted, and of how many clients.
func (c *Connections) Open() (open, clients int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open, len(c.of)
}

// NewClientConn makes what a listener would make of an accepted connection.
func NewClientConn(c net.Conn, stall time.Duration, count *Connections) net.Conn {
	out := &clientConn{Conn: c, stall: stall, count: count}
	if count != nil {
		count.take(out.client)
	}
	return out
}
