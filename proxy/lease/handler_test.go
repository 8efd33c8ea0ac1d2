package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// serve serves a manager over real HTTP.
func serve(t *testing.T) (*process, *lease.Manager, string) {
	t.Helper()
	p := &process{d: newDisk()}
	m := p.start(t, 0)
	srv := httptest.NewServer(m.Handler())
	t.Cleanup(func() {
		m.Stop()
		srv.Close()
		m.Close()
	})
	return p, m, srv.URL
}

type reply struct {
	status int
	header http.Header
	body   map[string]any
}

func ask(t *testing.T, method, url, body string, header ...string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: map[string]any{}}
	if len(text) > 0 {
		if err := json.Unmarshal(text, &r.body); err != nil {
			t.Fatalf("%s %s: %s is no JSON", method, url, text)
		}
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%s %s may be cached", method, url)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode >= 400 && (kind != "application/problem+json" || r.body["status"] != float64(resp.StatusCode) || r.body["title"] == "") {
		t.Errorf("%s %s: %s %v; want a problem", method, url, kind, r.body)
	}
	return r
}

func TestOverHTTP(t *testing.T) {
	p, _, url := serve(t)
	p.d.set("rides/7", fencing.Mark{Token: fencing.Number(1<<53 + 1)})
	g := ask(t, "POST", url+"/v1/leases/rides/7", `{"ttl": "1m", "owner": "A & B"}`)
	secret, _ := g.body["secret"].(string)
	if g.status != 201 || g.body["token"] != "9007199254740994" || g.body["name"] != "rides/7" || g.body["ttl_seconds"] != 60.0 || g.body["owner"] != "A & B" || len(secret) < 26 {
		t.Fatalf("granted %d %v", g.status, g.body)
	}
	h := ask(t, "POST", url+"/v1/leases/rides%2F7", `{"ttl": "1m", "wait": "10ms"}`)
	if h.status != 409 || h.body["type"] != lease.TypeHeld || h.body["owner"] != "A & B" || h.header.Get("Retry-After") != "60" || h.body["resource"] != "rides/7" {
		t.Errorf("a second one: %d %v %v", h.status, h.header, h.body)
	}
	s := ask(t, "GET", url+"/v1/leases/rides/7", "")
	if s.status != 200 || s.body["held"] != true || s.body["owner"] != "A & B" || s.body["token"] != nil || s.body["secret"] != nil {
		t.Errorf("shown %d %v", s.status, s.body)
	}
	if r := ask(t, "POST", url+"/v1/renew/rides/7", `{"secret": "`+secret+`"}`); r.status != 200 || r.body["ttl_seconds"] != 60.0 {
		t.Errorf("renewed %d %v", r.status, r.body)
	}
	if r := ask(t, "POST", url+"/v1/release/rides/7", `{"secret": "`+secret+`"}`); r.status != 204 {
		t.Errorf("released %d %v", r.status, r.body)
	}
	if r := ask(t, "POST", url+"/v1/release/rides/7", `{"secret": "`+secret+`"}`); r.status != 410 || r.body["type"] != lease.TypeGone {
		t.Errorf("released again %d %v", r.status, r.body)
	}
	if s := ask(t, "GET", url+"/v1/leases/rides/7", ""); s.body["held"] != false {
		t.Errorf("shown %v", s.body)
	}
}

func TestNamesOfAnyForm(t *testing.T) {
	p, _, url := serve(t)
	for path, name := range map[string]string{
		"a/renew": "a/renew", "release": "release", "a//b": "a//b", "a%2Fb": "a/b", "a%252Fb": "a%2Fb", "a/../b": "a/../b", "%3F": "?", "x/": "x/", "%C3%BC": "ü",
	} {
		if g := ask(t, "POST", url+"/v1/leases/"+path, `{"ttl": "1m"}`); g.status != 201 || g.body["name"] != name {
			t.Errorf("%s: %d %v; want a lease on %q", path, g.status, g.body, name)
		}
		if m, ok := p.d.mark(fencing.Resource(name)); !ok || m.Token.Lo != 1 {
			t.Errorf("%s: the mark is %v", path, m)
		}
	}
}

