package gate

import (
	"cmp"
	"context"
	"slices"
	"time"
)

type verdict int

const (
	wait  verdict = iota // another write, the disk or recovery stands in the way
	admit                // nothing stands in the way
	again                // the token is not what was seen here, and it may be: advance
)

// rejectionLocked returns a [*StaleTokenError] if the token is stale on one of the keys, or a [*TreeError]. A token that is only below
// unproven ones is low, not stale, if the write is patient.
func (a *Admission) rejectionLocked() error {
	for i := range a.claims {
		c := &a.claims[i]
		greater := a.greater && c.kind != under // a tree's mark is not used up by what lies beneath
		strict := greater && !c.raisedIt()
		low := c.entry.topLocked().refuses(a.token, strict)
		if low {
			if err := c.staleLocked(a, greater, strict); err != nil {
				return err
			}
		}
		if low != c.low {
			c.setLowLocked(a, low)
		}
		if c.kind == whole {
			if err := c.entry.beneath.rejectionLocked(a, c.entry.resource); err != nil {
				return err
			}
		}
	}
	return nil
}

// staleLocked returns the error of a token that the highest one seen refuses, or nil if the write waits to see what becomes of that one.
func (c *claim) staleLocked(a *Admission, greater, strict bool) error {
	mark := c.entry.seenLocked()
	if c.patient {
		mark = c.entry.firmLocked()
	}
	if !mark.refuses(a.token, strict) {
		return nil
	}
	return &StaleTokenError{Resource: c.entry.resource, Token: a.token, Mark: mark.mark.Token, Greater: greater}
}

// judgeLocked decides about a joined admission.
//
// +checklocks:g.mu
func (g *Gate) judgeLocked(a *Admission) (verdict, error) {
	if g.closed {
		return wait, ErrClosed
	}
	if err := g.store.Err(); err != nil {
		return wait, &StoreError{Op: "load", Err: err}
	}
	if err := a.rejectionLocked(); err != nil {
		return wait, err
	}
	if a.standsLocked() {
		return wait, nil
	}
	low, lacks, blocked := false, false, false
	for i := range a.claims {
		c := &a.claims[i]
		low = low || c.low
		lacks = lacks || c.lacksLocked(a)
		if _, b := g.obstacleLocked(c, a); b {
			blocked = true
		}
	}
	switch {
	case blocked && (low || lacks && a.due): // nothing is taken back before it can go, nor raised for one that others wait behind
		return wait, nil
	case low, lacks:
		return again, nil
	case blocked:
		return wait, nil
	}
	return admit, nil
}

// obstacle is what keeps a write waiting on a resource.
type obstacle struct {
	reason BusyReason
	until  time.Time // zero if not known
}

// obstacleLocked says what keeps a from being admitted as far as its claim c is concerned. Who waits for whom on a tree:
//
//   - a write on the whole tree for every other flight there, on the tree and beneath;
//   - a write beneath for the flights on the tree alone. Its own mark is not the tree's, so the tree's need not be durable for it.
//     But it does wait while that is taken back or set: whether a write beneath was in flight is stored with it.
//
// +checklocks:g.mu
func (g *Gate) obstacleLocked(c *claim, a *Admission) (o obstacle, blocked bool) {
	e := c.entry
	if e.unsettled && !g.recoverUntil.IsZero() {
		return obstacle{BusyRecovering, g.recoverUntil}, true
	}
	switch {
	case e.restoring, c.kind != under && e.durable.below(a.token) && !c.lacksLocked(a):
		return obstacle{reason: BusyInFlight}, true
	case c.low && (a.greater && len(e.flights) > 0 || c.stirsLocked(a.token)): // what is taken back is neither in flight nor on its way to the disk
		return obstacle{reason: BusyUnproven}, true
	}
	f := conflictLocked(e.flights, a)
	if f == nil && c.kind == whole {
		f = conflictLocked(e.beneath.flights, a)
	}
	switch {
	case f != nil && f.inDoubt == f.writes:
		return obstacle{BusyInDoubt, f.until}, true
	case f != nil, behind(e.waiters, a), c.kind == whole && behind(e.beneath.waiters, a):
		return obstacle{reason: BusyInFlight}, true
	case c.kind == plain && e.low > 0 && len(e.flights) > 0 && !a.due:
		return obstacle{reason: BusyUnproven}, true // or a flight that is joined all the time would never end for those who wait for its verdict
	}
	return obstacle{}, false
}

