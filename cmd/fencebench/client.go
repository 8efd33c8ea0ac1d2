package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

const (
	answerWait = 30 * time.Second       // longest wait for an answer
	closeWait  = 500 * time.Millisecond // for the end of a connection whose answer announced it
)

// client is one connection that is kept, dialled again when the server has ended it. It reads no more of an answer than it must.
type client struct {
	address string
	body    []byte // a piece of a long body; nil if bodies are part of the request
	size    int64  // of the whole body

	conn net.Conn
	r    *bufio.Reader

	dials     int
	continues int
	closed    int
	bodyBytes int64
}

// answer is the head of an answer.
type answer struct {
	status  int
	length  int64 // -1: until the connection ends
	chunked bool
	close   bool
}

func (c *client) dial() error {
	if c.conn != nil {
		return nil
	}
	conn, err := net.DialTimeout("tcp", c.address, 5*time.Second)
	if err != nil {
		return err
	}
	c.conn = conn
	c.dials++
	if c.r == nil {
		c.r = bufio.NewReaderSize(conn, 64<<10)
	} else {
		c.r.Reset(conn)
	}
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// do sends a request with its body and reads the answer. It repeats nothing.
func (c *client) do(req []byte) (int, error) {
	if err := c.dial(); err != nil {
		return 0, err
	}
	if err := c.send(req, c.body != nil); err != nil {
		c.close()
		return 0, err
	}
	a, err := c.readAnswer()
	for err == nil && a.status == 100 {
		c.continues++
		a, err = c.readAnswer()
	}
	return c.finish(a, err)
}

// expect sends the head of a request, and the body only after 100 Continue.
func (c *client) expect(head []byte) (int, error) {
	if err := c.dial(); err != nil {
		return 0, err
	}
	if err := c.send(head, false); err != nil {
		c.close()
		return 0, err
	}
	a, err := c.readAnswer()
	if err == nil && a.status == 100 {
		c.continues++
		if err := c.send(nil, true); err != nil {
			c.close()
			return 0, err
		}
		a, err = c.readAnswer()
		return c.finish(a, err)
	}
	if err == nil {
		err = c.skipBody(a)
	}
	if err == nil && a.close && c.ended() {
		c.closed++
	}
	c.close() // the server cannot know whether a body still comes: RFC 9110, section 10.1.1
	return a.status, err
}

// send writes a head, and the body in pieces if asked to.
func (c *client) send(head []byte, body bool) error {
	if err := c.conn.SetDeadline(time.Now().Add(answerWait)); err != nil {
		return err
	}
	if len(head) > 0 {
		if _, err := c.conn.Write(head); err != nil {
			return err
		}
	}
	for left := c.size; body && left > 0; {
		n, err := c.conn.Write(c.body[:min(left, int64(len(c.body)))])
		c.bodyBytes += int64(n)
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

func (c *client) finish(a answer, err error) (int, error) {
	if err == nil {
		err = c.skipBody(a)
	}
	if err != nil || a.close || a.length < 0 && !a.chunked {
		c.close()
	}
	return a.status, err
}

// ended reports whether the server ends the connection soon.
func (c *client) ended() bool {
	if err := c.conn.SetReadDeadline(time.Now().Add(closeWait)); err != nil {
		return false
	}
	_, err := c.r.ReadByte()
	timeout, ok := errors.AsType[net.Error](err)
	return err != nil && !(ok && timeout.Timeout())
}

func (c *client) readAnswer() (answer, error) {
	a := answer{length: -1}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return a, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return a, fmt.Errorf("not an HTTP answer: %.40q", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, fmt.Errorf("not a status line: %.40q", line)
	}
	for {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return a, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if err := a.header(line); err != nil {
			return a, err
		}
	}
	if a.status < 200 || a.status == 204 || a.status == 304 {
		a.length, a.chunked = 0, false
	}
	return a, nil
}

// header reads the three headers that matter.
func (a *answer) header(line []byte) (err error) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	switch len(name) { // most headers are neither of the three
	case len("Connection"):
		if bytes.EqualFold(name, []byte("Connection")) {
			a.close = bytes.Contains(bytes.ToLower(value), []byte("close"))
		}
	case len("Content-Length"):
		if bytes.EqualFold(name, []byte("Content-Length")) {
			a.length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		}
	case len("Transfer-Encoding"):
		if bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			a.chunked = true
		}
	}
	return err
}

func (c *client) skipBody(a answer) error {
	switch {
	case a.chunked:
		return c.skipChunks()
	case a.length < 0:
		_, err := io.Copy(io.Discard, c.r)
		return err
	}
	for a.length > 0 {
		n, err := c.r.Discard(int(min(a.length, 1<<20)))
		if err != nil {
			return err
		}
		a.length -= int64(n)
	}
	return nil
}

func (c *client) skipChunks() error {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(bytes.TrimSpace(line), []byte{';'})
		n, err := strconv.ParseInt(string(size), 16, 32)
		if err != nil {
			return fmt.Errorf("not a chunk: %.20q", line)
		}
		if n == 0 {
			break
		}
		if _, err := c.r.Discard(int(n) + 2); err != nil {
			return err
		}
	}
	for { // trailers
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
	}
}
