package hold_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/hold"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// doubt is how long a write whose outcome is unknown may still land.
const doubt = 4 * time.Second

// promise is what the holder of a resource may rely on.
type promise struct {
	id     string
	token  fencing.Token
	ttl    time.Duration
	until  time.Time // zero: until it is released
	proven bool      // a write was accepted
}

func (p *promise) runs(now time.Time) bool {
	return p != nil && (p.until.IsZero() || now.Before(p.until))
}

// write is a write from its claim to its outcome.
type write struct {
	r       fencing.Resource
	id      string
	terms   hold.Terms
	claim   *hold.Claim
	a       *gate.Admission
	err     error
	cancel  context.CancelFunc
	done    chan struct{} // closed when Enter has returned
	at      time.Time     // when it has
	release bool          // the answer ends the hold
	void    bool          // an operator has ended its hold
}

// landed is a write that the store has applied.
type landed struct {
	id    string
	token fencing.Token
}

// machine runs steps against a manager and a gate. It knows nothing of how they work; it knows what holders were promised, and what the store
// was made to apply.
type machine struct {
	s        *memStore
	g        *gate.Gate
	m        *hold.Manager
	waiting  []*write
	flights  []*write
	promises map[fencing.Resource]*promise
	touched  map[fencing.Resource]time.Time // when anything last happened to a hold
	longest  map[fencing.Resource]time.Duration
	forever  map[fencing.Resource]bool // a claim without a ttl was tried since the last release

	mu sync.Mutex // guards the fields below: writes in doubt land by themselves
	// +checklocks:mu
	landings map[fencing.Resource][]landed
	// +checklocks:mu
	err error
}

func newMachine() *machine {
	x := &machine{
		s: newMemStore(), landings: map[fencing.Resource][]landed{}, promises: map[fencing.Resource]*promise{}, touched: map[fencing.Resource]time.Time{},
		longest: map[fencing.Resource]time.Duration{}, forever: map[fencing.Resource]bool{},
	}
	x.start(0)
	return x
}

func (x *machine) start(recovery time.Duration) {
	x.g = gate.New(x.s, gate.Config{Recover: recovery})
	x.m = hold.New(x.g, nil)
}

func (x *machine) failf(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.failLocked(format, args...)
}

// +checklocks:x.mu
func (x *machine) failLocked(format string, args ...any) {
	if x.err == nil {
		x.err = fmt.Errorf(format, args...)
	}
}

func (x *machine) failed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err
}

// land applies a write at the store: never one of an earlier holder after one of a later, never two ids with one number.
func (x *machine) land(r fencing.Resource, id string, token fencing.Token) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.landings[r] {
		if token.Less(l.token) {
			x.failLocked("%s: a write of %s (%v) lands after one of %s (%v)", r, id, token, l.id, l.token)
		}
		if token == l.token && id != l.id {
			x.failLocked("%s: %s and %s both wrote as holder %v", r, l.id, id, token)
		}
	}
	x.landings[r] = append(x.landings[r], landed{id, token})
}

func (x *machine) open() []*write { return slices.Concat(x.waiting, x.flights) }

type step struct {
	kind    string
	r       fencing.Resource
	id      string
	ttl     int
	renew   bool
	release bool
	index   int
	tenths  int
}

func drawSteps(t *rapid.T) []step {
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			kind: rapid.SampledFrom([]string{
				"claim", "claim", "claim", "claim", "claim", "done", "done", "done", "refused", "not sent", "in doubt", "cancel", "pass", "pass", "pass",
				"operator", "take over", "take over", "crash", "crash", "restart", "slow", "fail",
			}).Draw(t, "kind"),
			r:       rapid.SampledFrom([]fencing.Resource{"r", "s"}).Draw(t, "resource"),
			id:      rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "id"),
			ttl:     rapid.SampledFrom([]int{0, 2, 2, 5, 5}).Draw(t, "ttl"),
			renew:   rapid.Bool().Draw(t, "renew"),
			release: rapid.IntRange(0, 4).Draw(t, "release") == 4,
			index:   rapid.IntRange(0, 1000).Draw(t, "index"),
			tenths:  rapid.IntRange(1, 60).Draw(t, "tenths"),
		}
	})
	return rapid.SliceOfN(one, 10, 80).Draw(t, "steps")
}

