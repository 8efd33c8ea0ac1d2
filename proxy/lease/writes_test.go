package lease_test

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
	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// gated has a manager and a gate on one process, as the proxy has them.
type gated struct {
	*process
	g *gate.Gate
}

var _ gate.Store = gated{}

func (p gated) Load(r fencing.Resource) (fencing.Mark, bool, error) { return p.process.Seen(r) }

func (p gated) Err() error { return p.alive() }

func (p gated) Beneath(fencing.Resource) (fencing.Token, bool, error) {
	return fencing.Token{}, false, errors.New("there are no trees")
}

func (p gated) Advance(ms []fencing.ResourceMark) error {
	return p.change(false, func() {
		for _, m := range ms {
			if now, ok := p.d.mark(m.Resource); !ok || now.Token.Less(m.Mark.Token) {
				p.d.set(m.Resource, m.Mark)
			}
		}
	})
}

func (p gated) Restore(r fencing.Resource, from fencing.Token, to *fencing.Mark) (did bool, err error) {
	err = p.change(false, func() {
		now, ok := p.d.mark(r)
		if did = ok && now.Token == from; !did {
			return
		}
		if to != nil {
			p.d.set(r, *to)
			return
		}
		p.d.mu.Lock()
		defer p.d.mu.Unlock()
		delete(p.d.marks, r)
	})
	return did && err == nil, err
}

func (p gated) Seen(r fencing.Resource) (fencing.Mark, bool, error) { return p.g.Mark(r) }

func (p gated) Raise(r fencing.Resource, m fencing.Mark) error {
	old, had, err := p.g.SetMark(r, m, false)
	switch {
	case errors.Is(err, gate.ErrWouldLower), errors.Is(err, gate.ErrChanged), err == nil && had && !old.Token.Less(m.Token):
		return lease.ErrOvertaken
	}
	return err
}

// doubt is how long a write whose outcome is unknown may still land.
const doubt = 4 * time.Second

// flight is a write of a holder, present or past, from when it is sent to its outcome.
type flight struct {
	name   fencing.Resource
	token  uint64
	a      *gate.Admission
	err    error
	late   bool          // a later lease had been granted before it was sent
	cancel func()        // gives up its wait
	done   chan struct{} // closed when Enter has returned
}

// writers is a store behind the gate, and the holders that write to it. It knows which tokens were granted and what the store was made to apply.
type writers struct {
	t testing.TB
	d *disk
	p gated
	m *lease.Manager

	open    sync.WaitGroup // requests for leases
	waiting []*flight
	flights []*flight

	mu       sync.Mutex // guards the fields below
	grants   map[fencing.Resource][]lease.Grant
	landings map[fencing.Resource]uint64 // the highest token that landed
	trouble  error
}

func (x *writers) wrong(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.wrongLocked(format, args...)
}

func (x *writers) wrongLocked(format string, args ...any) {
	if x.trouble == nil {
		x.trouble = fmt.Errorf(format, args...)
	}
}

func (x *writers) failed() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.trouble
}

// boot starts a process. recovery is how long writes of the last one may still land.
func (x *writers) boot(recovery time.Duration) {
	x.p = gated{process: &process{d: x.d}}
	x.p.g = gate.New(x.p, gate.Config{Recover: recovery})
	var err error
	if x.m, err = lease.New(lease.Config{Notes: x.p, Marks: x.p}); err != nil {
		x.t.Fatalf("New: %v", err)
	}
}

// land applies a write at the store.
func (x *writers) land(f *flight) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if high := x.landings[f.name]; f.token < high {
		x.wrongLocked("%s: a write with %d lands after one with %d", f.name, f.token, high)
	}
	x.landings[f.name] = max(x.landings[f.name], f.token)
}

// landLater has a write of which nobody knows the outcome land after some time, or never.
func (x *writers) landLater(f *flight, tenths int) {
	if after := time.Duration(tenths) * 100 * time.Millisecond; after < doubt {
		time.AfterFunc(after, func() { x.land(f) })
	}
}

