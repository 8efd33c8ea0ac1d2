package gate

import (
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

	greater   bool
	exclusive bool
	waiting   bool
	forward   bool // counted in the flights of its entries
	ended     bool
}

// claim is one key of an admission.
type claim struct {
	entry   *entry    // counted in entry.refs until the admission leaves
	on      *unproven // what the write hangs on, nil if the token was proven when it came
	kind    kind
	raised  bool // this write made the token the highest seen
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
	a := &Admission{g: g, token: w.Token, greater: w.Greater, exclusive: w.Exclusive}
	a.claims = a.one[:]
	if n := len(w.Resources) + len(w.Under) + len(w.Trees); n > 1 {
		a.claims = make([]claim, n)
	}
	return a
}

// Done says that the upstream's answer was read to its end. The gate is released after settle, the time that the store may take to
// apply a write that it has answered.
func (a *Admission) Done(settle time.Duration) {
	a.g.mu.Lock()
	defer a.g.mu.Unlock()
	if a.endLocked() {
		a.proveLocked()
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
	a.proveLocked()
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

// NotSent says that not one byte of the write reached the upstream. The gate is released; the mark stays.
func (a *Admission) NotSent() { a.Done(0) }

// Refused says that the upstream turned the caller away, so that its token is no evidence (401, 403). If no other write with this token
// was accepted or is under way, the mark goes back to where it was. Refused blocks until that is durable: answer the caller
// afterwards. It does not wait where the store is still busy with the mark, because an observed token is on its way to the disk or an
// operator sets it: the mark then goes back once that is done. The error is a [*StoreError]; the mark then stays.
func (a *Admission) Refused() error {
	g := a.g
	g.mu.Lock()
	if !a.endLocked() {
		g.mu.Unlock()
		return nil
	}
	var back []restoration
	for i := range a.claims {
		c := &a.claims[i]
		if c.on == nil {
			continue
		}
		c.on.backers--
		c.on = nil
		if u := g.beginRestoreLocked(c.entry); u != nil { // before the release, which lets waiters in
			back = append(back, restoration{c.entry, u})
		}
	}
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

// proveLocked records that the token counts for good.
func (a *Admission) proveLocked() {
	for i := range a.claims {
		if c := &a.claims[i]; c.on != nil {
			c.entry.proveLocked(c.on)
			c.on = nil
		}
	}
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

// admitLocked counts the write as in flight on all its resources.
//
// +checklocks:g.mu
func (g *Gate) admitLocked(a *Admission) {
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
	for i := range a.claims {
		g.dispatchLocked(a.claims[i].entry, a.claims[i].blocks())
	}
	g.quietLocked()
	g.leaveLocked(a)
}

// leaveLocked takes an admission that is not in flight off the table. A token that was seen stays seen. Nobody has to be judged again:
// what was present beneath a tree made others stale, and kept none waiting.
//
// +checklocks:g.mu
func (g *Gate) leaveLocked(a *Admission) {
	a.ended = true
	a.proveLocked()
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
