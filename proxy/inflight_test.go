package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// gatedStore holds writes that carry token "33" back until the test lets them go.
type gatedStore struct {
	*plainStore
	arrived chan struct{} // 33 is at the store
	release chan struct{} // closed by the test: 33 may land
}

func newGatedStore(t *testing.T) *gatedStore {
	s := &gatedStore{newPlainStore(), make(chan struct{}, 8), make(chan struct{})}
	s.before = func(r *http.Request) {
		if r.Header.Get("Fencing-Token") == "33" {
			s.arrived <- struct{}{}
			select {
			case <-s.release:
			case <-t.Context().Done():
			}
		}
	}
	return s
}

func applied(t *testing.T, s *plainStore, want ...string) {
	t.Helper()
	if got := s.applied(); !slices.Equal(got, want) {
		t.Errorf("the store applied %q; want %q", got, want)
	}
}

func TestHigherTokenWaitsForTheLowerWriteToLand(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, defaultYAML)
	a := r.begin("PUT", "/a", "from A", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	b := r.begin("PUT", "/a", "from B", "Fencing-Token", "34")
	r.waiting(1)
	r.put("/a", 33, "A again", 412, "stale") // 34 was seen
	r.put("/other", 1, "x", 201, "admitted")
	close(store.release)
	if got := receive(t, "33", a); got.code != 201 {
		t.Errorf("33 = %v; want 201", got)
	}
	if got := receive(t, "34", b); got.code != 201 {
		t.Errorf("34 = %v; want 201", got)
	}
	applied(t, store.plainStore, "PUT /other 1", "PUT /a 33", "PUT /a 34")
}

func TestClientThatHangsUpDoesNotFreeTheGate(t *testing.T) {
	for _, how := range []string{"reset", "close", "half-close"} {
		t.Run(how, func(t *testing.T) {
			store := newGatedStore(t)
			r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {in_doubt_hold: 1ms}")
			c := r.dial()
			c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 6\r\n\r\nfrom A")
			receive(t, "33 at the store", store.arrived)
			switch how {
			case "reset":
				c.reset()
			case "close":
				c.Close()
			default:
				_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			}
			b := r.begin("PUT", "/a", "from B", "Fencing-Token", "34")
			r.waiting(1)
			select {
			case got := <-b:
				t.Errorf("34 = %v although 33 has not landed", got)
			case <-time.After(50 * time.Millisecond):
			}
			close(store.release)
			if got := receive(t, "34", b); got.code != 201 {
				t.Errorf("34 = %v; want 201", got)
			}
			applied(t, store.plainStore, "PUT /a 33", "PUT /a 34")
		})
	}
}

func TestClientThatHangsUpWhileItWaitsIsNotForwarded(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, defaultYAML)
	a := r.begin("PUT", "/a", "from A", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx")
	r.waiting(1)
	c.reset()
	r.waiting(0)
	close(store.release)
	receive(t, "33", a)
	applied(t, store.plainStore, "PUT /a 33")
	if m := r.mark("a"); m != 34 {
		t.Errorf("mark = %d; want 34, which was seen", m)
	}
}

func TestSilentUpstreamIsInDoubtUntilItsHoldEnds(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, "upstream: {timeout: 500ms}\nunmatched_writes: fence\ndefaults: {in_doubt_hold: 2s}")
	got := r.put("/a", 33, "from A", 504, "in-doubt")
	if !strings.Contains(got.body, `"forwarded": "unknown"`) || got.header.Get("Retry-After") != "" {
		t.Errorf("got %v; want forwarded: unknown and no Retry-After", got)
	}
	b := r.begin("PUT", "/a", "from B", "Fencing-Token", "34")
	r.waiting(1)
	close(store.release) // 33 lands late
	eventually(t, "33 lands", func() bool { return len(store.applied()) == 1 })
	if got := receive(t, "34", b); got.code != 201 {
		t.Errorf("34 = %v; want 201", got)
	}
	applied(t, store.plainStore, "PUT /a 33", "PUT /a 34")
}

