package proxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// clientStall is the longest that a client may be silent in the middle of its request's body, or take nothing of the answer to a write.
const clientStall = 60 * time.Second

// errClientStalled is returned when a client sent no byte of its body for that long.
var errClientStalled = errors.New("the client stopped sending its body")

// clientBody is the body of a request as it comes from the client.
type clientBody struct {
	io.ReadCloser
	ended atomic.Bool // it was read to its end; the transport reads in a goroutine of its own
}

func newClientBody(from io.ReadCloser) *clientBody {
	b := &clientBody{ReadCloser: from}
	b.ended.Store(from == nil || from == http.NoBody)
	return b
}

func (b *clientBody) Read(p []byte) (int, error) {
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
		b.stream = &streamedBody{x: x, from: req.Body}
		return b, nil
	}
	var err error
	b.spooled, err = f.p.spool.take(&clientReader{x: x, from: req.Body}, req.ContentLength)
	x.readDeadline(0)
	return b, err
}

// resolve has the policy read the resources from the body.
func (b *body) resolve(d *policies.Decision) error {
	if b.spooled == nil {
		return d.ResolveBody(nil)
	}
	head, err := b.spooled.head()
	if err != nil {
		return err
	}
	return d.ResolveBody(head)
}

// attach makes the body that of req.
func (b *body) attach(req *http.Request, l *leg) {
	switch {
	case b.spooled != nil:
		req.Header.Del("Expect") // the body is here; waiting for 100 Continue would only hold the gate
		open := func() (io.ReadCloser, error) { return &spooledReader{r: b.spooled.open(), leg: l}, nil }
		req.Body, _ = open()
		// net/http uses it only when not one byte was written on a connection that had died, since Idempotency-Key is shielded.
		req.GetBody = open
		if in := exchangeOf(req.Context()).in; len(in.Trailer) > 0 {
			req.Trailer = in.Trailer
		}
	case b.stream != nil:
		b.stream.leg = l
		req.Body = b.stream
	case safe(req.Method):
		// net/http repeats a GET whose kept connection broke, unless it has a body that cannot be had again. A policy that fences
		// GET does so because it changes something.
		req.Body = io.NopCloser(strings.NewReader(""))
	}
}

// clientError returns the reason why the client's side of a streamed body broke, or nil.
func (b *body) clientError() error {
	if b.stream == nil {
		return nil
	}
	return b.stream.failure()
}

// release frees what the body holds. It is called when the write has an outcome: until then the upstream may still be reading.
func (b *body) release() {
	if b.spooled != nil {
		b.spooled.release()
	}
}

// clientReader reads a body from the client, which must not stall.
type clientReader struct {
	x    *exchange
	from io.Reader
}

func (r *clientReader) Read(p []byte) (int, error) {
	r.x.readDeadline(r.x.p.stall)
	n, err := r.from.Read(p)
	return n, clientError(err)
}

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
	leg  *leg
	from io.ReadCloser

	mu sync.Mutex // guards err: the transport reads in a goroutine of its own
	// +checklocks:mu
	err error
}

func (s *streamedBody) Read(p []byte) (int, error) {
	s.leg.pause()
	s.x.readDeadline(s.x.p.stall)
	n, err := s.from.Read(p)
	err = clientError(err)
	if err != nil {
		s.x.readDeadline(0)
		if !errors.Is(err, io.EOF) {
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
	}
	s.leg.progress()
	return n, err
}

func (s *streamedBody) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Close leaves the client's body to the server, which knows whether the connection can be kept.
func (s *streamedBody) Close() error { return nil }

// spooledReader reads a body that was taken in; each read shows that the upstream takes bytes.
type spooledReader struct {
	r   io.Reader
	leg *leg
}

func (s *spooledReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.leg.progress()
	return n, err
}

func (s *spooledReader) Close() error { return nil }
