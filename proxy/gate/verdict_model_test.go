package gate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
	"pgregory.net/rapid"
)

// The model of writes whose tokens are not proven yet knows which tokens were accepted on a resource, who waits, in order of arrival, and
// who is in flight. From that follows what may be refused, and who may go before whom:
//
//   - stale is what is below an accepted token, and after a second what is below one that an older write keeps from going out;
//   - a higher token that is still here goes first, unless somebody was turned away while the lower one waited, and the higher one came
//     later: from then on the order is that of arrival, until the line is empty;
//   - whoever waited while somebody was turned away goes before all that came later.
type verdicts struct {
	g       *gate.Gate
	s       *memStore
	good    map[fencing.Resource]uint64
	waiting []*verdict // in order of arrival
	flights []*verdict
	came    int
	revert  bool
}

type verdict struct {
	*attempt
	n        uint64
	came     int
	since    time.Time
	wronged  bool // somebody was turned away on one of its resources while it waited
	perhaps  bool // or gave up, and was not to count then: whether it had been seen the model does not know
	deadline time.Time
	until    time.Time // in flight: when it ends of its own accord, if not zero
}

func (p *verdict) shares(q *verdict) bool { return meet(p.w.Resources, q.w.Resources) }

func (p *verdict) excludes(q *verdict) bool {
	return p.shares(q) && (p.n != q.n || p.w.Exclusive || q.w.Exclusive || p.w.Greater && q.w.Greater)
}

// stale returns whether p is below what was accepted on one of its resources. used: a token that has to be greater is used up.
func (x *verdicts) stale(p *verdict) (below, used bool) {
	for _, r := range p.w.Resources {
		below = below || p.n < x.good[r]
		used = used || p.w.Greater && p.n == x.good[r]
	}
	return below, used
}

func (x *verdicts) do(st step) error {
	half := time.Duration(st.seconds)*time.Second + time.Second/2
	switch st.kind {
	case "enter":
		w := writeAll(0, st.resources...)
		n := uint64(max(1, int(x.good[w.Resources[0]])+st.delta+2))
		w.Token, w.Greater, w.Exclusive, w.RevertUnsent = fencing.Number(n), st.greater, st.exclusive, x.revert
		w.DrainTimeout = time.Duration(st.seconds)*time.Second + time.Second/4
		x.came++
		p := &verdict{n: n, came: x.came, since: time.Now(), attempt: &attempt{w: w}, deadline: time.Now().Add(w.DrainTimeout)}
		below, used := x.stale(p)
		if err := x.g.Check(w); isStale(err) != (below || used) {
			return fmt.Errorf("Check(%d) = %w; want stale: %v", n, err, below || used)
		}
		p.perhaps = slices.ContainsFunc(x.waiting, func(q *verdict) bool { return p.shares(q) && (q.wronged || q.perhaps) })
		p.attempt = try(x.g, w)
		x.waiting = append(x.waiting, p)
		if (below || used) && !p.returned() {
			return fmt.Errorf("%d waits; want it stale", n)
		}
	case "cancel":
		if len(x.waiting) > 0 {
			x.waiting[st.index%len(x.waiting)].cancel()
		}
	case "pass":
		pass(time.Duration(st.seconds) * time.Second)
	default:
		x.end(st, half)
	}
	return nil
}

func (x *verdicts) end(st step, half time.Duration) {
	var running []*verdict
	for _, p := range x.flights {
		if p.until.IsZero() {
			running = append(running, p)
		}
	}
	if len(running) == 0 {
		return
	}
	p := running[st.index%len(running)]
	p.until = time.Now()
	turnedAway := st.kind == "refused" || st.kind == "not sent" && x.revert
	if turnedAway {
		for _, q := range x.waiting {
			for _, r := range p.w.Resources {
				q.wronged = q.wronged || slices.Contains(q.w.Resources, r) && p.n > x.good[r]
			}
		}
	} else {
		x.accept(p)
	}
	switch st.kind {
	case "done":
		p.a.Done(0)
	case "not sent":
		_ = p.a.NotSent()
	case "settle":
		p.a.Done(half)
		p.until = p.until.Add(half)
	case "in doubt":
		p.a.InDoubt(half)
		p.until = p.until.Add(half)
	case "refused":
		_ = p.a.Refused()
	}
}

func (x *verdicts) accept(p *verdict) {
	for _, r := range p.w.Resources {
		x.good[r] = max(x.good[r], p.n)
	}
}

