package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/leg"
)

// stream forwards a request whose body is still coming, through net/http, which knows Expect and early answers.
func (u *upstream) stream(ctx context.Context, req *http.Request, x *exchange, b *streamedBody) (*http.Response, error) {
	req.URL = u.url(x.target)
	shieldIdempotencyKey(req)
	if _, ok := req.Header["User-Agent"]; !ok {
		req.Header["User-Agent"] = []string{""} // or net/http would name itself
	}
	out, l := u.start(ctx, req, x)
	b.call = l
	out.Body = b
	resp, err := u.transport.RoundTrip(out)
	if err != nil {
		defer l.end()
		sent, failed := l.sent(), b.failure()
		if failed != nil {
			err = failed
		}
		return nil, l.failure(out.Context(), sent, err)
	}
	if ctx.Done() != nil {
		l.untime() // an event stream may be silent for as long as it likes
	}
	resp.Body = &calledAnswer{ReadCloser: resp.Body, ctx: out.Context(), l: l}
	return resp, nil
}

// shieldIdempotencyKey keeps net/http from sending a write twice. It repeats a request whose kept connection broke, if the header map
// holds Idempotency-Key; under another spelling, which is the same header on the wire, it does not.
func shieldIdempotencyKey(req *http.Request) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if vs, ok := req.Header[name]; ok {
			delete(req.Header, name)
			req.Header[lower(name)] = vs
		}
	}
}

// countedConn counts what was written of requests, so that the fence knows whether anything has left.
type countedConn struct {
	*upstreamConn
	written atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.upstreamConn.Write(b)
	if n > 0 {
		c.written.Add(int64(n))
	}
	return n, err
}

// errUpstreamSilent is the cause when the upstream neither took nor sent a byte for the whole timeout.
var errUpstreamSilent = errors.New("the upstream did not answer in time")

// call is one request whose body comes from the client while it is forwarded.
type call struct {
	conn   *countedConn
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

// start returns req with a context that ends when the upstream is silent for too long.
func (u *upstream) start(ctx context.Context, req *http.Request, x *exchange) (*http.Request, *call) {
	l := &call{after: u.timeout, wrote: make(chan struct{}, 1)}
	ctx, l.cancel = context.WithCancelCause(ctx)
	l.mu.Lock()
	l.timer = time.AfterFunc(u.timeout, func() { l.cancel(errUpstreamSilent) })
	l.mu.Unlock()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if uc, ok := info.Conn.(*countedConn); ok {
				l.conn, l.before = uc, uc.written.Load()
			}
		},
		Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			x.interim(status, http.Header(h))
			return nil // the client may be gone
		},
		WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err != nil {
				return
			}
			select {
			case l.wrote <- struct{}{}:
			default: // it was sent again, after nothing of it had left
			}
		},
	})
	return req.WithContext(ctx), l
}

// cutBody is called when the answer has ended. An upstream may answer without having read the body; what it did not take until shortly
// after, it does not get, since the next write is about to be let in.
func (l *call) cutBody() {
	select {
	case <-l.wrote:
	case <-time.After(50 * time.Millisecond): // as long as net/http waits before it gives the connection up
		_ = l.conn.Close() // it is reset, which cannot fail in a way that matters
	}
}

// progress starts the clock anew: a byte went either way, or the upstream is waited for.
func (l *call) progress() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.untimed {
		l.timer.Reset(l.after)
	}
}

// pause stops the clock while the proxy waits for the client.
func (l *call) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Stop()
}

// untime stops the clock for good.
func (l *call) untime() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.untimed = true
	l.timer.Stop()
}

// end frees what the call holds. The answer must have been read to its end, or its connection is reset.
func (l *call) end() {
	l.untime()
	l.cancel(nil)
}

// sent reports whether any byte of the request may have reached the upstream.
func (l *call) sent() bool { return l.conn != nil && l.conn.written.Load() > l.before }

// failure says how the call failed.
func (l *call) failure(ctx context.Context, sent bool, err error) *leg.Error {
	ne, ok := errors.AsType[net.Error](err)
	return &leg.Error{Err: err, Sent: sent, Timeout: errors.Is(context.Cause(ctx), errUpstreamSilent) || ok && ne.Timeout()}
}

// calledAnswer is the answer to a call. The upstream's clock runs while it is read.
type calledAnswer struct {
	io.ReadCloser
	ctx   context.Context
	l     *call
	ended bool // its end was seen: the connection may serve another request by now
}

func (a *calledAnswer) Read(p []byte) (int, error) {
	a.l.progress()
	n, err := a.ReadCloser.Read(p)
	a.l.pause()
	switch {
	case errors.Is(err, io.EOF):
		if !a.ended {
			a.ended = true
			a.l.cutBody()
		}
	case err != nil:
		err = a.l.failure(a.ctx, true, err)
	}
	return n, err
}

// Close implements [io.Closer]. A connection whose answer was not read to its end is reset.
func (a *calledAnswer) Close() error {
	err := a.ReadCloser.Close()
	a.l.end()
	return err
}