func (x *writers) acquire(st step) {
	m, name := x.m, names[st.what]
	x.open.Go(func() {
		g, err := m.Acquire(context.Background(), lease.Request{Name: name, TTL: st.d, Wait: st.wait})
		if err != nil {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if all := x.grants[name]; len(all) > 0 && g.Token <= all[len(all)-1].Token {
			x.wrongLocked("%s: granted with %d after %d", name, g.Token, all[len(all)-1].Token)
		}
		x.grants[name] = append(x.grants[name], g)
	})
}

// grant returns one of the grants of a name, most of the time one of the last two.
func (x *writers) grant(st step) (g lease.Grant, last, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.grants[names[st.what]]
	if len(all) == 0 {
		return g, false, false
	}
	i := max(0, len(all)-1-st.n%4%3)
	return all[i], i == len(all)-1, true
}

func (x *writers) write(st step) {
	g, last, ok := x.grant(st)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	f := &flight{name: g.Name, token: g.Token, late: !last, cancel: cancel, done: make(chan struct{})}
	x.waiting = append(x.waiting, f)
	gate, at := x.p.g, gate.Write{Resources: []fencing.Resource{f.name}, Token: fencing.Number(f.token), DrainTimeout: 3 * time.Second, Format: fencing.Decimal}
	go func() { // ends when Enter returns: it waits 3 seconds at most, or for the disk
		defer close(f.done)
		f.a, f.err = gate.Enter(ctx, at)
	}()
}

// passedOn reports whether a write is in flight whose lease somebody else has been granted since.
func (x *writers) passedOn() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.ContainsFunc(x.flights, func(f *flight) bool {
		all := x.grants[f.name]
		return f.token < all[len(all)-1].Token
	})
}

// collect takes note of the writes whose Enter has returned.
func (x *writers) collect() {
	x.waiting = slices.DeleteFunc(x.waiting, func(f *flight) bool {
		select {
		case <-f.done:
		default:
			return false
		}
		f.cancel()
		if f.err == nil {
			x.flights = append(x.flights, f)
		}
		switch _, stale := errors.AsType[*gate.StaleTokenError](f.err); {
		case f.err == nil && f.late:
			x.wrong("%s: a write with %d was admitted although a later lease had been granted", f.name, f.token)
		case f.err == nil:
		case f.late && !stale && !errors.Is(f.err, context.Canceled) && x.p.alive() == nil:
			x.wrong("%s: a write with %d after a later grant: %v; want it to be stale", f.name, f.token, f.err)
		}
		return true
	})
}

// end gives a write its outcome.
func (x *writers) end(st step) {
	if len(x.flights) == 0 {
		return
	}
	f := x.flights[st.n%len(x.flights)]
	x.flights = slices.DeleteFunc(x.flights, func(other *flight) bool { return other == f })
	switch st.do {
	case "done":
		x.land(f)
		f.a.Done(0)
	case "in doubt":
		f.a.InDoubt(doubt)
		x.landLater(f, st.n*7)
	case "turned away":
		_ = f.a.Refused() // where the disk fails the mark stays
	}
}

// restart ends the process and starts another. What was forwarded and has no outcome may still land.
func (x *writers) restart(crash bool, st step) {
	if !crash && len(x.waiting)+len(x.flights) > 0 {
		return
	}
	recovery := doubt
	if crash {
		x.p.with(func() { x.p.dead = true })
	}
	x.m.Stop()
	for _, f := range x.waiting {
		f.cancel()
	}
	x.open.Wait()
	x.m.Close()
	if !crash && x.p.g.Close(context.Background()) {
		recovery = 0
	}
	for i, f := range x.flights {
		x.landLater(f, (st.n+1)*(i+3)%50)
	}
	for _, f := range x.waiting { // they were never forwarded
		<-f.done
	}
	x.waiting, x.flights = nil, nil
	x.boot(recovery)
}

