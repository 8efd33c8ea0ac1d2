package hold

import (
	"container/heap"
	"fmt"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Marks is where the holds are kept: in the marks of the resources. [github.com/fenceproxy/fenceproxy/proxy/gate.Gate] is one.
type Marks interface {
	// Mark returns the highest mark seen on r; ok is false if there is none.
	Mark(r fencing.Resource) (m fencing.Mark, ok bool, err error)
	// ClearHolder takes the holder out of the mark of r, durably, if its token is t and it has one, and reports whether it did.
	ClearHolder(r fencing.Resource, t fencing.Token, by, reason string) (bool, error)
}

// Manager knows who holds what. Make one with [New]. It is safe for concurrent use.
type Manager struct {
	marks Marks
	now   func() time.Duration

	mu sync.Mutex // guards everything below and every field of every entry and term; never held across a call of marks
	// +checklocks:mu
	entries map[fencing.Resource]*entry
	// +checklocks:mu
	due schedule
}

// New returns a manager on marks. No other one may be in use on them. now returns how much time has passed since the process began, and never
// less than before; nil is the monotonic clock.
func New(marks Marks, now func() time.Duration) *Manager {
	if now == nil {
		start := time.Now()
		now = func() time.Duration { return time.Since(start) }
	}
	return &Manager{marks: marks, now: now, entries: map[fencing.Resource]*entry{}}
}

// Terms is what a policy says of holds.
type Terms struct {
	TTL   time.Duration // how long a hold lasts that is claimed now; 0: until it is released
	Renew bool          // a write begins the time of its hold anew, and the hold does not expire while the write is under way
}

// Claim is one write of the id that holds a resource. Exactly one of Accepted, Refused and Failed is called, once; Admitted comes before the
// first two.
type Claim struct {
	m     *Manager
	entry *entry
	term  *term
	renew bool
}

// Token returns the number of the holder, with which the gate admits its writes.
func (c *Claim) Token() fencing.Token { return c.term.token }

// TTL returns the time of the hold, which stands in the mark beside the holder.
func (c *Claim) TTL() time.Duration { return c.term.ttl }

// Claim returns a claim for a write of id: it claims r if nobody holds it, or holds it already. A hold keeps the time with which it was
// claimed, whatever terms says by now. The error is a [*NotHolderError], or that of the marks; there is no claim then.
func (m *Manager) Claim(r fencing.Resource, id string, terms Terms) (*Claim, error) {
	e, err := m.know(r)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.releaseLocked(e)
	m.sweepLocked()
	for e.top == nil {
		if err := m.lookLocked(e); err != nil {
			return nil, err
		}
	}
	t := e.top
	switch held := t.heldLocked(m.now()); {
	case held && t.id != id:
		return nil, &NotHolderError{Resource: r}
	case !held:
		if e.highest.Less(t.token) {
			e.highest = t.token
		}
		e.highest = e.highest.Next()
		t = &term{token: e.highest, id: id, ttl: terms.TTL}
		e.top = t
	}
	e.changes++
	e.refs++
	t.users++
	if terms.Renew {
		t.renewing++
	}
	return &Claim{m: m, entry: e, term: t, renew: terms.Renew}, nil
}

// Check reports whether Claim would refuse id, without a claim. Its error is that of Claim.
func (m *Manager) Check(r fencing.Resource, id string) error {
	e, err := m.know(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.releaseLocked(e)
	for e.top == nil {
		if err := m.lookLocked(e); err != nil {
			return err
		}
	}
	if e.top.heldLocked(m.now()) && e.top.id != id {
		return &NotHolderError{Resource: r}
	}
	return nil
}

// State is who holds a resource, for people.
type State struct {
	Held    bool
	Expires bool          // it ends by itself
	Left    time.Duration // until then; of one that renews itself, at least
}

// State returns the state of the hold on r.
func (m *Manager) State(r fencing.Resource) (State, error) {
	e, err := m.know(r)
	if err != nil {
		return State{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.releaseLocked(e)
	for e.top == nil {
		if err := m.lookLocked(e); err != nil {
			return State{}, err
		}
	}
	t, now := e.top, m.now()
	s := State{Held: t.heldLocked(now), Expires: t.ttl > 0}
	if s.Held && s.Expires {
		s.Left = max(0, t.until-now)
		if !t.started {
			s.Left = t.ttl
		}
	}
	s.Expires = s.Expires && s.Held
	return s, nil
}

// Admitted says that the gate has let the write in: from now on the time of a new hold runs. That of one which was found in a mark begins
// anew: the mark does not say whether a write was ever admitted, nor when.
func (c *Claim) Admitted() {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if t := c.term; !t.begun {
		t.started, t.begun = true, true
		t.until = max(t.until, c.m.now()+t.ttl)
	}
}

// Accepted says that the write was answered, that it was not sent after all, or that its outcome is unknown.
func (c *Claim) Accepted() {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	t := c.term
	t.proven = true
	if c.renew && t.started {
		t.until = max(t.until, c.m.now()+t.ttl)
	}
	c.m.endLocked(c)
}

// Refused says that the store turned the caller away. Call it when the gate has taken the mark back: a claim goes with it, and a hold is not
// renewed.
func (c *Claim) Refused() {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.endLocked(c)
}

// Failed says that the gate did not admit the write. A claim stands all the same if its mark does, so that the same id may come again. stale
// says that the gate refused the token itself: the mark is not what it was.
func (c *Claim) Failed(stale bool) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if stale {
		c.entry.forgetLocked(c.term)
	}
	c.m.endLocked(c)
}

// endLocked ends a claim.
//
// +checklocks:m.mu
func (m *Manager) endLocked(c *Claim) {
	t, e := c.term, c.entry
	t.users--
	if c.renew {
		t.renewing--
	}
	e.changes++
	if t.users == 0 && !t.proven && e.top == t { // whether the claim stands is for the mark to say
		e.top, e.lost = nil, t
		for e.top == nil {
			if m.lookLocked(e) != nil {
				break // nothing is admitted any more
			}
		}
	}
	m.releaseLocked(e)
}

// forgetLocked has the mark say who holds the resource, if it is t as far as is known.
func (e *entry) forgetLocked(t *term) {
	if e.top == t {
		e.top = nil
		e.changes++
	}
}

// Release ends the hold of the claim, durably, if it is still the one. The claim goes on until it is told its outcome.
func (c *Claim) Release(by, reason string) error {
	c.m.mu.Lock()
	current := c.entry.top == c.term
	c.m.mu.Unlock()
	if !current {
		return nil
	}
	if _, err := c.m.marks.ClearHolder(c.entry.resource, c.term.token, by, reason); err != nil {
		return err
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.entry.forgetLocked(c.term)
	return nil
}

// Release ends the hold on r, whoever has it, and returns once that is durable. Its writes under way go on, and the next holder waits for
// them. The error is [ErrNotHeld], [ErrChanged], or that of the marks.
func (m *Manager) Release(r fencing.Resource, by, reason string) error {
	mark, ok, err := m.marks.Mark(r)
	switch {
	case err != nil:
		return err
	case !ok || mark.Holder == "":
		return fmt.Errorf("%q: %w", r, ErrNotHeld)
	}
	cleared, err := m.marks.ClearHolder(r, mark.Token, by, reason)
	switch {
	case err != nil:
		return err
	case !cleared:
		return ErrChanged
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[r]; e != nil && (e.top == nil || e.top.token == mark.Token) {
		e.top = nil
		e.changes++
		m.dropLocked(e)
	}
	return nil
}

// Changed says that an operator has put another mark in the place of that of r. A hold in it has its whole time from now on.
func (m *Manager) Changed(r fencing.Resource) error {
	e, err := m.know(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.releaseLocked(e)
	e.top, e.foreign = nil, true
	e.changes++
	for e.top == nil {
		if err := m.lookLocked(e); err != nil {
			return err
		}
	}
	return nil
}

// know returns the entry of r with one more user. Its error is for a resource that can have no mark.
func (m *Manager) know(r fencing.Resource) (*entry, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[r]
	if e == nil {
		e = &entry{resource: r, index: -1}
		m.entries[r] = e
	}
	e.refs++
	return e, nil
}

// lookLocked has the mark say who holds the resource. It lets go of the lock while it asks; the caller has counted itself in e.refs. Where
// something changed meanwhile it leaves e.top as it is, and the caller asks again.
//
// +checklocks:m.mu
func (m *Manager) lookLocked(e *entry) error {
	changes := e.changes
	m.mu.Unlock()
	mark, _, err := m.marks.Mark(e.resource)
	m.mu.Lock()
	if err != nil || e.top != nil || e.changes != changes {
		return err
	}
	t := &term{token: mark.Token, id: mark.Holder, ttl: mark.TTL, started: true, proven: true}
	if t.ttl > 0 {
		// Of an earlier run: it was promised its time before this one began. Of this run: it has expired, or it would be known.
		t.until = t.ttl
		if e.foreign || e.lost != nil && e.lost.token == t.token && e.lost.id == t.id {
			t.until += m.now()
		}
	}
	e.top, e.foreign, e.lost = t, false, nil
	return nil
}

// releaseLocked gives up one use of the entry.
//
// +checklocks:m.mu
func (m *Manager) releaseLocked(e *entry) {
	e.refs--
	m.dropLocked(e)
}

// dropLocked drops an entry that nobody uses and that knows no more than the mark: of a hold that has not expired the mark does not know
// when it was renewed.
//
// +checklocks:m.mu
func (m *Manager) dropLocked(e *entry) {
	if e.refs > 0 {
		return
	}
	if t := e.top; t != nil && t.ttl > 0 && t.heldLocked(m.now()) {
		if e.index < 0 {
			e.due = t.until
			heap.Push(&m.due, e)
		}
		return
	}
	if e.index >= 0 {
		heap.Remove(&m.due, e.index)
	}
	delete(m.entries, e.resource)
}

// sweepLocked looks at some entries that are due. Each call adds one entry at most, so there are never many more than there are holds.
//
// +checklocks:m.mu
func (m *Manager) sweepLocked() {
	now := m.now()
	for range 2 {
		if len(m.due) == 0 || m.due[0].due > now {
			return
		}
		m.dropLocked(heap.Pop(&m.due).(*entry)) // back into the heap if it was renewed
	}
}
