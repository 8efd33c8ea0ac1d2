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

// upstream is the store behind the proxy as it sees writes: it notes which ones are in flight or may still land.
type upstream struct {
	mu      sync.Mutex // guards the fields below
	flights map[fencing.Resource][]arrival
	applied map[fencing.Resource][]uint64
	errs    []error
}

type arrival struct {
	gate.Write
	observed bool
	at       time.Time
}

func newUpstream() *upstream {
	return &upstream{flights: map[fencing.Resource][]arrival{}, applied: map[fencing.Resource][]uint64{}}
}

// arrive notes a write that was admitted and, for one that came through Enter, whether it may be there. In the instant in which it
// arrives the gate may have let observed ones in after it.
func (u *upstream) arrive(w gate.Write, observed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	for _, r := range w.Resources {
		for _, o := range u.flights[r] {
			excluded := o.Token != w.Token || o.Exclusive || w.Exclusive
			if excluded && !observed && !(o.observed && o.at.Equal(now)) {
				u.errs = append(u.errs, fmt.Errorf("%v arrived on %q beside %v", w.Token, r, o.Token))
			}
		}
		u.flights[r] = append(u.flights[r], arrival{w, observed, now})
	}
}

// leave ends what arrive began. It is called before the gate is told.
func (u *upstream) leave(w gate.Write, observed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range w.Resources {
		i := slices.IndexFunc(u.flights[r], func(o arrival) bool {
			return o.Token == w.Token && o.Exclusive == w.Exclusive && o.observed == observed
		})
		u.flights[r] = slices.Delete(u.flights[r], i, i+1)
	}
}

// apply puts a write into effect.
func (u *upstream) apply(w gate.Write) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range w.Resources {
		u.applied[r] = append(u.applied[r], w.Token.Lo)
	}
}

func (u *upstream) complain(format string, args ...any) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.errs = append(u.errs, fmt.Errorf(format, args...))
}

// gust is one call of the storm; times are in milliseconds.
type gust struct {
	at, patience, cancelAt, flight int
	kind, outcome                  string
	n                              uint64
	resources                      []fencing.Resource
	exclusive, greater             bool
}

func drawGusts(t *rapid.T, kinds, outcomes []string, all []fencing.Resource) []gust {
	one := rapid.Custom(func(t *rapid.T) gust { return drawGust(t, kinds, outcomes, all, len(all)) })
	return rapid.SliceOfN(one, 2, 40).Draw(t, "gusts")
}

func drawGust(t *rapid.T, kinds, outcomes []string, all []fencing.Resource, most int) gust {
	at := rapid.IntRange(0, 40).Draw(t, "at")
	return gust{
		at:        at,
		patience:  rapid.SampledFrom([]int{0, 3, 10, 1000}).Draw(t, "patience"),
		cancelAt:  rapid.SampledFrom([]int{1, 5, 5000, 5000, 5000}).Draw(t, "cancelAt"),
		flight:    rapid.IntRange(0, 8).Draw(t, "flight"),
		kind:      rapid.SampledFrom(kinds).Draw(t, "kind"),
		outcome:   rapid.SampledFrom(outcomes).Draw(t, "outcome"),
		n:         uint64(1 + at/5 + rapid.IntRange(0, 3).Draw(t, "n")),
		resources: rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, most, rapid.ID).Draw(t, "resources"),
		exclusive: rapid.IntRange(0, 3).Draw(t, "exclusive") == 3,
		greater:   rapid.IntRange(0, 7).Draw(t, "greater") == 7,
	}
}

