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
	for _, w := range e.waiters {
		if !w.waiting || w.token != e.seenLocked().mark.Token {
			return fmt.Errorf("%v waits although the highest token seen is %v", w.token, e.seenLocked().mark.Token)
		}
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
		if !w.waiting || tree.refuses(w.token, false) {
			return fmt.Errorf("%v waits beneath although the highest token seen is %v", w.token, tree.mark.Token)
		}
	}
	bySeq := func(v, w *Admission) int { return cmp.Compare(v.seq, w.seq) }
	if !slices.IsSortedFunc(b.waiters, bySeq) {
		return errors.New("the waiters beneath are out of order")
	}
	for _, w := range b.waiters {
		if !slices.ContainsFunc(b.present, func(p presence) bool { return p.token == w.token }) {
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
