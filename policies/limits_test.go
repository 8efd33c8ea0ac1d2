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
	c := load(t, "unmatched_writes: fence\ntoken_store: {max_resources: 7}\nlimits: {connections: 100, body_timeout: 30s}\n")
	if got, want := c.DescribeLimits(), "body_timeout 30s, connections 100, max_resources 7"; got != want {
		t.Errorf("limits %q; want %q", got, want)
	}
}
