package leg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Client keeps connections to one upstream. It is safe for concurrent use.
type Client struct {
	// Dial opens a connection, and completes the handshake where there is one.
	Dial func(context.Context) (net.Conn, error)
	// Timeout is the longest silence of the upstream in the middle of an exchange.
	Timeout time.Duration
	// IdleTimeout is how long a connection may wait for its next request. Keep it below the upstream's own.
	IdleTimeout time.Duration
	// MaxIdle bounds the connections that wait.
	MaxIdle int

	mu sync.Mutex // guards the fields below; never held across I/O
	// +checklocks:mu
	idle []*conn // the last one was used last
	// +checklocks:mu
	sweeper *time.Timer // runs while there are idle connections
}

// Request is what is sent.
type Request struct {
	Method string
	Target string // as in the request line
	Host   string
	Header http.Header // end-to-end headers; Host, Content-Length, Transfer-Encoding and Trailer are written by the client
	// Body is read once. Nil means that the request has none.
	Body Body
	// Trailer is sent after a chunked body.
	Trailer http.Header
	// Patient lifts the timeout once the head of the answer has come: an event stream may be silent.
	Patient bool
	// OwnCase is the beginning, in canonical form, of names that the answer's header map is to hold as the upstream spells them.
	OwnCase string
	// Informational, if not nil, gets each 1xx answer but 100 and 101.
	Informational func(status int, h http.Header)
}

// Body is a request's body that is at hand: reading it does not wait for anybody.
type Body interface {
	Read([]byte) (int, error)
	// Len is the length in bytes. Negative means that the body is sent in chunks.
	Len() int64
}

// Error says how an exchange failed.
type Error struct {
	Sent    bool // a byte of the request may have reached the upstream
	Timeout bool // the upstream was silent
	Err     error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// errSilent replaces the error of a deadline, whose text speaks of I/O.
var errSilent = errors.New("the upstream did not answer in time")

// Do sends r and returns the upstream's answer, whose body must be read to its end or closed. It blocks until the head of the answer
// has come. When ctx ends the connection is reset; pass [context.Background] for a request that must not be given up.
//
// The error is an [*Error]. An error of the answer's body has Sent set.
func (c *Client) Do(ctx context.Context, r *Request) (*http.Response, error) {
	for {
		cn, reused, err := c.take(ctx)
		if err != nil {
			return nil, &Error{Err: err, Timeout: isTimeout(err)}
		}
		before := cn.written
		resp, err := cn.exchange(ctx, r)
		if err == nil {
			return resp, nil
		}
		sent := cn.written != before
		if reused && !sent && r.unread() && ctx.Err() == nil {
			continue // the upstream had closed it; not one byte of the request left
		}
		return nil, failure(ctx, sent, err)
	}
}

func failure(ctx context.Context, sent bool, err error) *Error {
	e := &Error{Sent: sent, Timeout: isTimeout(err), Err: err}
	switch {
	case ctx.Err() != nil:
		e.Err, e.Timeout = ctx.Err(), false
	case e.Timeout:
		e.Err = errSilent
	}
	return e
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// take returns an idle connection that still lives, or a new one.
func (c *Client) take(ctx context.Context) (cn *conn, reused bool, err error) {
	for {
		c.mu.Lock()
		n := len(c.idle)
		if n == 0 {
			c.mu.Unlock()
			break
		}
		cn = c.idle[n-1]
		c.idle[n-1] = nil
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		if time.Since(cn.idleSince) < c.IdleTimeout && cn.alive() {
			return cn, true, nil
		}
		cn.net.Close()
	}
	nc, err := c.Dial(ctx)
	if err != nil {
		return nil, false, fmt.Errorf("connect to the upstream: %w", err)
	}
	return newConn(c, nc), false, nil
}

// put keeps a connection for the next request.
func (c *Client) put(cn *conn) {
	cn.idleSince = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.idle) >= c.MaxIdle {
		cn.net.Close()
		return
	}
	c.idle = append(c.idle, cn)
	if c.sweeper == nil {
		c.sweeper = time.AfterFunc(c.IdleTimeout, c.sweep)
	}
}

// sweep closes connections that have waited too long.
func (c *Client) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := c.idle[:0]
	for _, cn := range c.idle {
		if time.Since(cn.idleSince) < c.IdleTimeout {
			keep = append(keep, cn)
		} else {
			cn.net.Close()
		}
	}
	clear(c.idle[len(keep):])
	c.idle = keep
	c.sweeper = nil
	if len(keep) > 0 {
		c.sweeper = time.AfterFunc(c.IdleTimeout, c.sweep)
	}
}

// CloseIdle closes the connections that wait. Those in use are closed when their exchange ends badly, or wait in turn.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cn := range c.idle {
		cn.net.Close()
	}
	clear(c.idle)
	c.idle = c.idle[:0]
	if c.sweeper != nil {
		c.sweeper.Stop()
		c.sweeper = nil
	}
}
