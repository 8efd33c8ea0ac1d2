package policies_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// holdPolicy is the beginning of a policy with compare: hold.
const holdPolicy = `
  - name: rides
    match: {path: "/rides/{id}/{rest...}"}
    resource: "rides/{id}"
    compare: hold
    token: {header: Hold-Id, format: opaque}
`

func TestHoldSettings(t *testing.T) {
	for _, tc := range []struct {
		text string
		want policies.HoldTerms
		says string
	}{
		{"", policies.HoldTerms{}, "hold (no ttl)"},
		{"    hold: {ttl: 30s}", policies.HoldTerms{TTL: 30 * time.Second}, "hold (30s)"},
		{"    hold: {ttl: 30s, renew_on_write: true}", policies.HoldTerms{TTL: 30 * time.Second, Renew: true}, "hold (30s, renewed)"},
		{"    hold: {ttl: none}", policies.HoldTerms{}, "hold (no ttl)"},
		{"    hold: {release: {methods: [DELETE]}}", policies.HoldTerms{}, "hold (no ttl)"},
		{"    epoch: 0\n    reveal_mark: false", policies.HoldTerms{}, "hold (no ttl)"},
	} {
		c := load(t, "policies:"+holdPolicy+tc.text+"\n")
		p := c.Policies.Policies()[0]
		if p.Hold != tc.want || p.Compare != policies.Hold || p.Format != fencing.Opaque || !c.Policies.HasHolds() {
			t.Errorf("%q: %+v; want %+v", tc.text, p.Hold, tc.want)
		}
		if got := c.Policies.Describe()[0].Token; !strings.Contains(got, tc.says) {
			t.Errorf("%q is described as %q; want %q in it", tc.text, got, tc.says)
		}
	}
	c := load(t, `
defaults: {epoch: 2, reveal_mark: true, compare: hold, token: {header: Hold-Id, format: opaque}, hold: {ttl: 30s, renew_on_write: true}}
unmatched_writes: fence
policies:
  - {name: a, match: {path: "/a/{id}"}, resource: "a/{id}", hold: {ttl: none}}
  - {name: b, match: {path: "/b/{id}"}, resource: "b/{id}", compare: at-least, token: {header: X, format: decimal}}
`)
	a, b, u := c.Policies.Policies()[0], c.Policies.Policies()[1], c.Policies.Unmatched()
	if a.Hold.TTL != 0 || !a.Hold.Renew || u.Hold.TTL != 30*time.Second {
		t.Errorf("holds %+v and %+v; want the options of defaults one by one", a.Hold, u.Hold)
	}
	if a.Epoch != 0 || a.RevealMark || u.Epoch != 0 || u.RevealMark || b.Epoch != 2 || !b.RevealMark {
		t.Errorf("epochs %d %d %d, reveal_mark %v %v %v; want them for numbers alone", a.Epoch, u.Epoch, b.Epoch, a.RevealMark, u.RevealMark, b.RevealMark)
	}
	if load(t, "unmatched_writes: fence").Policies.HasHolds() {
		t.Error("HasHolds without one")
	}
}

