package proxy_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// TestExplainAgreesWithTheProxy asks for an explanation of requests and then sends them.
func TestExplainAgreesWithTheProxy(t *testing.T) {
	const yaml = `
policies:
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}
  - {name: watched, match: {path: "/w/{id}"}, resource: "w/{id}", mode: observe}
  - {name: json, match: {path: "/j"}, resource: "j/{body.id}"}
`
	cfg, err := policies.Load("test.yaml", []byte(yaml), policies.Overrides{UpstreamURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRigWith(t, newPlainStore(), yaml)
	r.put("/rides/7", 34, "x", 201, "admitted")
	r.put("/w/7", 34, "x", 201, "admitted")
	eventually(t, "the observed mark advances", func() bool { return r.mark("w/7") == 34 })
	for _, tt := range []struct{ method, url, token, body string }{
		{"PUT", "/rides/7", "33", "x"}, {"PUT", "/rides/7", "34", "x"}, {"PUT", "/rides/7", "", "x"}, {"PUT", "/rides/7", "x", "x"}, {"PUT", "/rides//7", "34", "x"},
		{"PUT", "/other", "34", "x"}, {"GET", "/rides/7", "", ""}, {"TRACE", "/rides/7", "", ""}, {"POST", "/rides/7?_method=PUT", "34", "x"},
		{"PUT", "/w/7", "33", "x"}, {"PUT", "/w/7", "", "x"}, {"POST", "/j", "1", `{"id": 7}`}, {"POST", "/j", "1", `{}`}, {"POST", "/j", "1", "x"},
	} {
		header := http.Header{}
		var sent []string
		if tt.token != "" {
			header.Set("Fencing-Token", tt.token)
			sent = []string{"Fencing-Token", tt.token}
		}
		e, err := proxy.Explain(cfg.Policies, proxy.ExplainRequest{Method: tt.method, URL: tt.url, Header: header, Body: []byte(tt.body)})
		if err != nil {
			t.Errorf("%s %s: %v", tt.method, tt.url, err)
			continue
		}
		e.Against(r.proxy)
		got := r.must(tt.method, tt.url, tt.body, sent...)
		status := got.header.Get("Fencing-Status")
		if e.Fencing != "" && e.Fencing != status || e.Status != 0 && e.Status != got.code || e.Status == 0 && got.code >= 400 {
			t.Errorf("%s %s with %q = %v; explained as %+v", tt.method, tt.url, tt.token, got, e)
		}
		var text strings.Builder
		if _, err := e.WriteTo(&text); err != nil || !strings.HasPrefix(text.String(), tt.method+" "+tt.url+"\n") || !strings.Contains(text.String(), e.Detail) {
			t.Errorf("printed as %q, %v", text.String(), err)
		}
	}
}

func TestDecisionsKeepTheLast(t *testing.T) {
	r := newRigWith(t, newPlainStore(), defaultYAML)
	const n = 300
	for i := range n {
		r.must("PUT", "/k"+strconv.Itoa(i), "")
	}
	last := r.proxy.Decisions().Last()
	if len(last) != 256 || last[0].Path != "/k299" || last[255].Path != "/k44" {
		t.Errorf("%d decisions, from %s to %s; want the last 256, the newest first", len(last), last[0].Path, last[len(last)-1].Path)
	}
}