func (x *machine) do(st step) {
	switch st.kind {
	case "claim":
		x.claim(st)
	case "cancel":
		if n := len(x.waiting); n > 0 {
			x.waiting[st.index%n].cancel()
		}
	case "pass":
		time.Sleep(time.Duration(st.tenths)*100*time.Millisecond + time.Millisecond)
	case "operator":
		x.operator(st.r)
	case "take over": // while writes of the holder are on their way
		x.operator(st.r)
		x.claim(st)
	case "crash":
		x.crash(st)
	case "restart":
		if len(x.open()) == 0 {
			if x.g.Close(context.Background()) {
				x.start(0)
			} else {
				x.start(doubt)
			}
			x.restarted()
		}
	case "slow":
		x.s.mu.Lock()
		x.s.delay = time.Duration(st.index%4) * 50 * time.Millisecond
		x.s.mu.Unlock()
	case "fail":
		x.s.mu.Lock()
		x.s.fail = st.index % 2
		x.s.mu.Unlock()
	default:
		if n := len(x.flights); n > 0 {
			w := x.flights[st.index%n]
			x.flights = slices.DeleteFunc(x.flights, func(v *write) bool { return v == w })
			x.end(w, st)
		}
	}
	synctest.Wait()
	x.collect()
}

func (x *machine) claim(st step) {
	now := time.Now()
	w := &write{r: st.r, id: st.id, release: st.release, terms: hold.Terms{TTL: time.Duration(st.ttl) * time.Second, Renew: st.renew}, done: make(chan struct{})}
	p := x.promises[st.r]
	early := x.m.Check(st.r, st.id)
	w.claim, w.err = x.m.Claim(st.r, st.id, w.terms)
	if fmt.Sprint(early) != fmt.Sprint(w.err) {
		x.failf("%s: Check of %s gives %v and Claim %v", st.r, st.id, early, w.err)
	}
	open := slices.DeleteFunc(x.open(), func(v *write) bool { return v.r != st.r })
	if w.err != nil {
		other, ok := errors.AsType[*hold.NotHolderError](w.err)
		switch {
		case !ok || other.Resource != st.r:
			x.failf("Claim = %v; want a NotHolderError of %s", w.err, st.r)
		case p.runs(now) && p.id == st.id:
			x.failf("%s: %s is refused and was promised the resource until %v; it is %v", st.r, st.id, p.until, now)
		case len(open) == 0 && !x.forever[st.r] && now.After(x.touched[st.r].Add(x.longest[st.r])):
			x.failf("%s: %s is refused although every hold has expired", st.r, st.id)
		}
		return
	}
	token := w.claim.Token()
	switch {
	case p.runs(now) && p.id != st.id:
		x.failf("%s: %s gets a claim (%v) while %s was promised the resource (%v) until %v; it is %v", st.r, st.id, token, p.id, p.token, p.until, now)
	case p.runs(now) && p.token != token:
		x.failf("%s: the holder %s gets %v and had %v", st.r, st.id, token, p.token)
	}
	for _, v := range open {
		if v.claim.Token() == token && v.id != st.id {
			x.failf("%s: %s and %s both have claims with %v", st.r, v.id, st.id, token)
		}
	}
	x.forever[st.r] = x.forever[st.r] || w.claim.TTL() == 0
	x.longest[st.r] = max(x.longest[st.r], w.claim.TTL())
	x.touched[st.r] = now
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	x.waiting = append(x.waiting, w)
	g := x.g
	go func() { // ends when Enter returns: it waits 3 seconds at most, or for the disk
		defer close(w.done)
		w.a, w.err = g.Enter(ctx, gate.Write{
			Resources: []fencing.Resource{w.r}, Token: token, DrainTimeout: 3 * time.Second, Format: fencing.Opaque, Holder: w.id, TTL: w.claim.TTL(),
		})
		w.at = time.Now()
		if w.err != nil {
			_, stale := errors.AsType[*gate.StaleTokenError](w.err)
			w.claim.Failed(stale)
			return
		}
		w.claim.Admitted()
	}()
}

// collect takes note of the writes whose Enter has returned.
func (x *machine) collect() {
	for _, w := range slices.Clone(x.waiting) {
		select {
		case <-w.done:
		default:
			continue
		}
		x.waiting = slices.DeleteFunc(x.waiting, func(v *write) bool { return v == w })
		x.touched[w.r] = time.Now()
		w.cancel()
		if w.err != nil {
			continue
		}
		x.flights = append(x.flights, w)
		for _, v := range x.flights {
			if v.r == w.r && v.claim.Token() != w.claim.Token() {
				x.failf("%s: %s (%v) is in flight beside %s (%v)", w.r, w.id, w.claim.Token(), v.id, v.claim.Token())
			}
		}
		x.promised(w)
	}
}

