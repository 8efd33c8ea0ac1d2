package gate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
	"pgregory.net/rapid"
)

// The reference model. The mark of a key is the highest token that somebody vouches for; that is all there is to G2 and to refused
// tokens. What may be in flight follows from the flights alone. A tree is judged by the marks of all that lies beneath.
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

// proven returns the highest token that counts for good.
func (m model) proven(r fencing.Resource) (top uint64) {
	for n, v := range m[r] {
		if v.good {
			top = max(top, n)
		}
	}
	return top
}

// join has a write vouch for its token, again where its vote was struck out.
func (m model) join(p *sim) {
	for _, r := range keysOf(p.w) {
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
	unseen   bool // observed although Enter would have refused it
	votes    map[fencing.Resource]*vote
	beneath  map[fencing.Resource]uint64 // what was proven beneath its trees when it came
	until    time.Time                   // in flight: when it ends of its own accord, if not zero
	deadline time.Time
}

// keysOf returns the keys whose marks the write advances.
func keysOf(w gate.Write) []fencing.Resource {
	keys := slices.Clone(w.Resources)
	for _, t := range w.Trees {
		keys = append(keys, t.Key)
	}
	return keys
}

func meet(a, b []fencing.Resource) bool {
	return slices.ContainsFunc(a, func(r fencing.Resource) bool { return slices.Contains(b, r) })
}

// shares reports whether p and q change something in common. Two writes that lie in one tree do not by that alone.
func (p *sim) shares(q *sim) bool {
	pk, qk := keysOf(p.w), keysOf(q.w)
	return meet(pk, qk) || meet(pk, q.w.Under) || meet(p.w.Under, qk)
}

// stale reports whether Enter would refuse n as stale, by the marks of the write's own keys, or by what lies beneath its trees.
func (x *machine) stale(n uint64, w gate.Write) (byOwn, beneath bool) {
	for _, r := range keysOf(w) {
		byOwn = byOwn || n < x.m.mark(r) || w.Greater && n == x.m.mark(r)
	}
	for _, r := range w.Under {
		byOwn = byOwn || n < x.m.mark(r)
	}
	for _, t := range w.Trees {
		for r := range x.m {
			beneath = beneath || strings.HasPrefix(string(r), string(t.Prefix)) && n < x.m.mark(r)
		}
		beneath = beneath || slices.ContainsFunc(x.live(), func(q *sim) bool { return slices.Contains(q.w.Under, t.Key) && !q.unseen && n < q.n })
	}
	return byOwn, beneath
}

// proven returns the highest proven mark of the keys; 0: none.
func (x *machine) proven(keys ...fencing.Resource) (top uint64) {
	for _, r := range keys {
		top = max(top, x.m.proven(r))
	}
	return top
}

// jumps reports whether p is too far above the proven mark of one of its own keys, or what takes its place: of a tree what was proven beneath
// when p came, then what is proven of the trees that p lies in.
func (x *machine) jumps(p *sim) bool {
	far := func(marks ...uint64) bool {
		i := slices.IndexFunc(marks, func(n uint64) bool { return n > 0 })
		return p.w.MaxJump > 0 && i >= 0 && p.n > marks[i]+p.w.MaxJump
	}
	above := x.proven(p.w.Under...)
	return slices.ContainsFunc(p.w.Resources, func(r fencing.Resource) bool { return far(x.proven(r), above) }) ||
		slices.ContainsFunc(p.w.Trees, func(t gate.Tree) bool { return far(x.proven(t.Key), p.beneath[t.Key], above) })
}

// occupied reports whether one of the write's trees must be empty and is not.
func (x *machine) occupied(w gate.Write) bool {
	return slices.ContainsFunc(w.Trees, func(t gate.Tree) bool {
		some := slices.ContainsFunc(x.live(), func(q *sim) bool { return slices.Contains(q.w.Under, t.Key) })
		for r := range x.m {
			some = some || strings.HasPrefix(string(r), string(t.Prefix)) && x.m.mark(r) > 0
		}
		return t.Empty && some
	})
}

// live returns the writes that wait or have no outcome.
func (x *machine) live() []*sim { return slices.Concat(x.open, x.flights) }

// staleNow reports whether a write that waits has been overtaken.
func (x *machine) staleNow(p *sim) bool {
	w := p.w
	w.Greater = false
	byOwn, beneath := x.stale(p.n, w)
	return byOwn || beneath
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
	tree      bool // of collections: the whole of them
	empty     bool
}

func drawSteps(t *rapid.T, all []fencing.Resource, most int) []step {
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			kind: rapid.SampledFrom([]string{
				"enter", "enter", "enter", "enter", "done", "done", "done", "settle", "in doubt", "refused", "refused", "not sent", "cancel",
				"observe", "set mark", "pass",
			}).Draw(t, "kind"),
			resources: rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, most, rapid.ID).Draw(t, "resources"),
			delta:     rapid.IntRange(-2, 2).Draw(t, "delta"),
			index:     rapid.IntRange(0, 1000).Draw(t, "index"),
			seconds:   rapid.IntRange(0, 12).Draw(t, "seconds"),
			greater:   rapid.IntRange(0, 7).Draw(t, "greater") == 7,
			exclusive: rapid.IntRange(0, 3).Draw(t, "exclusive") == 3,
			tree:      rapid.Bool().Draw(t, "tree"),
			empty:     rapid.IntRange(0, 7).Draw(t, "empty") == 7,
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
	shape       func(step) gate.Write
	maxJump     uint64
}

