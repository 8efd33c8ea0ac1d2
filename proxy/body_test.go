package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const smallSpool = "spool: {memory: 1KiB, max: 1MiB}\n" + defaultYAML

func TestBodiesArriveUnchanged(t *testing.T) {
	type seen struct {
		length int64
		sum    [32]byte
	}
	var got atomic.Value
	r := newRigWith(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got.Store(seen{r.ContentLength, sha256.Sum256(b)})
	}), smallSpool)
	for _, n := range []int{0, 1, 1023, 1024, 1025, 4096, 300_000, 1 << 20} {
		body := bytes.Repeat([]byte("0123456789abcdef-"), n/17+1)[:n]
		for _, sized := range []bool{true, false} {
			rd := io.Reader(bytes.NewReader(body))
			if !sized {
				rd = io.MultiReader(rd)
			}
			req, _ := http.NewRequest("PUT", r.url+"/a", rd)
			req.Header.Set("Fencing-Token", "1")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			want := seen{int64(n), sha256.Sum256(body)}
			if !sized {
				want.length = -1
			}
			if resp.StatusCode != 200 || got.Load() != want {
				t.Errorf("%d bytes, sized %v: status %d, the upstream saw %v; want %v", n, sized, resp.StatusCode, got.Load(), want)
			}
		}
	}
}

func TestBodyAboveTheLimitIsRefused(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, smallSpool)
	for _, framing := range []string{"Content-Length: 1048577", "Transfer-Encoding: chunked"} {
		c := r.dial()
		c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 1\r\n" + framing + "\r\n\r\n")
		go c.say("100001\r\n" + strings.Repeat("x", 1<<20+1) + "\r\n0\r\n\r\n")
		got, err := c.answer("PUT")
		if err != nil || got.code != 413 || got.header.Get("Fencing-Status") != "too-large" || got.header.Get("Connection") != "close" {
			t.Errorf("%s: %v, %v; want 413 too-large that closes", framing, got, err)
		}
	}
	if store.calls != 0 || r.mark("a") != 0 {
		t.Errorf("a body that was refused left a call (%d) or a mark (%d)", store.calls, r.mark("a"))
	}
}

func TestSpoolThatFailsRefuses(t *testing.T) {
	for _, tt := range []struct {
		name string
		code int
	}{{"no directory", 503}, {"full disk", 507}} {
		t.Run(tt.name, func(t *testing.T) {
			store := newPlainStore()
			r := newRigWith(t, store, smallSpool)
			if tt.code == 507 {
				r.proxy.FailSpool(&os.PathError{Op: "write", Path: "x", Err: errNoSpace})
			} else if err := os.Remove(r.spool); err != nil {
				t.Fatal(err)
			}
			got := r.must("PUT", "/a", strings.Repeat("x", 5000), "Fencing-Token", "1")
			if got.code != tt.code || got.header.Get("Fencing-Status") != "unavailable" || !strings.Contains(got.body, `"forwarded": "no"`) {
				t.Errorf("got %v; want %d unavailable, forwarded: no", got, tt.code)
			}
			r.put("/a", 1, "small", 201, "admitted")
			if store.calls != 1 {
				t.Errorf("the store was called %d times; want once, for the small body", store.calls)
			}
		})
	}
}

// TestManyBodiesShareTheMemory has more bodies wait than may be kept in memory: the others go to files, and arrive all the same.
func TestManyBodiesShareTheMemory(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, "spool: {memory: 1KiB}\nunmatched_writes: fence\ndefaults: {drain_timeout: 60s}")
	first := r.begin("PUT", "/a", "x", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	const n = 80 // 64 fit
	body := strings.Repeat("y", 1024)
	var rest []<-chan reply
	for range n {
		rest = append(rest, r.begin("PUT", "/a", body, "Fencing-Token", "34"))
	}
	r.waiting(n)
	if m, f := r.proxy.SpooledBytes(), r.proxy.SpoolBudget(); m > f || m < f/2 {
		t.Errorf("%d bytes are in memory; want at most %d, and not much less", m, f)
	}
	close(store.release)
	receive(t, "33", first)
	for _, ch := range rest {
		if got := receive(t, "34", ch); got.code != 201 {
			t.Errorf("34 = %v; want 201", got)
		}
	}
	if got := store.get("/a"); got != body {
		t.Errorf("the store holds %.40q", got)
	}
	eventually(t, "the memory is given back", func() bool { return r.proxy.SpooledBytes() == 0 })
}

