package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
	"pgregory.net/rapid"
)

// The reference model. A resource's mark is the highest token that somebody vouches for; that is all there is to G2 and to refused
// tokens. What may be in flight follows from the flights alone.
type model map[fencing.Resource]map[uint64]*vote

// vote is a token that was seen on a resource.
type vote struct {
	pending int  // writes with it and without outcome
	good    bool // one of them ended otherwise than refused
}

func (m model) mark(r fencing.Resource) (top uint64) { // 0: none
	for n, v := range m[r] {
		if v.good || v.pending > 0 {
			top = max(top, n)
		}
	}
	return top
}

func (m model) staleOn(p *sim) bool {
	return slices.ContainsFunc(p.w.Resources, func(r fencing.Resource) bool {
		return p.n < m.mark(r) || p.w.Greater && p.n == m.mark(r)
	})
}

// join has a write vouch for its token, again where its vote was struck out.
func (m model) join(p *sim) {
	for _, r := range p.w.Resources {
		if v := p.votes[r]; v != nil && m[r][p.n] == v {
			continue
		}
		if m[r][p.n] == nil {
			m[r][p.n] = &vote{}
		}
		m[r][p.n].pending++
		p.votes[r] = m[r][p.n]
	}
}

func (m model) leave(p *sim, refused bool) {
	for r, v := range p.votes {
		v.pending--
		v.good = v.good || !refused
		if !v.good && v.pending == 0 && m[r][p.n] == v {
			delete(m[r], p.n)
		}
	}
}

// set strikes out every vote up to the old mark and up to n, which counts from now on.
func (m model) set(r fencing.Resource, n uint64) {
	top := max(n, m.mark(r))
	for k := range m[r] {
		if k <= top {
			delete(m[r], k)
		}
	}
	m[r][n] = &vote{good: true}
}

// sim is one write as the model sees it.
type sim struct {
	*attempt
	n        uint64
	observed bool
	votes    map[fencing.Resource]*vote
	until    time.Time // in flight: when it ends of its own accord, if not zero
	deadline time.Time
}

func (p *sim) shares(q *sim) bool {
	return slices.ContainsFunc(p.w.Resources, func(r fencing.Resource) bool { return slices.Contains(q.w.Resources, r) })
}

// excludes reports whether p and q may not be in flight together if Enter admits one of them.
func (p *sim) excludes(q *sim) bool {
	return p.shares(q) && (p.n != q.n || p.w.Exclusive || q.w.Exclusive)
}

// step is one drawn action. Its numbers are taken modulo what there is when it is its turn.
type step struct {
	kind      string
	resources []fencing.Resource
	delta     int // of the token to the mark
	index     int
	seconds   int
	greater   bool
	exclusive bool
}

func drawSteps(t *rapid.T, all []fencing.Resource) []step {
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			kind: rapid.SampledFrom([]string{
				"enter", "enter", "enter", "enter", "done", "done", "done", "settle", "in doubt", "refused", "refused", "not sent", "cancel",
				"observe", "set mark", "pass",
			}).Draw(t, "kind"),
			resources: rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, len(all), rapid.ID).Draw(t, "resources"),
			delta:     rapid.IntRange(-2, 2).Draw(t, "delta"),
			index:     rapid.IntRange(0, 1000).Draw(t, "index"),
			seconds:   rapid.IntRange(0, 12).Draw(t, "seconds"),
			greater:   rapid.IntRange(0, 7).Draw(t, "greater") == 7,
			exclusive: rapid.IntRange(0, 3).Draw(t, "exclusive") == 3,
		}
	})
	return rapid.SliceOfN(one, 1, 60).Draw(t, "steps")
}

// machine runs steps against the gate and the model.
type machine struct {
	g           *gate.Gate
	s           *memStore
	m           model
	recovered   time.Time
	open        []*sim // waiting
	flights     []*sim
	calmGreater bool // no mark was set since the last look: a waiting Greater write is the mark itself
}

func newMachine(all []fencing.Resource, recovery time.Duration) *machine {
	x := &machine{s: newMemStore(), m: model{}, recovered: time.Now().Add(recovery)}
	for i, r := range all {
		x.m[r] = map[uint64]*vote{}
		if i > 0 {
			x.s.marks[r] = draining(mark(r, uint64(i))).Mark
			x.m[r][uint64(i)] = &vote{good: true}
		}
	}
	x.g = gate.New(x.s, gate.Config{Recover: recovery})
	return x
}