// newMachine begins with marks on all but the first of so many of the resources.
func newMachine(all []fencing.Resource, some int, recovery time.Duration) *machine {
	x := &machine{s: newMemStore(), m: model{}, recovered: time.Now().Add(recovery)}
	for i, r := range all {
		x.m[r] = map[uint64]*vote{}
		if i > 0 && i < some {
			x.s.marks[r] = draining(mark(r, uint64(i))).Mark
			x.m[r][uint64(i)] = &vote{good: true}
		}
	}
	x.shape = func(st step) gate.Write { return writeAll(0, st.resources...) }
	x.g = gate.New(x.s, gate.Config{Recover: recovery})
	return x
}

func (x *machine) newSim(st step) *sim {
	w := x.shape(st)
	top := x.m.mark(w.Resources[0])
	for _, t := range w.Trees {
		for r := range x.m {
			if strings.HasPrefix(string(r), string(t.Prefix)) {
				top = max(top, x.m.mark(r))
			}
		}
	}
	for _, r := range w.Under {
		top = max(top, x.m.mark(r))
	}
	n := uint64(max(1, int(top)+st.delta))
	w.Token, w.Greater, w.Exclusive, w.Final = fencing.Number(n), st.greater, st.exclusive, true // nobody waits for a verdict
	w.MaxJump = x.maxJump
	// No two things ever end at the same time: time passes in whole seconds, settling and doubts end at the half and timeouts at the
	// quarter of one.
	w.DrainTimeout = time.Duration(st.seconds)*time.Second + time.Second/4
	p := &sim{n: n, attempt: &attempt{w: w}, votes: map[fencing.Resource]*vote{}, deadline: time.Now().Add(w.DrainTimeout)}
	p.beneath = map[fencing.Resource]uint64{}
	for _, t := range w.Trees {
		for r := range x.m {
			if strings.HasPrefix(string(r), string(t.Prefix)) {
				p.beneath[t.Key] = max(p.beneath[t.Key], x.proven(r))
			}
		}
	}
	return p
}

