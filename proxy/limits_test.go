package proxy_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// metric returns the value of one line of the metrics, by its name with labels.
func (r *rig) metric(name string) float64 {
	r.t.Helper()
	families, err := r.metrics.Registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			full := f.GetName()
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			if len(labels) > 0 {
				full += "{" + strings.Join(labels, ",") + "}"
			}
			if full == name {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.t.Fatalf("there is no metric %s", name)
	return 0
}

// wantLimited checks how often a limit was counted, and that no other was.
func (r *rig) wantLimited(limit string, want float64) {
	r.t.Helper()
	for _, l := range []string{"max_body", "spool_max", "body_timeout", "min_upload_rate", "slow_reader", "waiters", "new_resources_per_client",
		"max_resources", "connections_per_client", "connections"} {
		w := 0.0
		if l == limit {
			w = want
		}
		if got := r.metric("fenceproxy_limited_total{limit=" + l + "}"); got != w {
			r.t.Errorf("limited_total of %s is %v; want %v", l, got, w)
		}
	}
}

func TestMaxBodyRefusesBeforeAByteIsRead(t *testing.T) {
	for _, body := range []string{"spool", "stream"} {
		store := newPlainStore()
		r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {max_body: 10, request_body: "+body+"}")
		c := r.dial()
		c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n")
		got, err := c.answer("PUT") // a 100 Continue would come first
		if err != nil || got.code != 413 || got.header.Get("Fencing-Status") != "too-large" || !strings.Contains(got.body, "longer than 10 bytes (max_body)") ||
			!strings.Contains(got.body, `"forwarded": "no"`) {
			t.Errorf("%s: %v, %v; want 413 too-large that names max_body and its number", body, got, err)
		}
		if _, ok, err := r.store.Load("a"); ok || err != nil || store.calls != 0 {
			t.Errorf("%s: mark %v (%v), %d calls; want none", body, ok, err, store.calls)
		}
		r.wantLimited("max_body", 1)
		r.put("/a", 33, "0123456789", 201, "admitted")
		// A stale token is what its sender has to learn, whatever its body.
		r.put("/a", 32, "01234567890", 412, "stale")
	}
}

func TestMaxBodyCountsChunks(t *testing.T) {
	const chunked = "PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, tt := range []struct {
		body, status, forwarded string
		marked                  bool
	}{{"spool", "too-large", "no", false}, {"stream", "in-doubt", "unknown", true}} {
		store := newPlainStore()
		r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {max_body: 10, in_doubt_hold: 10ms, request_body: "+tt.body+"}")
		c := r.dial()
		c.say(chunked + "a\r\n0123456789\r\n0\r\n\r\n")
		if got, err := c.answer("PUT"); err != nil || got.code != 201 {
			t.Errorf("%s: a body of 10 bytes: %v, %v; want 201", tt.body, got, err)
		}
		c = r.dial()
		c.say(strings.Replace(chunked, "/a", "/b", 1) + "a\r\n0123456789\r\n1\r\n0\r\n0\r\n\r\n")
		got, err := c.answer("PUT")
		if err != nil || got.code != 413 || got.header.Get("Fencing-Status") != tt.status || !strings.Contains(got.body, "longer than 10 bytes") || !strings.Contains(got.body, `"forwarded": "`+tt.forwarded+`"`) {
			t.Errorf("%s: %v, %v; want 413 %s, forwarded: %s", tt.body, got, err, tt.status, tt.forwarded)
		}
		if log := store.applied(); len(log) != 1 {
			t.Errorf("%s: the store applied %q; want the first write alone", tt.body, log)
		}
		if marked := r.mark("b") != 0; marked != tt.marked {
			t.Errorf("%s: there is a mark: %v; want %v", tt.body, marked, tt.marked)
		}
		r.wantLimited("max_body", 1)
	}
}

