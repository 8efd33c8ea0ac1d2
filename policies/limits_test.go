package policies_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/policies"
)

func TestLimitsOfAnEmptyFile(t *testing.T) {
	c := load(t, "unmatched_writes: fence\n")
	want := policies.Limits{MaxHeader: 64 << 10, HeaderTimeout: 10 * time.Second, BodyTimeout: time.Minute, WaitersPerResource: 1024, Waiters: 16384}
	if diff := cmp.Diff(want, c.Limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if c.TokenStore.MaxResources != 0 || c.Policies.Unmatched().MaxBody != 0 || c.DescribeLimits() != "" {
		t.Errorf("max_resources %d, max_body %d, %q; want none", c.TokenStore.MaxResources, c.Policies.Unmatched().MaxBody, c.DescribeLimits())
	}
}

func TestLimitsThatCannotBeMeant(t *testing.T) {
	for _, tt := range []struct{ text, path string }{
		{"limits: {max_header: 100}", "limits.max_header"},
		{"limits: {max_header: 1GiB}", "limits.max_header"},
		{"limits: {header_timeout: 0s}", "limits.header_timeout"},
		{"limits: {body_timeout: 0s}", "limits.body_timeout"},
		{"limits: {min_upload_rate: 1KB}", "limits.min_upload_rate"},
		{"limits: {connections: -1}", "limits.connections"},
		{"limits: {connections: 5, connections_per_client: 6}", "limits.connections_per_client"},
		{"limits: {waiters_per_resource: 0}", "limits.waiters_per_resource"},
		{"limits: {waiters: 5, waiters_per_resource: 6}", "limits.waiters_per_resource"},
		{"limits: {new_resources_per_client: ten}", "limits.new_resources_per_client"},
		{"limits: {max_headers: 8KiB}", "limits.max_headers"},
		{"token_store: {max_resources: 2000000000}", "token_store.max_resources"},
		{"defaults: {max_body: 1 meg}", "defaults.max_body"},
	} {
		ps := problems(t, head+"unmatched_writes: fence\n"+tt.text+"\n", policies.Overrides{})
		if len(ps) != 1 || ps[0].Path != tt.path || ps[0].Line != 3 {
			t.Errorf("%s: problems %v; want one at %s in line 3", tt.text, ps, tt.path)
		}
	}
}

func TestRefusedLimitsSayWhatIsAllowed(t *testing.T) {
	for text, want := range map[string]string{
		"limits: {max_header: 100}":       "limits.max_header: 100 is out of range: 4KiB to 16MiB",
		"limits: {max_header: 1GiB}":      "limits.max_header: 1GiB is out of range: 4KiB to 16MiB",
		"limits: {header_timeout: 100h}":  "100h is out of range: above 0s, and at most 24h",
		"defaults: {drain_timeout: 100h}": "100h is out of range: 0s to 24h are allowed",
		"limits: {max_body: 1MiB}":        `unknown key "max_body" (it is a policy key: write it in a policy or under defaults)`,
		"defaults: {allow: sched}":        `"sched" where a list is expected (write [sched])`,
		"defaults: {revert_on: 401}":      `"401" where a list is expected (write [401])`,
		"defaults: {allow: 'a, b'}":       `"a, b" where a list is expected`,
		"defaults: {allow: {a: b}}":       "a mapping where a list is expected",
	} {
		ps := problems(t, head+"unmatched_writes: fence\n"+text+"\n", policies.Overrides{})
		if len(ps) == 0 || !strings.HasSuffix(ps[len(ps)-1].String(), want) {
			t.Errorf("%s: problems %v; want the last to end with %q", text, ps, want)
		}
	}
}

func TestMaxBodyAboveTheSpoolHasNoEffect(t *testing.T) {
	const policy = "policies: [{name: a, match: {path: /a}, resource: a, max_body: 2KiB, request_body: %}]\nspool: {max: 1KiB}\n"
	for body, want := range map[string]int{"spool": 1, "stream": 0} {
		c := load(t, strings.Replace(policy, "%", body, 1))
		n := 0
		for _, w := range c.Warnings() {
			if strings.Contains(w.Message, "max_body of policy a has no effect") && w.Line == 2 {
				n++
			}
		}
		if n != want {
			t.Errorf("%s: warnings %v; want %d about max_body", body, c.Warnings(), want)
		}
	}
}

func TestChangedLimitsAreDescribed(t *testing.T) {
	c := load(t, "unmatched_writes: fence\ntoken_store: {max_resources: 7}\nlimits: {connections: 100, body_timeout: 30s, min_upload_rate: 1KiB}\n"+
		"defaults: {max_body: 1000}\npolicies: [{name: a, match: {path: /a}, resource: a, max_body: 2MiB}, {name: b, match: {path: /b}, resource: b, max_body: 0}]\n")
	if got, want := c.DescribeLimits(), "body_timeout 30s, min_upload_rate 1KiB, connections 100, max_resources 7, max_body 2MiB of a, max_body 1000 of (unmatched)"; got != want {
		t.Errorf("limits %q; want %q", got, want)
	}
}

func TestMaxBodyOfAllPoliciesIsDescribedOnce(t *testing.T) {
	c := load(t, "unmatched_writes: fence\ndefaults: {max_body: 1KiB}\npolicies: [{name: a, match: {path: /a}, resource: a}]\n")
	if got, want := c.DescribeLimits(), "max_body 1KiB"; got != want {
		t.Errorf("limits %q; want %q", got, want)
	}
}
