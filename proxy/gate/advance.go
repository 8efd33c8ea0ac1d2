package gate

import (
	"errors"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// advance makes the admission's token the highest seen on those of its resources where it is higher than what was seen, and makes
// that durable. It blocks for the store. On error the admission has left.
//
// The order of the steps is the guarantee:
//  1. judge all resources and trees; a token that is stale on one raises none, nor does it count beneath a tree;
//  2. note the token as seen on all, in the same instant: from here on lower ones are refused (G2), also beneath the trees that
//     the write changes and as a whole on the trees that it lies in;
//  3. make it durable, without the lock;
//  4. only then note it as durable, which is what admission asks for (G3).
//
// With 3 before 2 a lower token could be admitted while the disk is busy; with 4 before 3 a write could be forwarded whose mark a
// crash forgets.
func (g *Gate) advance(a *Admission, w *Write) error {
	back, ms, err := g.raise(a, w)
	for len(back) > 0 {
		if err := g.restoreAll(back); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.leaveLocked(a)
			return err
		}
		back, ms, err = g.raise(a, w)
	}
	if err != nil || len(ms) == 0 {
		return err
	}
	err = g.store.Advance(ms)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advancedLocked(ms, err)
	if err != nil {
		g.leaveLocked(a)
		return &StoreError{Op: "advance", Err: err}
	}
	return nil
}

// raise does the first two steps of advance. back are tokens that have to be taken back before that. A write that has to stand in line
// raises nothing. On error the admission has left.
func (g *Gate) raise(a *Admission, w *Write) (back []restoration, ms []fencing.ResourceMark, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		err = ErrClosed
	} else if err = a.rejectionLocked(); err == nil {
		err = a.jumpLocked(w)
	}
	switch {
	case err != nil:
	case a.standsLocked():
		return nil, nil, nil
	case a.lowLocked():
		return g.takeBackLocked(a, w), nil, nil
	default:
		err = a.firstLocked(w)
	}
	if err != nil {
		g.turnedAwayLocked(a, err)
		return nil, nil, err
	}
	return nil, g.raiseLocked(a, w), nil
}

// takeBackLocked begins to take back the higher tokens for a write that is due: all of them came after it, or it would not be its turn. They
// are not refused by that. Whoever waits with one of them raises it again when it is its turn. The mark goes straight to the token of
// this write, so that the disk is asked once. What is in the way of that it leaves alone; the write then waits on.
//
// +checklocks:g.mu
func (g *Gate) takeBackLocked(a *Admission, w *Write) (back []restoration) {
	for i := range a.claims {
		if _, blocked := g.obstacleLocked(&a.claims[i], a); blocked {
			return nil
		}
	}
	for i := range a.claims {
		c := &a.claims[i]
		if !c.low {
			continue
		}
		e := c.entry
		greater := a.greater && !c.raisedIt()
		for _, u := range e.unproven {
			if a.token.Less(u.mark.Token) || greater && a.token == u.mark.Token {
				u.backers, u.back = 0, true
			}
		}
		if u := e.findLocked(a.token); u != nil && !u.back && c.on != u {
			u.backers++
			c.on = u
		} else if u == nil && e.proven.below(a.token) {
			c.on = g.unprovenLocked(a, w, e)
			c.raised = true
			a.leapLocked(e.proven)
			at := slices.IndexFunc(e.unproven, func(u *unproven) bool { return u.back })
			e.unproven = slices.Insert(e.unproven, at, c.on)
		}
		back = append(back, restoration{e, g.beginRestoreLocked(e)})
	}
	return back
}

// unprovenLocked returns the token as one that was seen on e for the first time.
//
// +checklocks:g.mu
func (g *Gate) unprovenLocked(a *Admission, w *Write, e *entry) *unproven {
	recovering := !g.recoverUntil.IsZero()
	e.unsettled = e.unsettled || recovering
	for i := range a.claims {
		if c := &a.claims[i]; c.kind == under {
			c.entry.beneath.doubtLocked(e)
		}
	}
	return &unproven{backers: 1, final: w.Final, mark: fencing.Mark{
		Token: a.token, Format: w.Format, At: time.Now(), By: w.By, Policy: w.Policy, Holder: w.Holder, TTL: w.TTL,
		Draining: recovering || a.othersLocked(),
	}}
}