// promised takes note that a write of a holder was admitted.
func (x *machine) promised(w *write) {
	p := x.promises[w.r]
	if w.void || p != nil && p.token == w.claim.Token() || p != nil && w.claim.Token().Less(p.token) {
		return
	}
	p = &promise{id: w.id, token: w.claim.Token(), ttl: w.claim.TTL()}
	if p.ttl > 0 {
		p.until = w.at.Add(p.ttl)
	}
	x.promises[w.r] = p
}

func (x *machine) end(w *write, st step) {
	token, p := w.claim.Token(), x.promises[w.r]
	mine := p != nil && p.token == token
	accepted := true
	switch st.kind {
	case "done":
		x.land(w.r, w.id, token)
		w.a.Done(0)
		if w.release {
			err := w.claim.Release("holder", "done")
			if err == nil && mine {
				delete(x.promises, w.r)
				x.forever[w.r] = false
				mine = false
			}
		}
		w.claim.Accepted()
	case "not sent":
		w.a.NotSent()
		w.claim.Accepted()
	case "in doubt":
		w.a.InDoubt(doubt)
		w.claim.Accepted()
		x.landLater(w, time.Duration(st.tenths)*100*time.Millisecond)
	case "refused":
		accepted = false
		if err := w.a.Refused(); err != nil && !errors.Is(err, errDisk) {
			x.failf("Refused = %v", err)
		}
		w.claim.Refused()
	}
	x.touched[w.r] = time.Now()
	switch {
	case !mine:
	case accepted:
		p.proven = true
		if w.terms.Renew && p.ttl > 0 {
			p.until = later(p.until, time.Now().Add(p.ttl))
		}
	case !p.proven && !slices.ContainsFunc(x.open(), func(v *write) bool { return v.r == w.r && v.claim.Token() == token }):
		delete(x.promises, w.r) // the claim goes back with the mark
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// landLater has a write in doubt land after some time, unless its hold is over before.
func (x *machine) landLater(w *write, after time.Duration) {
	if after >= doubt {
		return // it never does
	}
	time.AfterFunc(after, func() { x.land(w.r, w.id, w.claim.Token()) })
}

func (x *machine) operator(r fencing.Resource) {
	switch err := x.m.Release(r, "operator", "because"); {
	case err == nil:
		delete(x.promises, r)
		for _, w := range x.open() {
			w.void = w.void || w.r == r
		}
		if !slices.ContainsFunc(x.open(), func(w *write) bool { return w.r == r }) {
			x.forever[r] = false
		}
	case errors.Is(err, hold.ErrNotHeld):
		if p := x.promises[r]; p.runs(time.Now()) {
			x.failf("%s: %s holds it and the mark names no holder", r, p.id)
		}
	case errors.Is(err, gate.ErrChanged), errors.Is(err, hold.ErrChanged), errors.Is(err, errDisk):
	default:
		x.failf("Release = %v", err)
	}
	x.touched[r] = time.Now()
}

// crash ends the process: nothing of it is left but what is durable, and writes that are on their way.
func (x *machine) crash(st step) {
	for i, w := range x.flights {
		x.landLater(w, time.Duration(st.tenths*(i+1)%50)*100*time.Millisecond)
	}
	for _, w := range x.waiting {
		w.cancel() // it was never forwarded
	}
	synctest.Wait()
	for _, w := range x.waiting {
		<-w.done
	}
	x.waiting, x.flights = nil, nil
	x.start(doubt)
	x.restarted()
}

func (x *machine) restarted() {
	for r := range x.touched {
		x.touched[r] = time.Now()
	}
}

func TestHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawSteps(rt)
		var err error
		synctest.Test(t, func(*testing.T) {
			x := newMachine()
			for i, st := range steps {
				x.do(st)
				if bad := x.failed(); bad != nil {
					err = fmt.Errorf("step %d, %+v: %w", i, st, bad)
					break
				}
			}
			x.finish()
			if err == nil {
				err = x.failed()
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}

// finish lets every goroutine of the bubble end.
func (x *machine) finish() {
	for len(x.open()) > 0 {
		for _, w := range x.flights {
			x.land(w.r, w.id, w.claim.Token())
			w.a.Done(0)
			w.claim.Accepted()
		}
		x.flights = nil
		for _, w := range x.waiting {
			<-w.done
		}
		x.collect()
	}
	time.Sleep(time.Minute)
	x.g.Close(context.Background())
}
