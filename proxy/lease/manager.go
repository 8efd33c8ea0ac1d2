package lease

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Notes keeps small texts durably. [github.com/fenceproxy/fenceproxy/tokenstore.Store] is one.
type Notes interface {
	Meta(name string) (value string, ok bool, err error)
	MetaNames(prefix string) ([]string, error)
	// SetMeta and DeleteMeta return once the change is on stable storage.
	SetMeta(name, value string) error
	DeleteMeta(name string) error
}

// Marks are the high-water marks of the proxy whose resources the leases are about.
type Marks interface {
	// Seen returns the highest mark of r that was seen, durable or not. Where the policy of r has begun a new epoch, it is one in that.
	Seen(r fencing.Resource) (m fencing.Mark, ok bool, err error)
	// Raise makes m the mark of r and returns once that is durable. The error is [ErrOvertaken] if m is not above the mark, or if
	// that moves at this moment.
	Raise(r fencing.Resource, m fencing.Mark) error
}

// Limits.
const (
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	MaxWait    = 5 * time.Minute
	MaxOwner   = 128 // bytes
	DefaultMax = 10000

	maxWaiters      = 1024 // for one lease
	maxWaitersTotal = 4096
)

// Config is what a [Manager] is made of.
type Config struct {
	Notes Notes
	Marks Marks
	// Useless says, as a clause, why the token of a lease on a resource could never be used, or "" where it can, or may. It is asked for
	// each new request, before it stands in line. Nil: they all can.
	Useless func(r fencing.Resource) string
	// Max bounds the leases that are known at a time. Zero means [DefaultMax].
	Max    int
	Logger *slog.Logger
}

// Manager grants leases. Make one with [New]. It is safe for concurrent use.
type Manager struct {
	notes   Notes
	marks   Marks
	useless func(fencing.Resource) string
	max     int
	log     *slog.Logger
	folding chan struct{} // holds a value while a note is dropped, of which there is one at a time

	background sync.WaitGroup // leases that run out; counted under mu, and only while closed is false

	// mu guards the fields below and those of every lease. It is never held across I/O or a wait. Who does I/O for a lease has set its
	// busy; everybody else stands in line meanwhile.
	mu sync.Mutex
	// +checklocks:mu
	leases map[string]*lease // by key
	// +checklocks:mu
	floor uint64 // no number of a lease that is not in the table is above it
	// +checklocks:mu
	stats Stats
	// +checklocks:mu
	stopping, closed bool
}

// lease is what is known of a name. Its fields are guarded by Manager.mu, but for key.
type lease struct {
	key    string
	name   fencing.Resource // empty if it was too long to be noted, until somebody names it
	number uint64           // the highest that may have been granted
	noted  bool             // there is a note of it

	busy    bool // somebody does I/O for it, and alone may change the fields above and below
	held    bool
	secret  string // hash
	owner   string
	ttl     time.Duration
	expires time.Time
	timer   *time.Timer // calls expire; nil unless held

	waiters []*waiter // in order of arrival
}

// waiter stands in line for a lease.
type waiter struct {
	patient bool
	turn    chan error // gets one value: nil, with which the lease is busy on the waiter's behalf, or why it gets none
}

// New returns a manager that knows the leases of earlier runs. Those that were held run their whole time once more.
func New(c Config) (*Manager, error) {
	m := &Manager{notes: c.Notes, marks: c.Marks, max: c.Max, log: c.Logger, folding: make(chan struct{}, 1), leases: map[string]*lease{}}
	if m.useless = c.Useless; m.useless == nil {
		m.useless = func(fencing.Resource) string { return "" }
	}
	if m.max == 0 {
		m.max = DefaultMax
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if err := m.load(); err != nil {
		m.Close()
		return nil, fmt.Errorf("leases of earlier runs: %w", err)
	}
	return m, nil
}

func (m *Manager) load() error {
	m.mu.Lock() // nobody else is there yet
	defer m.mu.Unlock()
	text, ok, err := m.notes.Meta(floorNote)
	if err == nil && ok {
		m.floor, err = decodeFloor(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", floorNote, err)
	}
	names, err := m.notes.MetaNames(notePrefix)
	if err != nil {
		return err
	}
	for _, k := range names {
		text, _, err := m.notes.Meta(k)
		if err != nil {
			return err
		}
		n, ttl, err := decodeNote(text)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		l := &lease{key: k, name: fencing.Resource(n.Name), number: n.Number, noted: true}
		m.leases[k] = l
		if n.Secret != "" {
			m.holdLocked(l, n.Secret, n.Owner, ttl)
		}
	}
	return nil
}

// holdLocked has the lease be held from now on.
//
// +checklocks:m.mu
func (m *Manager) holdLocked(l *lease, hash, owner string, ttl time.Duration) {
	l.held, l.secret, l.owner, l.ttl = true, hash, owner, ttl
	l.expires = time.Now().Add(ttl)
	number := l.number
	l.timer = time.AfterFunc(ttl, func() { m.expire(l, number) }) // stopped by Close, which waits for it
	m.stats.Held++
}

// freeLocked has nobody hold the lease.
//
// +checklocks:m.mu
func (m *Manager) freeLocked(l *lease) {
	l.timer.Stop()
	l.held, l.secret, l.owner, l.timer = false, "", "", nil
	m.stats.Held--
}

// Stats counts what the manager has done and holds now.
type Stats struct {
	Held    int // leases that are held
	Waiting int // clients that stand in line
	Known   int // leases of which there is a note

	Granted, Renewed, Released, Expired, Refused uint64
}

// Stats returns the present counts.
func (m *Manager) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Known = len(m.leases)
	return s
}

// State is what anybody may know of a lease. Its token is not in it: a paused holder that learnt it could promote itself.
type State struct {
	Name      fencing.Resource
	Held      bool
	Owner     string
	TTL       time.Duration // what it was granted for
	Remaining time.Duration // until it ends, unless it is renewed
	Waiting   int
}

// Inspect returns the state of a lease. A name that was never granted is a lease that nobody holds.
func (m *Manager) Inspect(name fencing.Resource) State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := State{Name: name}
	l := m.leases[key(name)]
	if l == nil {
		return s
	}
	s.Waiting = len(l.waiters)
	if l.held {
		s.Held, s.Owner, s.TTL, s.Remaining = true, l.owner, l.ttl, l.remaining()
	}
	return s
}

