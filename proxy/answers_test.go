package proxy_test

import (
	"net"
	"strings"
	"testing"
	"time"
)

// TestBrokenAnswersNeverLookComplete breaks the upstream's answer off in the middle.
func TestBrokenAnswersNeverLookComplete(t *testing.T) {
	const sized, chunked, closing = "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\npart", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\npart"
	tests := []struct {
		name, answer string
		reset        bool
	}{
		{"chunked, FIN", chunked, false}, {"chunked, RST", chunked, true},
		{"inside a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\npart", false},
		{"no trailer end", chunked + "0\r\n", false},
		{"sized, FIN", sized, false}, {"sized, RST", sized, true},
		{"small sized, FIN", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", false},
		{"closing, RST", closing, true},
		{"bad chunk", chunked + "zz\r\n", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := wire(t, func(c *wireConn, _ int) {
				if _, err := c.request(); err != nil {
					return
				}
				c.say(tt.answer)
				if tt.reset {
					select { // a reset may overtake the bytes before it
					case <-time.After(50 * time.Millisecond):
					case <-t.Context().Done():
					}
					c.reset()
				}
			})
			r := newRig(t, url, "unmatched_writes: fence\ndefaults: {in_doubt_hold: 1h}")
			for i, head := range []string{"GET /a HTTP/1.1", "GET /a HTTP/1.0", "PUT /a HTTP/1.1", "PUT /b HTTP/1.0"} {
				c := r.dial()
				c.say(head + "\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n")
				got, err := c.answer(head[:3])
				if err == nil && (got.code != 502 || i > 1 && got.header.Get("Fencing-Status") != "in-doubt") {
					t.Errorf("%s = %v; want a broken answer or 502, in doubt for a write", head, got)
				}
				if i > 1 {
					eventually(t, "the write is in doubt", func() bool { return r.gate.Stats().InDoubt == i-1 })
				}
			}
		})
	}
}

func TestInDoubtWriteHoldsTheGateAndThenLetsGo(t *testing.T) {
	for _, tt := range []struct {
		name, answer string
	}{
		{"no answer", ""}, {"half a head", "HTTP/1.1 20"}, {"half a body", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"}, {"not HTTP", "hello\r\n\r\n"},
		{"status 000", "HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n"}, {"status 099", "HTTP/1.1 099 Early\r\nContent-Length: 0\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url := wire(t, func(c *wireConn, n int) {
				if _, err := c.request(); err != nil {
					return
				}
				if n > 1 {
					c.say(okAnswer)
					return
				}
				c.say(tt.answer)
			})
			r := newRig(t, url, "unmatched_writes: fence\ndefaults: {in_doubt_hold: 300ms}")
			began := time.Now()
			got, err := r.do("PUT", "/a", "x", "Fencing-Token", "33")
			if err == nil && (got.code != 502 || got.header.Get("Fencing-Status") != "in-doubt" || !strings.Contains(got.body, `"forwarded": "unknown"`)) {
				t.Errorf("got %v; want 502 in-doubt, forwarded: unknown", got)
			}
			r.put("/a", 34, "x", 200, "admitted")
			if d := time.Since(began); d < 300*time.Millisecond {
				t.Errorf("34 passed after %v; want the hold of 33 to end first", d)
			}
			if !strings.Contains(r.logs.String(), "level=WARN") {
				t.Errorf("an in-doubt write leaves no warning")
			}
		})
	}
}

func TestOddStatusesAreAnswered(t *testing.T) {
	for _, tt := range []struct{ status, want string }{{"999 Odd", "999"}, {"299 Odd", "299"}, {"000 Nothing", "502"}, {"099 Early", "502"}} {
		_, url := record(t, "HTTP/1.1 "+tt.status+"\r\nContent-Length: 0\r\n\r\n")
		r := newRig(t, url, defaultYAML)
		for _, method := range []string{"GET", "PUT"} {
			got := r.raw(method+" /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\nFencing-Token: 1\r\nContent-Length: 0\r\n\r\n", soon)
			if !strings.HasPrefix(got, "HTTP/1.1 "+tt.want) {
				t.Errorf("%s with %s = %q; want %s", method, tt.status, got, tt.want)
			}
		}
	}
}

