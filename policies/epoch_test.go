package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestTokensCountInTheEpochOfTheirPolicy(t *testing.T) {
	c := load(t, `
defaults: {epoch: 1}
policies:
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}", epoch: 2}
  - {name: trips, match: {path: "/trips/{id}"}, resource: "trips/{id}", token: {header: Fencing-Token, format: pair}}
  - {name: zero, match: {path: "/zero/{id}"}, resource: "zero/{id}", epoch: 0}
unmatched_writes: fence
`)
	for _, tc := range []struct {
		path, token string
		want        fencing.Token
	}{
		{"/rides/7", "34", fencing.Number(34).In(2)},
		{"/trips/7", "7.34", fencing.Token{Epoch: 1, Hi: 7, Lo: 34}},
		{"/zero/7", "34", fencing.Number(34)},
		{"/other", "34", fencing.Number(34).In(1)},
	} {
		d := c.Policies.Decide(request("PUT "+tc.path, "Fencing-Token: "+tc.token))
		if d.Action != policies.Fence || d.Token != tc.want || d.TokenText != tc.token {
			t.Errorf("%s: %v %v %q (%v); want fence %v", tc.path, d.Action, d.Token, d.TokenText, d.Err, tc.want)
		}
	}
	if got := fmt.Sprint(c.Policies.Epochs()); got != "map[(unmatched):1 rides:2 trips:1 zero:0]" || !c.Policies.HasEpochs() {
		t.Errorf("Epochs %s", got)
	}
	if d := c.Policies.Decide(request("PUT /rides/7", "Fencing-Token: 0")); d.Action != policies.Reject {
		t.Error("a zero of epoch 2 passes; want it refused")
	}
	if load(t, "unmatched_writes: fence").Policies.HasEpochs() {
		t.Error("HasEpochs without one")
	}
}

func TestEpochIsNoPartOfTheKeys(t *testing.T) {
	print := func(epoch int) string {
		c := load(t, fmt.Sprintf("policies: [{name: p, match: {path: \"/a/{id}\"}, resource: \"a/{id}\", epoch: %d}]", epoch))
		return c.Policies.Fingerprints()["p"]
	}
	if a, b := print(0), print(7); a != b || strings.Contains(a, "epoch") {
		t.Errorf("fingerprints %q and %q; want the same, without an epoch", a, b)
	}
}

func TestPoliciesThatShareKeysNeedOneEpoch(t *testing.T) {
	for _, tc := range []struct {
		name, policies string
		refused        bool
	}{
		{"same path, other methods", `
  - {name: a, match: {path: "/rides/{id}", methods: [PUT]}, resource: "rides/{id}", epoch: 2}
  - {name: b, match: {path: "/rides/{id}"}, resource: "rides/{id}"}`, true},
		{"other path, same key", `
  - {name: a, match: {path: "/rides/{id}"}, resource: "rides/{id}", epoch: 2}
  - {name: b, match: {path: "/claims/{ride}"}, resource: "rides/{ride}"}`, true},
		{"one of several", `
  - {name: a, match: {path: "/rides/{id}"}, resource: ["x", "rides/{id}"], epoch: 2}
  - {name: b, match: {path: "/claims/{ride}"}, resource: ["rides/{ride}", "y"]}`, true},
		{"same epoch", `
  - {name: a, match: {path: "/rides/{id}", methods: [PUT]}, resource: "rides/{id}", epoch: 2}
  - {name: b, match: {path: "/rides/{id}"}, resource: "rides/{id}", epoch: 2}`, false},
		{"other keys", `
  - {name: a, match: {path: "/rides/{id}"}, resource: "rides/{id}", epoch: 2}
  - {name: b, match: {path: "/trips/{id}"}, resource: "trips/{id}"}`, false},
		{"whole path of other paths", `
  - {name: a, match: {path: "/rides/{id}"}, resource: "{path}", epoch: 2}
  - {name: b, match: {path: "/trips/{id}"}, resource: "{path}"}`, false},
		{"whole path of the same path", `
  - {name: a, match: {path: "/rides/{id}", methods: [PUT]}, resource: "{path}", epoch: 2}
  - {name: b, match: {path: "/rides/{id}"}, resource: "{path}"}`, true},
		{"off", `
  - {name: a, match: {path: "/rides/{id}", methods: [PUT]}, resource: "rides/{id}", epoch: 2}
  - {name: b, match: {path: "/rides/{id}"}, resource: "rides/{id}", mode: off}`, false},
	} {
		ps := problems(t, head+"policies:"+tc.policies+"\n", policies.Overrides{})
		refused := len(ps) == 1 && strings.Contains(ps[0].String(), "policies[1].epoch: policies[0] names the same resource and has epoch 2, this one 0")
		if refused != tc.refused || len(ps) > 1 || !tc.refused && len(ps) > 0 {
			t.Errorf("%s: problems %v; want refused %v", tc.name, ps, tc.refused)
		}
	}
}

func TestOneWriteUnderTwoEpochsIsRefused(t *testing.T) {
	c := load(t, `
defaults: {dialect: webdav}
policies:
  - {name: a, match: {path: "/a/{rest...}"}, resource: "a/{rest}", epoch: 2}
  - {name: b, match: {path: "/b/{rest...}"}, resource: "b/{rest}"}
`)
	d := c.Policies.Decide(request("MOVE /a/x", "Destination: /b/x", "Fencing-Token: 3"))
	if d.Action != policies.Reject || !strings.Contains(fmt.Sprint(d.Err), "judge tokens differently") {
		t.Errorf("%v, %v; want it refused: 3 is not the same token in both", d.Action, d.Err)
	}
}