func (l *lease) remaining() time.Duration { return max(0, time.Until(l.expires)) }

// Stop tells those that wait that they get nothing, and refuses new requests for a lease. Leases can still be renewed and released.
func (m *Manager) Stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopping = true
	for _, l := range m.leases {
		for _, w := range l.waiters {
			m.tellLocked(w, ErrClosed)
		}
		l.waiters = nil
	}
}

// Close stops the manager for good and returns once it does nothing more behind a caller's back. What is held stays noted as held.
func (m *Manager) Close() {
	m.Stop()
	m.mu.Lock()
	m.closed = true
	for _, l := range m.leases {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
	m.mu.Unlock()
	m.background.Wait()
}

// tellLocked ends the wait of one that is out of its line, or about to be.
//
// +checklocks:m.mu
func (m *Manager) tellLocked(w *waiter, err error) {
	m.stats.Waiting--
	w.turn <- err
}

// dispatchLocked does what is due when a lease has become free, or held, or nobody's to do I/O for.
//
// +checklocks:m.mu
func (m *Manager) dispatchLocked(l *lease) {
	switch {
	case l.busy:
	case l.held: // those that do not wait are told
		var patient []*waiter
		for _, w := range l.waiters {
			if w.patient {
				patient = append(patient, w)
			} else {
				m.tellLocked(w, l.heldError())
			}
		}
		l.waiters = patient
	case len(l.waiters) > 0:
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		l.busy = true
		m.tellLocked(w, nil)
	case !l.noted && m.leases[l.key] == l:
		delete(m.leases, l.key)
	}
}

func (l *lease) heldError() *HeldError {
	return &HeldError{Name: l.name, Owner: l.owner, Remaining: l.remaining()}
}

// done ends the I/O for a lease and passes it on.
func (m *Manager) done(l *lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.busy = false
	m.dispatchLocked(l)
}

// Request asks for a lease.
type Request struct {
	Name fencing.Resource
	TTL  time.Duration // how long it lasts unless it is renewed, each time anew
	// Wait is the longest that the caller stands in line, in order of arrival, while somebody else holds it.
	Wait  time.Duration
	Owner string // for people
}

func (r *Request) check() error {
	bad := func(format string, args ...any) error { return &RequestError{fmt.Sprintf(format, args...)} }
	switch {
	case r.Name.Check() != nil:
		return bad("%v", r.Name.Check())
	case r.TTL < MinTTL || r.TTL > MaxTTL:
		return bad("the ttl %s is out of range: %s to %s", r.TTL, MinTTL, MaxTTL)
	case r.Wait < 0 || r.Wait > MaxWait:
		return bad("the wait %s is out of range: 0s to %s; ask again after it", r.Wait, MaxWait)
	case len(r.Owner) > MaxOwner || !utf8.ValidString(r.Owner) || strings.ContainsFunc(r.Owner, unicode.IsControl):
		return bad("the owner is text of at most %d bytes without control characters", MaxOwner)
	}
	return nil
}

// queue stands in line for a lease.
func (m *Manager) queue(ctx context.Context, r *Request) (*lease, *waiter, error) {
	k := key(r.Name)
	for {
		l, w, err := m.tryQueue(k, r)
		if l != nil || err != nil {
			return l, w, err
		}
		if err := m.fold(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// tryQueue returns neither a lease nor an error if there is no room for one more.
func (m *Manager) tryQueue(k string, r *Request) (*lease, *waiter, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[k]
	switch {
	case m.stopping:
		return nil, nil, ErrClosed
	case l == nil && len(m.leases) >= m.max:
		return nil, nil, nil
	case l == nil:
		l = &lease{key: k, number: m.floor}
		m.leases[k] = l
	case l.held && !l.busy && r.Wait == 0:
		return nil, nil, l.heldError()
	case len(l.waiters) >= maxWaiters || m.stats.Waiting >= maxWaitersTotal:
		return nil, nil, ErrTooMany
	}
	l.name = r.Name
	w := &waiter{patient: r.Wait > 0, turn: make(chan error, 1)}
	l.waiters = append(l.waiters, w)
	m.stats.Waiting++
	m.dispatchLocked(l)
	return l, w, nil
}

// stand waits for the caller's turn. With nil the lease is busy on the caller's behalf.
func (m *Manager) stand(ctx context.Context, l *lease, w *waiter, wait time.Duration) error {
	var late <-chan time.Time
	if w.patient {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case err := <-w.turn:
		return err
	case <-late:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.Index(l.waiters, w); i >= 0 {
		l.waiters = slices.Delete(l.waiters, i, i+1)
		m.stats.Waiting--
		m.dispatchLocked(l)
	} else if err := <-w.turn; err != nil || ctx.Err() == nil { // it came at this very moment
		return err
	} else {
		l.busy = false
		m.dispatchLocked(l)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.heldError()
}
