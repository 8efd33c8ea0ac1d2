package proxy_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soon bounds waits that end long before on a machine that works.
const soon = 15 * time.Second

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(soon)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", soon, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// receive takes a value from a channel that gets one soon.
func receive[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(soon):
		t.Fatalf("not within %v: %s", soon, what)
		panic("unreachable")
	}
}

// wireConn is a connection whose bytes a test sees.
type wireConn struct {
	net.Conn
	br *bufio.Reader
}

// head reads the head of one message, with its empty line.
func (c *wireConn) head() (string, error) {
	var b strings.Builder
	for {
		line, err := c.br.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String(), err
		}
	}
}

// request reads one request as it is on the wire, its body included.
func (c *wireConn) request() (string, error) {
	head, err := c.head()
	if err != nil {
		return head, err
	}
	low := strings.ToLower(head)
	if _, rest, ok := strings.Cut(low, "\r\ncontent-length: "); ok {
		text, _, _ := strings.Cut(rest, "\r\n")
		n, err := strconv.Atoi(text)
		if err != nil {
			return head, err
		}
		body := make([]byte, n)
		m, err := io.ReadFull(c.br, body)
		return head + string(body[:m]), err
	}
	if !strings.Contains(low, "\r\ntransfer-encoding: chunked") {
		return head, nil
	}
	for all := head; ; {
		line, err := c.br.ReadString('\n')
		all += line
		if err != nil {
			return all, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
		if err != nil {
			return all, err
		}
		if n == 0 {
			trailers, err := c.head()
			return all + trailers, err
		}
		chunk := make([]byte, n+2)
		m, err := io.ReadFull(c.br, chunk)
		all += string(chunk[:m])
		if err != nil {
			return all, err
		}
	}
}

// say writes s and reports whether the connection took it.
func (c *wireConn) say(s string) bool {
	_, err := io.WriteString(c, s)
	return err == nil
}

// reset ends the connection at once.
func (c *wireConn) reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Close()
}

// readError waits for the end of the connection and returns what it looks like; nil stands for an orderly one.
func (c *wireConn) readError() error {
	_, err := io.Copy(io.Discard, c.br)
	return err
}

// wire is an upstream that speaks bytes. serve has each connection, numbered from 1, until it returns.
func wire(t *testing.T, serve func(c *wireConn, n int)) (url string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + serveWire(t, ln, serve)
}

func serveWire(t *testing.T, ln net.Listener, serve func(c *wireConn, n int)) (addr string) {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
	)
	wg.Go(func() {
		for n := 1; ; n++ {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				serve(&wireConn{conn, bufio.NewReader(conn)}, n)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return ln.Addr().String()
}

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// recorder is an upstream that keeps each request's bytes and gives one answer to all.
type recorder struct {
	requests chan string
	conns    atomic.Int32
}

func record(t *testing.T, answer string) (*recorder, string) {
	r := &recorder{requests: make(chan string, 64)}
	return r, wire(t, func(c *wireConn, n int) {
		r.conns.Store(int32(n))
		for {
			req, err := c.request()
			if err != nil {
				return
			}
			r.requests <- req
			c.say(answer)
		}
	})
}

// client is a connection to the proxy.
func (r *rig) dial() *wireConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(soon))
	return &wireConn{conn, bufio.NewReader(conn)}
}

// answer reads one answer to a request with the given method; err is that of reading its body.
func (c *wireConn) answer(method string) (got reply, err error) {
	resp, err := http.ReadResponse(c.br, &http.Request{Method: method})
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	if resp.Close {
		resp.Header.Set("Connection", "close") // ReadResponse takes it away
	}
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

// closed reports whether the peer has ended the connection, in whatever way, and sent nothing more.
func (c *wireConn) closed() bool {
	_, err := c.br.ReadByte()
	var ne net.Error
	return err != nil && (!errors.As(err, &ne) || !ne.Timeout())
}

// begin sends a request in the background.
func (r *rig) begin(method, path, body string, header ...string) <-chan reply {
	done := make(chan reply, 1)
	go func() {
		got, err := r.do(method, path, body, header...)
		if err != nil {
			got = reply{body: err.Error()}
		}
		done <- got
	}()
	return done
}

// waiting waits until n writes wait at the gate.
func (r *rig) waiting(n int) {
	r.t.Helper()
	eventually(r.t, strconv.Itoa(n)+" writes wait at the gate", func() bool { return r.gate.Stats().Waiting == n })
}