func (x *machine) newSim(st step) *sim {
	n := uint64(max(1, int(x.m.mark(st.resources[0]))+st.delta))
	w := writeAll(n, st.resources...)
	w.Greater, w.Exclusive = st.greater, st.exclusive
	// No two things ever end at the same time: time passes in whole seconds, settling and doubts end at the half and timeouts at the
	// quarter of one.
	w.DrainTimeout = time.Duration(st.seconds)*time.Second + time.Second/4
	return &sim{n: n, attempt: &attempt{w: w}, votes: map[fencing.Resource]*vote{}, deadline: time.Now().Add(w.DrainTimeout)}
}

func (x *machine) do(st step) error {
	x.calmGreater = true
	half := time.Duration(st.seconds)*time.Second + time.Second/2
	switch st.kind {
	case "enter":
		p := x.newSim(st)
		stale := x.m.staleOn(p)
		if !stale {
			x.m.join(p)
		}
		p.attempt = try(x.g, p.w)
		if !stale {
			x.open = append(x.open, p)
			break
		}
		if _, ok := errors.AsType[*gate.StaleTokenError](p.err); !p.returned() || !ok {
			return fmt.Errorf("Enter(%d) = %v; want stale", p.n, p.err)
		}
	case "observe":
		p := x.newSim(st)
		p.observed, p.w.Exclusive = true, false
		stale := x.m.staleOn(p)
		if !stale {
			x.m.join(p)
		}
		p.a, p.err = x.g.Observe(p.w)
		if _, ok := errors.AsType[*gate.StaleTokenError](p.err); p.a == nil || ok != stale {
			return fmt.Errorf("Observe(%d) = %v, %v; want an admission, stale %v", p.n, p.a, p.err, stale)
		}
		x.flights = append(x.flights, p)
	case "set mark":
		return x.setMark(st)
	case "cancel":
		if len(x.open) > 0 {
			x.open[st.index%len(x.open)].cancel()
		}
	case "pass":
		pass(time.Duration(st.seconds) * time.Second)
	default:
		return x.end(st, half)
	}
	return nil
}

func (x *machine) setMark(st step) error {
	r := st.resources[0]
	was := x.m.mark(r)
	n := uint64(max(1, int(was)+st.delta))
	old, _, err := x.g.SetMark(r, mark(r, n).Mark, st.exclusive)
	switch {
	case old.Token != fencing.Number(was):
		return fmt.Errorf("SetMark finds %v; want %d", old.Token, was)
	case n < was && !st.exclusive:
		if !errors.Is(err, gate.ErrWouldLower) {
			return fmt.Errorf("SetMark(%d) = %v; want ErrWouldLower", n, err)
		}
	case err != nil:
		return fmt.Errorf("SetMark(%d) = %v", n, err)
	case n == was:
		x.m[r][n].good = true
	default:
		x.calmGreater = false
		x.m.set(r, n)
		for _, p := range x.open {
			if !x.m.staleOn(&sim{n: p.n, attempt: &attempt{w: writeAll(p.n, p.w.Resources...)}}) {
				x.m.join(p)
			}
		}
	}
	return nil
}

func (x *machine) end(st step, half time.Duration) error {
	var running []*sim
	for _, p := range x.flights {
		if p.until.IsZero() {
			running = append(running, p)
		}
	}
	if len(running) == 0 {
		return nil
	}
	p := running[st.index%len(running)]
	p.until = time.Now()
	switch st.kind {
	case "done":
		p.a.Done(0)
	case "not sent":
		p.a.NotSent()
	case "settle":
		p.a.Done(half)
		p.until = p.until.Add(half)
	case "in doubt":
		p.a.InDoubt(half)
		p.until = p.until.Add(half)
	case "refused":
		if err := p.a.Refused(); err != nil {
			return fmt.Errorf("Refused(%d) = %v", p.n, err)
		}
	}
	x.m.leave(p, st.kind == "refused")
	return nil
}

