package gate

import (
	"context"
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// SetMark is the operator's way to change a mark. It makes m the mark of r, durably, and returns the one before (ok is false if there
// was none). To lower a mark, lower must be true; otherwise the error is [ErrWouldLower]. Writes that wait with a token above m
// advance the mark again. The error is [ErrChanged] if the mark moved meanwhile, a [*StoreError] or [ErrClosed].
func (g *Gate) SetMark(r fencing.Resource, m fencing.Mark, lower bool) (old fencing.Mark, ok bool, err error) {
	if err := r.Check(); err != nil {
		return fencing.Mark{}, false, err
	}
	w := Write{Resources: []fencing.Resource{r}, Token: m.Token}
	a := newAdmission(g, &w)
	if err := g.join(a, &w); err != nil {
		return fencing.Mark{}, false, err
	}
	e := a.claims[0].entry
	var refused *unproven
	g.mu.Lock()
	seen := e.seenLocked()
	old, ok = seen.mark, seen.ok
	m.Draining = len(e.flights)+len(e.beneath.flights) > 0 || !g.recoverUntil.IsZero()
	switch {
	case e.restoring || e.durable != seen || slices.ContainsFunc(e.unproven, func(u *unproven) bool { return u.storing }):
		err = ErrChanged
	case seen.refuses(m.Token, false) && !lower:
		err = ErrWouldLower
	case ok && seen.mark.Token == m.Token:
		if u := e.findLocked(m.Token); u != nil {
			e.proveLocked(u) // the operator vouches for it
			g.dispatchLocked(e, own)
		}
	default:
		e.restoring = true // nobody is admitted meanwhile
		m.Draining = g.settingLocked(fencing.ResourceMark{Resource: r, Mark: m}) || m.Draining
		g.mu.Unlock()
		err = g.replace(e, seen, m)
		g.mu.Lock()
		g.setLocked(r)
		e.restoring = false
		e.settleLocked()
		refused = g.beginRestoreLocked(e)
		g.dispatchLocked(e, own|below)
	}
	g.leaveLocked(a)
	g.mu.Unlock()
	if refused != nil {
		_ = g.restore(e, refused) // on error that mark stays; its writer was answered
	}
	return old, ok, err
}

// replace puts m in the place of the durable mark was. The caller has set e.restoring.
func (g *Gate) replace(e *entry, was floor, m fencing.Mark) error {
	done := true
	var err error
	if was.below(m.Token) {
		err = g.store.Advance([]fencing.ResourceMark{{Resource: e.resource, Mark: m}})
	} else {
		done, err = g.store.Restore(e.resource, was.mark.Token, &m)
	}
	switch {
	case err != nil:
		return &StoreError{Op: "advance", Err: err}
	case !done:
		return ErrChanged
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.durable == was || e.durable.below(m.Token) { // otherwise a higher token became durable meanwhile
		e.durable = floor{m, true}
	}
	e.proven = floor{m, true}
	e.unsettled = e.unsettled || !g.recoverUntil.IsZero()
	for len(e.unproven) > 0 && (!m.Token.Less(e.unproven[0].mark.Token) || was.refuses(e.unproven[0].mark.Token, true)) {
		e.revokeLocked(e.unproven[0])
	}
	return nil
}

// ClearHolder ends the hold that r has with token t: its mark stays, without a holder, durably; by and reason say in it who ended the hold
// and why. It returns false if the mark is another one by now or has no holder, and changes nothing then. Writes with t that were
// admitted go on. The error is [ErrChanged] if the mark is on the move at this moment, a [*StoreError] or [ErrClosed].
func (g *Gate) ClearHolder(r fencing.Resource, t fencing.Token, by, reason string) (cleared bool, err error) {
	w := Write{Resources: []fencing.Resource{r}, Token: t}
	a := newAdmission(g, &w)
	if err := g.join(a, &w); err != nil {
		return false, err
	}
	e := a.claims[0].entry
	var refused *unproven
	g.mu.Lock()
	seen := e.seenLocked()
	switch {
	case !seen.ok || seen.mark.Token != t || seen.mark.Holder == "":
	case e.restoring || e.durable != seen || slices.ContainsFunc(e.unproven, func(u *unproven) bool { return u.storing }):
		err = ErrChanged
	default:
		m := seen.mark
		m.Holder, m.TTL, m.By, m.Reason = "", 0, by, reason
		e.restoring = true // nobody is admitted, and no token is taken back, until it is known what the mark is
		g.mu.Unlock()
		cleared, err = g.store.Restore(r, t, &m) // a token that is raised meanwhile has taken the hold's place
		if err != nil {
			err = &StoreError{Op: "advance", Err: err}
		}
		g.mu.Lock()
		if cleared {
			e.clearedLocked(m)
		}
		e.restoring = false
		e.settleLocked()
		refused = g.beginRestoreLocked(e)
		g.dispatchLocked(e, own|below)
	}
	g.leaveLocked(a)
	g.mu.Unlock()
	if refused != nil {
		_ = g.restore(e, refused) // on error that mark stays; its writer was answered
	}
	return cleared, err
}

// clearedLocked puts m in the place of the mark with its token, wherever that is known.
func (e *entry) clearedLocked(m fencing.Mark) {
	for _, f := range []*floor{&e.durable, &e.proven} {
		if f.ok && f.mark.Token == m.Token {
			f.mark = m
		}
	}
	if u := e.findLocked(m.Token); u != nil {
		u.mark = m
	}
}

// Stats counts what the gate holds now.
type Stats struct {
	InFlight  int // writes admitted and without outcome, those that settle among them
	InDoubt   int // writes whose outcome is unknown and whose hold runs
	Waiting   int // writes that wait to be admitted
	Resources int // resources in use, trees among them
}

// Stats returns the present counts.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.Resources = len(g.entries)
	return s
}

// State is what the gate knows of one resource in use.
type State struct {
	Seen     fencing.Mark // the highest mark seen; it may not be durable yet
	HasSeen  bool
	InFlight int
	InDoubt  int
	Waiting  int
	Beneath  int  // of a tree's key: writes beneath that are in flight or in doubt, which the three above leave out
	Settled  bool // false while the resource waits out the writes of an unclean stop
}

// Inspect returns the state of r, and false if nobody uses it now: then its mark is in the store.
func (g *Gate) Inspect(r fencing.Resource) (State, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entries[r]
	if e == nil || !e.known {
		return State{}, false
	}
	seen := e.seenLocked()
	s := State{Seen: seen.mark, HasSeen: seen.ok, Waiting: len(e.waiters), Settled: !e.unsettled || g.recoverUntil.IsZero()}
	s.InFlight, s.InDoubt = countLocked(e.flights)
	inFlight, inDoubt := countLocked(e.beneath.flights)
	s.Beneath = inFlight + inDoubt
	return s, true
}

// Recovering returns how long advances still wait for writes of an unclean stop.
func (g *Gate) Recovering() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.recoverUntil.IsZero() {
		return 0
	}
	return max(0, time.Until(g.recoverUntil))
}