func TestHoldRejects(t *testing.T) {
	const token = "    token: {header: Hold-Id, format: opaque}\n"
	for name, tc := range map[string]struct{ text, want string }{
		"numbers":            {"compare: hold", "policies[0].compare: compare: hold takes opaque tokens alone, and the format is decimal (set token: {format: opaque})"},
		"opaque alone":       {"token: {format: opaque}", "policies[0].token: an opaque token has no order"},
		"opaque greater":     {"compare: greater\n" + token, "goes with compare: hold alone, and this is greater"},
		"hold without":       {"hold: {ttl: 3s}", "policies[0].hold: it has no effect: it belongs to compare: hold, and this is at-least"},
		"unknown key":        {"compare: hold\n" + token + "    hold: {time: 3s}", `unknown key "time"`},
		"ttl 0":              {"compare: hold\n" + token + "    hold: {ttl: 0s}", "it must be longer than 0s"},
		"ttl text":           {"compare: hold\n" + token + "    hold: {ttl: never}", "is not a duration"},
		"renew without":      {"compare: hold\n" + token + "    hold: {renew_on_write: true}", "without a ttl a hold does not end by itself (set a ttl)"},
		"max":                {"compare: hold\n    token: {format: opaque, max: 9}", "an opaque token is no number"},
		"allow_zero":         {"compare: hold\n    token: {format: opaque, allow_zero: true}", "an opaque token is no number"},
		"epoch":              {"compare: hold\n" + token + "    epoch: 1", "policies[0].epoch: it has no effect"},
		"reveal_mark":        {"compare: hold\n" + token + "    reveal_mark: true", "policies[0].reveal_mark: it has no effect"},
		"webdav":             {"compare: hold\n" + token + "    dialect: webdav", "policies[0].dialect: compare: hold does not go with dialect: webdav"},
		"upload_token":       {"compare: hold\n" + token + "    dialect: s3\n    upload_token: create", "does not go with upload_token: create"},
		"release empty":      {"compare: hold\n" + token + "    hold: {release: {}}", "it does not say which requests end a hold"},
		"release scalar":     {"compare: hold\n" + token + "    hold: {release: DELETE}", "where a mapping (key: value) is expected"},
		"release no methods": {"compare: hold\n" + token + "    hold: {release: {methods: []}}", "so no request ends a hold"},
		"release lower":      {"compare: hold\n" + token + "    hold: {release: {methods: [delete]}}", `"delete" is not a method`},
		"release read":       {"compare: hold\n" + token + "    hold: {release: {methods: [GET]}}", "the policy does not match GET"},
		"release twice":      {"compare: hold\n" + token + "    hold: {release: {methods: [PUT, PUT]}}", "PUT is given twice"},
		"release elsewhere":  {"compare: hold\n" + token + "    hold: {release: {path: \"/b/{id}\"}}", "the policy does not match all of /b/{id}"},
		"release wider":      {"compare: hold\n" + token + "    hold: {release: {path: \"/a/{id}/{rest...}\"}}", "the policy does not match all of"},
		"release pattern":    {"compare: hold\n" + token + "    hold: {release: {path: \"b\"}}", "a path pattern starts with /"},
	} {
		const policy = "policies:\n  - name: p\n    match: {path: \"/a/{id}\"}\n    resource: \"a/{id}\"\n    "
		ps := problems(t, head+policy+tc.text+"\n", policies.Overrides{})
		if len(ps) != 1 || !strings.Contains(ps[0].String(), tc.want) || ps[0].Line == 0 {
			t.Errorf("%s: problems %v; want %q alone", name, ps, tc.want)
		}
	}
	for name, tc := range map[string]struct{ text, want string }{
		"two resources": {`
policies:
  - {name: p, match: {path: "/a/{id}"}, resource: ["a/{id}", "b"], compare: hold, token: {format: opaque}}`, "one write of a hold names one resource, and 2 are given"},
		"a list": {`
policies:
  - {name: p, match: {path: "/a"}, resource: "a/{body.items[].id}", compare: hold, token: {format: opaque}}`, "may give several"},
		"release in defaults": {`
defaults: {compare: hold, token: {format: opaque}, hold: {release: {methods: [DELETE]}}}
policies:
  - {name: p, match: {path: "/a/{id}"}, resource: "a/{id}"}`, "defaults.hold.release: release speaks of one policy's methods and paths"},
		"opaque for all": {`
defaults: {token: {format: opaque}}
unmatched_writes: fence`, "an opaque token has no order"},
		"holders and numbers": {`
policies:
  - {name: p, match: {path: "/a/{id}", methods: [PUT]}, resource: "a/{id}", compare: hold, token: {format: opaque}}
  - {name: q, match: {path: "/a/{id}"}, resource: "a/{id}"}`, "policies[1].compare: policies[0] names the same resource with compare: hold"},
	} {
		ps := problems(t, head+tc.text+"\n", policies.Overrides{})
		if len(ps) != 1 || !strings.Contains(ps[0].String(), tc.want) {
			t.Errorf("%s: problems %v; want %q alone", name, ps, tc.want)
		}
	}
}

