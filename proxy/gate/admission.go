package gate

import (
	"errors"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Admission is a write that [Gate.Enter] or [Gate.Observe] let through. It holds the gate against other tokens until one of Done,
// InDoubt, NotSent or Refused is called; the first call counts and further ones do nothing. Its fields are guarded by Gate.mu.
type Admission struct {
	g      *Gate
	token  fencing.Token
	claims []claim     // resources, then trees that the write lies in, then trees that it changes
	one    [1]claim    // backs claims of a write on one resource
	result chan result // one element; made when the write first waits, sent to once for each wait
	seq    uint64      // while waiting: its place among all that wait

	leapt *fencing.Token // a mark that the token advanced from far below; nil: none. Not changed once the write is admitted

	greater   bool
	exclusive bool
	unheard   bool // the gate turned it away for a token that may be taken back itself, or for want of room: its own shows nothing
	unsent    bool // its token does not count if nothing of it was sent: see Write.RevertUnsent
	waiting   bool
	due       bool // while it waited somebody was turned away: it goes before all that came after it
	turn      bool // it waits, and its writer is at work: its token has to be raised, others taken back for it
	forward   bool // counted in the flights of its entries
	ended     bool
}

// claim is one key of an admission.
type claim struct {
	entry   *entry    // counted in entry.refs until the admission leaves
	on      *unproven // what the write hangs on, nil if the token was proven when it came
	kind    kind
	raised  bool // this write made the token the highest seen
	patient bool // below an unproven token the write waits for the verdict; otherwise it is stale at once
	low     bool // a higher token was seen here that is unproven; while the write waits it is counted in entry.low
	present bool // counted in beneath.present
}

// kind is what a key is to the write.
type kind uint8

const (
	plain kind = iota // a resource
	under             // a tree that the write lies in
	whole             // a tree that the write changes as a whole
)

// raisedIt reports whether the token is the highest seen because of this very write.
func (c *claim) raisedIt() bool { return c.raised && (c.on == nil || !c.on.revoked) }

type result struct {
	verdict verdict
	err     error
}

// newAdmission joins nothing yet: its claims have no entries. It panics if the write names neither a resource nor a tree, which nothing
// would fence.
func newAdmission(g *Gate, w *Write) *Admission {
	if len(w.Resources)+len(w.Trees) == 0 {
		panic("gate: a write without resources")
	}
	a := &Admission{g: g, token: w.Token, greater: w.Greater, exclusive: w.Exclusive, unsent: w.RevertUnsent}
	a.claims = a.one[:]
	if n := len(w.Resources) + len(w.Under) + len(w.Trees); n > 1 {
		a.claims = make([]claim, n)
	}
	for i := range w.Resources {
		a.claims[i].patient = w.patient()
	}
	return a
}

// Leapt returns a mark that the write advanced although it was so far below ([fencing.Token.FarBelow]) that the two numbers hardly come from
// one source; ok is false if there was none.
func (a *Admission) Leapt() (mark fencing.Token, ok bool) {
	if a.leapt == nil {
		return fencing.Token{}, false
	}
	return *a.leapt, true
}

func (a *Admission) leapLocked(from floor) {
	if from.ok && from.mark.Token.FarBelow(a.token) {
		mark := from.mark.Token
		a.leapt = &mark
	}
}

// Done says that the upstream's answer was read to its end. The gate is released after settle, the time that the store may take to
// apply a write that it has answered.
func (a *Admission) Done(settle time.Duration) {
	a.g.mu.Lock()
	defer a.g.mu.Unlock()
	if a.endLocked() {
		a.g.proveLocked(a)
		a.g.afterLocked(a, settle)
	}
}

// InDoubt says that the write was forwarded, at least in part, and that its outcome is unknown: it may still land. The gate is held
// against other tokens for hold and then released.
func (a *Admission) InDoubt(hold time.Duration) {
	g := a.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if !a.endLocked() {
		return
	}
	g.proveLocked(a)
	if hold <= 0 {
		g.releaseLocked(a)
		return
	}
	until := time.Now().Add(hold)
	for i := range a.claims {
		f := a.claims[i].flightLocked(a.token)
		f.inDoubt++
		if f.until.Before(until) {
			f.until = until
		}
	}
	g.stats.InFlight--
	g.stats.InDoubt++
	g.quietLocked()
	time.AfterFunc(hold, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		for i := range a.claims {
			a.claims[i].flightLocked(a.token).inDoubt--
		}
		g.stats.InFlight++
		g.stats.InDoubt--
		g.releaseLocked(a)
	})
}

// NotSent says that not one byte of the write reached the upstream. The gate is released; the mark stays, unless the write has
// [Write.RevertUnsent]: then NotSent does what Refused does.
func (a *Admission) NotSent() error {
	if a.unsent {
		return a.Refused()
	}
	a.Done(0)
	return nil
}

// Refused says that the upstream turned the caller away, so that its token is no evidence (401, 403). If no other write with this token
// was accepted or is under way, the mark goes back to where it was. Refused blocks until that is durable: answer the caller
// afterwards. It does not wait where the store is still busy with the mark, because an observed token is on its way to the disk or an
// operator sets it: the mark then goes back once that is done. The error is a [*StoreError]; the mark then stays. Whoever waits on a
// resource where that happens goes before all writes that come later.
func (a *Admission) Refused() error {
	g := a.g
	g.mu.Lock()
	if !a.endLocked() {
		g.mu.Unlock()
		return nil
	}
	back := g.disownLocked(a, true) // before the release, which lets waiters in
	g.releaseLocked(a)
	g.mu.Unlock()
	return g.restoreAll(back)
}

