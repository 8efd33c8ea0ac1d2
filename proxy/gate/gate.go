package gate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Store keeps marks durably. [github.com/fenceproxy/fenceproxy/tokenstore.Store] is one. All methods are safe for concurrent use. Only
// the gate changes marks while it runs: it trusts what it knows of a resource in use.
type Store interface {
	// Load returns the durable mark of r; ok is false only if r was never seen.
	Load(r fencing.Resource) (m fencing.Mark, ok bool, err error)
	// Advance returns nil once all marks are on stable storage. It never lowers one.
	Advance(ms []fencing.ResourceMark) error
	// Restore puts to (nil: no mark) in the place of a mark whose token is from, durably, and reports whether it did. After an
	// error of Advance or Restore either nothing was changed or Err is not nil.
	Restore(r fencing.Resource, from fencing.Token, to *fencing.Mark) (bool, error)
	// Beneath returns the highest token among the durable marks whose resource begins with prefix; ok is false if there are none.
	// Every mark that Advance has returned for counts.
	Beneath(prefix fencing.Resource) (highest fencing.Token, ok bool, err error)
	// Err is not nil once the store can no longer be trusted. It is cheap: the gate asks before every admission.
	Err() error
}

// Config is what a [Gate] is made of. The zero value is usable.
type Config struct {
	// Recover is how long writes of a previous run that stopped uncleanly may still reach the upstream, counted from [New]. Zero
	// after a clean stop. Until it has passed no advance is admitted, nor any write on a mark with Draining set.
	Recover time.Duration
	// MaxWaiters bounds the writes that wait for one resource, MaxWaitersTotal those that wait at all. Further ones get a
	// [BusyError] at once. The defaults are 1,024 and 16,384.
	MaxWaiters, MaxWaitersTotal int
}

// Gate orders the writes of all resources. Make one with [New]. It is safe for concurrent use.
type Gate struct {
	store           Store
	scans           chan struct{} // holds one element for each scan under way
	maxWaiters      int
	maxWaitersTotal int

	// mu guards everything below and every field of every entry, waiter and Admission. It is never held across I/O or a wait, so
	// one lock serves all resources: a decision takes some hundred nanoseconds, and a write that names several resources needs
	// no lock order.
	mu sync.Mutex
	// +checklocks:mu
	entries map[fencing.Resource]*entry
	// +checklocks:mu
	free []*entry // entries for reuse
	// +checklocks:mu
	stats Stats
	// +checklocks:mu
	recoverUntil time.Time // zero once recovery is over
	// +checklocks:mu
	recoverTimer *time.Timer
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	quiet chan struct{} // made by Close; closed by quietLocked when nothing is in flight and storing is zero
	// +checklocks:mu
	storing int // advances for Observe and restores under way; Close waits for them
	// +checklocks:mu
	dirty []*entry // entries that dispatchLocked has still to look at
	// +checklocks:mu
	waited uint64 // writes that have waited; the last one's Admission.seq
	// +checklocks:mu
	setting []fencing.ResourceMark // marks that SetMark has on their way to the disk
}

// New returns a gate on the marks of store.
func New(store Store, c Config) *Gate {
	if c.MaxWaiters <= 0 {
		c.MaxWaiters = 1024
	}
	if c.MaxWaitersTotal <= 0 {
		c.MaxWaitersTotal = 16384
	}
	g := &Gate{
		store: store, scans: make(chan struct{}, maxScans), maxWaiters: c.MaxWaiters, maxWaitersTotal: c.MaxWaitersTotal,
		entries: make(map[fencing.Resource]*entry),
	}
	if c.Recover > 0 {
		g.mu.Lock()
		g.recoverUntil = time.Now().Add(c.Recover)
		g.recoverTimer = time.AfterFunc(c.Recover, g.recovered)
		g.mu.Unlock()
	}
	return g
}

