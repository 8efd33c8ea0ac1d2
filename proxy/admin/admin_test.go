package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/admin"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

const bearer = "a-token-of-enough-length"

// desk is an admin listener on a gate and a token store.
type desk struct {
	t        *testing.T
	handler  http.Handler
	gate     *gate.Gate
	store    *tokenstore.Store
	stopping atomic.Bool
	logs     *strings.Builder
}

func newDesk(t *testing.T, token string) *desk {
	t.Helper()
	cfg, err := policies.Load("", nil, policies.Overrides{UpstreamURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	store, err := tokenstore.Open(context.Background(), t.TempDir(), tokenstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{t: t, store: store, gate: gate.New(store, gate.Config{}), logs: &strings.Builder{}}
	metrics := proxy.NewMetrics(d.gate)
	p, err := proxy.New(proxy.Config{Upstream: cfg.Upstream, Spool: cfg.Spool, Policies: cfg.Policies, Gate: d.gate, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	d.handler = admin.New(admin.Config{
		Proxy: p, Gate: d.gate, Store: store, Metrics: metrics, Token: token, Stopping: d.stopping.Load,
		Logger: slog.New(slog.NewTextHandler(d.logs, nil)),
	})
	t.Cleanup(func() {
		d.gate.Close(context.Background())
		if err := store.Close(true); err != nil && !errors.Is(err, tokenstore.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func (d *desk) do(method, target, body, auth string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, req)
	return w
}

// get decodes the answer to a GET.
func (d *desk) get(target string, code int, to any) {
	d.t.Helper()
	w := d.do("GET", target, "", "")
	if w.Code != code {
		d.t.Fatalf("GET %s = %d %s; want %d", target, w.Code, w.Body, code)
	}
	if cc := w.Header().Get("Cache-Control"); cc != "no-store" {
		d.t.Errorf("GET %s: Cache-Control %q", target, cc)
	}
	if to != nil {
		if err := json.Unmarshal(w.Body.Bytes(), to); err != nil {
			d.t.Fatalf("GET %s: %v", target, err)
		}
	}
}

// set changes a mark and checks the status.
func (d *desk) set(target, body string, code int) string {
	d.t.Helper()
	w := d.do("PUT", target, body, "Bearer "+bearer)
	if w.Code != code {
		d.t.Errorf("PUT %s %s = %d %s; want %d", target, body, w.Code, w.Body, code)
	}
	return w.Body.String()
}

func TestPages(t *testing.T) {
	d := newDesk(t, bearer)
	d.set("/v1/resources/a", `{"token": "34"}`, 200)
	if w := d.do("GET", "/healthz", "", ""); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("/healthz = %d %q", w.Code, w.Body)
	}
	if w := d.do("GET", "/metrics", "", ""); w.Code != 200 || !strings.Contains(w.Body.String(), "fenceproxy_in_flight 0") {
		t.Errorf("/metrics = %d %.200q", w.Code, w.Body)
	}
	var ready struct {
		Ready     bool
		Resources int
	}
	if d.get("/readyz", 200, &ready); !ready.Ready || ready.Resources != 1 {
		t.Errorf("/readyz = %+v; want one resource", ready)
	}
	var pols struct{ Policies []admin.Policy }
	if d.get("/v1/policies", 200, &pols); len(pols.Policies) != 1 || pols.Policies[0].Name != policies.UnmatchedName {
		t.Errorf("/v1/policies = %+v", pols)
	}
	var decisions struct{ Decisions []proxy.Decision }
	if d.get("/v1/decisions", 200, &decisions); decisions.Decisions == nil || len(decisions.Decisions) != 0 {
		t.Errorf("/v1/decisions = %+v; want an empty list", decisions)
	}
	d.get("/", 404, nil)
	d.get("/v1", 404, nil)
	d.get("/v1/resource/a", 404, nil)
	for _, tt := range []struct{ method, target, allow string }{
		{"POST", "/healthz", "GET"}, {"PUT", "/readyz", "GET"}, {"DELETE", "/metrics", "GET"}, {"PUT", "/v1/policies", "GET"},
		{"POST", "/v1/resources", "GET"}, {"DELETE", "/v1/resources/a", "GET, HEAD, PUT"}, {"POST", "/v1/resources/a", "GET, HEAD, PUT"},
		{"GET", "/v1/explain", "POST"}, {"GET", "/v1/import", "POST"}, {"POST", "/v1/export", "GET"}, {"POST", "/v1/decisions", "GET"},
	} {
		if w := d.do(tt.method, tt.target, "", "Bearer "+bearer); w.Code != 405 || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s = %d, Allow %q; want 405 and %q", tt.method, tt.target, w.Code, w.Header().Get("Allow"), tt.allow)
		}
	}
	for _, target := range []string{"/healthz", "/readyz", "/metrics", "/v1/resources", "/v1/resources/a", "/v1/policies"} {
		if w := d.do("HEAD", target, "", ""); w.Code != 200 {
			t.Errorf("HEAD %s = %d", target, w.Code)
		}
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	for _, tt := range []struct {
		name, token, auth string
		code              int
	}{
		{"none", bearer, "", 401}, {"wrong", bearer, "Bearer wrong", 401}, {"prefix", bearer, "Bearer " + bearer[:10], 401}, {"other scheme", bearer, "Basic " + bearer, 401},
		{"bare", bearer, bearer, 401}, {"empty", bearer, "Bearer ", 401}, {"switched off", "", "Bearer ", 403}, {"right", bearer, "Bearer " + bearer, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDesk(t, tt.token)
			var export strings.Builder
			if err := d.store.Export(&export); err != nil {
				t.Fatal(err)
			}
			for _, w := range []*httptest.ResponseRecorder{
				d.do("PUT", "/v1/resources/a", `{"token": "34"}`, tt.auth), d.do("POST", "/v1/import", export.String(), tt.auth),
			} {
				if w.Code != tt.code || (w.Header().Get("WWW-Authenticate") != "") != (tt.code == 401) {
					t.Errorf("got %d %s, WWW-Authenticate %q; want %d", w.Code, w.Body, w.Header().Get("WWW-Authenticate"), tt.code)
				}
			}
			if _, ok, _ := d.store.Load("a"); ok != (tt.code == 200) {
				t.Errorf("the mark is there: %v", ok)
			}
			if strings.Contains(d.logs.String(), bearer) {
				t.Errorf("the log holds the token")
			}
		})
	}
}

func TestSettingAMark(t *testing.T) {
	d := newDesk(t, bearer)
	d.set("/v1/resources/a", `{"token": "34", "by": "ops"}`, 200)
	d.set("/v1/resources/a", `{"token": "34"}`, 200)
	d.set("/v1/resources/a", `{"token": "40", "reason": "ahead"}`, 200)
	d.set("/v1/resources/a", `{"token": "5"}`, 409)
	d.set("/v1/resources/a", `{"token": "5", "lower": true}`, 400)
	for _, bad := range []string{``, `{`, `{"token": "x"}`, `{"token": ""}`, `{"token": "1", "more": 1}`, `{"token": 1}`, `{"token": "41", "format": "roman"}`, `{"token": "41"} {"token": "42"}`} {
		d.set("/v1/resources/a", bad, 400)
	}
	var m admin.Mark
	if d.get("/v1/resources/a", 200, &m); m.Token != "40" || m.Reason != "ahead" || m.Format != "decimal" || m.At.IsZero() {
		t.Errorf("the mark is %+v; want 40", m)
	}
	var c admin.Changed
	if err := json.Unmarshal([]byte(d.set("/v1/resources/a", `{"token": "5", "lower": true, "reason": "lock service rebuilt", "by": "ops"}`, 200)), &c); err != nil || c.Old != "40" || c.New != "5" {
		t.Errorf("lowered: %+v, %v", c, err)
	}
	if d.get("/v1/resources/a", 200, &m); m.Token != "5" || m.Reason != "lock service rebuilt" || m.By != "ops" {
		t.Errorf("the mark is %+v; want 5 with its reason", m)
	}
	if logs := d.logs.String(); !strings.Contains(logs, "lowered=true") || !strings.Contains(logs, "lock service rebuilt") {
		t.Errorf("the log does not tell of the lowered mark: %s", logs)
	}
	if err := d.gate.Check(gate.Write{Resources: []fencing.Resource{"a"}, Token: fencing.Token{Lo: 4}}); err == nil {
		t.Errorf("4 is not stale after the mark was set to 5")
	}
	d.set("/v1/resources/hex", `{"token": "0x10", "format": "hex"}`, 200)
	if d.get("/v1/resources/hex", 200, &m); m.Token != "0x10" || m.Format != "hex" {
		t.Errorf("the mark is %+v; want 0x10", m)
	}
}

func TestResourceKeysInPaths(t *testing.T) {
	d := newDesk(t, bearer)
	for target, want := range map[string]string{
		"/v1/resources/rides/7": "rides/7", "/v1/resources/a%2Fb": "a/b", "/v1/resources//x": "/x", "/v1/resources/a//b": "a//b", "/v1/resources/a%252Fb": "a%2Fb",
		"/v1/resources/a%20b": "a b", "/v1/resources/%C3%A9": "é", "/v1/resources/a/../b": "a/../b", "/v1/resources/a%3Fb": "a?b", "/v1/resources/t/": "t/",
	} {
		d.set(target, `{"token": "7"}`, 200)
		if _, ok, err := d.store.Load(fencing.Resource(want)); !ok || err != nil {
			t.Errorf("%s does not name %q (%v)", target, want, err)
		}
		var m admin.Mark
		if d.get(target, 200, &m); m.Resource != want {
			t.Errorf("GET %s names %q; want %q", target, m.Resource, want)
		}
	}
	d.get("/v1/resources/never", 404, nil)
	d.get("/v1/resources/"+strings.Repeat("x", 5000), 400, nil)
	d.get("/v1/resources/%ff", 400, nil)
}

func TestListingInPages(t *testing.T) {
	d := newDesk(t, bearer)
	for i := range 25 {
		d.set(fmt.Sprintf("/v1/resources/r/%02d", i), `{"token": "7"}`, 200)
	}
	d.set("/v1/resources/other", `{"token": "7"}`, 200)
	var got []string
	after := ""
	for range 10 {
		var page admin.Listing
		d.get("/v1/resources?limit=10&prefix=r/&after="+after, 200, &page)
		for _, m := range page.Resources {
			got = append(got, m.Resource)
		}
		if after = page.Next; after == "" {
			break
		}
	}
	if len(got) != 25 || got[0] != "r/00" || got[24] != "r/24" {
		t.Errorf("the pages hold %q; want r/00 to r/24", got)
	}
	var all admin.Listing
	if d.get("/v1/resources", 200, &all); len(all.Resources) != 26 || all.Next != "" {
		t.Errorf("%d resources, next %q; want 26 on one page", len(all.Resources), all.Next)
	}
	var none admin.Listing
	if d.get("/v1/resources?prefix=zz", 200, &none); none.Resources == nil || len(none.Resources) != 0 {
		t.Errorf("an empty listing = %+v; want an empty list", none)
	}
	for _, bad := range []string{"0", "-1", "x", "100001"} {
		d.get("/v1/resources?limit="+bad, 400, nil)
	}
}

func TestExportAndImport(t *testing.T) {
	from, to := newDesk(t, bearer), newDesk(t, bearer)
	from.set("/v1/resources/a", `{"token": "34"}`, 200)
	from.set("/v1/resources/b", `{"token": "5"}`, 200)
	to.set("/v1/resources/b", `{"token": "9"}`, 200)
	export := from.do("GET", "/v1/export", "", "")
	if export.Code != 200 {
		t.Fatalf("export = %d", export.Code)
	}
	in, err := to.gate.Enter(context.Background(), gate.Write{Resources: []fencing.Resource{"a"}, Token: fencing.Token{Lo: 3}})
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{"cut": export.Body.String()[:export.Body.Len()/2], "empty": "", "altered": strings.Replace(export.Body.String(), "34", "35", 1)} {
		if w := to.do("POST", "/v1/import", bad, "Bearer "+bearer); w.Code != 400 {
			t.Errorf("%s = %d %s; want 400", name, w.Code, w.Body)
		}
	}
	w := to.do("POST", "/v1/import", export.Body.String(), "Bearer "+bearer)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"marks": 2`) || !strings.Contains(w.Body.String(), `"raised": 1`) {
		t.Errorf("import = %d %s; want 2 marks, 1 raised", w.Code, w.Body)
	}
	for r, want := range map[fencing.Resource]uint64{"a": 34, "b": 9} {
		if m, _, err := to.store.Load(r); err != nil || m.Token.Lo != want {
			t.Errorf("mark of %s = %v, %v; want %d", r, m.Token, err, want)
		}
	}
	if err := to.gate.Check(gate.Write{Resources: []fencing.Resource{"a"}, Token: fencing.Token{Lo: 33}}); err == nil {
		t.Errorf("the running gate does not know the imported mark")
	}
	in.Done(0)
}

func TestExplainLive(t *testing.T) {
	d := newDesk(t, bearer)
	d.set("/v1/resources/a", `{"token": "34"}`, 200)
	explain := func(body string, code int) proxy.Explanation {
		t.Helper()
		w := d.do("POST", "/v1/explain", body, "")
		if w.Code != code {
			t.Errorf("explain %s = %d %s; want %d", body, w.Code, w.Body, code)
		}
		var e proxy.Explanation
		_ = json.Unmarshal(w.Body.Bytes(), &e)
		return e
	}
	if e := explain(`{"method": "PUT", "url": "/a", "header": {"fencing-token": ["33"]}}`, 200); e.Action != "reject" || e.Status != 412 || e.Fencing != "stale" {
		t.Errorf("33 = %+v; want a stale token", e)
	}
	if e := explain(`{"method": "PUT", "url": "http://h/a?x", "header": {"Fencing-Token": ["34"]}}`, 200); e.Action != "fence" || e.Token != "34" || len(e.Resources) != 1 || e.Resources[0] != "a" {
		t.Errorf("34 = %+v; want it to be fenced", e)
	}
	for url, status := range map[string]int{"a": 400, "*": 400, "//a": 400, "//a/{x}": 400, "http://h": 428} {
		if e := explain(`{"method": "PUT", "url": "`+url+`"}`, 200); e.Status != status {
			t.Errorf("PUT %s = %+v; want %d", url, e, status)
		}
	}
	if e := explain(`{"method": "CONNECT", "url": "h:1"}`, 200); e.Status != 405 {
		t.Errorf("CONNECT = %+v; want 405", e)
	}
	for _, bad := range []string{``, `{"method": "PUT", "url": ""}`, `{"url": "/a b"}`, `{"more": 1}`} {
		explain(bad, 400)
	}
	if s := d.gate.Stats(); s.Resources != 0 {
		t.Errorf("explaining left %+v in the gate", s)
	}
}

func TestReadiness(t *testing.T) {
	d := newDesk(t, bearer)
	d.stopping.Store(true)
	var ready struct {
		Ready   bool
		Reasons []string
	}
	if d.get("/readyz", 503, &ready); ready.Ready || len(ready.Reasons) != 1 {
		t.Errorf("while stopping: %+v", ready)
	}
	d.stopping.Store(false)
	if err := d.store.Close(true); err != nil {
		t.Fatal(err)
	}
	if d.get("/readyz", 503, &ready); ready.Ready || len(ready.Reasons) != 1 {
		t.Errorf("without a store: %+v", ready)
	}
	if w := d.do("GET", "/healthz", "", ""); w.Code != 200 {
		t.Errorf("/healthz = %d; the process itself is well", w.Code)
	}
	for _, target := range []string{"/v1/resources", "/v1/resources/a"} {
		d.get(target, 503, nil)
	}
	d.set("/v1/resources/a", `{"token": "1"}`, 503)
}
