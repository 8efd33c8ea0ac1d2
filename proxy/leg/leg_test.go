package leg_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/proxy/leg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// upstream answers each connection with a script. It counts connections and requests.
type upstream struct {
	ln       net.Listener
	conns    atomic.Int32
	requests atomic.Int32
	done     chan struct{}
}

// serve has script handle each connection; next reads a whole request and returns its bytes.
func serve(t *testing.T, script func(c net.Conn, next func() string)) *upstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := &upstream{ln: ln, done: make(chan struct{})}
	go func() { // ends when the listener is closed
		defer close(u.done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			u.conns.Add(1)
			go func() { // ends with the script
				defer c.Close()
				r := bufio.NewReader(c)
				script(c, func() string {
					s := readRequest(r)
					if s != "" {
						u.requests.Add(1)
					}
					return s
				})
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-u.done })
	return u
}

// readRequest returns the bytes of one request, its body decoded.
func readRequest(r *bufio.Reader) string {
	var raw bytes.Buffer
	req, err := http.ReadRequest(bufio.NewReaderSize(io.TeeReader(oneByte{r}, &raw), 16))
	if err != nil {
		return ""
	}
	head := raw.String()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return ""
	}
	for k, vs := range req.Trailer {
		body = append(body, fmt.Sprintf("|%s=%s", k, vs[0])...)
	}
	if i := strings.Index(head, "\r\n\r\n"); i >= 0 {
		head = head[:i+4]
	}
	return head + string(body)
}

// oneByte keeps a reader in front of it from reading ahead.
type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:1]) }

func (u *upstream) client(t *testing.T) *leg.Client {
	t.Helper()
	c := &leg.Client{
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			nc, err := d.DialContext(ctx, "tcp", u.ln.Addr().String())
			if err != nil {
				return nil, err
			}
			return nc, nc.(*net.TCPConn).SetLinger(0)
		},
		Timeout: 5 * time.Second, IdleTimeout: time.Minute, MaxIdle: 10,
	}
	t.Cleanup(c.CloseIdle)
	return c
}

type body struct {
	*bytes.Reader
	n int64
}

func (b body) Len() int64 { return b.n }

func fixed(s string) leg.Body   { return body{bytes.NewReader([]byte(s)), int64(len(s))} }
func chunked(s string) leg.Body { return body{bytes.NewReader([]byte(s)), -1} }

func request(method string, b leg.Body) *leg.Request {
	return &leg.Request{Method: method, Target: "/k", Host: "store.test", Header: http.Header{"A": {"1", "2"}}, Body: b}
}

func do(t *testing.T, c *leg.Client, r *leg.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(context.Background(), r)
	if err != nil {
		t.Fatalf("Do: %v", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return resp, string(b)
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestRequestIsSentAsGiven(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, tt := range []struct {
		name string
		req  *leg.Request
		want string
	}{
		{"no body", request("DELETE", nil), "DELETE /k HTTP/1.1\r\nHost: store.test\r\nA: 1\r\nA: 2\r\n\r\n"},
		{"empty PUT", request("PUT", nil), "PUT /k HTTP/1.1\r\nHost: store.test\r\nA: 1\r\nA: 2\r\nContent-Length: 0\r\n\r\n"},
		{"short", request("PUT", fixed("hello")), "PUT /k HTTP/1.1\r\nHost: store.test\r\nA: 1\r\nA: 2\r\nContent-Length: 5\r\n\r\nhello"},
		{"long", request("PUT", fixed(long)), "PUT /k HTTP/1.1\r\nHost: store.test\r\nA: 1\r\nA: 2\r\nContent-Length: 204800\r\n\r\n" + long},
		{"chunked", request("PUT", chunked(long)), "PUT /k HTTP/1.1\r\nHost: store.test\r\nA: 1\r\nA: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + long},
		{"odd target", &leg.Request{Method: "PUT", Target: "/a%2Fb/{x}|\xff?q=%zz", Host: "s"}, "PUT /a%2Fb/{x}|\xff?q=%zz HTTP/1.1\r\nHost: s\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := make(chan string, 1)
			u := serve(t, func(c net.Conn, next func() string) {
				if tt.name == "odd target" { // which http.ReadRequest would refuse
					b := make([]byte, len(tt.want))
					_, _ = io.ReadFull(c, b)
					got <- string(b)
				} else {
					got <- next()
				}
				_, _ = io.WriteString(c, ok)
			})
			if _, b := do(t, u.client(t), tt.req); b != "ok" {
				t.Errorf("answer = %q; want ok", b)
			}
			if g := <-got; g != tt.want {
				t.Errorf("sent %.200q; want %.200q", g, tt.want)
			}
		})
	}
}

func TestTrailersAreSent(t *testing.T) {
	got := make(chan string, 1)
	u := serve(t, func(c net.Conn, next func() string) { got <- next(); _, _ = io.WriteString(c, ok) })
	r := request("PUT", chunked("hello"))
	r.Trailer = http.Header{"X-Sum": {"abc"}}
	do(t, u.client(t), r)
	if g := <-got; !strings.HasSuffix(g, "hello|X-Sum=abc") {
		t.Errorf("sent %q; want the trailer behind the body", g)
	}
}

func TestConnectionIsReused(t *testing.T) {
	u := serve(t, func(c net.Conn, next func() string) {
		for next() != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
		}
	})
	c := u.client(t)
	for range 5 {
		do(t, c, request("PUT", fixed("x")))
		do(t, c, request("GET", nil))
	}
	if n := u.conns.Load(); n != 1 {
		t.Errorf("%d connections; want 1", n)
	}
}

func TestConnectionIsNotReused(t *testing.T) {
	for name, answer := range map[string]string{
		"close":         "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.0":      "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"bytes left":    ok + "HTTP/1.1 200 OK\r\n",
		"switched":      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
		"until the end": "HTTP/1.1 200 OK\r\n\r\nok",
	} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, func(c net.Conn, next func() string) {
				for next() != "" {
					_, _ = io.WriteString(c, answer)
					if name == "until the end" {
						return
					}
				}
			})
			c := u.client(t)
			for range 3 {
				do(t, c, request("GET", nil))
			}
			if n := u.conns.Load(); n != 3 {
				t.Errorf("%d connections for 3 requests; want 3", n)
			}
		})
	}
}