// look takes note of what the gate did and compares it with the rule.
func (x *verdicts) look() error {
	synctest.Wait()
	now := time.Now()
	flights := slices.Clone(x.flights)
	x.flights = slices.DeleteFunc(x.flights, func(p *verdict) bool { return !p.until.IsZero() && !p.until.After(now) })
	was := slices.Clone(x.waiting)
	x.keep(was)
	for _, p := range was {
		if x.revert && p.returned() && p.err != nil {
			for _, q := range was {
				q.perhaps = q.perhaps || p.shares(q)
			}
		}
	}
	for _, p := range was {
		if !p.returned() {
			continue
		}
		x.waiting = slices.DeleteFunc(x.waiting, func(q *verdict) bool { return p == q })
		below, used := x.stale(p)
		_, busy := errors.AsType[*gate.BusyError](p.err)
		switch {
		case p.err == nil:
			if err := x.lookAtAdmission(p, was); err != nil {
				return err
			}
			x.flights = append(x.flights, p)
		case isStale(p.err) && (below || used || x.outrun(p, flights, was)):
		case busy && !p.deadline.After(p.at), errors.Is(p.err, context.Canceled):
		default:
			return fmt.Errorf("Enter(%d) = %w; accepted %v", p.n, p.err, x.good)
		}
	}
	return x.lookAtMarks()
}

// outrun reports whether what kept p waiting was, on one of its resources, a flight that is not above it: the higher token, of whose verdict
// nobody knew, had not gone out.
func (x *verdicts) outrun(p *verdict, flights, was []*verdict) bool {
	if p.wronged || p.at.Before(p.since.Add(time.Second)) && p.at.Before(p.deadline) {
		return false
	}
	for _, q := range was {
		if q.returned() && q.err == nil && !q.at.After(p.at) {
			flights = append(slices.Clone(flights), q)
		}
	}
	return slices.ContainsFunc(p.w.Resources, func(r fencing.Resource) bool {
		there := slices.DeleteFunc(slices.Clone(flights), func(q *verdict) bool {
			return !slices.Contains(q.w.Resources, r) || !q.until.IsZero() && q.until.Before(p.at)
		})
		return len(there) > 0 && !slices.ContainsFunc(there, func(q *verdict) bool { return q.n > p.n })
	})
}

// keep takes note of tokens that count although their writers gave up, or were stale on another resource. Whether a writer's token had been seen by then, the gate says: of one
// that stood behind another it had not.
func (x *verdicts) keep(was []*verdict) {
	for r, n := range x.good {
		stale, _ := errors.AsType[*gate.StaleTokenError](x.g.Check(write(r, 0)))
		for _, p := range was {
			if stale != nil && p.returned() && p.err != nil && slices.Contains(p.w.Resources, r) && p.n > n && stale.Mark == fencing.Number(p.n) && !x.revert {
				x.good[r] = p.n
			}
		}
	}
}

func (x *verdicts) lookAtAdmission(p *verdict, was []*verdict) error {
	for _, r := range p.w.Resources {
		if m, _ := x.s.mark(r); m.Token.Less(fencing.Number(p.n)) {
			return fmt.Errorf("%d was admitted on %q, whose durable mark is %v", p.n, r, m.Token)
		}
	}
	for _, q := range x.flights {
		if p.excludes(q) {
			return fmt.Errorf("%d was admitted beside %d", p.n, q.n)
		}
	}
	for _, q := range was {
		switch {
		case q == p || q.returned() || !p.shares(q):
		case q.n > p.n && (q.came < p.came || !p.wronged && !p.perhaps) && len(x.good) == 1: // one that names several, and is low on one, has been seen on none
			return fmt.Errorf("%d was admitted before %d, which is higher and still waits", p.n, q.n)
		case q.wronged && q.came < p.came:
			return fmt.Errorf("%d was admitted before %d, which came first and waited while somebody was turned away", p.n, q.n)
		}
	}
	return nil
}

// lookAtMarks checks what is on the disk, and that whoever waits waits for something.
func (x *verdicts) lookAtMarks() error {
	for r := range x.good {
		m, ok := x.s.mark(r)
		n := m.Token.Lo
		backed := n == x.good[r]
		for _, p := range slices.Concat(x.waiting, x.flights) {
			backed = backed || slices.Contains(p.w.Resources, r) && p.n == n
		}
		if !backed || ok != (n > 0) {
			return fmt.Errorf("the durable mark of %q is %v, which nobody backs; accepted is %d", r, m.Token, x.good[r])
		}
		for _, p := range x.flights {
			if slices.Contains(p.w.Resources, r) && n < p.n {
				return fmt.Errorf("the durable mark of %q is %v, and %d is in flight", r, m.Token, p.n)
			}
		}
		if n < x.good[r] {
			return fmt.Errorf("the durable mark of %q is %v; accepted is %d", r, m.Token, x.good[r])
		}
	}
	for _, p := range x.waiting {
		if below, _ := x.stale(p); below {
			return fmt.Errorf("%d waits although a higher token was accepted: %v", p.n, x.good)
		}
	}
	stuck := slices.DeleteFunc(slices.Clone(x.waiting), func(p *verdict) bool { return slices.ContainsFunc(x.flights, p.shares) })
	for n := -1; n != len(stuck); {
		n = len(stuck)
		stuck = slices.DeleteFunc(stuck, func(p *verdict) bool {
			return slices.ContainsFunc(x.waiting, func(q *verdict) bool { return p.shares(q) && !slices.Contains(stuck, q) })
		})
	}
	if len(stuck) > 0 {
		return fmt.Errorf("%d waits on %q although nothing is in flight there", stuck[0].n, stuck[0].w.Resources)
	}
	return x.g.CheckInvariants()
}

