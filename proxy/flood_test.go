package proxy_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// TestFloodOfRefusedWritesKeepsNoHolderOut has outsiders send huge tokens without a pause, which the store refuses.
func TestFloodOfRefusedWritesKeepsNoHolderOut(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml   string
		rising bool
		writes int
	}{
		"equal tokens":  {yaml: defaultYAML, writes: 200},
		"rising tokens": {yaml: defaultYAML, rising: true, writes: 200},
		"serial":        {yaml: "unmatched_writes: fence\ndefaults: {same_token: serial}", rising: true, writes: 50},
		"collections":   {yaml: "unmatched_writes: fence\ndefaults: {dialect: webdav}", rising: true, writes: 50},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writes := tc.writes
			if testing.Short() {
				writes = 20
			}
			store := newPlainStore()
			r := newRigWith(t, guarded(store, 403, "no"), tc.yaml)
			r.must("PUT", "/a", "x", "Fencing-Token", "34", "Authorization", "good")
			var next, sent atomic.Uint64
			next.Store(9e18)
			stop := make(chan struct{})
			var outsiders sync.WaitGroup
			for range 16 {
				outsiders.Go(func() { // ends when stop is closed
					for {
						select {
						case <-stop:
							return
						default:
						}
						n := next.Load()
						if tc.rising {
							n = next.Add(1)
						}
						if got, err := r.do("PUT", "/a", "no", "Fencing-Token", strconv.FormatUint(n, 10), "Authorization", "bad"); err != nil || got.code < 400 {
							t.Errorf("an outsider got %v, %v; want a refusal", got, err)
						}
						sent.Add(1)
					}
				})
			}
			for i := range writes {
				if got := r.must("PUT", "/a", fmt.Sprint(i), "Fencing-Token", "34", "Authorization", "good"); got.code > 299 {
					t.Errorf("write %d of the holder = %v; want it accepted", i, got)
				}
			}
			close(stop)
			outsiders.Wait()
			if sent.Load() < uint64(writes) {
				t.Errorf("%d refused writes beside %d; want a flood", sent.Load(), writes)
			}
			if m := r.mark("a"); m != 34 {
				t.Errorf("mark = %d; want 34", m)
			}
			r.wantIdle()
			if got := r.must("PUT", "/a", "x", "Fencing-Token", "33", "Authorization", "good"); got.code != 412 {
				t.Errorf("an older holder = %v; want 412", got)
			}
		})
	}
}

// wantIdle waits until the gate knows of nothing.
func (r *rig) wantIdle() {
	r.t.Helper()
	for range 500 {
		if r.gate.Stats() == (gate.Stats{}) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Errorf("Stats = %+v; want nothing left", r.gate.Stats())
}

func TestStaleAtOnceWhereNobodyIsTurnedAway(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		arrived <- struct{}{}
		<-answer
	}), "unmatched_writes: fence\ndefaults: {revert_on: []}")
	done := make(chan reply)
	go func() { done <- r.must("PUT", "/a", "x", "Fencing-Token", "35") }() // ends with the answer
	<-arrived
	if got := r.must("PUT", "/a", "x", "Fencing-Token", "34"); got.code != 412 {
		t.Errorf("got %v; want 412 while 35 is in flight", got)
	}
	close(answer)
	<-done
}

func TestImplausibleToken(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `
policies:
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}", token: {max_jump: 1000}}
  - {name: seen, match: {path: "/seen/{id}"}, resource: "seen/{id}", token: {max_jump: 1000}, mode: observe}
`)
	r.put("/rides/7", 5e9, "the first may be any", 201, "admitted")
	r.put("/rides/7", 5e9+1000, "x", 201, "admitted")
	got := r.put("/rides/7", 5e9+2001, "x", 400, "implausible")
	for _, want := range []string{"urn:fenceproxy:implausible", `"forwarded": "no"`, "fenceproxy marks set", "max_jump"} {
		if !strings.Contains(got.body, want) {
			t.Errorf("the answer is %s; want it to hold %s", got.body, want)
		}
	}
	if m := r.mark("rides/7"); m != 5e9+1000 {
		t.Errorf("mark = %d; want it untouched", m)
	}
	r.put("/seen/7", 34, "x", 201, "admitted")
	for range 500 { // an observed token becomes durable in the background
		if r.mark("seen/7") == 34 && r.gate.Stats().InFlight == 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.put("/seen/7", 3400, "x", 201, "would-reject; reason=implausible")
	if m := r.mark("seen/7"); m != 34 {
		t.Errorf("mark = %d; want 34", m)
	}
}

func TestRevertUnsent(t *testing.T) {
	for _, on := range []bool{false, true} {
		want := uint64(50)
		if on {
			want = 34
		}
		t.Run(fmt.Sprintf("%v, the store is down", on), func(t *testing.T) {
			r := newRig(t, "http://127.0.0.1:1", fmt.Sprintf("unmatched_writes: fence\ndefaults: {revert_unsent: %v}", on))
			if err := r.store.Advance([]fencing.ResourceMark{{Resource: "a", Mark: fencing.Mark{Token: fencing.Number(34)}}}); err != nil {
				t.Fatal(err)
			}
			if got := r.must("PUT", "/a", "x", "Fencing-Token", "50"); got.code != 502 {
				t.Errorf("got %v; want 502", got)
			}
			if m := r.mark("a"); m != want {
				t.Errorf("mark = %d; want %d", m, want)
			}
		})
		t.Run(fmt.Sprintf("%v, the drain timeout ends", on), func(t *testing.T) {
			arrived, answer := make(chan struct{}), make(chan struct{})
			r := newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				arrived <- struct{}{}
				<-answer
			}), fmt.Sprintf("unmatched_writes: fence\ndefaults: {revert_unsent: %v, drain_timeout: 50ms}", on))
			done := make(chan reply)
			go func() { done <- r.must("PUT", "/a", "x", "Fencing-Token", "34") }() // ends with the answer
			<-arrived
			if got := r.must("PUT", "/a", "x", "Fencing-Token", "50"); got.code != 503 {
				t.Errorf("got %v; want 503", got)
			}
			close(answer)
			<-done
			r.wantIdle()
			if m := r.mark("a"); m != want {
				t.Errorf("mark = %d; want %d", m, want)
			}
		})
	}
}