func TestNothingIsSentTwice(t *testing.T) {
	for _, method := range []string{"PUT", "DELETE", "GET"} {
		t.Run(method, func(t *testing.T) {
			u := serve(t, func(c net.Conn, next func() string) {
				next()
				_, _ = io.WriteString(c, ok)
				next() // the second request on this connection is taken, and not answered
			})
			c := u.client(t)
			do(t, c, request(method, nil))
			r := request(method, nil)
			r.Header.Set("Idempotency-Key", "1")
			_, err := c.Do(context.Background(), r)
			e, isErr := errors.AsType[*leg.Error](err)
			if !isErr || !e.Sent {
				t.Fatalf("Do = %v; want an error that says it was sent", err)
			}
			if n := u.requests.Load(); n != 2 {
				t.Errorf("the upstream saw %d requests; want 2", n)
			}
		})
	}
}

func TestDeadIdleConnectionIsNotUsed(t *testing.T) {
	closed := make(chan struct{}, 1)
	u := serve(t, func(c net.Conn, next func() string) {
		next()
		_, _ = io.WriteString(c, ok)
		c.Close()
		closed <- struct{}{}
	})
	c := u.client(t)
	for range 5 {
		do(t, c, request("PUT", fixed("x")))
		<-closed
	}
	if n := u.requests.Load(); n != 5 {
		t.Errorf("the upstream saw %d requests; want 5", n)
	}
}

func TestUnreachableIsNotSent(t *testing.T) {
	u := serve(t, func(net.Conn, func() string) {})
	c := u.client(t)
	u.ln.Close()
	_, err := c.Do(context.Background(), request("PUT", fixed("x")))
	if e, isErr := errors.AsType[*leg.Error](err); !isErr || e.Sent || e.Timeout {
		t.Errorf("Do = %#v; want an error that says nothing was sent", err)
	}
}

func TestSilenceIsATimeout(t *testing.T) {
	hold := make(chan struct{})
	u := serve(t, func(c net.Conn, next func() string) {
		next()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok")
		<-hold
	})
	defer close(hold)
	c := u.client(t)
	c.Timeout = 50 * time.Millisecond
	resp, err := c.Do(context.Background(), request("PUT", fixed("x")))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	if e, isErr := errors.AsType[*leg.Error](err); !isErr || !e.Sent || !e.Timeout {
		t.Errorf("reading the answer = %v; want a timeout after it was sent", err)
	}
}

func TestPatientReadOutlastsTheTimeout(t *testing.T) {
	u := serve(t, func(c net.Conn, next func() string) {
		next()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\na")
		time.Sleep(150 * time.Millisecond) // an event stream that is silent for longer than the timeout
		_, _ = io.WriteString(c, "b")
	})
	c := u.client(t)
	c.Timeout = 50 * time.Millisecond
	r := request("GET", nil)
	r.Patient = true
	if _, b := do(t, c, r); b != "ab" {
		t.Errorf("answer = %q; want ab", b)
	}
}