func TestWhatIsRefusedOverHTTP(t *testing.T) {
	p, m, url := serve(t)
	acquire(t, m, "held", time.Minute)
	p.d.set("top", fencing.Mark{Token: fencing.Number(1<<63 - 1)})
	for _, tt := range []struct {
		name, method, path, body string
		status                   int
		kind, says               string
	}{
		{"no body", "POST", "/v1/leases/r", "", 400, "malformed", "it is empty"},
		{"no object", "POST", "/v1/leases/r", "[]", 400, "malformed", "not the JSON"},
		{"unknown key", "POST", "/v1/leases/r", `{"ttl": "1m", "tll": "1m"}`, 400, "malformed", "tll"},
		{"two documents", "POST", "/v1/leases/r", `{"ttl": "1m"} {}`, 400, "malformed", "something after it"},
		{"no ttl", "POST", "/v1/leases/r", `{}`, 400, "malformed", `"ttl" must be`},
		{"a bare number", "POST", "/v1/leases/r", `{"ttl": "30"}`, 400, "malformed", `"ttl" must be a number with its unit`},
		{"a number", "POST", "/v1/leases/r", `{"ttl": 30}`, 400, "malformed", "not the JSON"},
		{"a bad wait", "POST", "/v1/leases/r", `{"ttl": "1m", "wait": "soon"}`, 400, "malformed", `"wait" must be`},
		{"a short ttl", "POST", "/v1/leases/r", `{"ttl": "1ms"}`, 400, "malformed", "out of range"},
		{"too long", "POST", "/v1/leases/r", `{"ttl": "1m", "owner": "` + strings.Repeat("x", 9000) + `"}`, 413, "malformed", "too large"},
		{"no name", "POST", "/v1/leases/", `{"ttl": "1m"}`, 404, "refused", "there are"},
		{"another page", "GET", "/metrics", "", 404, "refused", "there are"},
		{"a bad name", "POST", "/v1/leases/a%00b", `{"ttl": "1m"}`, 400, "malformed", "control"},
		{"no UTF-8", "GET", "/v1/leases/%ff", "", 400, "malformed", "UTF-8"},
		{"another method", "DELETE", "/v1/leases/r", "", 405, "refused", "use GET or POST"},
		{"another method for a verb", "GET", "/v1/renew/r", "", 405, "refused", "use POST"},
		{"no secret", "POST", "/v1/renew/held", `{}`, 400, "malformed", `"secret" is missing`},
		{"a wrong secret", "POST", "/v1/renew/held", `{"secret": "x"}`, 403, "not-holder", "take a new lease"},
		{"a wrong secret to release", "POST", "/v1/release/held", `{"secret": "x"}`, 403, "not-holder", "take a new lease"},
		{"nobody's", "POST", "/v1/renew/r", `{"secret": "x"}`, 410, "gone", "take a new lease"},
		{"nobody's to release", "POST", "/v1/release/r", `{"secret": "x"}`, 410, "gone", "nobody holds"},
		{"the end of the numbers", "POST", "/v1/leases/top", `{"ttl": "1m"}`, 409, "exhausted", "lower its mark"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := ask(t, tt.method, url+tt.path, tt.body)
			detail, _ := r.body["detail"].(string)
			if r.status != tt.status || r.body["type"] != "urn:fenceproxy:"+tt.kind || !strings.Contains(detail, tt.says) {
				t.Errorf("got %d %v; want %d %s with %q", r.status, r.body, tt.status, tt.kind, tt.says)
			}
			if (r.header.Get("Allow") != "") != (tt.status == 405) || r.header.Get("Retry-After") != "" {
				t.Errorf("headers %v", r.header)
			}
		})
	}
	for _, header := range [][]string{{"Origin", "http://evil.example.test"}, {"Sec-Fetch-Site", "cross-site"}} {
		if r := ask(t, "POST", url+"/v1/leases/r", `{"ttl": "1m"}`, header...); r.status != 403 || m.Inspect("r").Held {
			t.Errorf("a web page: %d %v", r.status, r.body)
		}
	}
}

func TestTroublesOfTheStoreOverHTTP(t *testing.T) {
	p, m, url := serve(t)
	for _, tt := range []struct {
		fail   error
		status int
		retry  string
	}{{lease.ErrNoSpace, 507, ""}, {errors.New("failed"), 503, ""}} {
		p.mu.Lock()
		p.fail = tt.fail
		p.mu.Unlock()
		if r := ask(t, "POST", url+"/v1/leases/r", `{"ttl": "1m"}`); r.status != tt.status || r.body["type"] != lease.TypeUnavailable || r.header.Get("Retry-After") != tt.retry {
			t.Errorf("%v: %d %v", tt.fail, r.status, r.body)
		}
	}
	m.Stop()
	if r := ask(t, "POST", url+"/v1/leases/r", `{"ttl": "1m"}`); r.status != 503 || r.header.Get("Retry-After") != "1" || !strings.Contains(r.body["detail"].(string), "stopping") {
		t.Errorf("stopping: %d %v", r.status, r.body)
	}
}

func TestAClientThatHangsUpLeavesTheLine(t *testing.T) {
	_, m, url := serve(t)
	g := acquire(t, m, "r", time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/leases/r", strings.NewReader(`{"ttl": "1m", "wait": "1m"}`))
		if err == nil {
			var resp *http.Response
			if resp, err = http.DefaultClient.Do(req); err == nil {
				resp.Body.Close()
			}
		}
		gone <- err
	}()
	eventually(t, func() bool { return m.Inspect("r").Waiting == 1 })
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	eventually(t, func() bool { return m.Inspect("r").Waiting == 0 })
	if err := m.Release("r", g.Secret); err != nil {
		t.Fatal(err)
	}
	if m.Inspect("r").Held {
		t.Error("one who is gone holds it")
	}
}

func TestAClientMayWaitForLongerThanItMayTakeToAsk(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 12 seconds")
	}
	t.Parallel()
	_, m, url := serve(t)
	acquire(t, m, "r", 12*time.Second)
	if g := ask(t, "POST", url+"/v1/leases/r", `{"ttl": "1m", "wait": "1m"}`); g.status != 201 || g.body["token"] != "2" {
		t.Errorf("got %d %v; want the lease once the first has ended", g.status, g.body)
	}
}

// eventually waits for what another goroutine does.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	for giveUp := time.Now().Add(30 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(giveUp) {
			t.Fatal("it never comes")
		}
	}
}

func TestMetricsNameNoLease(t *testing.T) {
	_, m, _ := serve(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	acquire(t, m, "r", time.Minute)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			name := f.GetName()
			for _, l := range one.GetLabel() {
				if l.GetName() != "outcome" {
					t.Errorf("%s has the label %s", name, l.GetName())
				}
				name += " " + l.GetValue()
			}
			got[name] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	if got["fenceproxy_leases_held"] != 1 || got["fenceproxy_leases_total granted"] != 1 || got["fenceproxy_leases_known"] != 1 || len(got) != 8 {
		t.Errorf("got %v", got)
	}
}