// TestNothingIsSentTwice has the upstream read a request on a kept connection and close it without an answer, which net/http answers
// with sending it again if it thinks that harmless.
func TestNothingIsSentTwice(t *testing.T) {
	tests := []struct{ name, request, policy string }{
		{"DELETE + Idempotency-Key", "DELETE /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nIdempotency-Key: k\r\n\r\n", ""},
		{"DELETE + X-Idempotency-Key", "DELETE /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nX-Idempotency-Key: k\r\n\r\n", ""},
		{"PUT", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 1\r\n\r\nx", ""},
		{"PUT + Idempotency-Key", "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx", ""},
		{"POST + Idempotency-Key", "POST /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx", ""},
		{"empty POST", "POST /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\nContent-Length: 0\r\nIdempotency-Key: k\r\n\r\n", ""},
		{"fenced GET", "GET /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\n\r\n", `[GET, PUT]`},
		{"unfenced DELETE", "DELETE /a HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\n\r\n", `[POST]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := make(chan string, 16)
			url := wire(t, func(c *wireConn, n int) {
				for i := 0; ; i++ {
					req, err := c.request()
					if err != nil {
						return
					}
					seen <- req
					if n == 1 && i == 1 {
						return
					}
					c.say(okAnswer)
				}
			})
			yaml := "unmatched_writes: fence\ndefaults: {in_doubt_hold: 10ms}"
			if tt.policy != "" {
				yaml = `{unmatched_writes: allow, policies: [{name: p, match: {path: "/{rest...}", methods: ` + tt.policy + `}, resource: "{rest}", in_doubt_hold: 10ms}]}`
			}
			r := newRig(t, url, yaml)
			c := r.dial()
			c.say("GET /first HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\n\r\n")
			if got, err := c.answer("GET"); err != nil || got.code != 200 {
				t.Fatalf("GET = %v, %v", got, err)
			}
			<-seen
			c.say(tt.request)
			got, err := c.answer("PUT")
			if err != nil || got.code != 502 {
				t.Errorf("got %v, %v; want 502", got, err)
			}
			if n := len(seen); n != 1 {
				t.Errorf("the upstream saw it %d times; want once", n)
			}
		})
	}
}

func TestReadIsNotSentAgainEither(t *testing.T) {
	seen := make(chan struct{}, 8)
	url := wire(t, func(c *wireConn, n int) {
		for i := 0; ; i++ {
			if _, err := c.request(); err != nil {
				return
			}
			seen <- struct{}{}
			if n == 1 && i == 1 {
				return // the second request of the first connection is taken, and not answered
			}
			c.say(okAnswer)
		}
	})
	r := newRig(t, url, defaultYAML)
	c := r.dial()
	for _, want := range []int{200, 502} {
		c.say("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")
		if got, err := c.answer("GET"); err != nil || got.code != want {
			t.Fatalf("GET = %v, %v; want %d", got, err, want)
		}
	}
	if n := len(seen); n != 2 {
		t.Errorf("the upstream saw %d requests; want 2", n)
	}
}

func TestWriteMeetingAnIdleConnectionThatDiedIsSentOnANewOne(t *testing.T) {
	closed := make(chan struct{}, 64)
	url := wire(t, func(c *wireConn, _ int) {
		if _, err := c.request(); err != nil {
			return
		}
		c.say(okAnswer)
		c.Close()
		closed <- struct{}{}
	})
	r := newRig(t, url, "unmatched_writes: fence\ndefaults: {in_doubt_hold: 10ms}")
	for i := range 30 {
		got := r.must("PUT", "/a", "body", "Fencing-Token", "1")
		// The race that remains, bytes written while the end of the connection was on its way, is in doubt and not sent again.
		if got.code != 200 && got.header.Get("Fencing-Status") != "in-doubt" {
			t.Fatalf("PUT %d = %v", i, got)
		}
		if got.code == 200 {
			<-closed
		}
	}
}

func TestUnreachableUpstreamIsNotInDoubt(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	r := newRig(t, "http://"+ln.Addr().String(), "unmatched_writes: fence\ndefaults: {in_doubt_hold: 1h}")
	got := r.put("/a", 33, "x", 502, "admitted")
	if !strings.Contains(got.body, `"forwarded": "no"`) || !strings.Contains(got.body, "urn:fenceproxy:upstream-unreachable") || got.header.Get("Cache-Control") != "no-store" {
		t.Errorf("the body is %s", got.body)
	}
	if s := r.gate.Stats(); s.InFlight+s.InDoubt != 0 {
		t.Errorf("the gate holds %+v", s)
	}
	if got := r.must("GET", "/a", ""); got.code != 502 {
		t.Errorf("GET = %v; want 502", got)
	}
}