// An idle connection keeps the deadline of its last exchange, which must neither hide that the upstream closed it nor end the next exchange.
func TestDeadlineOfTheLastExchangeIsNotThatOfTheNext(t *testing.T) {
	closed, end := make(chan struct{}), make(chan struct{})
	u := serve(t, func(c net.Conn, next func() string) {
		for range 2 {
			next()
			_, _ = io.WriteString(c, ok)
		}
		<-end
		c.Close()
		closed <- struct{}{}
	})
	c := u.client(t)
	c.Timeout = 400 * time.Millisecond
	past := func() { time.Sleep(c.Timeout * 5 / 4) } // the deadline must be over, and a socket knows no other clock
	do(t, c, request("PUT", fixed("x")))
	past()
	do(t, c, request("PUT", fixed("x")))
	if n := u.conns.Load(); n != 1 {
		t.Fatalf("%d connections for two requests; want 1", n)
	}
	past()
	end <- struct{}{}
	<-closed
	do(t, c, request("PUT", fixed("x")))
	if conns, n := u.conns.Load(), u.requests.Load(); conns != 2 || n != 3 {
		t.Errorf("%d connections and %d requests; want 2 and 3", conns, n)
	}
	c.CloseIdle()
	close(end)
	<-closed
}

func TestUpstreamHasTheWholeTimeoutEachTime(t *testing.T) {
	for _, patient := range []bool{false, true} {
		t.Run(fmt.Sprint("after a patient request ", patient), func(t *testing.T) {
			u := serve(t, func(c net.Conn, next func() string) {
				for range 50 {
					next()
					_, _ = io.WriteString(c, ok)
				}
				next()
				next() // until the client is gone
			})
			c := u.client(t)
			c.Timeout = 500 * time.Millisecond
			r := request("GET", nil)
			r.Patient = patient
			for range 50 {
				do(t, c, r)
			}
			begin := time.Now()
			_, err := c.Do(context.Background(), request("GET", nil))
			took := time.Since(begin)
			if e, isErr := errors.AsType[*leg.Error](err); !isErr || !e.Timeout {
				t.Errorf("Do = %v; want a timeout", err)
			}
			if took < c.Timeout || u.conns.Load() != 1 {
				t.Errorf("given up after %v on connection %d; want no less than %v on the first", took, u.conns.Load(), c.Timeout)
			}
		})
	}
}

func TestEarlyAnswerToALongBody(t *testing.T) {
	u := serve(t, func(c net.Conn, _ func() string) {
		_, _ = io.ReadFull(c, make([]byte, 10))
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		time.Sleep(20 * time.Millisecond) // let it be read before the connection is reset
	})
	resp, b := do(t, u.client(t), request("PUT", fixed(strings.Repeat("x", 32<<20))))
	if resp.StatusCode != 413 || b != "no" {
		t.Errorf("answer = %d %q; want 413 no", resp.StatusCode, b)
	}
}

func TestAbandonedExchangeIsReset(t *testing.T) {
	cause := make(chan error, 1)
	u := serve(t, func(c net.Conn, _ func() string) {
		_, _ = io.ReadFull(c, make([]byte, 100))
		_, err := io.Copy(io.Discard, c)
		cause <- err
	})
	ctx, cancel := context.WithCancel(context.Background())
	broken := body{bytes.NewReader(bytes.Repeat([]byte("x"), 1<<20)), 2 << 20} // ends before its length
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := u.client(t).Do(ctx, request("PUT", broken)); err == nil {
		t.Error("Do with half a body succeeded")
	}
	if err := <-cause; err == nil {
		t.Error("the upstream saw an orderly end; want a reset, or it takes half a body for the whole")
	}
}