// endLocked reports whether this is the first outcome.
func (a *Admission) endLocked() bool {
	first := !a.ended
	a.ended = true
	return first
}

// proveLocked records that the token counts for good, and tells those who waited to see whether it does.
//
// +checklocks:g.mu
func (g *Gate) proveLocked(a *Admission) {
	for i := range a.claims {
		c := &a.claims[i]
		if c.on == nil {
			continue
		}
		c.entry.proveLocked(c.on)
		c.on = nil
		if c.entry.low > 0 {
			g.dispatchLocked(c.entry, own)
		}
	}
}

// disownLocked has the write vouch for its token no longer, and returns what is to be taken back for that. With favour those who wait become
// due.
//
// +checklocks:g.mu
func (g *Gate) disownLocked(a *Admission, favour bool) (back []restoration) {
	var touched []*entry
	for i := range a.claims {
		c := &a.claims[i]
		if c.on == nil {
			continue
		}
		if favour && c.kind == plain && !c.on.gone && !c.on.final {
			touched = append(touched, g.favourLocked(c.entry, g.waited)...)
		}
		if c.on.backers > 0 { // nobody vouches for one that is being taken back for another
			c.on.backers--
		}
		c.on = nil
		if u := g.beginRestoreLocked(c.entry); u != nil {
			back = append(back, restoration{c.entry, u})
		}
	}
	for _, e := range touched {
		g.dispatchLocked(e, own)
	}
	return back
}

// afterLocked releases the gate when the store has had time to apply the write.
//
// +checklocks:g.mu
func (g *Gate) afterLocked(a *Admission, settle time.Duration) {
	if settle <= 0 {
		g.releaseLocked(a)
		return
	}
	time.AfterFunc(settle, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.releaseLocked(a)
	})
}

// admitLocked counts the write as in flight on all its resources. Those who wait behind it may go now if they have its token.
//
// +checklocks:g.mu
func (g *Gate) admitLocked(a *Admission) {
	if a.waiting {
		g.dequeueLocked(a)
		defer g.stirLocked(a)
	}
	for i := range a.claims {
		a.claims[i].addFlightLocked(a.token, a.exclusive)
	}
	a.forward = true
	g.stats.InFlight++
}

// releaseLocked ends a write that is in flight and lets the next ones in.
//
// +checklocks:g.mu
func (g *Gate) releaseLocked(a *Admission) {
	for i := range a.claims {
		a.claims[i].dropFlightLocked(a.token, a.exclusive)
	}
	a.forward = false
	g.stats.InFlight--
	g.stirLocked(a)
	g.quietLocked()
	g.leaveLocked(a)
}

// stirLocked has those judged again who may have waited for the write.
//
// +checklocks:g.mu
func (g *Gate) stirLocked(a *Admission) {
	for i := range a.claims {
		g.dispatchLocked(a.claims[i].entry, a.claims[i].blocks())
	}
}

// turnedAwayLocked is leaveLocked for a write that err refuses. One that was turned away because of a token that may yet be taken back, or
// because the line was full, has shown nothing: else outsiders whom the upstream would refuse left marks by crowding each other out. A final
// token cannot be taken back.
//
// +checklocks:g.mu
func (g *Gate) turnedAwayLocked(a *Admission, err error) {
	if stale, ok := errors.AsType[*StaleTokenError](err); ok {
		for i := range a.claims {
			c := &a.claims[i]
			if firm := c.entry.firmLocked(); c.entry.resource == stale.Resource && !firm.refuses(a.token, a.greater && c.kind != under) {
				a.unheard = true
			}
		}
	}
	if busy, ok := errors.AsType[*BusyError](err); ok && busy.Reason == BusyWaiters {
		a.unheard = true
	}
	for i := range a.claims {
		if on := a.claims[i].on; on != nil && on.final {
			a.unheard = false
		}
	}
	g.leaveLocked(a)
}

// leaveLocked takes an admission that is not in flight off the table, and out of its lines. A token that was seen stays seen, unless the
// write says that it does not count unsent: that is then taken back in the background. What was present beneath a tree made others
// stale and kept none waiting, so nobody has to be judged again for that.
//
// +checklocks:g.mu
func (g *Gate) leaveLocked(a *Admission) {
	a.ended = true
	if a.waiting {
		g.dequeueLocked(a)
		g.stirLocked(a) // an exclusive or a due one may have been all that stopped those behind it
	}
	if a.unsent || a.unheard {
		if back := g.disownLocked(a, a.unsent); len(back) > 0 {
			go func() { _ = g.restoreAll(back) }() // ends when the store answers; Close waits for it. On error the mark stays
		}
	}
	g.proveLocked(a)
	for i := range a.claims {
		if c := &a.claims[i]; c.entry != nil {
			if c.kind != plain {
				c.partLocked(a)
			}
			g.unrefLocked(c.entry)
			c.entry = nil
		}
	}
}
