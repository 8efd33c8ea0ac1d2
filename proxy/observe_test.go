package proxy_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

const observeYAML = `
spool: {memory: 1KiB, max: 4KiB}
policies:
  - {name: watched, match: {path: "/w/{id}"}, resource: "w/{id}", mode: observe, in_doubt_hold: 1s}
  - {name: json, match: {path: "/j"}, resource: "j/{body.id}", mode: observe}
  - {name: off, match: {path: "/off/{id}"}, resource: "off/{id}", mode: off}
  - {name: optional, match: {path: "/opt/{id}"}, resource: "opt/{id}", missing_token: allow}
`

func TestObserveMarksAndRefusesNothing(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, observeYAML)
	r.put("/w/7", 34, "x", 201, "admitted")
	eventually(t, "the mark advances", func() bool { return r.mark("w/7") == 34 })
	r.put("/w/7", 33, "stale", 201, "would-reject; reason=stale")
	if v := store.get("/w/7"); v != "stale" {
		t.Errorf("the store holds %q; want the write that was only observed", v)
	}
	if m := r.mark("w/7"); m != 34 {
		t.Errorf("mark = %d; want 34", m)
	}
	for _, tt := range []struct {
		path, body, want string
		header           []string
	}{
		{"/w/7", "x", "would-reject; reason=missing", nil},
		{"/w/7", "x", "would-reject; reason=malformed", []string{"Fencing-Token", "x"}},
		{"/j", `{"x": 1}`, "would-reject; reason=malformed", []string{"Fencing-Token", "1"}},
		{"/j", `{"id": 1}`, "admitted", []string{"Fencing-Token", "1"}},
		{"/w/7", strings.Repeat("x", 100<<10), "admitted", []string{"Fencing-Token", "34"}}, // longer than spool.max
	} {
		if got := r.must("PUT", tt.path, tt.body, tt.header...); got.code != 201 || got.header.Get("Fencing-Status") != tt.want {
			t.Errorf("PUT %s %q = %v; want 201 %s", tt.path, tt.header, got, tt.want)
		}
		if got := store.get(tt.path); got != tt.body {
			t.Errorf("the store holds %.40q; want %.40q", got, tt.body)
		}
	}
}

func TestObserveLetsAWriteOfUnknownReachPass(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `{unmatched_writes: allow, policies: [{name: w, match: {path: "/w/{id}"}, resource: "w/{id}", mode: observe}]}`)
	got := r.must("COPY", "/w/7", "x", "Fencing-Token", "34", "Destination", "/w/8")
	if got.code != 201 || got.header.Get("Fencing-Status") != "would-reject; reason=unfenceable" {
		t.Errorf("COPY = %v; want it to pass and be marked", got)
	}
}

func TestObserveDoesNotWait(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, observeYAML)
	a := r.begin("PUT", "/w/7", "x", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	r.put("/w/7", 34, "x", 201, "admitted")
	close(store.release)
	receive(t, "33", a)
}

func TestOffAndOptional(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, observeYAML)
	r.put("/off/7", 34, "x", 201, "")
	r.put("/off/7", 33, "y", 201, "")
	if r.mark("off/7") != 0 {
		t.Errorf("mode: off left a mark")
	}
	if got := r.must("PUT", "/opt/7", "x"); got.code != 201 || got.header.Get("Fencing-Status") != "" {
		t.Errorf("no token = %v; want it to pass unfenced", got)
	}
	r.put("/opt/7", 34, "x", 201, "admitted")
	r.put("/opt/7", 33, "x", 412, "stale")
	if got := r.must("PUT", "/opt/7", "x", "Fencing-Token", "bad"); got.code != 400 {
		t.Errorf("a bad token = %v; want 400", got)
	}
	outcomes := map[string]int{}
	for _, d := range r.proxy.Decisions().Last() {
		outcomes[d.Policy+" "+d.Outcome]++
	}
	if outcomes["off unfenced"] != 2 || outcomes["optional unfenced"] != 1 {
		t.Errorf("recorded %v; want the writes that passed unfenced among them", outcomes)
	}
}

