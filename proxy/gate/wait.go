package gate

import (
	"context"
	"slices"
	"time"
)

type verdict int

const (
	wait  verdict = iota // another write, the disk or recovery stands in the way
	admit                // nothing stands in the way
	again                // the token is no longer the highest seen: advance once more
)

// staleLocked returns a [*StaleTokenError] if the token is stale on one of the resources.
func (a *Admission) staleLocked() error {
	for i := range a.claims {
		c := &a.claims[i]
		if seen := c.entry.seenLocked(); seen.refuses(a.token, a.greater && !c.raisedIt()) {
			return &StaleTokenError{Resource: c.entry.resource, Token: a.token, Mark: seen.mark.Token, Greater: a.greater}
		}
	}
	return nil
}

// judgeLocked decides about a joined admission whose token was seen.
//
// +checklocks:g.mu
func (g *Gate) judgeLocked(a *Admission) (verdict, error) {
	if g.closed {
		return wait, ErrClosed
	}
	if err := g.store.Err(); err != nil {
		return wait, &StoreError{Op: "load", Err: err}
	}
	if err := a.staleLocked(); err != nil {
		return wait, err
	}
	v := admit
	for i := range a.claims {
		e := a.claims[i].entry
		if e.seenLocked().below(a.token) {
			return again, nil // its advance failed or was taken back
		}
		if _, blocked := g.obstacleLocked(e, a); blocked {
			v = wait
		}
	}
	return v, nil
}

// obstacle is what keeps a write waiting on a resource.
type obstacle struct {
	reason BusyReason
	until  time.Time // zero if not known
}

// obstacleLocked says what keeps a from being admitted as far as e is concerned.
//
// +checklocks:g.mu
func (g *Gate) obstacleLocked(e *entry, a *Admission) (o obstacle, blocked bool) {
	if e.unsettled && !g.recoverUntil.IsZero() {
		return obstacle{BusyRecovering, g.recoverUntil}, true
	}
	if e.restoring || e.durable.below(a.token) {
		return obstacle{reason: BusyInFlight}, true
	}
	for i := range e.flights {
		if f := &e.flights[i]; f.token != a.token || f.exclusive > 0 || a.exclusive {
			if f.inDoubt == f.writes {
				return obstacle{BusyInDoubt, f.until}, true
			}
			return obstacle{reason: BusyInFlight}, true
		}
	}
	for _, w := range e.waiters { // do not overtake a write that waits to be alone
		if w == a {
			break
		}
		if a.exclusive || w.exclusive {
			return obstacle{reason: BusyInFlight}, true
		}
	}
	return obstacle{}, false
}

// dispatchLocked judges the waiters of e again, in order of arrival. It is called after every change of e. What it does can change
// other entries of a waiter; those are looked at in turn, never recursively, so that a queue changes only under the hands of the
// one loop that walks it.
//
// +checklocks:g.mu
func (g *Gate) dispatchLocked(e *entry) {
	if len(e.waiters) == 0 {
		return
	}
	running := len(g.dirty) > 0
	g.dirtyLocked(e)
	if running {
		return
	}
	for len(g.dirty) > 0 {
		e := g.dirty[len(g.dirty)-1]
		e.dirty = false
		for i := 0; i < len(e.waiters); {
			if a := e.waiters[i]; !g.retryLocked(a) {
				i++
			}
		}
		g.dirty = slices.DeleteFunc(g.dirty, func(d *entry) bool { return d == e && !d.dirty })
	}
}

// +checklocks:g.mu
func (g *Gate) dirtyLocked(e *entry) {
	if !e.dirty {
		e.dirty = true
		g.dirty = append(g.dirty, e)
	}
}

// retryLocked judges one waiter and reports whether it stopped waiting.
//
// +checklocks:g.mu
func (g *Gate) retryLocked(a *Admission) bool {
	v, err := g.judgeLocked(a)
	if err == nil && v == wait {
		return false
	}
	g.dequeueLocked(a)
	if v == admit && err == nil {
		g.admitLocked(a)
	} else {
		for i := range a.claims { // an exclusive one may have been all that stopped those behind it, on any of its resources
			g.dirtyLocked(a.claims[i].entry)
		}
	}
	if err != nil {
		g.leaveLocked(a)
	}
	a.result <- result{verdict: v, err: err}
	return true
}

// overfullLocked returns a [*BusyError] if one more waiter is too many.
//
// +checklocks:g.mu
func (g *Gate) overfullLocked(a *Admission) error {
	for i := range a.claims {
		e := a.claims[i].entry
		if g.stats.Waiting >= g.maxWaitersTotal || len(e.waiters) >= g.maxWaiters {
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
	for i := range a.claims {
		e := a.claims[i].entry
		e.waiters = append(e.waiters, a)
	}
	a.waiting = true
	g.stats.Waiting++
}

// dequeueLocked takes a waiter out of every queue it stands in.
//
// +checklocks:g.mu
func (g *Gate) dequeueLocked(a *Admission) {
	for i := range a.claims {
		e := a.claims[i].entry
		e.waiters = slices.DeleteFunc(e.waiters, func(w *Admission) bool { return w == a })
	}
	a.waiting = false
	g.stats.Waiting--
}

// await waits for the result that retryLocked sends. On error the admission has left.
func (g *Gate) await(ctx context.Context, a *Admission, deadline time.Time) (verdict, error) {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case r := <-a.result:
		return r.verdict, r.err
	case <-ctx.Done():
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !a.waiting { // it was judged in this very moment
		r := <-a.result
		if r.err == nil && ctx.Err() != nil {
			g.withdrawLocked(a)
			return wait, ctx.Err()
		}
		return r.verdict, r.err
	}
	err := ctx.Err()
	if err == nil {
		err = g.busyLocked(a)
	}
	g.dequeueLocked(a)
	for i := range a.claims { // an exclusive one may have been all that stopped those behind it
		g.dispatchLocked(a.claims[i].entry)
	}
	g.withdrawLocked(a)
	return wait, err
}

// withdrawLocked takes an admission off the table whose writer is gone and of which nothing was forwarded.
//
// +checklocks:g.mu
func (g *Gate) withdrawLocked(a *Admission) {
	if a.forward {
		a.ended = true
		a.proveLocked()
		g.releaseLocked(a)
		return
	}
	g.leaveLocked(a)
}

// +checklocks:g.mu
func (g *Gate) busyLocked(a *Admission) *BusyError {
	b := &BusyError{Resource: a.claims[0].entry.resource, Reason: BusyInFlight, RetryAfter: time.Second}
	for i := range a.claims {
		e := a.claims[i].entry
		if o, blocked := g.obstacleLocked(e, a); blocked {
			b.Resource, b.Reason = e.resource, o.reason
			if !o.until.IsZero() {
				b.RetryAfter = max(b.RetryAfter, time.Until(o.until))
			}
			return b
		}
	}
	return b
}