func TestCancelEndsAnExchange(t *testing.T) {
	reached := make(chan struct{})
	u := serve(t, func(c net.Conn, next func() string) {
		next()
		close(reached)
		_, _ = io.Copy(io.Discard, c)
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() { <-reached; cancel() }()
	_, err := u.client(t).Do(ctx, request("GET", nil))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Do = %v; want canceled", err)
	}
}

func TestInformationalAnswers(t *testing.T) {
	u := serve(t, func(c net.Conn, next func() string) {
		next()
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"+ok)
	})
	r := request("GET", nil)
	var got []string
	r.Informational = func(s int, h http.Header) { got = append(got, fmt.Sprint(s, h.Get("Link"))) }
	if _, b := do(t, u.client(t), r); b != "ok" || len(got) != 1 || got[0] != "103x" {
		t.Errorf("answer %q after %v; want ok after 103", b, got)
	}
}

func TestHeadOfAnswerIsBounded(t *testing.T) {
	for name, line := range map[string]string{"one header": strings.Repeat("x", 4<<20), "many": strings.Repeat("a: b\r\n", 1<<18), "many 1xx": ""} {
		t.Run(name, func(t *testing.T) {
			u := serve(t, func(c net.Conn, next func() string) {
				next()
				if line == "" {
					_, _ = io.WriteString(c, strings.Repeat("HTTP/1.1 103 Hint\r\n\r\n", 1000))
					return
				}
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nA: "+line)
			})
			if _, err := u.client(t).Do(context.Background(), request("GET", nil)); err == nil {
				t.Error("an endless head was accepted")
			}
		})
	}
}

func TestTargetCannotBreakOut(t *testing.T) {
	u := serve(t, func(net.Conn, func() string) {})
	for _, target := range []string{"", "/a b", "/a\r\nX: y", "/a\nb"} {
		_, err := u.client(t).Do(context.Background(), &leg.Request{Method: "GET", Target: target, Host: "h"})
		if e, isErr := errors.AsType[*leg.Error](err); !isErr || e.Sent {
			t.Errorf("target %q: %v; want an error before anything is sent", target, err)
		}
	}
}

func TestAnswerThatBreaksOffIsAnError(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nok", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok",
	} {
		u := serve(t, func(c net.Conn, next func() string) { next(); _, _ = io.WriteString(c, answer) })
		resp, err := u.client(t).Do(context.Background(), request("GET", nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q was read as whole", answer)
		}
		resp.Body.Close()
	}
}

func BenchmarkPut(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	})}
	go func() { _ = srv.Serve(ln) }()
	defer srv.Close()
	payload := bytes.Repeat([]byte("x"), 1024)
	b.Run("leg", func(b *testing.B) {
		c := &leg.Client{
			Dial:    func(ctx context.Context) (net.Conn, error) { return net.Dial("tcp", ln.Addr().String()) },
			Timeout: time.Minute, IdleTimeout: time.Minute, MaxIdle: 100,
		}
		defer c.CloseIdle()
		b.ReportAllocs()
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				resp, err := c.Do(context.Background(), &leg.Request{Method: "PUT", Target: "/k", Host: "h", Header: http.Header{}, Body: body{bytes.NewReader(payload), 1024}})
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	})
	b.Run("http.Transport", func(b *testing.B) {
		tr := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
		defer tr.CloseIdleConnections()
		b.ReportAllocs()
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				req, _ := http.NewRequest("PUT", "http://"+ln.Addr().String()+"/k", bytes.NewReader(payload))
				resp, err := tr.RoundTrip(req)
				if err != nil {
					b.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	})
}

func TestBytesThatNobodyAskedForAreNoAnswer(t *testing.T) {
	forged := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nFAKE!"
	ts := httptest.NewUnstartedServer(nil)
	ts.StartTLS()
	cert := ts.TLS.Certificates[0]
	ts.Close()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, DynamicRecordSizingDisabled: true})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	long := strings.Repeat("x", 6000)
	go func() { // ends when the listener is closed
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				r := bufio.NewReader(c)
				for readRequest(r) != "" {
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n")
					_, _ = io.WriteString(c, long+forged) // one TLS record, of which the body is a part
				}
			}()
		}
	}()
	c := &leg.Client{
		Dial: func(context.Context) (net.Conn, error) {
			return tls.Dial("tcp", ln.Addr().String(), &tls.Config{InsecureSkipVerify: true})
		},
		Timeout: 5 * time.Second, IdleTimeout: time.Minute, MaxIdle: 10,
	}
	defer c.CloseIdle()
	for i := range 5 {
		resp, err := c.Do(context.Background(), request("GET", nil))
		if err != nil {
			t.Fatal(err)
		}
		// Read the body in one piece, past any buffer.
		b := make([]byte, 6000)
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			t.Fatal(err)
		}
		if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("after the body: %v; want its end", err)
		}
		resp.Body.Close()
		if string(b) != long {
			t.Fatalf("answer %d is %.40q...; want the store's", i, b)
		}
	}
}

func TestConnectionOfAHeadIsNotReused(t *testing.T) {
	u := serve(t, func(c net.Conn, next func() string) {
		for next() != "" {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
		}
	})
	c := u.client(t)
	do(t, c, request("HEAD", nil))
	do(t, c, request("HEAD", nil))
	if n := u.conns.Load(); n != 2 {
		t.Errorf("%d connections; want 2: some stores send a body with HEAD", n)
	}
}