func TestPoliciesOfARequestDoNotChangeUnderIt(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, "unmatched_writes: fence\ndefaults: {settle: 300ms}")
	a := r.begin("PUT", "/a", "x", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	cfg, err := policies.Load("new.yaml", []byte(`
policies: [{name: new, match: {path: "/{id}"}, resource: "{id}", token: {header: X-New}}]`), policies.Overrides{UpstreamURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.SetPolicies(cfg.Policies)
	if got := r.must("PUT", "/a", "x", "Fencing-Token", "34"); got.code != 428 {
		t.Errorf("under the new policies = %v; want 428", got)
	}
	close(store.release)
	began := time.Now()
	if got := receive(t, "33", a); got.code != 201 || got.header.Get("Fencing-Status") != "admitted" {
		t.Errorf("33 = %v; want 201 admitted", got)
	}
	if got := r.must("PUT", "/a", "x", "X-New", "34"); got.code != 201 {
		t.Errorf("34 = %v; want 201", got)
	}
	if d := time.Since(began); d < 250*time.Millisecond {
		t.Errorf("34 passed after %v; want the old policy's settle time to hold for 33", d)
	}
}

func TestLogsHoldNoSecretsAndCannotBeForged(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `policies: [{name: q, match: {path: "/{id...}"}, resource: "{id}", token: {from: [{query: fence}, {basic_user: true}, {header: Fencing-Token}]}}]`)
	r.must("PUT", "/a%0alevel=ERROR?X-Amz-Signature=secret1&fence=33", "secret2", "Authorization", "Bearer secret3", "Cookie", "secret4")
	r.must("PUT", "/a?X-Amz-Signature=secret1&fence=%zz", "x", "Authorization", "Bearer secret3")
	r.must("PUT", "/a?sig=secret1", "x", "Authorization", "Basic c2VjcmV0Mzp4") // secret3:x
	r.must("GET", "/a?sig=secret1", "")
	_, _ = r.do("PUT", "/a%0d%0alevel=ERROR", "x", "Fencing-Token", "bad\tlevel=ERROR")
	_, _ = r.do("PUT", "/"+strings.Repeat("long", 5000), "x", "Fencing-Token", "1")
	logs := r.logs.String()
	if logs == "" || strings.Contains(logs, "secret") {
		t.Errorf("the log is empty or holds a secret:\n%s", logs)
	}
	for _, line := range strings.Split(strings.TrimSpace(logs), "\n") {
		if !strings.HasPrefix(line, "time=") || strings.Count(line, " level=") > 2 || len(line) > 4096 {
			t.Errorf("a forged or huge line: %.200q", line)
		}
	}
	for _, d := range r.proxy.Decisions().Last() {
		if strings.Contains(d.Path+d.Token+d.Reason, "secret") {
			t.Errorf("a decision holds a secret: %+v", d)
		}
	}
}

func TestMetrics(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `policies: [{name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}]`)
	r.put("/rides/hidden7", 34404, "x", 201, "admitted")
	r.put("/rides/hidden7", 34403, "x", 412, "stale")
	r.must("PUT", "/rides/hidden7", "x")
	families, err := r.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	outcomes := map[string]float64{}
	for _, f := range families {
		have[f.GetName()] = true
		if !strings.HasPrefix(f.GetName(), "fenceproxy_") {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains([]string{"policy", "outcome", "limit", "reason"}, l.GetName()) || strings.Contains(l.GetValue(), "hidden7") || strings.Contains(l.GetValue(), "3440") {
					t.Errorf("%s has the label %s=%q", f.GetName(), l.GetName(), l.GetValue())
				}
				if l.GetName() == "outcome" {
					outcomes[l.GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
	}
	for _, name := range []string{
		"fenceproxy_writes_total", "fenceproxy_gate_wait_seconds", "fenceproxy_advance_seconds", "fenceproxy_in_flight", "fenceproxy_in_doubt",
		"fenceproxy_upstream_seconds", "go_goroutines", "process_open_fds",
	} {
		if !have[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, o := range []string{"admitted", "stale", "missing"} {
		if outcomes[o] != 1 {
			t.Errorf("%s counted %v times; want once", o, outcomes[o])
		}
	}
}

func TestReadsPassBesideAWaitingWrite(t *testing.T) {
	store := newGatedStore(t)
	r := newRigWith(t, store, defaultYAML)
	a := r.begin("PUT", "/a", "x", "Fencing-Token", "33")
	receive(t, "33 at the store", store.arrived)
	if got := r.must("GET", "/a", ""); got.code != 404 {
		t.Errorf("GET = %v; want the store's 404", got)
	}
	close(store.release)
	receive(t, "33", a)
}

func TestUnfencedAnswerMayBeSilent(t *testing.T) {
	more := make(chan struct{})
	r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
		case <-t.Context().Done():
		}
		_, _ = io.WriteString(w, "two")
	}), "upstream: {timeout: 200ms}\n"+defaultYAML)
	got := r.begin("GET", "/feed", "")
	<-time.After(600 * time.Millisecond) // three times as long as a write's answer may be silent
	close(more)
	if got := receive(t, "the feed", got); got.body != "onetwo" {
		t.Errorf("got %v; want both pieces", got)
	}
}

// A batch is refused where its path's policy observes and that of an object enforces: the object's fence is not to be walked round so.
func TestObservedBatchDoesNotReachWhatIsEnforced(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `
defaults: {dialect: s3}
policies:
  - {name: lax, match: {path: "/{bucket}"}, resource: "{bucket}", mode: observe}
  - {name: strict, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}
`)
	r.put("/rides/7", 34, "B", 201, "admitted")
	const batch = "<Delete><Object><Key>7</Key></Object></Delete>"
	for _, header := range [][]string{{"Fencing-Token", "33"}, {}} {
		if got := r.must("POST", "/rides?delete", batch, header...); got.code/100 != 4 {
			t.Errorf("a batch with %v = %v; want it refused", header, got)
		}
	}
	applied(t, store, "PUT /rides/7 34")
}
