package gate_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
	"pgregory.net/rapid"
)

// effect is what a write does to the upstream: one on a whole collection counts on everything beneath.
func effect(w gate.Write) gate.Write {
	var touched []fencing.Resource
	for _, p := range hierarchy {
		inTree := func(t gate.Tree) bool { return strings.HasPrefix(string(p), string(t.Prefix)) }
		if slices.Contains(w.Resources, p) || slices.ContainsFunc(w.Trees, inTree) {
			touched = append(touched, p)
		}
	}
	w.Resources = touched
	return w
}

// treeGust is one call of the storm on the hierarchy.
type treeGust struct {
	gust
	step
}

func drawTreeGusts(t *rapid.T, kinds, outcomes []string) []treeGust {
	one := rapid.Custom(func(t *rapid.T) treeGust {
		c := drawGust(t, kinds, outcomes, hierarchy, 2)
		tree := rapid.IntRange(0, 2).Draw(t, "tree") > 0
		return treeGust{c, step{resources: c.resources, tree: tree, empty: rapid.IntRange(0, 5).Draw(t, "empty") == 5}}
	})
	return rapid.SliceOfN(one, 2, 40).Draw(t, "gusts")
}

func (c treeGust) write() gate.Write {
	w := inHierarchy(c.step)
	w.Token, w.Exclusive, w.Greater = fencing.Number(c.n), c.gust.exclusive, c.gust.greater
	w.DrainTimeout = time.Duration(c.patience) * time.Millisecond
	return w
}

// blow carries out one call against the gate of this moment. A write in doubt lands when its hold is nearly over.
func (c treeGust) blow(run *proxyRun, u *upstream, lowering bool) {
	time.Sleep(time.Duration(c.at) * time.Millisecond)
	g, s, alive := run.now()
	w := c.write()
	var a *gate.Admission
	switch c.gust.kind {
	case "enter":
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.cancelAt)*time.Millisecond)
		defer cancel()
		var err error
		if a, err = g.Enter(ctx, w); err != nil {
			return
		}
		if !alive.Load() {
			return // the process is gone and forwards nothing more
		}
		for _, r := range keysOf(w) {
			if m, _ := s.mark(r); m.Token.Less(w.Token) && !lowering {
				u.complain("%v was admitted on %q, whose durable mark is %v", w.Token, r, m.Token)
			}
		}
	case "observe":
		w.Exclusive = false
		if a, _ = g.Observe(w); a == nil {
			return
		}
	case "set mark":
		r := w.Resources[0]
		if len(w.Trees) > 0 {
			r = w.Trees[0].Key
		}
		if _, _, err := g.SetMark(r, mark("", c.n).Mark, true); err != nil && !errors.Is(err, gate.ErrChanged) && !errors.Is(err, errFull) {
			u.complain("SetMark(%d) = %w", c.n, err)
		}
		return
	}
	observed := c.gust.kind == "observe"
	u.arrive(effect(w), observed)
	if c.outcome == "in doubt" {
		a.InDoubt(time.Duration(c.flight)*time.Millisecond + time.Microsecond)
	}
	time.Sleep(time.Duration(c.flight) * time.Millisecond)
	if !observed {
		u.apply(effect(w))
	}
	u.leave(effect(w), observed)
	switch c.outcome {
	case "done":
		a.Done(time.Duration(c.flight%3) * time.Millisecond)
	case "refused":
		if err := a.Refused(); err != nil && !errors.Is(err, errFull) {
			u.complain("Refused(%d) = %w", c.n, err)
		}
	}
}

// proxyRun is the proxy that clients talk to: the one before a crash and the one after it.
type proxyRun struct {
	mu    sync.Mutex // guards the fields below
	g     *gate.Gate
	s     *memStore
	alive *atomic.Bool
	seed  uint64
	fails bool
}

func (r *proxyRun) start(s *memStore, recovery time.Duration) {
	s.slow(rand.New(rand.NewPCG(r.seed, uint64(recovery))), r.fails)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.s, r.alive, r.g = s, new(atomic.Bool), gate.New(s, gate.Config{Recover: recovery})
	r.alive.Store(true)
}

func (r *proxyRun) now() (*gate.Gate, *memStore, *atomic.Bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.g, r.s, r.alive
}

// crash stops the run and begins one on what was durable. Writes that were forwarded go on.
func (r *proxyRun) crash(recovery time.Duration) {
	_, s, alive := r.now()
	alive.Store(false)
	s.mu.Lock()
	s.err = errFull // what is on its way to the disk comes to nothing
	next := newMemStore()
	maps.Copy(next.marks, s.marks)
	s.mu.Unlock()
	r.start(next, recovery)
}

// TestStormInATree lets calls on collections and what is in them overlap with each other and with a slow store. What reached the
// upstream must never decrease in token, on any resource; a write on a whole collection counts on all that lies beneath.
func TestStormInATree(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds, outcomes []string
		ordered         bool // admitted tokens never decrease
		lowering        bool
		crash           bool
	}{
		"enter only":       {kinds: []string{"enter"}, outcomes: []string{"done", "in doubt"}, ordered: true},
		"unclean stop":     {kinds: []string{"enter"}, outcomes: []string{"done", "in doubt"}, ordered: true, crash: true},
		"refused":          {kinds: []string{"enter"}, outcomes: []string{"done", "refused", "refused"}},
		"observed as well": {kinds: []string{"enter", "enter", "observe"}, outcomes: []string{"done", "in doubt", "refused", "refused"}},
		"everything":       {kinds: []string{"enter", "enter", "enter", "observe", "set mark"}, outcomes: []string{"done", "in doubt", "refused", "refused"}, lowering: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				gusts := drawTreeGusts(rt, tc.kinds, tc.outcomes)
				run := &proxyRun{seed: rapid.Uint64().Draw(rt, "seed"), fails: rapid.Bool().Draw(rt, "fails")}
				crashAt := -1
				if tc.crash {
					crashAt = rapid.IntRange(1, 40).Draw(rt, "crash")
				}
				u := newUpstream()
				synctest.Test(t, func(*testing.T) {
					run.start(newMemStore(), 0)
					var wg sync.WaitGroup
					for _, c := range gusts {
						if tc.crash {
							c.gust.exclusive = false // which equal tokens are, after a crash, nobody knows
						}
						wg.Go(func() { c.blow(run, u, tc.lowering) })
					}
					for at := range 60 {
						time.Sleep(time.Millisecond - time.Microsecond)
						if at == crashAt {
							run.crash(12 * time.Millisecond) // no flight takes longer
						}
						time.Sleep(time.Microsecond)
						g, _, _ := run.now()
						if err := g.CheckInvariants(); err != nil {
							u.complain("%w", err)
						}
					}
					wg.Wait()
					pass(time.Second)
					g, _, _ := run.now()
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
