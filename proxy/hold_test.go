package proxy_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// holdYAML has the first id that writes to a ride claim it; DELETE of its claim ends the hold.
const holdYAML = `
defaults: {drain_timeout: 5s, in_doubt_hold: 500ms}
policies:
  - name: rides
    match: {path: "/rides/{id}/{rest...}"}
    resource: "rides/{id}"
    compare: hold
    token: {header: Hold-Id, format: opaque}
    hold: {release: {methods: [DELETE], path: "/rides/{id}/claim"}}
  - name: seats
    match: {path: "/seats/{id}"}
    resource: "seats/{id}"
    compare: hold
    token: {header: Hold-Id, format: opaque}
    hold: {ttl: 400ms}
  - name: desks
    match: {path: "/desks/{id}"}
    resource: "desks/{id}"
    compare: hold
    token: {header: Hold-Id, format: opaque}
    hold: {ttl: 400ms, renew_on_write: true}
  - name: watched
    match: {path: "/watched/{id}"}
    resource: "watched/{id}"
    mode: observe
    compare: hold
    token: {header: Hold-Id, format: opaque}
`

// inDir keeps the marks in dir, where another rig may have kept them.
func inDir(dir string) rigOption { return func(c *rigConfig) { c.dir = dir } }

// as writes with an id and checks the status and the Fencing-Status.
func (r *rig) as(id, method, path string, wantCode int, wantStatus string) reply {
	r.t.Helper()
	got := r.must(method, path, "of "+id, "Hold-Id", id)
	if got.code != wantCode || got.header.Get("Fencing-Status") != wantStatus {
		r.t.Errorf("%s %s as %s = %v; want %d %s", method, path, id, got, wantCode, wantStatus)
	}
	return got
}

func TestFirstIDHoldsTheResource(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, holdYAML)
	r.as("secret-alice", "PUT", "/rides/7/a", 201, "admitted")
	r.as("secret-alice", "PUT", "/rides/7/b", 201, "admitted")
	got := r.as("secret-bob", "PUT", "/rides/7/a", 412, "stale")
	if !strings.Contains(got.body, "another id") || strings.Contains(got.body, `"token"`) || strings.Contains(got.body, `"mark"`) {
		t.Errorf("the answer is %s; want it to speak of another id, and to show no token", got.body)
	}
	r.as("secret-bob", "PUT", "/rides/8/a", 201, "admitted")
	if got := r.must("PUT", "/rides/7/a", "x"); got.code != 428 {
		t.Errorf("without an id = %v; want 428", got)
	}
	for _, bad := range [][]string{{"Hold-Id", "secret carol"}, {"Hold-Id", "secret-a", "Hold-Id", "secret-b"}, {"Hold-Id", "secret-a,secret-b"}, {"Hold-Id", strings.Repeat("secret", 50)}} {
		got := r.must("PUT", "/rides/9/a", "x", bad...)
		if got.code != 400 || got.header.Get("Fencing-Status") != "malformed" || strings.Contains(got.body, "secret") {
			t.Errorf("with %q = %v; want 400 without the id", bad, got)
		}
	}
	if got := r.must("PUT", "/rides/8/a", "x", "Hold-Id", "secret-bob", "Hold-Id", "secret-bob"); got.code != 201 {
		t.Errorf("two equal lines = %v; want 201", got)
	}
	if got := store.get("/rides/7/a"); got != "of secret-alice" {
		t.Errorf("the store has %q", got)
	}
	m, _, err := r.store.Load("rides/7")
	if err != nil || m.Holder != "secret-alice" || m.TTL != 0 || m.Token.Lo != 1 {
		t.Errorf("mark %+v, %v; want holder 1, secret-alice, for ever", m, err)
	}
	if logs := r.logs.String(); strings.Contains(logs, "secret") || !strings.Contains(logs, "token=1") {
		t.Errorf("the log holds an id, or no number of a holder:\n%s", logs)
	}
	for _, d := range r.proxy.Decisions().Last() {
		if strings.Contains(d.Token+d.Reason, "secret") {
			t.Errorf("the decision %+v holds an id", d)
		}
	}
}

func TestAnotherIDIsRefusedBeforeItsBodyIsSent(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	r.as("A", "PUT", "/rides/7/x", 201, "admitted")
	got := r.raw("PUT /rides/7/x HTTP/1.1\r\nHost: x\r\nHold-Id: B\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n", 5*time.Second)
	if !strings.HasPrefix(got, "HTTP/1.1 412 ") {
		t.Errorf("got %q; want 412 at once, and no 100 Continue", got)
	}
}