// Write describes a write that asks to be admitted.
type Write struct {
	// Resources are what the write changes, each by itself. There is at least one, or a tree. The gate sorts and removes doubles in a
	// copy.
	Resources []fencing.Resource
	// Under are the keys of the trees that the write lies in. It is refused below their marks, which it leaves as they are.
	Under []fencing.Resource
	// Trees are the subtrees that the write changes as a whole. No key stands twice in Resources, Under and Trees together.
	Trees []Tree
	Token fencing.Token
	// Greater means that the token must be above every mark, not only at it. A token is used up by the write that makes it the
	// mark, even if that is not forwarded in the end. Marks of trees that the write lies in, and of resources in a tree that it
	// changes, may be equal all the same.
	Greater bool
	// Exclusive admits the write only when nothing at all is in flight or in doubt on its resources, in order of arrival, and
	// nothing beside it: for stores that mix the bytes of two writes. On a tree that it changes, that goes for writes beneath too;
	// on one that it lies in, for writes on the whole tree only.
	Exclusive bool
	// DrainTimeout is the longest wait for other writes, counted from when the write begins to wait. The time that the store
	// takes before that to make the write's own mark durable is not counted.
	DrainTimeout time.Duration
	Format       fencing.Format // recorded with the mark, as are By, Policy, Holder and TTL
	By           string
	Policy       string
	Holder       string        // the opaque id that holds the resource with this token, where a hold is claimed
	TTL          time.Duration // of the hold; 0: until it is released
	// Final says that the upstream can turn nobody away: the policy takes no answer for a refusal. Then lower tokens need not wait for
	// a verdict, and are stale as soon as this one is seen.
	Final bool
	// RevertUnsent says that a token of which nothing was sent is no evidence either: its writer gave up while it waited, or the upstream could
	// not be reached. It is taken back as if it had been refused. Otherwise it stays.
	RevertUnsent bool
	// MaxJump is how far a token may be above the proven mark of a resource; 0: any distance. Of a pair the first part counts. A tree
	// without a mark is measured by the highest proven one beneath, then, as a resource without one, by the highest of the trees that
	// the write lies in. Where there is none either, and in a higher epoch, any token may come.
	MaxJump uint64
	// First, if not nil, is asked before Enter makes the first marks of n resources. Its error refuses the write, and no mark is made. It is
	// called with the gate locked, so it must be quick, and it may be asked again for one write.
	First func(n int) error
}

// patient reports whether the write waits for the verdict on higher tokens. One that changes a tree does not: what lies beneath has no single
// mark to take back. Nor does a hold: a number below another is that of an earlier holder.
func (w *Write) patient() bool { return len(w.Trees) == 0 && w.Holder == "" }

// Enter waits until the write may be forwarded. It blocks while the marks beneath its trees are read, while its own mark is made
// durable and, at most w.DrainTimeout, while writes with another token have no outcome.
//
// The error is a [*StaleTokenError], a [*JumpError], a [*TreeError], a [*BusyError], a [*StoreError], [ErrClosed], or that of ctx or of w.First;
// in each case nothing may be forwarded. A mark that was advanced stays advanced even if the write then gives up (G2), unless it has
// [Write.RevertUnsent]. A cancelled waiter leaves nothing else behind.
func (g *Gate) Enter(ctx context.Context, w Write) (*Admission, error) {
	w.Resources = normalize(w.Resources)
	a := newAdmission(g, &w)
	if err := g.join(a, &w); err != nil {
		return nil, err
	}
	var deadline time.Time
	for {
		if err := g.advance(a, &w); err != nil {
			return nil, err
		}
		v, err := g.admitOrQueue(a)
		if err != nil {
			return nil, err
		}
		if v == wait {
			if deadline.IsZero() {
				deadline = time.Now().Add(w.DrainTimeout)
			}
			if v, err = g.await(ctx, a, deadline); err != nil {
				return nil, err
			}
		}
		if v == admit {
			return a, nil
		}
	}
}

// Observe lets a write through without making it wait, and says what Enter would have refused it with: a [*StaleTokenError], a [*JumpError],
// a [*TreeError], a [*StoreError] or [ErrClosed]. It waits for no verdict, so a token is stale by the highest one seen. The admission is nil only if a mark could not be read or the gate is closed. A higher
// token becomes the highest seen at once and durable in the background, so an observed write can be ahead of its mark on disk. While it
// is in flight, writes with other tokens that come through Enter wait for it.
func (g *Gate) Observe(w Write) (*Admission, error) {
	w.Resources = normalize(w.Resources)
	w.Exclusive = false
	a := newAdmission(g, &w)
	for i := range a.claims {
		a.claims[i].patient = false
	}
	if err := g.join(a, &w); err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.leaveLocked(a)
		return nil, ErrClosed
	}
	err := a.rejectionLocked()
	if err == nil {
		err = a.jumpLocked(&w)
	}
	if err == nil && g.storing < maxStoring {
		if ms := g.raiseLocked(a, &w); len(ms) > 0 {
			g.advanceLater(a, ms)
		}
	}
	g.admitLocked(a)
	g.passLocked(a)
	return a, err
}