func TestMaxBodyHoldsForWritesWithoutATokenToo(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, "policies: [{name: p, match: {path: '/{k}'}, resource: '{k}', max_body: 10, missing_token: allow}]")
	if got := r.must("PUT", "/a", "01234567890"); got.code != 413 || store.calls != 0 {
		t.Errorf("announced: %v, %d calls; want 413 and none", got, store.calls)
	}
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n0\r\n\r\n")
	if got, err := c.answer("PUT"); err != nil || got.code != 413 || !strings.Contains(got.body, "urn:fenceproxy:too-large") {
		t.Errorf("in chunks: %v, %v; want 413", got, err)
	}
	if log := store.applied(); len(log) != 0 {
		t.Errorf("the store applied %q", log)
	}
}

func TestMaxBodyIsForPoliciesThatEnforce(t *testing.T) {
	for _, mode := range []string{"observe", "off"} {
		r := newRigWith(t, newPlainStore(), "policies: [{name: p, match: {path: '/{k}'}, resource: '{k}', max_body: 10, mode: "+mode+"}]")
		if got := r.must("PUT", "/a", "01234567890", "Fencing-Token", "1"); got.code != 201 {
			t.Errorf("%s: %v; want 201", mode, got)
		}
		r.wantLimited("", 0)
	}
}

func TestLimitsAnswerInTheStoresLanguage(t *testing.T) {
	r := newRigWith(t, newPlainStore(), "policies: [{name: p, match: {path: '/{b}/{k...}'}, resource: '{b}/{k}', max_body: 10, dialect: s3, token: {header: Fencing-Token}}]\ndefaults: {dialect: s3}")
	got := r.must("PUT", "/b/k", "01234567890", "Fencing-Token", "1")
	if got.code != 413 || !strings.Contains(got.body, "<Code>EntityTooLarge</Code>") {
		t.Errorf("got %v; want 413 EntityTooLarge", got)
	}
}

