package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// clientStall is the longest that a client may be silent in the middle of its request's body, or take nothing of its answer, unless
// limits.body_timeout says something else.
const clientStall = 60 * time.Second

// errClientStalled is returned when a client sent no byte of its body for that long.
var errClientStalled = errors.New("the client stopped sending its body")

// clientBody is the body of a request as it comes from the client.
type clientBody struct {
	io.ReadCloser
	ended atomic.Bool // it was read to its end; the transport reads in a goroutine of its own
	left  atomic.Bool // the handler is about to return, after which the server allows no read
}

// errRequestOver is what a transport gets that still reads the body of a request which was answered.
var errRequestOver = errors.New("the request is over")

func newClientBody(from io.ReadCloser) *clientBody {
	b := &clientBody{ReadCloser: from}
	b.ended.Store(from == nil || from == http.NoBody)
	return b
}

func (b *clientBody) Read(p []byte) (int, error) {
	if b.left.Load() {
		return 0, errRequestOver
	}
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// body is the body of a write on its way to the upstream: none, taken in, or streamed.
type body struct {
	spooled *spooled      // nil if streamed or none
	stream  *streamedBody // nil if spooled or none
}

// takeBody takes the body in, unless stream is set.
func (f fence) takeBody(req *http.Request, x *exchange, stream bool) (*body, error) {
	b := &body{}
	if req.Body == nil || req.Body == http.NoBody {
		return b, nil
	}
	if stream {
		b.stream = &streamedBody{x: x, from: req.Body, intake: intake{x: x}}
		return b, nil
	}
	var err error
	b.spooled, err = f.p.spool.take(&clientReader{from: req.Body, intake: intake{x: x}}, req.ContentLength)
	x.readDeadline(0)
	return b, err
}

// parsers is how many long bodies are searched for resources at a time. One of some megabytes takes about a second and many times its size,
// and whoever sends it has shown nothing yet. longBody is where that begins.
const parsers, longBody = 2, 64 << 10

// resolve has the policy read the resources from the body.
func (b *body) resolve(p *Proxy, d *policies.Decision) error {
	if b.spooled == nil {
		return d.ResolveBody(nil)
	}
	if b.spooled.size > longBody {
		p.parsing <- struct{}{} // it gets there: those who are in do not wait for anybody
		defer func() { <-p.parsing }()
	}
	head, err := b.spooled.head(d.MaxBody())
	if err != nil {
		return err
	}
	return d.ResolveBody(head)
}

// release frees what the body holds. It is called when the write has an outcome: until then the upstream may still be reading.
func (b *body) release() {
	if b.spooled != nil {
		b.spooled.release()
	}
}

// clientReader reads a body from the client, which must not stall.
type clientReader struct {
	from   io.Reader
	intake intake
}

func (r *clientReader) Read(p []byte) (int, error) { return r.intake.read(r.from, p) }

// bodyError is what broke a client's body.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "the client's body broke off: " + e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// clientError tells errors of the client from those of the disk.
func clientError(err error) error {
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		return errClientStalled
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return &bodyError{err}
	}
	return err
}

// streamedBody passes a body on as it comes. While it waits for the client the upstream's clock stands still; the client has a clock of
// its own. Without that a client that stalls would hold the gate for good: cancelling a request does not interrupt the read of its body.
type streamedBody struct {
	x    *exchange
	call *call
	from io.ReadCloser

	intake intake // by the one goroutine that reads

	mu sync.Mutex // guards err: the transport reads in a goroutine of its own
	// +checklocks:mu
	err error
}

func (s *streamedBody) Read(p []byte) (int, error) {
	s.call.pause()
	n, err := s.intake.read(s.from, p)
	if err != nil {
		s.x.readDeadline(0)
		if !errors.Is(err, io.EOF) {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
	}
	s.call.progress()
	return n, err
}

func (s *streamedBody) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close leaves the client's body to the server, which knows whether the connection can be kept.
func (s *streamedBody) Close() error { return nil }
