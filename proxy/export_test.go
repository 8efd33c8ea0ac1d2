package proxy

import (
	"context"
	"io"
	"net"
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
