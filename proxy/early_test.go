package proxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestEarlyRefusalReadsNoBody(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	r.put("/a", 34, "kept", 201, "admitted")
	const stale = "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\n"
	for _, tt := range []struct{ name, rest string }{
		{"5 GB, Expect", "Expect: 100-continue\r\nContent-Length: 5368709120\r\n\r\n"},
		{"100 KB, Expect", "Expect: 100-continue\r\nContent-Length: 100000\r\n\r\n"},
		{"small, Expect", "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"},
		{"chunked, Expect", "Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"5 GB", "Content-Length: 5368709120\r\n\r\nbegun"},
		{"100 KB that stalls", "Content-Length: 100000\r\n\r\nbegun"},
		{"100 KB that came whole", "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000)},
		{"small that stalls", "Content-Length: 1000\r\n\r\nbegun"},
		{"chunked that stalls", "Transfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n"},
	} {
		for _, head := range []string{stale, strings.Replace(stale, "Fencing-Token: 33\r\n", "", 1)} {
			t.Run(tt.name, func(t *testing.T) {
				c := r.dial()
				c.say(head + tt.rest)
				began := time.Now()
				line, err := c.br.Peek(12)
				if err != nil || string(line) != "HTTP/1.1 412" && string(line) != "HTTP/1.1 428" {
					t.Fatalf("the first answer is %q, %v; want the refusal", line, err)
				}
				if got, err := c.answer("PUT"); err != nil || got.header.Get("Connection") != "close" {
					t.Errorf("got %v, Connection %q, %v; want one that closes", got, got.header.Get("Connection"), err)
				}
				if !c.closed() {
					t.Errorf("the connection stays open")
				}
				if d := time.Since(began); d > 5*time.Second {
					t.Errorf("it took %v", d)
				}
			})
		}
	}
	t.Run("small keeps the connection", func(t *testing.T) {
		c := r.dial()
		for range 3 {
			c.say(stale + "Content-Length: 5\r\n\r\nwhole")
			if got, err := c.answer("PUT"); err != nil || got.code != 412 || got.header.Get("Connection") != "" {
				t.Fatalf("got %v, %v; want 412 on a connection that stays", got, err)
			}
		}
	})
	t.Run("late refusal of a whole body keeps the connection", func(t *testing.T) {
		r := newRigWith(t, newPlainStore(), bodyYAML)
		r.must("POST", "/orders", `{"order": {"id": 7}}`, "Fencing-Token", "34")
		body := `{"order": {"id": 7}}` + strings.Repeat(" ", 100_000)
		c := r.dial()
		for range 2 {
			c.say(fmt.Sprintf("POST /orders HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
			if got, err := c.answer("POST"); err != nil || got.code != 412 || got.header.Get("Connection") != "" {
				t.Fatalf("got %v, %v; want 412 on a connection that stays", got, err)
			}
		}
	})
}

func TestContinueIsSentOnceTheBodyIsWanted(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if head, err := c.head(); err != nil || head != "HTTP/1.1 100 Continue\r\n\r\n" {
		t.Fatalf("got %q, %v; want 100 Continue", head, err)
	}
	c.say("body")
	if got, err := c.answer("PUT"); err != nil || got.code != 200 {
		t.Errorf("got %v, %v; want 200", got, err)
	}
	if got := <-up.requests; strings.Contains(got, "Expect") || !strings.HasSuffix(got, "\r\n\r\nbody") {
		t.Errorf("the upstream saw %q", got)
	}
}
