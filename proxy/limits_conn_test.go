package proxy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// dialFrom connects from an address of its own.
func (r *rig) dialFrom(ip string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}, Timeout: soon}
	return d.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
}

// greeting is how the answer to a read begins, or what broke the connection.
func greeting(t *testing.T, c net.Conn) string {
	t.Helper()
	if _, err := io.WriteString(c, "GET /greeting HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err.Error()
	}
	_ = c.SetReadDeadline(time.Now().Add(soon))
	b := make([]byte, 4096)
	n, err := io.ReadAtLeast(c, b, 12)
	if err != nil {
		return err.Error()
	}
	return string(b[:n])
}

func TestConnectionsOfAClientAreBounded(t *testing.T) {
	r := newRigWith(t, newPlainStore(), defaultYAML+"limits: {connections_per_client: 3}")
	var held []net.Conn
	for range 3 {
		c, err := r.dialFrom("127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := greeting(t, c); !strings.HasPrefix(got, "HTTP/1.1 404") {
			t.Errorf("a connection within the limit got %q", got)
		}
		held = append(held, c)
	}
	c, err := r.dialFrom("127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := greeting(t, c)
	for _, want := range []string{"HTTP/1.1 429 Too Many Requests\r\n", "\r\nRetry-After: 1\r\n", "\r\nConnection: close\r\n", "\r\nFencing-Status: limited\r\n",
		`"urn:fenceproxy:connections-per-client"`} {
		if !strings.Contains(got, want) {
			t.Errorf("one too many got %q; want %q in it", got, want)
		}
	}
	r.put("/a", 1, "x", 201, "admitted") // from 127.0.0.1
	if n := r.metric("fenceproxy_connections_refused_total{reason=connections_per_client}"); n != 1 {
		t.Errorf("%v were refused; want 1", n)
	}
	r.wantLimited("connections_per_client", 1)
	held[0].Close()
	eventually(t, "there is room again", func() bool {
		c, err := r.dialFrom("127.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return strings.HasPrefix(greeting(t, c), "HTTP/1.1 404")
	})
	for _, c := range held {
		c.Close()
	}
	eventually(t, "nothing is counted any more", func() bool {
		open, clients := r.connections.Open()
		return open == 0 && clients == 0 && r.metric("fenceproxy_connections") == 0
	})
}

func TestConnectionsOfAllAreBoundedExactly(t *testing.T) {
	const most, tries = 20, 100
	release := make(chan struct{})
	store := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
	r := newRigWith(t, store, fmt.Sprintf("%slimits: {connections: %d}", defaultYAML, most))
	answers := make(chan string, tries)
	var wg sync.WaitGroup
	for range tries {
		wg.Go(func() {
			c, err := r.dialFrom("127.0.0.1")
			if err != nil { // it may be reset before it is told that it is there
				answers <- err.Error()
				return
			}
			defer c.Close()
			answers <- greeting(t, c)
		})
	}
	for range tries - most {
		if got := receive(t, "those beyond the limit are turned away", answers); !strings.HasPrefix(got, "HTTP/1.1 503 ") && !strings.Contains(got, "reset") {
			t.Errorf("one too many got %q; want 503, or a reset while many are turned away", got)
		}
	}
	if open, _ := r.connections.Open(); open != most {
		t.Errorf("%d are open; want exactly %d", open, most)
	}
	close(release)
	wg.Wait()
	for range most {
		if got := receive(t, "those within the limit are answered", answers); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("one within the limit got %q", got)
		}
	}
	if n := r.metric("fenceproxy_connections_refused_total{reason=connections}"); n != tries-most {
		t.Errorf("%v were refused; want %d", n, tries-most)
	}
	eventually(t, "nothing is counted any more", func() bool { open, clients := r.connections.Open(); return open == 0 && clients == 0 })
}

func TestOneTooManyUnderTLSIsClosedBeforeTheHandshake(t *testing.T) {
	_, cert, key := selfSigned(t)
	l := policies.Limits{Connections: 1}
	s, err := proxy.NewServer(http.NotFoundHandler(), &policies.ListenerTLS{Cert: cert, Key: key}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s.Limit(l, proxy.NewConnections(l, nil))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	defer func() {
		_ = s.Shutdown(context.Background())
		receive(t, "Serve returns", served)
	}()
	dial := func() (*tls.Conn, error) {
		return tls.DialWithDialer(&net.Dialer{Timeout: soon}, "tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	}
	first, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := dial(); err == nil {
		second.Close()
		t.Error("the second connection was let in")
	}
	first.Close()
	eventually(t, "there is room again", func() bool {
		c, err := dial()
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// endless is an answer of n bytes; cut gets an element when the proxy has stopped taking it.
func endless(n int, cut chan<- error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(n))
		_, err := io.CopyN(w, blanks{}, int64(n))
		cut <- err
	})
}

type blanks struct{}

func (blanks) Read(p []byte) (int, error) { return len(p), nil }

func TestReadWhoseClientTakesNothingIsCutOff(t *testing.T) {
	cut := make(chan error, 1)
	r := newRigWith(t, endless(64<<20, cut), defaultYAML+"limits: {body_timeout: 100ms}")
	c := r.dial()
	c.say("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := receive(t, "the upstream is let go", cut); err == nil {
		t.Error("the upstream's answer was taken whole")
	}
	eventually(t, "the connection is gone", func() bool { open, _ := r.connections.Open(); return open == 0 })
	r.wantLimited("slow_reader", 1)
}

func TestReadOverHTTP2WhoseClientTakesNothingIsCutOff(t *testing.T) {
	cut := make(chan error, 1)
	r := newRigWith(t, endless(64<<20, cut), defaultYAML)
	r.proxy.SetStall(100 * time.Millisecond)
	s := overTLS(t, r)
	c := s.client()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+s.addr+"/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := receive(t, "the upstream is let go", cut); err == nil {
		t.Error("the upstream's answer was taken whole")
	}
	if n, err := io.Copy(io.Discard, resp.Body); err == nil {
		t.Errorf("the client got an answer of %d bytes that looks whole", n)
	}
}

func TestReaderThatTakesSomethingIsWaitedFor(t *testing.T) {
	const size = 24 << 20
	cut := make(chan error, 1)
	r := newRigWith(t, endless(size, cut), defaultYAML+"limits: {body_timeout: 700ms}")
	c := r.dial()
	c.say("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
	if _, err := c.head(); err != nil {
		t.Fatal(err)
	}
	var got int64
	for tick := time.NewTicker(10 * time.Millisecond); got < size; <-tick.C { // for longer than the timeout in all
		n, err := io.CopyN(io.Discard, c.br, 128<<10)
		if got += n; err != nil {
			t.Fatalf("cut off after %d bytes: %v", got, err)
		}
	}
}

func TestSilentEventStreamIsNotCutOff(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2"} {
		more := make(chan struct{})
		store := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 2 {
				_, _ = io.WriteString(w, "data: x\n\n")
				_ = http.NewResponseController(w).Flush()
				<-more
			}
		})
		r := newRigWith(t, store, defaultYAML+"limits: {body_timeout: 50ms}")
		c, url := client, r.url
		if proto == "HTTP/2" {
			s := overTLS(t, r)
			c, url = s.client(), "https://"+s.addr
		}
		resp, err := c.Get(url + "/events")
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, len("data: x\n\n"))
		if _, err := io.ReadFull(resp.Body, buf); err != nil {
			t.Errorf("%s: the first event: %v", proto, err)
		}
		time.Sleep(200 * time.Millisecond) // the silence itself: several timeouts
		more <- struct{}{}
		if _, err := io.ReadFull(resp.Body, buf); err != nil {
			t.Errorf("%s: the event after a silence: %v", proto, err)
		}
		close(more)
		if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) > 0 {
			t.Errorf("%s: the end: %q, %v", proto, rest, err)
		}
		resp.Body.Close()
	}
}