// blow carries out one call against a gate on a slow store.
func (c gust) blow(g *gate.Gate, s *memStore, u *upstream, lowering bool) {
	time.Sleep(time.Duration(c.at) * time.Millisecond)
	w := writeAll(c.n, c.resources...)
	w.Exclusive, w.Greater, w.DrainTimeout = c.exclusive, c.greater, time.Duration(c.patience)*time.Millisecond
	var a *gate.Admission
	switch c.kind {
	case "enter":
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.cancelAt)*time.Millisecond)
		defer cancel()
		var err error
		if a, err = g.Enter(ctx, w); err != nil {
			return
		}
		for _, r := range w.Resources {
			if m, _ := s.mark(r); m.Token.Less(w.Token) && !lowering {
				u.complain("%v was admitted on %q, whose durable mark is %v", w.Token, r, m.Token)
			}
		}
	case "observe":
		w.Exclusive = false
		a, _ = g.Observe(w)
	case "set mark":
		if _, _, err := g.SetMark(c.resources[0], mark("", c.n).Mark, true); err != nil && !errors.Is(err, gate.ErrChanged) && !errors.Is(err, errFull) {
			u.complain("SetMark(%d) = %w", c.n, err)
		}
		return
	}
	u.arrive(w, c.kind == "observe")
	time.Sleep(time.Duration(c.flight) * time.Millisecond)
	if c.kind == "enter" {
		u.apply(w)
	}
	u.leave(w, c.kind == "observe")
	switch c.outcome {
	case "done":
		a.Done(time.Duration(c.flight%3) * time.Millisecond)
	case "in doubt":
		a.InDoubt(time.Duration(c.flight) * time.Millisecond)
	case "refused":
		if err := a.Refused(); err != nil && !errors.Is(err, errFull) {
			u.complain("Refused(%d) = %w", c.n, err)
		}
	}
}

var errFull = errors.New("no space")

// TestStorm lets calls overlap with each other and with a slow store that sometimes fails.
func TestStorm(t *testing.T) {
	all := []fencing.Resource{"r", "s", "t"}
	for name, tc := range map[string]struct {
		kinds, outcomes []string
		ordered         bool // admitted tokens never decrease
		lowering        bool
	}{
		"enter only":       {kinds: []string{"enter"}, outcomes: []string{"done", "in doubt"}, ordered: true},
		"refused":          {kinds: []string{"enter"}, outcomes: []string{"done", "refused", "refused"}},
		"observed as well": {kinds: []string{"enter", "enter", "observe"}, outcomes: []string{"done", "in doubt", "refused", "refused"}},
		"everything":       {kinds: []string{"enter", "enter", "enter", "observe", "set mark"}, outcomes: []string{"done", "in doubt", "refused", "refused"}, lowering: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				gusts := drawGusts(rt, tc.kinds, tc.outcomes, all)
				seed := rapid.Uint64().Draw(rt, "seed")
				fails := rapid.Bool().Draw(rt, "fails")
				u := newUpstream()
				synctest.Test(t, func(*testing.T) {
					s := newMemStore()
					s.slow(rand.New(rand.NewPCG(seed, 0)), fails)
					g := gate.New(s, gate.Config{})
					var wg sync.WaitGroup
					for _, c := range gusts {
						wg.Go(func() { c.blow(g, s, u, tc.lowering) })
					}
					for range 60 {
						time.Sleep(time.Millisecond)
						if err := g.CheckInvariants(); err != nil {
							u.complain("%w", err)
						}
					}
					wg.Wait()
					pass(time.Second)
					if st := g.Stats(); st != (gate.Stats{}) {
						u.complain("Stats = %+v; want nothing left", st)
					}
				})
				for r, ns := range u.applied {
					if tc.ordered && !slices.IsSorted(ns) {
						u.complain("the upstream of %q applied %v", r, ns)
					}
				}
				if err := errors.Join(u.errs...); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// slow makes every step of the store take up to two milliseconds before and after it takes effect, and if fails is set fail now and then.
func (s *memStore) slow(rnd *rand.Rand, fails bool) {
	var mu sync.Mutex
	hesitate := func() error {
		mu.Lock()
		d, fail := rnd.IntN(2000), rnd.IntN(5) == 0
		mu.Unlock()
		time.Sleep(time.Duration(d) * time.Microsecond)
		if fails && fail {
			return errFull
		}
		return nil
	}
	s.onLoad = func(fencing.Resource) error { _ = hesitate(); return nil }
	s.onAdvance = func([]fencing.ResourceMark) error { return hesitate() }
	s.onRestore = func(fencing.Resource, fencing.Token) error { return hesitate() }
	s.onBeneath = func(fencing.Resource) error { return hesitate() }
	s.afterBeneath = func() { _ = hesitate() }
	s.after = func() { _ = hesitate() }
}
