package policies_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

// A policy that only observes, or is off, is no way into one that enforces.
func TestLaxPoliciesDoNotShieldStrictOnes(t *testing.T) {
	const dav = `
defaults: {dialect: webdav}
policies:
  - {name: lax, match: {path: "/o/{rest...}"}, resource: "o/{rest}", mode: MODE}
  - {name: strict, match: {path: "/b/{rest...}"}, resource: "b/{rest}"}
`
	const s3 = `
defaults: {dialect: s3}
policies:
  - {name: lax, match: {path: "/{bucket}"}, resource: "{bucket}", mode: MODE}
  - {name: strict, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}
`
	const couch = `
defaults: {dialect: couchdb}
policies:
  - {name: lax, match: {path: "/{db}"}, resource: "{db}", mode: MODE}
  - {name: strict, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}"}
`
	for _, tt := range []struct {
		name, text, method, target, destination, body string
	}{
		{"MOVE", dav, "MOVE", "/o/x", "/b/y", ""},
		{"COPY", dav, "COPY", "/o/x", "/b/y", ""},
		{"MOVE to what cannot be read", dav, "MOVE", "/o/x", "/b/y?q", ""},
		{"a batch of objects", s3, "POST", "/rides?delete", "", "<Delete><Object><Key>7</Key></Object></Delete>"},
		{"a document named in the body", couch, "POST", "/rides", "", `{"_id": "7"}`},
	} {
		for _, mode := range []string{"observe", "off"} {
			for _, token := range []string{"", "5"} {
				s := load(t, strings.ReplaceAll(tt.text, "MODE", mode)).Policies
				r := &policies.Request{Method: tt.method, Target: tt.target, Host: "h", Header: map[string][]string{"Content-Type": {"application/json"}}}
				if token != "" {
					r.Header["Fencing-Token"] = []string{token}
				}
				if tt.destination != "" {
					r.Header["Destination"] = []string{tt.destination}
				}
				d := s.Decide(r)
				err := d.Err
				if d.Action == policies.Fence && d.NeedsBody {
					err = d.ResolveBody([]byte(tt.body)) // the proxy refuses then, since some policy enforces
				}
				passes := d.Action == policies.Pass || d.Action == policies.Reject && d.Observed || d.Action == policies.Fence && err == nil && d.Policy.Mode != policies.Enforce
				if passes || !s.Enforces() {
					t.Errorf("%s, %s, token %q: %v, observed %v, %v; want it refused or fenced by the strict policy", tt.name, mode, token, d.Action, d.Observed, err)
				}
			}
		}
	}
}