func TestSilenceInsideAnAnswerIsInDoubt(t *testing.T) {
	for _, answer := range []string{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npart", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n"} {
		_, url := record(t, answer)
		r := newRig(t, url, "upstream: {timeout: 100ms}\nunmatched_writes: fence\ndefaults: {in_doubt_hold: 1h}")
		got, err := r.do("PUT", "/a", "x", "Fencing-Token", "33")
		if err == nil && (got.code != 504 || got.header.Get("Fencing-Status") != "in-doubt") {
			t.Errorf("got %v; want 504 in-doubt, or a broken answer", got)
		}
		eventually(t, "33 is in doubt", func() bool { return r.gate.Stats().InDoubt == 1 })
	}
}

func TestBusyAfterTheDrainTimeout(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {drain_timeout: 50ms}")
	a := r.begin("PUT", "/a", "x", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	got := r.put("/a", 34, "x", 503, "busy")
	refused(t, got, 503, "busy")
	close(store.release)
	receive(t, "33", a)
	r.put("/a", 33, "x", 412, "stale") // 34 was seen although it gave up
	r.put("/a", 34, "x", 201, "admitted")
}

func TestBusyWhileInDoubtSaysWhen(t *testing.T) {
	url := wire(t, func(c *wireConn, _ int) { _, _ = c.request() })
	r := newRig(t, url, "unmatched_writes: fence\ndefaults: {drain_timeout: 10ms, in_doubt_hold: 90s}")
	r.put("/a", 33, "x", 502, "in-doubt")
	got := r.put("/a", 34, "x", 503, "busy")
	if s := got.header.Get("Retry-After"); s != "90" && s != "89" {
		t.Errorf("Retry-After = %q; want the rest of the hold", s)
	}
}

// slowAnswer is an upstream that answers 33 at once and goes on with spaces until it is told to end, as S3 does.
func slowAnswer(t *testing.T, head string, end <-chan string) string {
	return wire(t, func(c *wireConn, _ int) {
		for {
			req, err := c.request()
			if err != nil {
				return
			}
			if !strings.Contains(req, "Fencing-Token: 33") {
				c.say(okAnswer)
				continue
			}
			c.say(head)
			for {
				select {
				case last := <-end:
					c.say(last)
				case <-time.After(5 * time.Millisecond):
					if c.say("1\r\n \r\n") {
						continue
					}
				}
				break
			}
		}
	})
}

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

func TestGateIsHeldToTheEndOfTheAnswer(t *testing.T) {
	for _, client := range []string{"reads on", "hangs up"} {
		t.Run(client, func(t *testing.T) {
			end := make(chan string, 1)
			r := newRig(t, slowAnswer(t, chunkedHead, end), "upstream: {timeout: 10s}\nunmatched_writes: fence\ndefaults: {in_doubt_hold: 1ms}")
			c := r.dial()
			c.say("POST /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n")
			if head, err := c.head(); err != nil || !strings.HasPrefix(head, "HTTP/1.1 200 OK") || !strings.Contains(head, "Fencing-Status: admitted") {
				t.Fatalf("the head is %q, %v", head, err)
			}
			if client == "hangs up" {
				c.reset()
			}
			b := r.begin("PUT", "/a", "from B", "Fencing-Token", "34")
			r.waiting(1)
			select {
			case got := <-b:
				t.Errorf("34 = %v although 33 is not answered to the end", got)
			case <-time.After(50 * time.Millisecond):
			}
			end <- "0\r\n\r\n"
			if got := receive(t, "34", b); got.code != 200 {
				t.Errorf("34 = %v; want 200", got)
			}
			if s := r.gate.Stats(); s.InDoubt != 0 {
				t.Errorf("33 is in doubt although its answer ended")
			}
		})
	}
}

// TestClientThatDoesNotReadDoesNotHoldTheGate: an answer that the proxy can keep ends although nobody takes it.
func TestClientThatDoesNotReadDoesNotHoldTheGate(t *testing.T) {
	const size = 60 << 10
	_, url := record(t, fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size)))
	r := newRig(t, url, defaultYAML)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n")
	eventually(t, "33 ends", func() bool { return len(r.proxy.Decisions().Last()) == 1 })
	r.put("/a", 34, "x", 200, "admitted")
}

