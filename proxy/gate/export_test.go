package gate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// CheckInvariants returns an error if the bookkeeping contradicts itself. It may be called at any time.
func (g *Gate) CheckInvariants() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for r, e := range g.entries {
		if err := e.checkInvariantsLocked(); err != nil {
			return fmt.Errorf("entry of %q: %w", r, err)
		}
		if e.resource != r {
			return fmt.Errorf("entry of %q stands under %q", e.resource, r)
		}
		if slices.Contains(g.free, e) {
			return fmt.Errorf("entry of %q is on the free list", r)
		}
	}
	if len(g.setting) > 0 && len(g.entries) == 0 {
		return fmt.Errorf("%d marks are being set by nobody", len(g.setting))
	}
	if len(g.dirty) > 0 {
		return fmt.Errorf("%d entries left to look at", len(g.dirty))
	}
	return nil
}

func (e *entry) checkInvariantsLocked() error {
	if e.refs <= 0 {
		return fmt.Errorf("%d users", e.refs)
	}
	if e.proven.ok && e.durable.below(e.proven.mark.Token) && !e.restoring {
		return fmt.Errorf("proven %v is above durable %v", e.proven.mark.Token, e.durable)
	}
	last := e.proven
	for _, u := range e.unproven {
		if !last.below(u.mark.Token) || u.gone || u.revoked || u.backers < 0 {
			return fmt.Errorf("unproven %+v after %v", *u, last)
		}
		if !u.storing && e.durable.below(u.mark.Token) && !e.restoring {
			return fmt.Errorf("unproven %v is not durable and nobody is at it", u.mark.Token)
		}
		last = floor{u.mark, true}
	}
	for _, f := range slices.Concat(e.flights, e.beneath.flights) {
		if f.writes <= 0 || f.inDoubt < 0 || f.inDoubt > f.writes {
			return fmt.Errorf("flight %+v", f)
		}
	}
	low := 0
	for i, w := range e.waiters {
		c := &w.claims[slices.IndexFunc(w.claims, func(c claim) bool { return c.entry == e })]
		if c.low {
			low++
		}
		firm := e.firmLocked()
		switch {
		case !w.waiting:
			return fmt.Errorf("%v stands in line and does not wait", w.token)
		case w.due && i > 0 && !e.waiters[i-1].due:
			return fmt.Errorf("%v is due behind %v, which is not", w.token, e.waiters[i-1].token)
		case w.turn: // its writer has yet to look
		case firm.refuses(w.token, false):
			return fmt.Errorf("%v waits although %v was accepted", w.token, firm.mark.Token)
		case !w.standsLocked() && !w.due && w.token != e.seenLocked().mark.Token:
			return fmt.Errorf("%v waits although the highest token seen is %v", w.token, e.seenLocked().mark.Token)
		}
	}
	if low != e.low {
		return fmt.Errorf("%d waiters are low; %d are counted", low, e.low)
	}
	return e.beneath.checkInvariantsLocked(e.seenLocked())
}

func (b *beneath) checkInvariantsLocked(tree floor) error {
	for _, p := range b.present {
		if p.writes <= 0 {
			return fmt.Errorf("presence %+v", p)
		}
	}
	for _, w := range b.waiters {
		if !w.waiting || !w.turn && tree.refuses(w.token, false) {
			return fmt.Errorf("%v waits beneath although the highest token seen is %v", w.token, tree.mark.Token)
		}
	}
	bySeq := func(v, w *Admission) int { return cmp.Compare(v.seq, w.seq) }
	if !slices.IsSortedFunc(b.waiters, bySeq) {
		return errors.New("the waiters beneath are out of order")
	}
	for _, w := range b.waiters {
		if !w.turn && !w.standsLocked() && !w.due && !slices.ContainsFunc(b.present, func(p presence) bool { return p.token == w.token }) {
			return fmt.Errorf("%v waits beneath and is not present", w.token)
		}
	}
	for _, w := range b.watches {
		if !slices.ContainsFunc(w.by.claims, func(c claim) bool { return c.kind == whole && c.entry != nil && &c.entry.beneath == b }) {
			return fmt.Errorf("%v watches although it has left", w.by.token)
		}
	}
	return nil
}