// scriptedConn takes some bytes of each write and then says that its deadline passed, until it takes the rest.
type scriptedConn struct {
	net.Conn
	takes  []int // by write; the one after the last takes everything
	writes int
}

func (c *scriptedConn) Write(p []byte) (int, error) {
	c.writes++
	if c.writes > len(c.takes) {
		return len(p), nil
	}
	return c.takes[c.writes-1], os.ErrDeadlineExceeded
}
func (c *scriptedConn) SetWriteDeadline(time.Time) error { return nil }
func (c *scriptedConn) Close() error                     { return nil }

func TestWriteWaitsForAClientThatTakesSomething(t *testing.T) {
	for _, tt := range []struct {
		name  string
		takes []int
		by    time.Time // what the server asked for
		n     int
		err   error
	}{
		{"takes all", nil, time.Time{}, 10, nil},
		{"takes some, twice", []int{3, 1}, time.Time{}, 10, nil},
		{"takes some, then nothing", []int{3, 0}, time.Time{}, 3, os.ErrDeadlineExceeded},
		{"takes nothing", []int{0}, time.Time{}, 0, os.ErrDeadlineExceeded},
		{"takes some, and the server's own time is over", []int{3}, time.Now().Add(-time.Second), 3, os.ErrDeadlineExceeded},
	} {
		c := proxy.NewClientConn(&scriptedConn{takes: tt.takes}, time.Minute, nil)
		if err := c.SetWriteDeadline(tt.by); err != nil {
			t.Fatal(err)
		}
		if n, err := c.Write(make([]byte, 10)); n != tt.n || !errors.Is(err, tt.err) {
			t.Errorf("%s: %d, %v; want %d, %v", tt.name, n, err, tt.n, tt.err)
		}
	}
}

func TestConnectionIsGivenBackOnce(t *testing.T) {
	count := proxy.NewConnections(policies.Limits{Connections: 5}, nil)
	a, b := proxy.NewClientConn(&scriptedConn{}, time.Minute, count), proxy.NewClientConn(&scriptedConn{}, time.Minute, count)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { _ = a.Close() })
	}
	wg.Wait()
	if open, _ := count.Open(); open != 1 {
		t.Errorf("%d are counted after one of two was closed ten times; want 1", open)
	}
	_ = b.Close()
	if open, clients := count.Open(); open != 0 || clients != 0 {
		t.Errorf("%d connections of %d clients are counted; want none", open, clients)
	}
}