// longAnswer is an upstream whose answer to 33 has the given size.
func longAnswer(t *testing.T, size int64) (url string) {
	return wire(t, func(c *wireConn, _ int) {
		for {
			req, err := c.request()
			if err != nil {
				return
			}
			if !strings.Contains(req, "Fencing-Token: 33") {
				c.say(okAnswer)
				continue
			}
			c.say(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
			_, _ = io.CopyN(c, zeros{}, size)
		}
	})
}

// TestSlowClientIsNoSilentUpstream: the upstream's clock stands still while the client takes what came.
func TestSlowClientIsNoSilentUpstream(t *testing.T) {
	const size = 16 << 20 // more than the sockets' buffers hold
	r := newRig(t, longAnswer(t, size), "upstream: {timeout: 300ms}\n"+defaultYAML)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n")
	if _, err := c.head(); err != nil {
		t.Fatal(err)
	}
	<-time.After(900 * time.Millisecond) // three times as long as the upstream may be silent
	if n, err := io.CopyN(io.Discard, c.br, size); err != nil {
		t.Errorf("the answer broke off after %d bytes: %v", n, err)
	}
	r.put("/a", 34, "x", 200, "admitted")
}

func TestGateStaysClosedWhileAWriteSettles(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {settle: 300ms}")
	began := time.Now()
	r.put("/a", 33, "x", 201, "admitted")
	r.put("/a", 34, "x", 201, "admitted")
	if d := time.Since(began); d < 300*time.Millisecond {
		t.Errorf("34 passed after %v; want 33 to settle first", d)
	}
}

func TestGreaterTakesEachTokenOnce(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `policies: [{name: bids, match: {path: "/{id}"}, resource: "{id}", compare: greater}]`)
	r.put("/a", 33, "x", 201, "admitted")
	r.put("/a", 33, "x", 412, "stale")
	r.put("/a", 34, "x", 201, "admitted")
	applied(t, store, "PUT /a 33", "PUT /a 34")
}

func TestSameTokenSerialSendsOneWriteAtATime(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {same_token: serial}")
	a := r.begin("PUT", "/a", "1", "Fencing-Token", "33")
	receive(t, "the first at the store", store.arrived)
	b := r.begin("PUT", "/a", "2", "Fencing-Token", "33")
	r.waiting(1)
	if n := len(store.arrived); n != 0 {
		t.Errorf("the second is at the store beside the first")
	}
	close(store.release)
	if x, y := receive(t, "first", a), receive(t, "second", b); x.code != 201 || y.code != 201 {
		t.Errorf("got %v and %v; want 201 twice", x, y)
	}
}

func TestEqualTokensRunTogether(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, defaultYAML)
	a := r.begin("PUT", "/a", "1", "Fencing-Token", "33")
	b := r.begin("PUT", "/a", "2", "Fencing-Token", "33")
	receive(t, "one at the store", store.arrived)
	receive(t, "the other beside it", store.arrived)
	close(store.release)
	receive(t, "one", a)
	receive(t, "the other", b)
}