// TestBigBodyDoesNotFillMemory puts 64 MiB through the spool.
func TestBigBodyDoesNotFillMemory(t *testing.T) {
	const size = 64 << 20
	var got atomic.Int64
	r := newRigWith(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Store(n)
	}), defaultYAML)
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	req, _ := http.NewRequest("PUT", r.url+"/a", io.LimitReader(zeros{}, size))
	req.ContentLength = size
	req.Header.Set("Fencing-Token", "1")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	runtime.ReadMemStats(&now)
	if resp.StatusCode != 200 || got.Load() != size {
		t.Errorf("status %d, %d bytes arrived; want 200 and all %d", resp.StatusCode, got.Load(), size)
	}
	if grown := now.TotalAlloc - before.TotalAlloc; grown > 32<<20 {
		t.Errorf("%d MiB were allocated for a body of 64 MiB", grown>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestClientThatVanishesInItsUploadLeavesNothing(t *testing.T) {
	for _, framing := range []string{"Content-Length: 100", "Transfer-Encoding: chunked", "Content-Length: 500000"} {
		for _, reset := range []bool{false, true} {
			store := newPlainStore()
			r := newRigWith(t, store, smallSpool)
			c := r.dial()
			c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\n" + framing + "\r\n\r\n20\r\n" + strings.Repeat("x", 32))
			if reset {
				c.reset()
			} else {
				c.Close()
			}
			eventually(t, "the write is recorded", func() bool { return len(r.proxy.Decisions().Last()) == 1 })
			if d := r.proxy.Decisions().Last()[0]; d.Outcome != "abandoned" || d.Forwarded != "no" {
				t.Errorf("%s: recorded as %+v; want abandoned, forwarded: no", framing, d)
			}
			if store.calls != 0 {
				t.Errorf("%s: the store was called", framing)
			}
			r.put("/a", 1, "x", 201, "admitted") // the token of an upload that never came whole was not seen
		}
	}
}

func TestTrickledUploadDoesNotHoldTheGate(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 5\r\n\r\nfr")
	r.put("/a", 34, "from B", 201, "admitted")
	c.say("omA")
	if got, err := c.answer("PUT"); err != nil || got.code != 412 {
		t.Errorf("33, whose body came later, = %v, %v; want 412", got, err)
	}
	if v := store.get("/a"); v != "from B" {
		t.Errorf("the store holds %q", v)
	}
}

const streamYAML = "unmatched_writes: fence\ndefaults: {request_body: stream, in_doubt_hold: 300ms}"

func TestStreamedBodyPassesAsItComes(t *testing.T) {
	first := make(chan struct{})
	r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 3))
		close(first)
		_, _ = io.Copy(w, r.Body)
	}), streamYAML)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 6\r\n\r\nabc")
	receive(t, "the first bytes at the upstream", first)
	c.say("def")
	if got, err := c.answer("PUT"); err != nil || got.body != "def" {
		t.Errorf("got %v, %v; want the second half back", got, err)
	}
}

// TestEarlyAnswerLeavesTheBodyToTheUpstream: net/http's server would read the rest of the body itself before it lets an answer go.
func TestEarlyAnswerLeavesTheBodyToTheUpstream(t *testing.T) {
	url := wire(t, func(c *wireConn, _ int) {
		_, _ = c.head()
		_, _ = io.ReadFull(c.br, make([]byte, 2))
		c.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nearly\r\n")
		rest := make([]byte, 4)
		_, _ = io.ReadFull(c.br, rest)
		c.say("4\r\n" + string(rest) + "\r\n0\r\n\r\n")
		_ = c.readError()
	})
	r := newRig(t, url, streamYAML)
	c := r.dial()
	c.say("POST /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 6\r\n\r\nab")
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	c.say("cdef")
	if rest, err := io.ReadAll(resp.Body); err != nil || string(rest) != "cdef" || !resp.Close {
		t.Errorf("the rest is %q, %v, closing %v; want the body back and then the end", rest, err, resp.Close)
	}
}

// TestCutStreamEndsWithAReset: a store that sees an orderly end might take what came for the whole.
func TestCutStreamEndsWithAReset(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("tls %v", secure), func(t *testing.T) {
			begun, ended := make(chan struct{}), make(chan error, 1)
			serve := func(c *wireConn, n int) {
				if n > 1 {
					_, _ = c.request()
					c.say(okAnswer)
					return
				}
				_, _ = c.head()
				_, _ = io.ReadFull(c.br, make([]byte, 5))
				close(begun)
				ended <- c.readError()
			}
			var r *rig
			if secure {
				r = newTLSRig(t, streamYAML, serve)
			} else {
				r = newRig(t, wire(t, serve), streamYAML)
			}
			c := r.dial()
			c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n")
			receive(t, "the first bytes at the upstream", begun)
			began := time.Now()
			c.reset()
			if err := receive(t, "the end at the upstream", ended); err == nil {
				t.Errorf("the upstream sees an orderly end; want a reset")
			}
			r.put("/a", 34, "x", 200, "admitted")
			if d := time.Since(began); d < 300*time.Millisecond {
				t.Errorf("34 passed after %v; want 33 to be in doubt until its hold ended", d)
			}
		})
	}
}