func TestHoldDecisions(t *testing.T) {
	c := load(t, "policies:"+holdPolicy+"    hold: {release: {methods: [DELETE, POST], path: \"/rides/{id}/claim\"}}\n")
	for _, tc := range []struct {
		line     string
		releases bool
	}{
		{"PUT /rides/7/claim", false}, {"DELETE /rides/7/claim", true}, {"DELETE /rides/7/claim/", true}, {"POST /rides/7/claim", true}, {"DELETE /rides/7", false},
		{"DELETE /rides/7/claim/x", false}, {"DELETE /rides/7/Claim", false}, {"DELETE /rides/7/cl%61im", true},
	} {
		d := c.Policies.Decide(request(tc.line, "Hold-Id: A"))
		if d.Action != policies.Fence || d.Releases != tc.releases || d.TokenText != "A" || d.Token != (fencing.Token{}) || fmt.Sprint(d.Resources) != "[rides/7]" {
			t.Errorf("%s: %v, releases %v, token %q %v, %v, %v; want a fenced write of A on rides/7, releases %v",
				tc.line, d.Action, d.Releases, d.TokenText, d.Token, d.Resources, d.Err, tc.releases)
		}
	}
	for _, tc := range []struct {
		headers []string
		want    string
	}{
		{nil, "carries none"},
		{[]string{"Hold-Id: secret-a", "Hold-Id: secret-b"}, "two different tokens"},
		{[]string{"Hold-Id: secret a"}, "white space"},
		{[]string{"Hold-Id: secret-a,secret-a"}, "comma"},
		{[]string{"Hold-Id: secret-a", "Connection: hold-id"}, "Connection names"},
	} {
		d := c.Policies.Decide(request("PUT /rides/7/x", tc.headers...))
		if d.Action != policies.Reject || !strings.Contains(d.Err.Error(), tc.want) || strings.Contains(d.Err.Error(), "secret") {
			t.Errorf("%v: %v, %v; want it refused with %q and without the id", tc.headers, d.Action, d.Err, tc.want)
		}
	}
	if d := c.Policies.Decide(request("PUT /rides/7/x", "Hold-Id: A", "Hold-Id: A")); d.Action != policies.Fence {
		t.Errorf("two equal lines: %v", d.Err)
	}
}

func TestHoldEndsWithAnyRequestOfTheNamedKind(t *testing.T) {
	methods := load(t, "policies:"+holdPolicy+"    hold: {release: {methods: [DELETE]}}\n").Policies
	path := load(t, "policies:"+holdPolicy+"    hold: {release: {path: \"/rides/{id}/done\"}}\n").Policies
	for line, want := range map[string][2]bool{
		"DELETE /rides/7": {true, false}, "DELETE /rides/7/x": {true, false}, "PUT /rides/7/done": {false, true}, "DELETE /rides/7/done": {true, true}, "PUT /rides/7/x": {false, false},
	} {
		got := [2]bool{methods.Decide(request(line, "Hold-Id: A")).Releases, path.Decide(request(line, "Hold-Id: A")).Releases}
		if got != want {
			t.Errorf("%s releases by method and by path: %v; want %v", line, got, want)
		}
	}
}

func TestHoldIsOfOneResource(t *testing.T) {
	c := load(t, `
policies:
  - {name: b, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}", dialect: s3, compare: hold, token: {header: x-amz-meta-hold, format: opaque}}
`)
	d := c.Policies.Decide(request("POST /b?delete", "x-amz-meta-hold: A"))
	if d.Action != policies.Fence || !d.NeedsBody {
		t.Fatalf("a batch: %v, %v", d.Action, d.Err)
	}
	err := d.ResolveBody([]byte(`<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>`))
	var many *policies.UnfenceableError
	if !errors.As(err, &many) || many.Policy != "b" {
		t.Errorf("two objects: %v; want an UnfenceableError", err)
	}
	d = c.Policies.Decide(request("POST /b?delete", "x-amz-meta-hold: A"))
	if err := d.ResolveBody([]byte(`<Delete><Object><Key>a</Key></Object></Delete>`)); err != nil || fmt.Sprint(d.Resources) != "[b/a]" {
		t.Errorf("one object: %v, %v; want it fenced", d.Resources, err)
	}
	d = c.Policies.Decide(request("PUT /b/a", "x-amz-meta-hold: A", "x-amz-copy-source: /b/c"))
	if d.Action != policies.Fence || len(d.Resources) != 1 {
		t.Errorf("a copy: %v %v %v; want its target fenced", d.Action, d.Resources, d.Err)
	}
}

// Every CouchDB write that may change more than one document is refused, or names one.
func TestHoldOfSeveralObjectsIsRefusedBeforeItIsClaimed(t *testing.T) {
	c := load(t, `
policies:
  - {name: d, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}", dialect: couchdb, compare: hold, token: {header: Hold-Id, format: opaque}}
`)
	d := c.Policies.Decide(request("COPY /db/a", "Destination: b", "Hold-Id: A"))
	if d.Action == policies.Fence && len(d.Resources) != 1 {
		t.Errorf("COPY: fenced on %v; want one resource or a refusal", d.Resources)
	}
}

func TestHoldHasKeysOfItsOwn(t *testing.T) {
	hold := load(t, "policies:"+holdPolicy).Policies.Fingerprints()["rides"]
	number := load(t, strings.NewReplacer("    compare: hold\n", "", ", format: opaque", "").Replace("policies:"+holdPolicy)).Policies.Fingerprints()["rides"]
	if want := strings.Replace(number, "order number", "order hold", 1); hold != want || hold == number {
		t.Errorf("fingerprint %q; want %q: marks of numbers mean something else", hold, want)
	}
}