func TestAdvanceWaitsAfterAnUncleanStop(t *testing.T) {
	dir := t.TempDir()
	store := newPlainStore()
	t.Run("before", func(t *testing.T) {
		r := newRigWith(t, store, defaultYAML, func(c *rigConfig) { c.dir = dir })
		r.put("/a", 33, "x", 201, "admitted")
	})
	began := time.Now()
	r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {drain_timeout: 50ms}",
		func(c *rigConfig) { c.dir = dir }, recovering(2*time.Second))
	r.put("/a", 33, "x", 201, "admitted") // an equal token goes on
	refused(t, r.put("/a", 34, "x", 503, "busy"), 503, "busy")
	r.put("/a", 33, "x", 412, "stale")
	eventually(t, "the recovery ends", func() bool { return r.gate.Recovering() == 0 })
	r.put("/a", 34, "x", 201, "admitted")
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("34 passed after %v; want two seconds", d)
	}
}

func TestSeveralResourcesAreAllOrNothing(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `
policies:
  - {name: move, match: {path: "/move/{from}/{to}"}, resource: ["{from}", "{to}"]}
  - {name: one, match: {path: "/{id}"}, resource: "{id}"}
`)
	r.put("/b", 40, "x", 201, "admitted")
	got := r.put("/move/a/b", 39, "x", 412, "stale")
	if p := refused(t, got, 412, "stale"); p.Resource != "b" {
		t.Errorf("the refusal names %q; want b", p.Resource)
	}
	if m := r.mark("a"); m != 0 {
		t.Errorf("the refused write left a mark of %d on a", m)
	}
	r.put("/move/a/b", 41, "x", 201, "admitted")
	r.put("/a", 40, "x", 412, "stale")
}

func TestPanicReleasesTheGate(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, "spool: {memory: 1KiB}\nunmatched_writes: fence\ndefaults: {in_doubt_hold: 1ms}")
	r.proxy.PanicOnForward()
	if got, err := r.do("PUT", "/a", strings.Repeat("x", 5000), "Fencing-Token", "33"); err == nil {
		t.Errorf("got %v; want a broken connection", got)
	}
	eventually(t, "the gate is free", func() bool { return r.gate.Stats().Resources == 0 })
	if d := r.proxy.Decisions().Last(); len(d) != 1 || d[0].Outcome != "in-doubt" {
		t.Errorf("recorded %+v; want one write in doubt", d)
	}
}

func TestClientThatTakesNothingOfALongAnswerIsCutOff(t *testing.T) {
	const size = 32 << 20 // more than the sockets' buffers hold
	r := newRig(t, longAnswer(t, size), defaultYAML)
	r.proxy.SetStall(100 * time.Millisecond)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n")
	if _, err := c.head(); err != nil {
		t.Fatal(err)
	}
	r.put("/a", 34, "x", 200, "admitted")
	if n, err := io.Copy(io.Discard, c.br); err == nil && n >= size {
		t.Errorf("the client got all %d bytes", n)
	}
	// The gate lets 34 in before 33 is recorded, so that either may be recorded first.
	eventually(t, "both writes are recorded", func() bool { return len(r.proxy.Decisions().Last()) == 2 })
	for _, d := range r.proxy.Decisions().Last() {
		if d.Outcome != "admitted" {
			t.Errorf("%s was recorded as %+v; want admitted, since the proxy read the answer to its end", d.Token, d)
		}
	}
}

func TestSlowReaderHasOneStallForAllOfTheAnswer(t *testing.T) {
	const size = 32 << 20
	r := newRig(t, longAnswer(t, size), defaultYAML)
	r.proxy.SetStall(300 * time.Millisecond)
	c := r.dial()
	c.say("POST /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 0\r\n\r\n")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // ends when the connection is cut, or when the test ends
		defer close(done)
		buf := make([]byte, 16<<10)
		for tick := time.NewTicker(20 * time.Millisecond); ; { // always some, and never enough
			select {
			case <-tick.C:
				if _, err := c.Read(buf); err != nil {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	eventually(t, "the gate is free", func() bool { return r.gate.Stats().InFlight == 0 && len(r.proxy.Decisions().Last()) == 1 })
	close(stop)
	<-done
}