// trickle sends a byte now and then until the connection takes none or the test ends.
func trickle(t *testing.T, c *wireConn, what string) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { // ends with the connection or with the test
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			select {
			case <-tick.C:
				if !c.say(what) {
					return
				}
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
}

func TestBodyThatTricklesIsTooSlow(t *testing.T) {
	const heads = "Host: x\r\nFencing-Token: 33\r\n"
	for _, tt := range []struct{ name, framing, piece string }{
		{"in memory", "Content-Length: 5000", "x"}, {"in a file", "Content-Length: 5000000", "x"}, {"chunked", "Transfer-Encoding: chunked", "1\r\nx\r\n"},
	} {
		store := newPlainStore()
		r := newRigWith(t, store, "unmatched_writes: fence\nlimits: {min_upload_rate: 1MiB}")
		r.proxy.SetGrace(30 * time.Millisecond)
		c := r.dial()
		c.say("PUT /a HTTP/1.1\r\n" + heads + tt.framing + "\r\n\r\n")
		trickle(t, c, tt.piece)
		got, err := c.answer("PUT")
		if err != nil || got.code != 408 || got.header.Get("Fencing-Status") != "abandoned" || !strings.Contains(got.body, "urn:fenceproxy:too-slow") ||
			!strings.Contains(got.body, `"forwarded": "no"`) {
			t.Errorf("%s: %v, %v; want 408 too-slow, forwarded: no", tt.name, got, err)
		}
		if _, ok, err := r.store.Load("a"); ok || err != nil || store.calls != 0 {
			t.Errorf("%s: mark %v (%v), %d calls; want none", tt.name, ok, err, store.calls)
		}
		r.wantLimited("min_upload_rate", 1)
		if log := r.logs.String(); !strings.Contains(log, "the client sends its body too slowly (limits.min_upload_rate)") || strings.Contains(log, "stopped sending") {
			t.Errorf("%s: the log says\n%s\nwant that the body came too slowly, and nothing else", tt.name, log)
		}
	}
}

func TestStreamThatTricklesIsInDoubt(t *testing.T) {
	end := make(chan error, 1)
	url := wire(t, func(c *wireConn, n int) {
		if n == 1 {
			end <- c.readError()
			return
		}
		_, _ = c.request()
		c.say(okAnswer)
	})
	r := newRig(t, url, "unmatched_writes: fence\ndefaults: {request_body: stream, in_doubt_hold: 50ms}\nlimits: {min_upload_rate: 1MiB}")
	r.proxy.SetGrace(30 * time.Millisecond)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 100000\r\n\r\nab")
	trickle(t, c, "x")
	got, err := c.answer("PUT")
	if err != nil || got.code != 502 || got.header.Get("Fencing-Status") != "in-doubt" {
		t.Errorf("got %v, %v; want 502 in-doubt", got, err)
	}
	if err := receive(t, "the upstream's connection ends", end); err == nil {
		t.Error("the upstream's connection ended in order, which some stores take for the end of the body; want a reset")
	}
	r.wantLimited("min_upload_rate", 1)
	r.put("/a", 34, "x", 200, "admitted")
}

func TestUnfencedBodyThatTricklesIsCutOff(t *testing.T) {
	url := wire(t, func(c *wireConn, _ int) { _ = c.readError() })
	r := newRig(t, url, "policies: [{name: p, match: {path: '/{k}'}, resource: '{k}', missing_token: allow}]\nlimits: {min_upload_rate: 1MiB}")
	r.proxy.SetGrace(30 * time.Millisecond)
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nab")
	trickle(t, c, "x")
	if got, err := c.answer("PUT"); err != nil || got.code != 408 || !strings.Contains(got.body, "urn:fenceproxy:too-slow") {
		t.Errorf("got %v, %v; want 408 too-slow", got, err)
	}
}

func TestQuickBodyIsNotTooSlow(t *testing.T) {
	for _, body := range []string{"spool", "stream"} {
		r := newRigWith(t, newPlainStore(), "unmatched_writes: fence\ndefaults: {request_body: "+body+"}\nlimits: {min_upload_rate: 1KiB}")
		r.proxy.SetGrace(time.Nanosecond) // so that the rate counts from the first byte
		c := r.dial()
		c.say("PUT /a HTTP/1.1\r\nHost: x\r\nFencing-Token: 33\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000))
		got, err := c.answer("PUT")
		if err != nil || got.code != 201 {
			t.Errorf("%s: %v, %v; want 201", body, got, err)
		}
		r.wantLimited("", 0)
	}
}

func TestMaxResourcesLeavesKnownOnesAlone(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML+"token_store: {max_resources: 2}")
	r.put("/a", 33, "x", 201, "admitted")
	r.put("/b", 33, "x", 201, "admitted")
	got := r.put("/c", 33, "x", 507, "limited")
	if !strings.Contains(got.body, "urn:fenceproxy:max-resources") || !strings.Contains(got.body, `"forwarded": "no"`) || store.get("/c") != "" {
		t.Errorf("got %v; want max-resources, forwarded: no", got)
	}
	r.put("/a", 34, "y", 201, "admitted")
	if got := r.must("GET", "/a", ""); got.code != 200 || got.body != "y" {
		t.Errorf("GET = %v; want 200 y", got)
	}
	r.wantLimited("max_resources", 1)
	if n := r.metric("fenceproxy_writes_total{outcome=limited,policy=(unmatched)}"); n != 1 {
		t.Errorf("%v writes were limited; want 1", n)
	}
}

func TestWaitersOfAResourceAreBounded(t *testing.T) {
	store := newPlainStore()
	begun, end := make(chan struct{}), make(chan struct{})
	store.before = func(q *http.Request) {
		if q.Header.Get("Fencing-Token") == "1" {
			close(begun)
			<-end
		}
	}
	r := newRigWith(t, store, defaultYAML+"limits: {waiters_per_resource: 1, waiters: 1}")
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(end)
	wg.Go(func() { r.put("/a", 1, "x", 201, "admitted") })
	receive(t, "the first write is at the store", begun)
	wg.Go(func() { r.put("/a", 2, "x", 201, "admitted") })
	eventually(t, "the second one waits", func() bool { return r.gate.Stats().Waiting == 1 })
	got := r.put("/a", 2, "x", 503, "busy")
	if !strings.Contains(got.body, "urn:fenceproxy:waiters") || got.header.Get("Retry-After") == "" {
		t.Errorf("got %v; want the problem waiters and Retry-After", got)
	}
	r.wantLimited("waiters", 1)
}

// clock is a time that a test moves.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1e9, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

// from is a client that connects from an address of its own.
func from(t *testing.T, ip string) *http.Client {
	t.Helper()
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	return &http.Client{Transport: &http.Transport{DialContext: d.DialContext, DisableKeepAlives: true}}
}

func TestNewResourcesOfAClientAreBounded(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, defaultYAML+"limits: {new_resources_per_client: 1}")
	var c clock
	r.proxy.SetNewcomerClock(c.now)
	for i := range 10 {
		r.put("/r"+strconv.Itoa(i), 33, "x", 201, "admitted")
	}
	calls := store.calls
	got := r.put("/new", 33, "x", 429, "limited")
	if got.header.Get("Retry-After") != "1" || !strings.Contains(got.body, "urn:fenceproxy:limited") || !strings.Contains(got.body, `"forwarded": "no"`) {
		t.Errorf("got %v, Retry-After %q; want limited, after 1 s", got, got.header.Get("Retry-After"))
	}
	if _, ok, err := r.store.Load("new"); ok || err != nil || store.calls != calls {
		t.Errorf("mark %v (%v), %d calls; want none", ok, err, store.calls-calls)
	}
	if s := r.gate.Stats(); s.Resources != 0 {
		t.Errorf("the gate holds %+v", s)
	}
	r.wantLimited("new_resources_per_client", 1)
	for token := range uint64(20) { // known ones: a higher token, the same one, a stale one
		r.put("/r3", 34+token, "x", 201, "admitted")
	}
	r.put("/r3", 33, "x", 412, "stale")
	req, err := http.NewRequest("PUT", r.url+"/other", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Fencing-Token", "1")
	resp, err := from(t, "127.0.0.2").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 201 {
		t.Errorf("another client = %d; want 201", resp.StatusCode)
	}
	c.advance(time.Second)
	r.put("/new", 33, "x", 201, "admitted")
	r.put("/new2", 33, "x", 429, "limited")
}

func TestNewResourcesOfABatchCountEach(t *testing.T) {
	r := newRigWith(t, newPlainStore(), "limits: {new_resources_per_client: 1}\npolicies: [{name: p, match: {path: /batch}, resource: 'k/{body.k[].id}'}]")
	var c clock
	r.proxy.SetNewcomerClock(c.now)
	batch := func(from, to int) string {
		var ids []string
		for i := from; i < to; i++ {
			ids = append(ids, fmt.Sprintf(`{"id": %d}`, i))
		}
		return `{"k": [` + strings.Join(ids, ",") + `]}`
	}
	r.must("POST", "/batch", batch(0, 8), "Fencing-Token", "1")
	if got := r.must("POST", "/batch", batch(6, 11), "Fencing-Token", "2"); got.code != 429 {
		t.Errorf("three new ones with two left: %v; want 429", got)
	}
	if m := r.mark("k/6"); m != 1 {
		t.Errorf("the mark of a known one is %d after the refusal; want 1: all or none", m)
	}
	if got := r.must("POST", "/batch", batch(6, 10), "Fencing-Token", "2"); got.code != 201 {
		t.Errorf("two new ones with two left: %v; want 201", got)
	}
	c.advance(10 * time.Second)
	if got := r.must("POST", "/batch", batch(100, 150), "Fencing-Token", "2"); got.code != 201 {
		t.Errorf("more than a full bucket: %v; want 201, or it would never pass", got)
	}
}

func TestRefusedFirstWritesCountAsNewResources(t *testing.T) {
	r := newRigWith(t, guarded(newPlainStore(), 403, "no"), defaultYAML+"limits: {new_resources_per_client: 1}")
	var c clock
	r.proxy.SetNewcomerClock(c.now)
	for i := range 10 {
		if got := r.must("PUT", "/same", "x", "Fencing-Token", strconv.Itoa(i+1), "Authorization", "bad"); got.code != 403 {
			t.Errorf("got %v; want 403", got)
		}
	}
	r.put("/same", 99, "x", 429, "limited")
}

func TestObservedNewResourcesAreNotLimited(t *testing.T) {
	r := newRigWith(t, newPlainStore(), "unmatched_writes: fence\ndefaults: {mode: observe}\nlimits: {new_resources_per_client: 1}")
	var c clock
	r.proxy.SetNewcomerClock(c.now)
	for i := range 20 {
		r.put("/r"+strconv.Itoa(i), 33, "x", 201, "admitted")
	}
}

func TestClientsAreCountedByAddressOrPrefix(t *testing.T) {
	for _, tt := range []struct{ remote, want string }{
		{"192.0.2.1:80", "192.0.2.1"}, {"[::ffff:192.0.2.1]:80", "192.0.2.1"}, {"[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::"},
		{"[2001:db8:1:2:ffff::1]:81", "2001:db8:1:2::"}, {"[fe80::1%eth0]:80", "fe80::"}, {"@", "invalid IP"}, {"", "invalid IP"},
	} {
		if got := proxy.ClientOf(tt.remote).String(); got != tt.want {
			t.Errorf("the client of %s is %s; want %s", tt.remote, got, tt.want)
		}
	}
}

func address(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 0x01, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})
}