// behind reports whether a would overtake a write of the line that waits to be alone, or another although it has to be alone itself.
// One that does not wait yet comes after all others; one that is low comes after whoever it is low for.
func behind(line []*Admission, a *Admission) bool {
	for _, w := range line {
		if a.waiting && w.seq >= a.seq {
			return false
		}
		if (a.exclusive || w.exclusive) && !w.lowLocked() {
			return true
		}
	}
	return false
}

// lines names waiters of an entry.
type lines uint8

const (
	own   lines = 1 << iota // entry.waiters
	below                   // entry.beneath.waiters
)

// blocks returns those who may wait for the write of the claim. Writes beneath a tree do not wait for each other there, so a busy tree
// costs its writes nothing.
func (c *claim) blocks() lines {
	if c.kind == under {
		return own
	}
	return own | below
}

// dispatchLocked judges waiters of e again, in order of arrival. It is called after every change of e. What it does can change
// other entries of a waiter; those are looked at in turn, never recursively, so that a queue changes only under the hands of the
// one loop that walks it.
//
// +checklocks:g.mu
func (g *Gate) dispatchLocked(e *entry, who lines) {
	if len(e.waiters) == 0 && (len(e.beneath.waiters) == 0 || who == own) {
		return
	}
	running := len(g.dirty) > 0
	g.dirtyLocked(e, who)
	if running {
		return
	}
	for len(g.dirty) > 0 {
		e := g.dirty[len(g.dirty)-1]
		who := e.dirty
		e.dirty = 0
		g.walkLocked(&e.waiters)
		if who&below != 0 {
			g.walkLocked(&e.beneath.waiters)
		}
		g.dirty = slices.DeleteFunc(g.dirty, func(d *entry) bool { return d == e && d.dirty == 0 })
	}
}

// +checklocks:g.mu
func (g *Gate) walkLocked(line *[]*Admission) {
	for i := 0; i < len(*line); {
		if a := (*line)[i]; !g.retryLocked(a) {
			i++
		}
	}
}

// +checklocks:g.mu
func (g *Gate) dirtyLocked(e *entry, who lines) {
	if e.dirty == 0 {
		g.dirty = append(g.dirty, e)
	}
	e.dirty |= who
}

// retryLocked judges one waiter and reports whether it stopped waiting. One that has to advance keeps its place meanwhile.
//
// +checklocks:g.mu
func (g *Gate) retryLocked(a *Admission) bool {
	if a.turn {
		return false // it is judged when its writer comes back
	}
	low := a.lowLocked()
	v, err := g.judgeLocked(a)
	switch {
	case err != nil:
		g.turnedAwayLocked(a, err)
	case v == wait:
		if low != a.lowLocked() {
			g.stirLocked(a) // others go before it by now
		}
		return false
	case v == again:
		a.turn = true
	default:
		g.admitLocked(a)
	}
	a.result <- result{verdict: v, err: err}
	return !a.waiting
}

// overfullLocked returns a [*BusyError] if one more waiter is too many. Writes beneath a tree are counted where they are, not there: a
// busy resource does not turn writes on its neighbours away.
//
// +checklocks:g.mu
func (g *Gate) overfullLocked(a *Admission) error {
	for i := range a.claims {
		e := a.claims[i].entry
		if g.stats.Waiting >= g.maxWaitersTotal || a.claims[i].kind != under && len(e.waiters) >= g.maxWaiters {
			return &BusyError{Resource: e.resource, Reason: BusyWaiters, RetryAfter: time.Second}
		}
	}
	return nil
}

