package probe_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

// saw is a report of a store that takes the spellings for one object.
func saw(ids ...string) *probe.Report {
	r := &probe.Report{}
	for _, id := range []string{
		"dot", "dotdot", "encoded-dot", "encoded-climb", "empty", "trailing-slash", "encoded-slash", "escape", "params", "folder-params", "case", "nfd",
		"backslash", "double", "plus", "host-foreign",
	} {
		row := probe.Row{ID: id, Same: probe.Other}
		if slices.Contains(ids, id) {
			row.Same = probe.Same
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

func TestCompare(t *testing.T) {
	everything := saw("dot", "dotdot", "encoded-dot", "encoded-climb", "empty", "trailing-slash", "encoded-slash", "escape", "params", "folder-params", "case", "nfd", "backslash")
	for _, tt := range []struct {
		name   string
		report *probe.Report
		yaml   string
		want   []string // "policy option: value"
	}{
		{"defaults before a careful store", saw("escape"), `unmatched_writes: fence`, nil},
		{"defaults before a file store", saw("dot", "dotdot", "encoded-dot", "encoded-climb", "empty", "trailing-slash", "encoded-slash", "escape", "backslash"), `unmatched_writes: fence`, nil},
		{
			"defaults before a store that merges everything", everything, `unmatched_writes: fence`,
			[]string{"(unmatched) identity.path_params: strip", "(unmatched) identity.case: fold", "(unmatched) identity.unicode: nfc-key"},
		},
		{
			"everything literal", everything, `
unmatched_writes: fence
defaults: {identity: {dot_segments: literal, empty_segments: literal, trailing_slash: distinct, encoded_slash: literal}}`,
			[]string{
				"(unmatched) identity.dot_segments: reject", "(unmatched) identity.empty_segments: reject", "(unmatched) identity.trailing_slash: same",
				"(unmatched) identity.encoded_slash: reject", "(unmatched) identity.path_params: strip", "(unmatched) identity.case: fold", "(unmatched) identity.unicode: nfc-key",
			},
		},
		{
			"everything merged", everything, `
unmatched_writes: fence
defaults: {identity: {dot_segments: resolve, empty_segments: collapse, encoded_slash: separator, path_params: strip, case: fold, unicode: nfc-key}}`,
			nil,
		},
		{"everything literal before a flat store", saw("escape"), `
unmatched_writes: fence
defaults: {identity: {dot_segments: literal, empty_segments: literal, trailing_slash: distinct, encoded_slash: literal}}`, nil},
		{"a policy each", saw("case"), `
policies:
  - {name: folded, match: {path: "/a/{x}"}, resource: "a/{x}", identity: {case: fold}}
  - {name: sharp, match: {path: "/b/{x...}"}, resource: "b/{x}"}
  - {name: hex, match: {path: "/c/{x}"}, resource: "c/{x}", token: {format: hex}}
  - {name: off, match: {path: "/d/{x}"}, resource: "d/{x}", mode: "off"}`,
			[]string{"sharp identity.case: fold", "hex identity.case: fold"},
		},
		{"one resource for all", saw("case", "params", "nfd"), `
policies:
  - {name: tree, match: {path: "/a/{x...}"}, resource: "a"}`, nil},
		{"a literal path, and others pass", saw("case"), `
unmatched_writes: allow
policies:
  - {name: one, match: {path: "/a/one"}, resource: "one"}`, []string{"one identity.case: fold"}},
		{"a literal path, and others are rejected", saw("case"), `
policies:
  - {name: one, match: {path: "/a/one"}, resource: "one"}`, nil},
		{"a token is optional", saw("trailing-slash"), `
policies:
  - {name: loose, match: {path: "/a/{x...}"}, resource: "a/{x}", missing_token: allow, identity: {trailing_slash: distinct}}`,
			[]string{"loose identity.trailing_slash: same"},
		},
		{"no request can be made up", saw("case"), `
policies:
  - {name: odd, match: {path: "/a/{x}"}, resource: "a/{x}", missing_token: allow, token: {query: t}}`, []string{"odd no request could be made up for it"}},
		{"by host, and the store does not care", saw("host-foreign"), `
policies:
  - {name: hosts, match: {path: "/a/{x}"}, resource: "{host}/{x}"}`, []string{"hosts resource: a template without {host}"}},
		{"by host, and the store does", saw(), `
policies:
  - {name: hosts, match: {path: "/a/{x}"}, resource: "{host}/{x}"}`, nil},
		{"decoded twice", saw("double"), `unmatched_writes: fence`, []string{"(unmatched) no option reads paths like that"}},
		{"a body names the resource", saw("case"), `
policies:
  - {name: orders, match: {path: "/orders/{x}", methods: [POST]}, resource: "{x}/{body.id}"}`, []string{"orders identity.case: fold"}},
		{"dialect s3", saw("trailing-slash", "encoded-slash"), `
unmatched_writes: fence
defaults: {dialect: s3}`, []string{"(unmatched) identity.trailing_slash: same"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := policies.Load("c.yaml", []byte(tt.yaml), policies.Overrides{UpstreamURL: "http://127.0.0.1:9000"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range tt.report.Compare(cfg.Policies) {
				line := w.Policy + " " + w.Option + ": " + w.Value
				if w.Option == "" {
					for _, text := range []string{"no request could be made up for it", "no option reads paths like that"} {
						if strings.Contains(w.String(), text) {
							line = w.Policy + " " + text
						}
					}
				}
				if !strings.Contains(w.String(), "the policy "+w.Policy+": ") || w.Option != "" && !strings.HasSuffix(w.String(), "(set "+w.Option+": "+w.Value+")") {
					t.Errorf("sentence %q", w)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("weaknesses (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCompareBehaviour compares settings other than identity with what real probes saw.
func TestCompareBehaviour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	late := newFlatStore()
	late.late = 40 * time.Millisecond
	for _, tt := range []struct {
		name  string
		store http.Handler
		yaml  string
		want  []string
	}{
		{"late, no settle", late, `unmatched_writes: fence`, []string{"settle"}},
		{"late, settle", late, "unmatched_writes: fence\ndefaults: {settle: 5s}", nil},
		{"cut uploads destroy, streamed", fileStore{t.TempDir()}, "unmatched_writes: fence\ndefaults: {request_body: stream}", []string{"request_body"}},
		{"cut uploads destroy, spooled", fileStore{t.TempDir()}, "unmatched_writes: fence", nil},
		{"cut uploads do nothing, streamed", newFlatStore(), "unmatched_writes: fence\ndefaults: {request_body: stream}", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg, err := policies.Load("c.yaml", []byte(tt.yaml), policies.Overrides{UpstreamURL: "http://127.0.0.1:9000"})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, w := range run(t, serve(t, tt.store)+"/files").Compare(cfg.Policies) {
				got = append(got, w.Option)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("options (-want +got):\n%s", diff)
			}
		})
	}
}