func TestFloodOfAddressesDoesNotGrowTheTable(t *testing.T) {
	const most = 100
	var c clock
	n := proxy.NewNewcomers(1, most, c.now)
	passed := 0
	for i := range 100_000 {
		if n.Take(address(i), 1) == nil {
			passed++
		}
		if size := n.Size(); size > 2*most {
			t.Fatalf("%d buckets after %d clients; want at most %d", size, i+1, 2*most)
		}
	}
	if passed != most+10 { // each of those with a bucket, and a bucket that all others share
		t.Errorf("%d first marks passed; want %d", passed, most+10)
	}
	if err := n.Take(address(0), 9); err != nil {
		t.Errorf("a client from before the flood: %v; want the rest of its bucket", err)
	}
	c.advance(time.Hour)
	if err := n.Take(address(500_000), 10); err != nil {
		t.Errorf("after the flood: %v; want a full bucket", err)
	}
}

// TestForgottenBucketsAreFull compares the table, which forgets clients, with one that never does.
func TestForgottenBucketsAreFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c clock
		perSecond := rapid.IntRange(1, 5).Draw(t, "rate")
		n := proxy.NewNewcomers(perSecond, 1000, c.now)
		model := map[int]*rate.Limiter{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			c.advance(time.Duration(rapid.IntRange(0, 6000).Draw(t, "ms")) * time.Millisecond)
			who, count := rapid.IntRange(0, 3).Draw(t, "client"), rapid.IntRange(1, 20).Draw(t, "count")
			if model[who] == nil {
				model[who] = rate.NewLimiter(rate.Limit(perSecond), 10*perSecond)
			}
			want := model[who].AllowN(c.now(), min(count, 10*perSecond))
			for rest := count - 10*perSecond; want && rest > 0; rest -= 10 * perSecond { // it is in debt for those
				model[who].ReserveN(c.now(), min(rest, 10*perSecond))
			}
			if got := n.Take(address(who), count) == nil; got != want {
				t.Fatalf("client %d, %d first marks: %v; want %v", who, count, got, want)
			}
		}
	})
}

func TestHeadIsBounded(t *testing.T) {
	r := newRigWith(t, newPlainStore(), defaultYAML+"limits: {max_header: 8KiB}")
	for size, code := range map[int]int{4 << 10: 404, 20 << 10: 431} {
		got := r.must("GET", "/a", "", "X-Long", strings.Repeat("x", size))
		if got.code != code {
			t.Errorf("a header of %d bytes: %d; want %d", size, got.code, code)
		}
	}
}

func TestSlowHeadIsCutOff(t *testing.T) {
	r := newRigWith(t, newPlainStore(), defaultYAML+"limits: {header_timeout: 50ms}")
	c := r.dial()
	c.say("PUT /a HTTP/1.1\r\nHost: x\r\n")
	trickle(t, c, "x")
	if err := c.readError(); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection is open")
	}
}