// +checklocks:g.mu
func (g *Gate) enqueueLocked(a *Admission) {
	if a.result == nil {
		a.result = make(chan result, 1)
	}
	g.waited++
	a.seq = g.waited
	a.due = a.followsLocked()
	for i := range a.claims {
		c := &a.claims[i]
		line := c.lineLocked()
		*line = append(*line, a)
		if c.low {
			c.entry.low++
		}
	}
	a.waiting = true
	g.stats.Waiting++
}

// lineLocked returns the queue in which the write of the claim waits. It is in ascending order of Admission.seq.
func (c *claim) lineLocked() *[]*Admission {
	if c.kind == under {
		return &c.entry.beneath.waiters
	}
	return &c.entry.waiters
}

// dequeueLocked takes a waiter out of every queue it stands in.
//
// +checklocks:g.mu
func (g *Gate) dequeueLocked(a *Admission) {
	for i := range a.claims {
		c := &a.claims[i]
		if c.low {
			c.setLowLocked(a, false)
		}
		line := c.lineLocked()
		at, _ := slices.BinarySearchFunc(*line, a.seq, func(w *Admission, seq uint64) int { return cmp.Compare(w.seq, seq) })
		*line = slices.Delete(*line, at, at+1)
	}
	a.waiting, a.turn, a.due = false, false, false
	g.stats.Waiting--
}

// verdictWait is how long a write that is below an unproven token waits while that token itself has not gone out, since an older write is
// under way. Usually the newer one is the holder's, and the older one's writer is to be told at once.
const verdictWait = time.Second

// await waits for the result that retryLocked sends. On error the admission has left.
func (g *Gate) await(ctx context.Context, a *Admission, deadline time.Time) (verdict, error) {
	for {
		look := time.Now().Add(verdictWait)
		timer := time.NewTimer(time.Until(earlier(look, deadline)))
		select {
		case r := <-a.result:
			timer.Stop()
			return r.verdict, r.err
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		if v, done, err := g.lookUp(ctx, a, look.Before(deadline)); done {
			return v, err
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// lookUp decides about a write that was not judged for a while: it leaves if its time is over, its client gone, or if an older write keeps
// the token out that it is below.
func (g *Gate) lookUp(ctx context.Context, a *Admission, hasTime bool) (v verdict, done bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !a.waiting || a.turn { // it was judged in this very moment
		r := <-a.result
		if r.err == nil && ctx.Err() != nil {
			g.withdrawLocked(a)
			return wait, true, ctx.Err()
		}
		return r.verdict, true, r.err
	}
	err = ctx.Err()
	if err == nil {
		err = a.outrunLocked()
	}
	if err == nil && !hasTime {
		err = g.busyLocked(a)
	}
	if err == nil {
		return wait, false, nil
	}
	g.turnedAwayLocked(a, err)
	return wait, true, err
}

// withdrawLocked takes an admission off the table whose writer is gone and of which nothing was forwarded.
//
// +checklocks:g.mu
func (g *Gate) withdrawLocked(a *Admission) {
	if !a.forward {
		g.leaveLocked(a)
		return
	}
	a.ended = true
	if !a.unsent {
		g.proveLocked(a)
	}
	g.releaseLocked(a)
}

// +checklocks:g.mu
func (g *Gate) busyLocked(a *Admission) *BusyError {
	b := &BusyError{Resource: a.claims[0].entry.resource, Reason: BusyInFlight, RetryAfter: time.Second}
	for i := range a.claims {
		c := &a.claims[i]
		if o, blocked := g.obstacleLocked(c, a); blocked {
			b.Resource, b.Reason = c.entry.resource, o.reason
			if !o.until.IsZero() {
				b.RetryAfter = max(b.RetryAfter, time.Until(o.until))
			}
			return b
		}
	}
	if a.standsLocked() {
		b.Reason = BusyUnproven
	}
	return b
}