func TestHoldThatExpired(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	start := time.Now()
	r.as("A", "PUT", "/seats/7", 201, "admitted")
	r.as("B", "PUT", "/seats/7", 412, "stale")
	for r.must("PUT", "/seats/7", "x", "Hold-Id", "B").code != 201 {
		if time.Since(start) > 20*time.Second {
			t.Fatal("the hold of A never expires")
		}
	}
	if took := time.Since(start); took < 400*time.Millisecond {
		t.Errorf("B got the seat after %v; A held it for 400ms", took)
	}
	r.as("A", "PUT", "/seats/7", 412, "stale")
}

func TestHoldThatIsRenewedByWrites(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	start := time.Now()
	for time.Since(start) < 1500*time.Millisecond {
		last := time.Now()
		if got := r.must("PUT", "/desks/7", "x", "Hold-Id", "A"); got.code != 201 {
			t.Skipf("the machine is too slow: %v since the last write", time.Since(last))
		}
		if got := r.must("PUT", "/desks/7", "x", "Hold-Id", "B"); got.code == 201 && time.Since(last) < 400*time.Millisecond {
			t.Fatalf("B got the desk %v after A began to write", time.Since(last))
		} else if got.code == 201 {
			t.Skip("the machine is too slow to renew in time")
		}
	}
}

// slowStore holds back the writes whose path is in its list.
type slowStore struct {
	*plainStore
	gate chan struct{} // closed to let them go
	seen chan string   // their ids, as they come
}

func newSlowStore(path string) *slowStore {
	s := &slowStore{plainStore: newPlainStore(), gate: make(chan struct{}), seen: make(chan string, 16)}
	s.before = func(r *http.Request) {
		if r.URL.Path == path {
			s.seen <- r.Header.Get("Hold-Id")
			<-s.gate
		}
	}
	return s
}