func (x *writers) do(st step) {
	switch st.do {
	case "acquire":
		x.acquire(st)
	case "take over": // after the holder has given it back, or its time is over
		if g, _, ok := x.grant(step{what: st.what}); ok && st.n%2 == 0 {
			_ = x.m.Release(g.Name, g.Secret)
		} else if ok {
			time.Sleep(g.TTL)
		}
		x.acquire(st)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		x.write(step{what: st.what})
	case "release":
		if g, _, ok := x.grant(st); ok {
			_ = x.m.Release(g.Name, g.Secret) // of a lease that is lost it is refused
		}
	case "renew":
		if g, _, ok := x.grant(st); ok {
			_, _ = x.m.Renew(g.Name, g.Secret)
		}
	case "pass":
		time.Sleep(st.d)
	case "write":
		x.write(st)
	case "cancel":
		if n := len(x.waiting); n > 0 {
			x.waiting[st.n%n].cancel()
		}
	case "slow":
		x.p.with(func() { x.p.slow = time.Duration(st.n%4) * 50 * time.Millisecond })
	case "crash soon":
		x.p.with(func() { x.p.crash, x.p.after = 1+st.n/2, st.n%2 == 0 })
	case "kill", "restart":
		x.restart(st.do == "kill", st)
	default:
		x.end(st)
	}
	synctest.Wait()
	x.collect()
	if x.p.alive() != nil {
		x.restart(true, st)
	}
}

// finish lets every goroutine of the bubble end.
func (x *writers) finish() {
	x.p.with(func() { x.p.slow, x.p.crash = 0, 0 })
	for len(x.waiting)+len(x.flights) > 0 {
		for len(x.flights) > 0 {
			x.end(step{do: "done"})
		}
		for _, f := range x.waiting {
			<-f.done
		}
		x.collect()
	}
	x.open.Wait()
	time.Sleep(time.Minute)
	x.m.Close()
	x.p.g.Close(context.Background())
}

// TestNoWriteOfAnEarlierHolderLandsAfterOneOfALater has holders write through a gate, whether they still hold their lease or not, while the
// process is killed and started again.
func TestNoWriteOfAnEarlierHolderLandsAfterOneOfALater(t *testing.T) {
	seen := map[string]int{} // what the histories were about
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{
				do: rapid.SampledFrom([]string{
					"acquire", "take over", "take over", "take over", "release", "renew", "pass", "write", "write", "write", "write", "write", "done", "in doubt",
					"turned away", "cancel", "slow", "crash soon", "kill", "kill", "restart",
				}).Draw(rt, "do"),
				what: rapid.SampledFrom([]int{0, 0, 0, 2}).Draw(rt, "name"),
				d:    time.Duration(rapid.IntRange(10, 50).Draw(rt, "tenths")) * 100 * time.Millisecond,
				wait: rapid.SampledFrom([]time.Duration{0, 3 * time.Second, 20 * time.Second}).Draw(rt, "wait"),
				n:    rapid.IntRange(0, 7).Draw(rt, "n"),
			}
		}), 10, 60).Draw(rt, "steps")
		var trouble error
		synctest.Test(t, func(*testing.T) {
			x := &writers{t: t, d: newDisk(), grants: map[fencing.Resource][]lease.Grant{}, landings: map[fencing.Resource]uint64{}}
			x.boot(0)
			for i, st := range steps {
				if x.passedOn() {
					seen[st.do+" while a write is in flight whose lease has passed on"]++
				}
				if x.do(st); x.failed() != nil {
					trouble = fmt.Errorf("step %d, %s: %w", i, st.do, x.failed())
					break
				}
			}
			if x.finish(); trouble == nil {
				trouble = x.failed()
			}
			for name := range x.landings {
				if x.landings[name] > 1 {
					seen["a later holder's write landed"]++
				}
			}
		})
		if trouble != nil {
			rt.Fatal(trouble)
		}
	})
	for _, what := range []string{"kill while a write is in flight whose lease has passed on", "write while a write is in flight whose lease has passed on", "a later holder's write landed"} {
		if seen[what] == 0 {
			t.Errorf("no history has: %s; it has %v", what, seen)
		}
	}
}