// recovered ends the recovery after an unclean stop.
func (g *Gate) recovered() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.recoverUntil = time.Time{}
	for _, e := range g.entries {
		e.unsettled = false
	}
	g.dispatchAllLocked()
}

// +checklocks:g.mu
func (g *Gate) dispatchAllLocked() {
	var waited []*entry
	for _, e := range g.entries {
		if len(e.waiters)+len(e.beneath.waiters) > 0 {
			waited = append(waited, e)
		}
	}
	for _, e := range waited {
		g.dispatchLocked(e, own|below) // a no-op for one that an earlier dispatch emptied
	}
}

// Close refuses every write that is not in flight with [ErrClosed] and waits until ctx is done or the writes in flight have an outcome
// and have settled. It returns true if nothing was left, in doubt neither: only then may the store be marked as cleanly
// stopped. The gate stays closed.
func (g *Gate) Close(ctx context.Context) bool {
	g.mu.Lock()
	g.closed = true
	g.dispatchAllLocked()
	if g.recoverTimer != nil {
		g.recoverTimer.Stop()
	}
	unsettled := !g.recoverUntil.IsZero()
	if g.quiet == nil {
		g.quiet = make(chan struct{})
	}
	quiet := g.quiet
	g.quietLocked()
	g.mu.Unlock()
	select {
	case <-quiet:
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stats.InFlight == 0 && g.stats.InDoubt == 0 && g.storing == 0 && !unsettled
}

// quietLocked tells Close once nothing is in flight and no mark is on its way to the disk behind a caller's back.
//
// +checklocks:g.mu
func (g *Gate) quietLocked() {
	if g.quiet == nil || g.stats.InFlight > 0 || g.storing > 0 {
		return
	}
	select {
	case <-g.quiet:
	default:
		close(g.quiet)
	}
}