func (x *machine) do(st step) error {
	x.calmGreater = true
	half := time.Duration(st.seconds)*time.Second + time.Second/2
	switch st.kind {
	case "enter":
		p := x.newSim(st)
		want := x.rejection(p)
		drains := x.drains(p, want)
		if want == "" {
			x.m.join(p)
		}
		p.attempt = try(x.g, p.w)
		if want == "" {
			x.open = append(x.open, p)
			return drains()
		}
		if !p.returned() || rejectionOf(p.err) != want {
			return fmt.Errorf("Enter(%d) on %q = %v; want %s", p.n, keysOf(p.w), p.err, want)
		}
	case "observe":
		p := x.newSim(st)
		p.observed, p.w.Exclusive = true, false
		want := x.rejection(p)
		drains := x.drains(p, want)
		p.unseen = want != ""
		if want == "" {
			x.m.join(p)
		}
		p.a, p.err = x.g.Observe(p.w)
		if p.a == nil || rejectionOf(p.err) != want {
			return fmt.Errorf("Observe(%d) on %q = %v, %v; want an admission and %q", p.n, keysOf(p.w), p.a, p.err, want)
		}
		x.flights = append(x.flights, p)
		return drains()
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

// rejection returns what Enter must refuse the write as, if at all.
func (x *machine) rejection(p *sim) string {
	byOwn, beneath := x.stale(p.n, p.w)
	switch {
	case byOwn:
		return "stale"
	case x.occupied(p.w):
		return "not empty"
	case beneath:
		return "stale"
	case x.jumps(p):
		return "jump"
	}
	return ""
}

func rejectionOf(err error) string {
	if _, ok := errors.AsType[*gate.StaleTokenError](err); ok {
		return "stale"
	}
	if _, ok := errors.AsType[*gate.TreeError](err); ok {
		return "not empty"
	}
	if _, ok := errors.AsType[*gate.JumpError](err); ok {
		return "jump"
	}
	return ""
}

// drains returns a check, for after the write was seen, that the marks which it advanced record whether others were under way.
func (x *machine) drains(p *sim, rejection string) func() error {
	want := time.Now().Before(x.recovered) ||
		slices.ContainsFunc(x.flights, func(q *sim) bool { return p.shares(q) && p.n != q.n })
	var raised []fencing.Resource
	for _, r := range keysOf(p.w) {
		if x.m.mark(r) < p.n && rejection == "" {
			raised = append(raised, r)
		}
	}
	return func() error {
		synctest.Wait()
		for _, r := range raised {
			if m, _ := x.s.mark(r); m.Token == fencing.Number(p.n) && m.Draining != want {
				return fmt.Errorf("the mark %d of %q has Draining %v; want %v", p.n, r, m.Draining, want)
			}
		}
		return nil
	}
}

func (x *machine) setMark(st step) error {
	r := st.resources[0]
	if ts := x.shape(st).Trees; len(ts) > 0 {
		r = ts[0].Key
	}
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
			if !x.staleNow(p) && !x.jumps(p) {
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
		if x.staleNow(p) || x.occupied(p.w) {
			return fmt.Errorf("%d waits on %q although it is stale, or not empty", p.n, keysOf(p.w))
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
	rejection := rejectionOf(p.err)
	_, busy := errors.AsType[*gate.BusyError](p.err)
	overtaken := x.staleNow(p)
	switch {
	case rejection == "stale" && (overtaken || p.w.Greater && !x.calmGreater):
	case rejection == "not empty" && x.occupied(p.w):
	case rejection == "jump" && x.jumps(p): // its token has to be raised again, and an operator has set a mark
	case busy && !p.deadline.After(p.at):
	case errors.Is(p.err, context.Canceled):
	default:
		return fmt.Errorf("Enter(%d) on %q = %w at %v, deadline %v, overtaken %v", p.n, p.w.Resources, p.err, p.at, p.deadline, overtaken)
	}
	return nil
}

func (x *machine) lookAtAdmission(p *sim) error {
	for _, r := range p.w.Under {
		if m, _ := x.s.mark(r); p.at.Before(x.recovered) && m.Draining {
			return fmt.Errorf("%d was admitted beneath %q although that still recovers", p.n, r)
		}
	}
	for _, r := range keysOf(p.w) {
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
	synctest.Wait()
	for _, p := range x.open {
		if p.err == nil { // one that gave up let it in before it was cancelled
			p.a.Done(0)
		}
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

// drawMaxJump draws 0, for any distance, most often.
func drawMaxJump(t *rapid.T) uint64 {
	return rapid.SampledFrom([]uint64{0, 0, 0, 1, 2, 4}).Draw(t, "max jump")
}

func TestGateFollowsTheRule(t *testing.T) {
	for n := 1; n <= 3; n++ {
		all := []fencing.Resource{"r", "s", "t"}[:n]
		t.Run(fmt.Sprintf("%d resources", n), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				recovery := rapid.SampledFrom([]time.Duration{0, 0, 9700 * time.Millisecond}).Draw(rt, "recover")
				maxJump := drawMaxJump(rt)
				if err := runSteps(t, all, n, nil, recovery, maxJump, drawSteps(rt, all, n)); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// runSteps carries the steps out in a bubble of their own. shape, if not nil, makes writes of them.
func runSteps(t *testing.T, all []fencing.Resource, some int, shape func(step) gate.Write, recovery time.Duration, maxJump uint64, steps []step) (trouble error) {
	synctest.Test(t, func(*testing.T) {
		x := newMachine(all, some, recovery)
		x.maxJump = maxJump
		if shape != nil {
			x.shape = shape
		}
		for i, st := range steps {
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
	return trouble
}