func TestWriteInFlightOfTheOldHolderKeepsTheNextClaimWaiting(t *testing.T) {
	for name, over := range map[string]func(r *rig){
		"released": func(r *rig) {
			if err := r.proxy.Holds().Release("rides/7", "operator", "test"); err != nil {
				r.t.Error(err)
			}
		},
		"expired": func(r *rig) {
			eventually(r.t, "the hold expires", func() bool {
				s, err := r.proxy.Holds().State("seats/7")
				return err == nil && !s.Held
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := map[string]string{"released": "/rides/7/slow", "expired": "/seats/7"}[name]
			store := newSlowStore(path)
			r := newRigWith(t, store, holdYAML)
			first, second := make(chan reply, 1), make(chan reply, 1)
			go func() { first <- r.must("PUT", path, "of A", "Hold-Id", "A") }()
			<-store.seen
			over(r)
			go func() { second <- r.must("PUT", path, "of B", "Hold-Id", "B") }()
			eventually(t, "B waits", func() bool { return r.gate.Stats().Waiting == 1 })
			select {
			case id := <-store.seen:
				t.Errorf("a write of %s reached the store beside that of A", id)
			case got := <-second:
				t.Errorf("B got %v before the write of A ended", got)
			default:
			}
			if got := r.must("PUT", path, "x", "Hold-Id", "A"); got.code != 412 {
				t.Errorf("A writes again = %v; want 412: B has the claim", got)
			}
			close(store.gate)
			if a, b := <-first, <-second; a.code != 201 || b.code != 201 {
				t.Errorf("A %v, B %v; want both written", a, b)
			}
			if got := store.get(path); got != "of B" {
				t.Errorf("the store ends with %q; want that of B", got)
			}
		})
	}
}

func TestWriteInDoubtOfTheOldHolderKeepsTheNextClaimWaiting(t *testing.T) {
	store := newPlainStore()
	store.before = func(r *http.Request) {
		if r.Header.Get("Hold-Id") == "A" {
			panic(http.ErrAbortHandler)
		}
	}
	r := newRigWith(t, store, holdYAML)
	start := time.Now()
	r.as("A", "PUT", "/rides/7/x", 502, "in-doubt")
	r.as("B", "PUT", "/rides/7/x", 412, "stale") // a write in doubt may have landed: the claim stands
	if err := r.proxy.Holds().Release("rides/7", "operator", "test"); err != nil {
		t.Fatal(err)
	}
	r.as("B", "PUT", "/rides/7/x", 201, "admitted")
	if took := time.Since(start); took < 500*time.Millisecond {
		t.Errorf("B was let in after %v; the write of A is in doubt for 500ms", took)
	}
}

func TestHoldSurvivesARestart(t *testing.T) {
	dir, store := t.TempDir(), newPlainStore()
	t.Run("before", func(t *testing.T) {
		r := newRigWith(t, store, holdYAML, inDir(dir))
		r.as("A", "PUT", "/rides/7/x", 201, "admitted")
		r.as("A", "PUT", "/seats/7", 201, "admitted")
	})
	t.Run("after", func(t *testing.T) {
		r := newRigWith(t, store, holdYAML, inDir(dir))
		r.as("B", "PUT", "/rides/7/x", 412, "stale")
		r.as("A", "PUT", "/rides/7/x", 201, "admitted")
		start := time.Now()
		got := r.must("PUT", "/seats/7", "x", "Hold-Id", "B")
		if got.code != 412 && time.Since(start) < 300*time.Millisecond {
			t.Errorf("B at once = %v; want 412: the hold of A runs anew", got)
		}
		eventually(t, "the hold of A expires", func() bool { return r.must("PUT", "/seats/7", "x", "Hold-Id", "B").code == 201 })
	})
	t.Run("unclean", func(t *testing.T) {
		r := newRigWith(t, store, holdYAML, inDir(dir), recovering(300*time.Millisecond))
		r.as("B", "PUT", "/rides/7/x", 412, "stale")
		r.as("A", "PUT", "/rides/7/x", 201, "admitted")
		start := time.Now()
		r.as("C", "PUT", "/rides/8/x", 201, "admitted")
		if took, left := time.Since(start), r.gate.Recovering(); left > 0 {
			t.Errorf("a claim was let in after %v, %v before the writes of the last run are over", took, left)
		}
	})
}

func TestHoldIsReleasedByTheRequestThatThePolicyNames(t *testing.T) {
	dir := t.TempDir()
	var code atomic.Int64
	code.Store(409)
	store := newPlainStore()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(int(code.Load()))
			return
		}
		store.ServeHTTP(w, r)
	})
	t.Run("released", func(t *testing.T) {
		r := newRigWith(t, handler, holdYAML, inDir(dir))
		r.as("A", "PUT", "/rides/7/x", 201, "admitted")
		r.as("A", "DELETE", "/rides/7/claim", 409, "admitted")
		r.as("B", "PUT", "/rides/7/x", 412, "stale") // the store did not accept it
		code.Store(204)
		r.as("A", "DELETE", "/rides/7/other", 204, "admitted")
		r.as("B", "PUT", "/rides/7/x", 412, "stale") // another path
		r.as("A", "PUT", "/rides/7/claim", 201, "admitted")
		r.as("B", "PUT", "/rides/7/x", 412, "stale") // another method
		r.as("B", "DELETE", "/rides/7/claim", 412, "stale")
		r.as("A", "DELETE", "/rides/7/claim", 204, "admitted")
		if m, _, err := r.store.Load("rides/7"); err != nil || m.Holder != "" || m.Token.Lo != 1 || m.Reason != "released by its holder" {
			t.Errorf("mark %+v, %v when the answer is seen; want number 1 without a holder", m, err)
		}
		if !strings.Contains(r.logs.String(), "hold released by its holder") {
			t.Error("the log does not say that the hold was released")
		}
	})
	t.Run("restarted", func(t *testing.T) {
		r := newRigWith(t, handler, holdYAML, inDir(dir))
		r.as("B", "PUT", "/rides/7/x", 201, "admitted")
		r.as("A", "PUT", "/rides/7/x", 412, "stale")
	})
}

