package leg

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	maxHead         = 1 << 20 // bytes of one answer's head, or of all its 1xx heads together
	smallBody       = 64 << 10
	maxInformation  = 32
	writerPatience  = 50 * time.Millisecond
	deadlineQuantum = 64 // a deadline is moved when this fraction of the timeout has passed
)

// conn is one connection. It is used by one exchange at a time.
type conn struct {
	client    *Client
	net       net.Conn
	r         *bufio.Reader
	written   int64 // bytes handed to the network; by the one goroutine that writes, and read when that has ended
	headLeft  int64 // bytes that the head may still have; negative: no limit
	idleSince time.Time
	deadline  atomic.Int64 // the one that is set, in nanoseconds since epoch; 0 for none
	patient   atomic.Bool  // reads may take as long as they like
	peek      *peeker      // of alive; nil until it is first needed
}

func newConn(c *Client, nc net.Conn) *conn {
	cn := &conn{client: c, net: nc, headLeft: -1}
	cn.r = bufio.NewReaderSize((*limitedReader)(cn), 4<<10)
	return cn
}

var errHeadTooLong = errors.New("the upstream's answer has a head that is too long")

// limitedReader reads from the connection, and no more than the head may have while one is read.
type limitedReader conn

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.headLeft == 0 {
		return 0, errHeadTooLong
	}
	if l.headLeft > 0 && int64(len(p)) > l.headLeft {
		p = p[:l.headLeft]
	}
	n, err := l.net.Read(p)
	if l.headLeft > 0 {
		l.headLeft -= int64(n)
	}
	return n, err
}

// epoch is what spans are measured from: the difference of two times does not follow the wall clock.
var epoch = time.Now()

// progress says that bytes move: the upstream has the whole timeout again. Moving a deadline costs, so it is moved in steps, and set one
// step too late: nobody is given up before the timeout.
func (c *conn) progress() {
	step := c.client.Timeout / deadlineQuantum
	span := c.client.Timeout + step
	next := time.Since(epoch) + span
	if next-time.Duration(c.deadline.Load()) < step {
		return
	}
	c.deadline.Store(int64(next))
	at := time.Now().Add(span)
	// These fail on a dead connection, and then so does what follows.
	if c.patient.Load() {
		_ = c.net.SetWriteDeadline(at)
	} else {
		_ = c.net.SetDeadline(at)
	}
}

// write hands bytes to the network and counts them.
func (c *conn) write(p []byte) error {
	n, err := c.net.Write(p)
	c.written += int64(n)
	return err
}

// exchange sends a request and reads the head of its answer. On error the connection is closed.
func (c *conn) exchange(ctx context.Context, r *Request) (*http.Response, error) {
	if c.patient.Swap(false) {
		c.deadline.Store(0) // reads have none
	}
	c.progress()
	a := &answer{conn: c, ctx: ctx}
	if ctx.Done() != nil {
		a.stop = context.AfterFunc(ctx, func() { c.net.Close() })
	}
	var err error
	a.sending, err = c.send(r)
	early := err != nil && c.answered(err)
	var resp *http.Response
	if err == nil || early {
		if resp, err = c.receive(r); err == nil && ctx.Err() != nil {
			err = ctx.Err()
		}
	}
	if err != nil {
		a.finish(false)
		if a.sending != nil && a.sending.err != nil && errors.Is(err, net.ErrClosed) {
			err = a.sending.err // the body broke, and the connection was closed for it
		}
		return nil, err
	}
	if r.Patient {
		c.patient.Store(true)
		_ = c.net.SetReadDeadline(time.Time{})
	}
	// Some stores send a body with the answer to HEAD, which would be the beginning of the next answer.
	a.reusable = !early && !resp.Close && resp.StatusCode >= 200 && r.Method != http.MethodHead
	if resp.Body == http.NoBody {
		a.finish(true)
		return resp, nil
	}
	a.from = resp.Body
	resp.Body = a
	return resp, nil
}

// answered reports whether an upstream that broke the request off may have said why: it has the right to answer early and to close.
func (c *conn) answered(err error) bool {
	if c.written == 0 || isTimeout(err) {
		return false
	}
	_ = c.net.SetReadDeadline(time.Now().Add(writerPatience))
	_, perr := c.r.Peek(1)
	c.deadline.Store(0) // that was another deadline
	c.progress()
	return perr == nil
}

// receive reads the head of the answer, and before it those of any 1xx answers.
func (c *conn) receive(r *Request) (*http.Response, error) {
	c.headLeft = maxHead
	defer func() { c.headLeft = -1 }()
	var request *http.Request // for ReadResponse, to which only HEAD matters
	if r.Method == http.MethodHead {
		request = &http.Request{Method: r.Method}
	}
	for range maxInformation {
		var names []string
		if r.OwnCase != "" {
			names = peekNames(c.r, r.OwnCase)
		}
		resp, err := http.ReadResponse(c.r, request)
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("the upstream closed the connection without an answer")
			}
			return nil, err
		}
		c.progress()
		switch s := resp.StatusCode; {
		case s == http.StatusSwitchingProtocols || s < 100 || s >= 200:
			if r.OwnCase != "" {
				respell(resp.Header, r.OwnCase, names)
			}
			return resp, nil
		case s != http.StatusContinue && r.Informational != nil:
			r.Informational(s, resp.Header)
		}
	}
	return nil, fmt.Errorf("the upstream sent %d informational answers and no other", maxInformation)
}