// maxStoring bounds the advances under way for Observe. Beyond it an observed token leaves no mark, nor is it present beneath a tree.
const maxStoring = 256

// advanceLater makes marks durable in the background. The goroutine ends when the store answers; Close waits for it. Until then the token
// stays present beneath the trees of the write: it may have left before its mark is where a scan finds it.
//
// +checklocks:g.mu
func (g *Gate) advanceLater(a *Admission, ms []fencing.ResourceMark) {
	g.storing++
	held := slices.Clone(a.claims)
	for i := range held {
		held[i].entry.refs++
		if held[i].present {
			held[i].entry.beneath.arriveLocked(a.token)
		}
	}
	go func() {
		_ = g.restoreAll(g.advancedLater(held, ms, g.store.Advance(ms))) // on error the mark stays; its writer was answered
	}()
}

// advancedLater takes note of what became of the marks, and returns the tokens that were refused while they were on their way.
func (g *Gate) advancedLater(held []claim, ms []fencing.ResourceMark, err error) (back []restoration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advancedLocked(ms, err)
	for i := range held {
		e := held[i].entry
		if held[i].present {
			e.beneath.departLocked(ms[0].Mark.Token)
		}
		if u := g.beginRestoreLocked(e); u != nil {
			back = append(back, restoration{e, u})
		}
		g.unrefLocked(e)
	}
	g.storing--
	g.quietLocked()
	return back
}

// admitOrQueue admits the write, or lets it stand in line, or says that its token has to advance again. One that stood in line before has
// kept its place. On error the admission has left.
func (g *Gate) admitOrQueue(a *Admission) (verdict, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, err := g.judgeLocked(a)
	if err == nil && v == wait && !a.waiting {
		err = g.overfullLocked(a)
	}
	switch {
	case err != nil:
		g.turnedAwayLocked(a, err)
	case v == admit:
		g.admitLocked(a)
	case v == wait && a.waiting:
		a.turn = false
		g.stirLocked(a) // they have been judged as if it were at work still
	case v == wait:
		g.enqueueLocked(a)
	}
	return v, err
}

// join puts the admission's keys on the table and makes their marks known, and those beneath its trees. On error the admission has
// left.
func (g *Gate) join(a *Admission, w *Write) error {
	if err := g.store.Err(); err != nil {
		return &StoreError{Op: "load", Err: err}
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ErrClosed
	}
	known := true
	n := 0
	for _, r := range w.Resources {
		known = g.claimLocked(&a.claims[n], r, plain) && known
		n++
	}
	for _, r := range w.Under {
		known = g.claimLocked(&a.claims[n], r, under) && known
		n++
	}
	for _, t := range w.Trees {
		known = g.claimLocked(&a.claims[n], t.Key, whole) && known
		g.watchLocked(a, a.claims[n].entry, t)
		n++
	}
	g.mu.Unlock()
	if !known {
		if err := g.load(a); err != nil {
			return err
		}
	}
	if len(w.Trees) == 0 {
		return nil
	}
	return g.scan(a, w.MaxJump)
}

// claimLocked puts one key on the table and reports whether its mark is known.
//
// +checklocks:g.mu
func (g *Gate) claimLocked(c *claim, r fencing.Resource, k kind) (known bool) {
	c.entry, c.kind = g.refLocked(r), k
	return c.entry.known
}

// load reads the marks that are not known yet. Only the gate advances marks, and only those of known entries, so two loads of one
// resource see the same mark and the first to come back wins.
func (g *Gate) load(a *Admission) error {
	for i := range a.claims {
		e := a.claims[i].entry
		g.mu.Lock()
		known := e.known
		g.mu.Unlock()
		if known {
			continue
		}
		m, ok, err := g.store.Load(e.resource)
		g.mu.Lock()
		if err != nil {
			g.leaveLocked(a)
			g.mu.Unlock()
			return &StoreError{Op: "load", Err: err}
		}
		if !e.known {
			e.known, e.durable, e.proven = true, floor{m, ok}, floor{m, ok}
			e.unsettled = ok && m.Draining && !g.recoverUntil.IsZero()
		}
		g.mu.Unlock()
	}
	return nil
}

// normalize returns the resources sorted and without doubles, copying only when it must.
func normalize(rs []fencing.Resource) []fencing.Resource {
	if len(rs) < 2 {
		return rs
	}
	rs = slices.Clone(rs)
	slices.Sort(rs)
	return slices.Compact(rs)
}