// firstLocked asks [Write.First] if the write would make the first mark of a resource.
func (a *Admission) firstLocked(w *Write) error {
	if w.First == nil {
		return nil
	}
	n := 0
	for i := range a.claims {
		if c := &a.claims[i]; c.kind != under && !c.entry.topLocked().ok {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return w.First(n)
}

// raiseLocked notes the token as seen, and returns the marks that have to become durable. A write beneath a tree leaves the tree's mark
// as it is: writes beneath have no order among each other. Its token is present there until it leaves.
//
// What Draining has to cover, so that an equal token need not wait out an unclean stop on any other mark: every write that may land
// after this one and is lower. On a resource beneath a tree that is also a lower write on the tree, at the instant in which this mark
// is raised; later none can come, since it is stale by this mark. On a tree it is every lower write beneath; later none can
// come, since they are stale by the tree's mark, and the higher ones beneath make the tree's own token stale by theirs.
//
// +checklocks:g.mu
func (g *Gate) raiseLocked(a *Admission, w *Write) []fencing.ResourceMark {
	var ms []fencing.ResourceMark
	for i := range a.claims {
		c := &a.claims[i]
		e := c.entry
		if c.kind == under {
			if !c.present {
				c.present = true
				e.beneath.arriveLocked(a.token)
			}
			continue
		}
		if top := e.topLocked(); top.ok && !top.token.Less(a.token) {
			if u := e.findLocked(a.token); u != nil && c.on != u {
				u.backers++
				c.on = u
				if w.Final && !u.final {
					u.final = true
					g.dispatchLocked(e, own) // those who wait for the verdict have it
				}
			}
			continue
		}
		a.leapLocked(e.seenLocked())
		c.on = g.unprovenLocked(a, w, e)
		c.on.storing, c.raised = true, true
		e.unproven = append(e.unproven, c.on)
		ms = append(ms, fencing.ResourceMark{Resource: e.resource, Mark: c.on.mark})
	}
	for _, m := range ms { // only now that all are raised: waiters with lower tokens are stale
		g.dispatchLocked(g.entries[m.Resource], own|below)
	}
	for i := range a.claims {
		if a.claims[i].kind == under {
			g.dispatchLocked(a.claims[i].entry, own) // lower ones that want the whole tree, too
		}
	}
	return ms
}

// advancedLocked takes note of what became of the marks that raiseLocked returned.
//
// +checklocks:g.mu
func (g *Gate) advancedLocked(ms []fencing.ResourceMark, err error) {
	for _, m := range ms {
		e := g.entries[m.Resource] // held by a reference of the caller's
		u := e.findLocked(m.Mark.Token)
		if u != nil {
			u.storing = false
		}
		if err == nil {
			if e.durable.below(m.Mark.Token) {
				e.durable = floor{m.Mark, true}
			}
			e.settleLocked()
		} else if u != nil && e.durable.below(m.Mark.Token) {
			e.revokeLocked(u) // not durable, nobody was admitted with it: writes that joined it try for themselves
		}
		g.dispatchLocked(e, own|below)
	}
}

// beginRestoreLocked looks for a token of e to take back, and if there is one keeps e for the caller, who then calls restore without the
// lock. It is called whenever there can be one: after a refusal, and at the end of each step that keeps another one waiting.
//
// +checklocks:g.mu
func (g *Gate) beginRestoreLocked(e *entry) *unproven {
	u := e.refusedLocked()
	if u != nil {
		e.restoring = true
		e.refs++
		g.storing++
	}
	return u
}

// restoration is a token to take back on a resource.
type restoration struct {
	entry *entry // held by beginRestoreLocked
	token *unproven
}

func (g *Gate) restoreAll(back []restoration) error {
	var errs error
	for _, b := range back {
		errs = errors.Join(errs, g.restore(b.entry, b.token))
	}
	return errs
}

// restore takes back u, which beginRestoreLocked returned, and what else was refused meanwhile. It blocks for the store.
func (g *Gate) restore(e *entry, u *unproven) error {
	var errs error
	for u != nil {
		g.mu.Lock()
		back := e.belowLocked(u)
		g.mu.Unlock()
		var to *fencing.Mark
		if back.ok {
			to = &back.mark
		}
		// If a higher token became durable meanwhile the store changes nothing, which is right: the mark on disk is above u.
		done, err := g.store.Restore(e.resource, u.mark.Token, to)
		if err != nil {
			errs = errors.Join(errs, &StoreError{Op: "restore", Err: err})
		}
		u = g.restored(e, u, back, done, err)
	}
	return errs
}

// restored takes note of what became of a restore, and begins the next one.
func (g *Gate) restored(e *entry, u *unproven, back floor, done bool, err error) (next *unproven) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e.restoring = false
	g.storing--
	if err != nil && !e.durable.below(u.mark.Token) {
		u.back = false
		e.proveLocked(u) // it is still on disk
	} else {
		e.revokeLocked(u) // whoever came with it meanwhile was not admitted, and advances again
	}
	if done && e.durable.ok && e.durable.mark.Token == u.mark.Token {
		e.durable = back
	}
	e.settleLocked()
	next = g.beginRestoreLocked(e)
	g.dispatchLocked(e, own|below)
	g.unrefLocked(e)
	g.quietLocked()
	return next
}