// TestAnswerBeforeTheBodyEndsTheUpload: an upstream that answers without reading gets no more of the body once the next write is let in.
func TestAnswerBeforeTheBodyEndsTheUpload(t *testing.T) {
	const size = 32 << 20 // more than the sockets' buffers hold
	first, answer, second, open := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	url := wire(t, func(c *wireConn, n int) {
		if n > 1 {
			_, _ = c.request()
			close(second)
			c.say(okAnswer)
			return
		}
		_, _ = c.head()
		close(first)
		select {
		case <-answer:
		case <-t.Context().Done():
		}
		c.say(okAnswer)
		select {
		case <-second:
		case <-t.Context().Done():
		}
		open <- c.say("x") // fails on a connection that was reset
	})
	r := newRig(t, url, defaultYAML)
	req, _ := http.NewRequest("PUT", r.url+"/a", io.LimitReader(zeros{}, size))
	req.ContentLength = size
	req.Header.Set("Fencing-Token", "33")
	a := make(chan error, 1)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		a <- err
	}()
	receive(t, "33 at the upstream", first)
	b := r.begin("PUT", "/a", "x", "Fencing-Token", "34")
	r.waiting(1)
	close(answer)
	if receive(t, "34 at the upstream", open) {
		t.Errorf("33 is still being uploaded although 34 was let in")
	}
	if got := receive(t, "34", b); got.code != 200 {
		t.Errorf("34 = %v; want 200", got)
	}
	if err := receive(t, "33", a); err != nil {
		t.Errorf("33: %v", err)
	}
}

const bodyYAML = "spool: {memory: 1KiB}\n" + `
policies: [{name: orders, match: {path: "/orders"}, resource: "orders/{body.order.id}"}]
`

func TestResourceFromTheBody(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, bodyYAML)
	post := func(body string, token string) reply {
		return r.must("POST", "/orders", body, "Fencing-Token", token, "Content-Type", "application/json")
	}
	pad := strings.Repeat(" ", 2000)
	for _, tt := range []struct {
		body, token string
		code        int
		status      string
	}{
		{`{"order": {"id": 7}}`, "34", 201, "admitted"},
		{`{"order": {"id": 7}}`, "33", 412, "stale"},
		{`{"order": {"id": "7"}}` + pad, "33", 412, "stale"},
		{`{"order": {"id": 8}}` + pad, "33", 201, "admitted"},
		{`{"order": {}}`, "35", 400, "malformed"},
		{`{"order": {"id": 7, "id": 8}}`, "35", 400, "malformed"},
		{`not JSON`, "35", 400, "malformed"},
		{``, "35", 400, "malformed"},
		{`{"order": {"id": 7}, "pad": "` + strings.Repeat("x", 1<<20) + `"}`, "35", 413, "too-large"},
	} {
		if got := post(tt.body, tt.token); got.code != tt.code || got.header.Get("Fencing-Status") != tt.status {
			t.Errorf("%.40q with %s = %v; want %d %s", tt.body, tt.token, got, tt.code, tt.status)
		}
	}
	if m := r.mark("orders/7"); m != 34 {
		t.Errorf("mark = %d; want 34", m)
	}
}

func TestClientThatStallsInItsUploadIsToldSo(t *testing.T) {
	for _, framing := range []string{"Content-Length: 100", "Content-Length: 5000", "Transfer-Encoding: chunked"} {
		store := newPlainStore()
		r := newRigWith(t, store, smallSpool)
		r.proxy.SetStall(50 * time.Millisecond)
		c := r.dial()
		c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\n" + framing + "\r\n\r\n5\r\nab")
		got, err := c.answer("PUT")
		if err != nil || got.code != 408 || got.header.Get("Connection") != "close" || !strings.Contains(got.body, `"forwarded": "no"`) {
			t.Errorf("%s: %v, %v; want 408 that closes, forwarded: no", framing, got, err)
		}
		if store.calls != 0 {
			t.Errorf("%s: the store was called", framing)
		}
	}
}

func TestStreamThatStallsIsInDoubt(t *testing.T) {
	url := wire(t, func(c *wireConn, n int) {
		if n == 1 {
			_ = c.readError()
			return
		}
		_, _ = c.request()
		c.say(okAnswer)
	})
	r := newRig(t, url, streamYAML)
	r.proxy.SetStall(50 * time.Millisecond)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 100\r\n\r\nab")
	got, err := c.answer("PUT")
	if err != nil || got.code != 502 || got.header.Get("Fencing-Status") != "in-doubt" || got.header.Get("Connection") != "close" {
		t.Errorf("got %v, %v; want 502 in-doubt that closes", got, err)
	}
	r.put("/a", 34, "x", 200, "admitted")
}

func TestBodiesLeaveTheRoomThatMarksNeed(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, "spool: {memory: 1KiB}\n"+defaultYAML)
	r.proxy.SetSpoolFloor(1 << 60)
	got := r.must("PUT", "/a", strings.Repeat("x", 5000), "Fencing-Token", "1")
	if got.code != 507 || got.header.Get("Fencing-Status") != "unavailable" {
		t.Errorf("PUT of a long body = %v; want 507 unavailable", got)
	}
	r.put("/a", 1, "short", 201, "admitted")
}