func (x *verdicts) finish() error {
	for len(x.waiting)+len(x.flights) > 0 {
		for _, p := range x.waiting {
			p.cancel()
		}
		for _, p := range x.flights {
			p.a.Done(0)
			x.accept(p)
		}
		x.flights = nil
		if err := x.look(); err != nil {
			return err
		}
	}
	pass(time.Hour)
	if s := x.g.Stats(); s != (gate.Stats{}) {
		return fmt.Errorf("Stats = %+v; want nothing left", s)
	}
	return x.g.CheckInvariants()
}

func TestVerdictsFollowTheRule(t *testing.T) {
	for n := 1; n <= 3; n++ {
		all := []fencing.Resource{"r", "s", "t"}[:n]
		t.Run(fmt.Sprintf("%d resources", n), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := drawSteps(rt, all, n)
				revert := rapid.Bool().Draw(rt, "revert unsent")
				var trouble error
				synctest.Test(t, func(*testing.T) {
					x := &verdicts{s: newMemStore(), good: map[fencing.Resource]uint64{}, revert: revert}
					for _, r := range all {
						x.good[r] = 0
					}
					x.g = gate.New(x.s, gate.Config{})
					for i, st := range steps {
						if st.kind == "observe" || st.kind == "set mark" {
							continue
						}
						err := x.do(st)
						if err == nil {
							err = x.look()
						}
						if err != nil {
							trouble = fmt.Errorf("step %d, %+v: %w", i, st, err)
							break
						}
					}
					if err := x.finish(); err != nil && trouble == nil {
						trouble = err
					}
				})
				if trouble != nil {
					rt.Fatal(trouble)
				}
			})
		})
	}
}

// TestFloodOfRefusedTokens has outsiders send higher tokens all the time, equal and rising ones, to a slow upstream that refuses them. The
// holders take turns; each of their writes must be admitted, though nothing of an older holder may land after a newer one.
func TestFloodOfRefusedTokens(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		outsiders := rapid.IntRange(1, 16).Draw(rt, "outsiders")
		rising := rapid.Bool().Draw(rt, "rising")
		several := rapid.Bool().Draw(rt, "several")
		serial := rapid.Bool().Draw(rt, "serial")
		u := newUpstream()
		synctest.Test(t, func(*testing.T) {
			s := newMemStore()
			s.slow(rand.New(rand.NewPCG(seed, 0)), false)
			g := gate.New(s, gate.Config{})
			rnd := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex // guards rnd, next and over
			next, over := uint64(1<<40), false
			draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			resources := func() []fencing.Resource {
				all := []fencing.Resource{"r", "s", "t"}
				if !several {
					return all[:1]
				}
				return all[:1+draw(3)]
			}
			send := func(w gate.Write, accepted bool) {
				a, err := g.Enter(context.Background(), w)
				if err != nil {
					if accepted {
						u.complain("the holder of %v: %w", w.Token, err)
					}
					return
				}
				for _, r := range w.Resources {
					if m, _ := s.mark(r); m.Token.Less(w.Token) {
						u.complain("%v was admitted on %q, whose durable mark is %v", w.Token, r, m.Token)
					}
				}
				u.arrive(w, false)
				time.Sleep(time.Duration(draw(3000)) * time.Microsecond)
				if accepted {
					u.apply(w)
				}
				u.leave(w, false)
				if accepted {
					a.Done(0)
				} else if err := a.Refused(); err != nil {
					u.complain("Refused(%v) = %w", w.Token, err)
				}
			}
			var wg sync.WaitGroup
			for range outsiders {
				wg.Go(func() {
					for {
						mu.Lock()
						if over {
							mu.Unlock()
							return
						}
						if rising {
							next++
						}
						w := writeAll(next)
						mu.Unlock()
						w.Resources, w.Exclusive = resources(), serial && draw(2) == 0
						send(w, false)
						time.Sleep(time.Duration(draw(2000)) * time.Microsecond)
					}
				})
			}
			for n := uint64(34); n < 38; n++ {
				for range 3 {
					w := writeAll(n)
					w.Resources, w.Exclusive = resources(), serial
					send(w, true)
				}
			}
			mu.Lock()
			over = true
			mu.Unlock()
			wg.Wait()
			pass(time.Second)
			if m, _ := s.mark("r"); m.Token != fencing.Number(37) {
				u.complain("the mark is %v; want that of the last holder", m.Token)
			}
			if st := g.Stats(); st != (gate.Stats{}) {
				u.complain("Stats = %+v; want nothing left", st)
			}
		})
		for r, ns := range u.applied {
			if !slices.IsSorted(ns) {
				u.complain("the upstream of %q applied %v", r, ns)
			}
		}
		if err := errors.Join(u.errs...); err != nil {
			rt.Fatal(err)
		}
	})
}