// look takes note of what the gate did and compares it with the rule.
func (x *machine) look() error {
	synctest.Wait()
	now := time.Now()
	x.flights = slices.DeleteFunc(x.flights, func(p *sim) bool { return !p.until.IsZero() && !p.until.After(now) })
	var admitted []*sim
	for _, p := range slices.Clone(x.open) {
		if !p.returned() {
			continue
		}
		x.open = slices.DeleteFunc(x.open, func(q *sim) bool { return p == q })
		if p.err == nil {
			admitted = append(admitted, p)
			continue
		}
		if err := x.lookAtError(p); err != nil {
			return err
		}
		x.m.leave(p, false)
	}
	for _, p := range admitted {
		if err := x.lookAtAdmission(p); err != nil {
			return err
		}
		x.flights = append(x.flights, p)
	}
	for _, p := range x.open {
		if x.m.staleOn(&sim{n: p.n, attempt: &attempt{w: writeAll(p.n, p.w.Resources...)}}) {
			return fmt.Errorf("%d waits on %q although it is stale", p.n, p.w.Resources)
		}
	}
	if err := x.lookAtWaiters(); err != nil {
		return err
	}
	for r := range x.m {
		if m, ok := x.s.mark(r); ok != (x.m.mark(r) > 0) || m.Token != fencing.Number(x.m.mark(r)) {
			return fmt.Errorf("the durable mark of %q is %v; want %d", r, m.Token, x.m.mark(r))
		}
	}
	return x.g.CheckInvariants()
}

func (x *machine) lookAtError(p *sim) error {
	_, stale := errors.AsType[*gate.StaleTokenError](p.err)
	_, busy := errors.AsType[*gate.BusyError](p.err)
	overtaken := slices.ContainsFunc(p.w.Resources, func(r fencing.Resource) bool { return p.n < x.m.mark(r) })
	switch {
	case stale && (overtaken || p.w.Greater && !x.calmGreater):
	case busy && !p.deadline.After(p.at):
	case errors.Is(p.err, context.Canceled):
	default:
		return fmt.Errorf("Enter(%d) on %q = %w at %v, deadline %v, overtaken %v", p.n, p.w.Resources, p.err, p.at, p.deadline, overtaken)
	}
	return nil
}

func (x *machine) lookAtAdmission(p *sim) error {
	for _, r := range p.w.Resources {
		m, _ := x.s.mark(r)
		if m.Token != fencing.Number(p.n) {
			return fmt.Errorf("%d was admitted on %q, whose durable mark is %v", p.n, r, m.Token)
		}
		if p.at.Before(x.recovered) && m.Draining {
			return fmt.Errorf("%d was admitted on %q although that still recovers", p.n, r)
		}
	}
	for _, q := range x.flights {
		if p.excludes(q) {
			return fmt.Errorf("%d was admitted on %q beside %d on %q", p.n, p.w.Resources, q.n, q.w.Resources)
		}
	}
	return nil
}

// lookAtWaiters checks that every waiter waits for a flight or for recovery, or in line behind one that does.
func (x *machine) lookAtWaiters() error {
	var stuck []*sim
	for _, p := range x.open {
		blocked := time.Now().Before(x.recovered) || slices.ContainsFunc(x.flights, p.excludes)
		if !blocked {
			stuck = append(stuck, p)
		}
	}
	inLine := func(p *sim) bool { // behind one that is not stuck
		return slices.ContainsFunc(x.open, func(q *sim) bool { return q != p && p.excludes(q) && !slices.Contains(stuck, q) })
	}
	for n := -1; n != len(stuck); {
		n = len(stuck)
		stuck = slices.DeleteFunc(stuck, inLine)
	}
	if len(stuck) > 0 {
		return fmt.Errorf("%d waits on %q although nothing stands in its way", stuck[0].n, stuck[0].w.Resources)
	}
	return nil
}

// finish ends everything and wants nothing left.
func (x *machine) finish() error {
	for _, p := range x.open {
		p.cancel()
	}
	for _, p := range x.flights {
		p.a.Done(0)
	}
	pass(time.Hour)
	if s := x.g.Stats(); s != (gate.Stats{}) {
		return fmt.Errorf("Stats = %+v; want nothing left", s)
	}
	return x.g.CheckInvariants()
}

func TestGateFollowsTheRule(t *testing.T) {
	for n := 1; n <= 3; n++ {
		all := []fencing.Resource{"r", "s", "t"}[:n]
		t.Run(fmt.Sprintf("%d resources", n), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				recovery := rapid.SampledFrom([]time.Duration{0, 0, 9700 * time.Millisecond}).Draw(rt, "recover")
				steps := drawSteps(rt, all)
				var trouble error
				synctest.Test(t, func(*testing.T) {
					x := newMachine(all, recovery)
					for i, st := range steps {
						err := x.do(st)
						if err == nil {
							err = x.look()
						}
						if err != nil && trouble == nil {
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