// Whoever has the answer to a release may tell others that the resource is free.
func TestHoldIsReleasedBeforeTheAnswerIsPassedOn(t *testing.T) {
	r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.WriteString(w, "first ")
		_ = http.NewResponseController(w).Flush() // of no known length
		if req.Method == http.MethodDelete {
			time.Sleep(200 * time.Millisecond) // the head must not overtake the end
		}
		_, _ = io.WriteString(w, "last")
	}), holdYAML)
	r.as("A", "PUT", "/rides/7/x", 200, "admitted")
	req, err := http.NewRequest(http.MethodDelete, r.url+"/rides/7/claim", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Hold-Id", "A")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if m, _, err := r.store.Load("rides/7"); err != nil || m.Holder != "" {
		t.Errorf("when the head of the answer is seen the mark is %+v, %v; want no holder", m, err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "first last" {
		t.Errorf("the answer is %q, %v", b, err)
	}
}

func TestClaimOfACallerWhoIsTurnedAwayDoesNotCount(t *testing.T) {
	for _, code := range []int{401, 403} {
		store := newPlainStore()
		r := newRigWith(t, guarded(store, code, "no"), holdYAML)
		put := func(id, auth string) reply {
			return r.must("PUT", "/rides/7/x", "x", "Hold-Id", id, "Authorization", auth)
		}
		if got := put("outsider", "bad"); got.code != code {
			t.Errorf("the outsider = %v; want %d", got, code)
		}
		seats := strings.Replace(holdYAML, "ttl: 400ms", "ttl: 1h", 1) // one that is remembered for its time
		s := newRigWith(t, guarded(store, code, "no"), seats)
		if got := s.must("PUT", "/seats/7", "x", "Hold-Id", "outsider", "Authorization", "bad"); got.code != code {
			t.Errorf("the outsider = %v; want %d", got, code)
		}
		if got := s.must("PUT", "/seats/7", "x", "Hold-Id", "A", "Authorization", "good"); got.code != 201 {
			t.Errorf("A = %v; want 201: the outsider has no seat", got)
		}
		if _, ok, err := r.store.Load("rides/7"); ok || err != nil {
			t.Errorf("a mark is left (%v)", err)
		}
		if got := put("A", "good"); got.code != 201 {
			t.Errorf("A = %v; want 201: the outsider has no claim", got)
		}
		if got := put("outsider", "bad"); got.code != 412 {
			t.Errorf("the outsider = %v; want 412", got)
		}
		if got := put("A", "bad"); got.code != code {
			t.Errorf("A without the password = %v; want %d", got, code)
		}
		if got := put("B", "good"); got.code != 412 {
			t.Errorf("B = %v; want 412: A still holds it", got)
		}
	}
}

func TestObservedHoldLetsEverybodyBy(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	r.as("A", "PUT", "/watched/7", 201, "admitted")
	r.as("B", "PUT", "/watched/7", 201, "would-reject; reason=stale")
	r.as("A", "PUT", "/watched/7", 201, "admitted")
	eventually(t, "the mark names A", func() bool {
		m, _, err := r.store.Load("watched/7")
		return err == nil && m.Holder == "A"
	})
}

func TestManyResourcesOfOneWriteCannotBeHeld(t *testing.T) {
	r := newRigWith(t, newPlainStore(), `
policies:
  - name: bucket
    match: {path: "/{bucket}/{key...}"}
    resource: "{bucket}/{key}"
    dialect: s3
    compare: hold
    token: {header: x-amz-meta-hold, format: opaque}
`)
	body := `<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>`
	got := r.must("POST", "/b?delete", body, "x-amz-meta-hold", "A", "Content-Type", "application/xml")
	if got.code != 403 || got.header.Get("Fencing-Status") != "unfenceable" || !strings.Contains(got.body, "holder of its own") {
		t.Errorf("a batch = %v; want 403 unfenceable", got)
	}
	if got := r.must("PUT", "/b/a", "x", "x-amz-meta-hold", "A"); got.code != 201 {
		t.Errorf("one object = %v; want 201", got)
	}
}

func TestHoldIsExplained(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	r.as("A", "PUT", "/rides/7/x", 201, "admitted")
	for id, want := range map[string]string{"A": "Nobody else holds", "B": "another id"} {
		e, err := proxy.Explain(r.proxy.Policies(), proxy.ExplainRequest{Method: "PUT", URL: "/rides/7/x", Header: http.Header{"Hold-Id": {id}}})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(e.Detail, "claims it, if nobody does") {
			t.Errorf("%s: %q; want it to say what a claim is", id, e.Detail)
		}
		e.Against(r.proxy)
		var text bytes.Buffer
		if _, err := e.WriteTo(&text); err != nil || !strings.Contains(text.String(), want) {
			t.Errorf("%s: %v\n%s; want %q", id, err, &text, want)
		}
		if got := r.must("PUT", "/rides/7/x", "x", "Hold-Id", id); e.Status != 0 && e.Status != got.code || e.Status == 0 && got.code != 201 {
			t.Errorf("%s: explained as %d, answered %v", id, e.Status, got)
		}
	}
}

// A hold keeps the terms with which it was claimed: after a restart nothing else is known of it.
func TestHoldKeepsItsTermsWhenThePolicyChanges(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	r.as("A", "PUT", "/seats/7", 201, "admitted")
	cfg, err := policies.Load("t", []byte(strings.Replace(holdYAML, "ttl: 400ms", "ttl: 10s", 1)), policies.Overrides{UpstreamURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.SetPolicies(cfg.Policies)
	r.as("A", "PUT", "/seats/7", 201, "admitted")
	eventually(t, "the hold of A expires", func() bool { return r.must("PUT", "/seats/7", "x", "Hold-Id", "B").code == 201 })
	if m, _, err := r.store.Load("seats/7"); err != nil || m.TTL != 10*time.Second {
		t.Errorf("mark %+v, %v; want the new ttl for the new holder", m, err)
	}
}

func TestClosedGateRefusesClaims(t *testing.T) {
	r := newRigWith(t, newPlainStore(), holdYAML)
	r.gate.Close(context.Background())
	if got := r.must("PUT", "/rides/7/x", "x", "Hold-Id", "A"); got.code != 503 {
		t.Errorf("while stopping = %v; want 503", got)
	}
}
