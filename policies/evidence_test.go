package policies_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

func TestEvidence(t *testing.T) {
	load := func(yaml string) (*policies.Config, error) {
		return policies.Load("test.yaml", []byte(yaml), policies.Overrides{UpstreamURL: "http://127.0.0.1:9000"})
	}
	c, err := load(`
defaults: {token: {max_jump: 4294967296}, revert_unsent: true}
policies:
  - {name: a, match: {path: "/a/{id}"}, resource: "a/{id}"}
  - {name: b, match: {path: "/b/{id}"}, resource: "b/{id}", token: {max_jump: 10}, revert_unsent: false}
  - {name: c, match: {path: "/c/{id}"}, resource: "c/{id}", token: {format: opaque}, compare: hold, hold: {ttl: 1m}}
`)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		jump   uint64
		unsent bool
		shown  bool
	}{{1 << 32, true, true}, {10, false, true}, {0, true, false}} {
		p := c.Policies.Policies()[i]
		if p.MaxJump != want.jump || p.RevertUnsent != want.unsent {
			t.Errorf("%s: max_jump %d, revert_unsent %v; want %+v", p.Name, p.MaxJump, p.RevertUnsent, want)
		}
		if row := c.Policies.Describe()[i]; strings.Contains(row.Token, "above the mark") != want.shown {
			t.Errorf("the table says %q of %s", row.Token, p.Name)
		}
	}
	for yaml, want := range map[string]string{
		"token: {max_jump: 0}":         "defaults.token.max_jump: no token above the mark would be allowed",
		"token: {max_jump: -1}":        "not a whole number of 64 bits",
		"token: {max_jump: many}":      "not a whole number of 64 bits",
		"revert_unsent: sometimes":     "true or false is expected",
		"token: {max_jump: [1, 2, 3]}": "defaults.token.max_jump",
	} {
		if _, err := load("unmatched_writes: fence\ndefaults: {" + yaml + "}"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", yaml, err, want)
		}
	}
	_, err = load(`
policies:
  - {name: c, match: {path: "/c/{id}"}, resource: "c/{id}", token: {format: opaque, max_jump: 5}, compare: hold, hold: {ttl: 1m}}
`)
	if err == nil || !strings.Contains(err.Error(), "an opaque token is no number") {
		t.Errorf("opaque: %v", err)
	}
}
