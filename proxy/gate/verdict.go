package gate

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// setLowLocked notes whether the write is low on the resource of the claim.
func (c *claim) setLowLocked(a *Admission, low bool) {
	c.low = low
	switch {
	case !a.waiting:
	case low:
		c.entry.low++
	default:
		c.entry.low--
	}
}

// lowLocked reports whether a higher token that is unproven was seen on one of the resources.
func (a *Admission) lowLocked() bool {
	for i := range a.claims {
		if a.claims[i].low {
			return true
		}
	}
	return false
}

// standsLocked reports whether the write has to stand in line before its token may be raised. Who goes first on a resource:
//
//   - those that are due, in order of arrival;
//   - then the highest token, as it was seen. The lower ones are low, and wait to see what becomes of it.
//
// No due one stands behind one that is not (favourLocked), so the two orders contradict each other nowhere, on several resources neither.
func (a *Admission) standsLocked() bool {
	for i := range a.claims {
		c := &a.claims[i]
		if first := c.entry.dueLocked(); c.low && !a.due || c.kind == plain && first != nil && first != a {
			return true
		}
	}
	return false
}

// stirsLocked reports whether a token that is not below t is on its way to the disk.
func (c *claim) stirsLocked(t fencing.Token) bool {
	return slices.ContainsFunc(c.entry.unproven, func(u *unproven) bool { return u.storing && !u.mark.Token.Less(t) })
}

// lacksLocked reports whether the token of the write is not the one that counts here: it was not raised yet, its advance failed, or it was
// taken back. Then somebody else may have raised the same token since.
func (c *claim) lacksLocked(a *Admission) bool {
	if c.kind == under {
		return !c.present
	}
	e := c.entry
	if n := len(e.unproven); n > 0 {
		return c.on != e.unproven[n-1]
	}
	return e.proven.below(a.token)
}

// followsLocked reports whether a newcomer is due because it comes behind one that is, so that the order of arrival holds until the line is
// empty. In no other of its lines may it come behind one that is not.
func (a *Admission) followsLocked() bool {
	follows := false
	for i := range a.claims {
		c := &a.claims[i]
		if n := len(c.entry.waiters); c.kind == plain && n > 0 {
			if !c.entry.waiters[n-1].due {
				return false
			}
			follows = true
		}
	}
	return follows
}

// favourLocked makes those due that wait on e and came no later than seq: somebody was turned away there, and without that one they would
// have gone before all that came after them. Whoever is ahead of one of them in another line is made due as well; it returns where.
//
// +checklocks:g.mu
func (g *Gate) favourLocked(e *entry, seq uint64) (touched []*entry) {
	for i := len(e.waiters) - 1; i >= 0; i-- {
		w := e.waiters[i]
		if w.seq > seq {
			continue
		}
		if w.due {
			return touched // and so are all ahead of it
		}
		w.due = true
		for j := range w.claims {
			if c := &w.claims[j]; c.kind == plain && c.entry != e {
				touched = append(touched, c.entry)
				touched = append(touched, g.favourLocked(c.entry, w.seq-1)...)
			}
		}
	}
	return touched
}

// outrunLocked returns a [*StaleTokenError] if the write is below an unproven token that waits for an older write, which says nothing about
// the token: it is not below one that is at the upstream. One that is due goes before that token, and waits on; so does one whose token is
// the last that was accepted, since the newer one may be anybody's.
func (a *Admission) outrunLocked() error {
	if a.due {
		return nil
	}
	for i := range a.claims {
		c := &a.claims[i]
		e := c.entry
		if c.low && len(e.flights) > 0 && a.token != e.firmLocked().mark.Token && !slices.ContainsFunc(e.flights, func(f flight) bool { return a.token.Less(f.token) }) {
			return &StaleTokenError{Resource: e.resource, Token: a.token, Mark: e.seenLocked().mark.Token, Greater: a.greater}
		}
	}
	return nil
}
