package lease

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Grant is a lease as its holder knows it.
type Grant struct {
	Name   fencing.Resource
	Token  uint64 // goes with each write, in the decimal format
	Secret string // proves to Renew and Release who holds it; not kept by the manager
	TTL    time.Duration
	Owner  string
}

// Acquire grants a lease once nobody else holds it, at the latest after r.Wait. It returns once the grant is durable and the mark of the
// resource is at its token. The error is a [*HeldError], a [*RequestError], [ErrTooMany], [ErrExhausted], [ErrClosed], that of ctx, or one
// of the store; then nothing was granted. A caller that is gone by then (ctx) leaves the lease free.
func (m *Manager) Acquire(ctx context.Context, r Request) (Grant, error) {
	g, err := m.acquire(ctx, &r)
	if err != nil {
		m.mu.Lock()
		m.stats.Refused++
		m.mu.Unlock()
		return Grant{}, err
	}
	m.log.Info("lease granted", attrs(r.Name, g.Token, g.Owner, "ttl", g.TTL.String())...)
	return g, nil
}

func (m *Manager) acquire(ctx context.Context, r *Request) (Grant, error) {
	if err := r.check(); err != nil {
		return Grant{}, err
	}
	if reason := m.useless(r.Name); reason != "" {
		return Grant{}, &RequestError{reason}
	}
	l, w, err := m.queue(ctx, r)
	if err != nil {
		return Grant{}, err
	}
	if err := m.stand(ctx, l, w, r.Wait); err != nil {
		return Grant{}, err
	}
	g, hash, err := m.grant(ctx, l, r)
	m.granted(l, g, hash, err)
	return g, err
}

// grant makes the lease the caller's, on whose behalf it is busy. The order matters:
//
//  1. The mark is raised to the token. Before the note, or a crash in between would leave a lease that nobody knows the secret of, and
//     before the answer, or an earlier holder could write after the new one has read.
//  2. The note is made durable. Before the answer, or a restart would grant the lease to a second holder.
//  3. The lease is held, and its time begins. Not before the note: that may take long.
func (m *Manager) grant(ctx context.Context, l *lease, r *Request) (g Grant, hash string, err error) {
	if err := ctx.Err(); err != nil {
		return Grant{}, "", err
	}
	t, err := m.raise(ctx, l, r)
	if err != nil {
		return Grant{}, "", err
	}
	g = Grant{Name: r.Name, Token: t.Lo, Secret: rand.Text(), TTL: r.TTL, Owner: r.Owner}
	hash = hashOf(g.Secret)
	text, err := note{Number: g.Token, Secret: hash, TTL: g.TTL.String(), Owner: g.Owner, Name: string(g.Name)}.encode()
	if err == nil {
		err = m.notes.SetMeta(l.key, text)
	}
	if err != nil {
		return Grant{}, "", err
	}
	m.mu.Lock()
	l.noted = true
	m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		_ = m.noteFree(l) // on error the note says that it is held, and a restart will wait for its end
		return Grant{}, "", err
	}
	return g, hash, nil
}

// granted has the lease be held, unless there is an error, and ends the I/O for it: in one step, or it could run out in between unseen.
func (m *Manager) granted(l *lease, g Grant, hash string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.holdLocked(l, hash, g.Owner, g.TTL)
		m.stats.Granted++
	}
	l.busy = false
	m.dispatchLocked(l)
}

// How long a grant tries again while writes move the mark.
const (
	raiseFor   = 5 * time.Second
	raisePause = time.Millisecond
)

// raise chooses the token of a grant and makes it the mark of the resource. The token is used up whatever comes of it.
func (m *Manager) raise(ctx context.Context, l *lease, r *Request) (fencing.Token, error) {
	giveUp := time.NewTimer(raiseFor)
	defer giveUp.Stop()
	for {
		mark, ok, err := m.marks.Seen(r.Name)
		if err != nil {
			return fencing.Token{}, err
		}
		m.mu.Lock()
		t, err := next(l.number, mark, ok)
		if err == nil {
			l.number = t.Lo
		}
		m.mu.Unlock()
		if err != nil {
			return fencing.Token{}, err
		}
		raised := fencing.Mark{Token: t, Format: fencing.Decimal, At: time.Now(), By: "lease", Policy: mark.Policy}
		if ok {
			raised.Format = mark.Format
		}
		if r.Owner != "" {
			raised.By = "lease of " + r.Owner
		}
		err = m.marks.Raise(r.Name, raised)
		if !errors.Is(err, ErrOvertaken) {
			return t, err
		}
		select {
		case <-time.After(raisePause):
		case <-giveUp.C:
			return fencing.Token{}, err
		case <-ctx.Done():
			return fencing.Token{}, ctx.Err()
		}
	}
}

// noteFree makes durable that nobody holds a lease that is busy on the caller's behalf.
func (m *Manager) noteFree(l *lease) error {
	m.mu.Lock()
	n := note{Number: l.number, Name: string(l.name)}
	m.mu.Unlock()
	text, err := n.encode()
	if err == nil {
		err = m.notes.SetMeta(l.key, text)
	}
	return err
}

// holderLocked returns the lease that the secret belongs to.
//
// +checklocks:m.mu
func (m *Manager) holderLocked(name fencing.Resource, secret string) (*lease, error) {
	l := m.leases[key(name)]
	switch {
	case l == nil, !l.held, !time.Now().Before(l.expires): // what ran out is over, even before the timer has said so
		return nil, ErrGone
	case !matches(secret, l.secret):
		return nil, ErrNotHolder
	case l.busy: // the holder itself releases it at this moment
		return nil, ErrGone
	}
	return l, nil
}

// Renew gives the lease its whole time again and returns how long that is. The error is [ErrGone] or [ErrNotHolder]: the lease is lost then,
// for good.
func (m *Manager) Renew(name fencing.Resource, secret string) (time.Duration, error) {
	ttl, err := m.renew(name, secret)
	if err != nil {
		m.log.Info("lease not renewed", "resource", string(name), "error", err.Error())
	}
	return ttl, err
}

func (m *Manager) renew(name fencing.Resource, secret string) (time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.holderLocked(name, secret)
	if err != nil {
		m.stats.Refused++
		return 0, err
	}
	l.expires = time.Now().Add(l.ttl)
	if !m.closed {
		l.timer.Reset(l.ttl)
	}
	m.stats.Renewed++
	return l.ttl, nil
}

// Release gives the lease back and returns once that is durable. The error is [ErrGone], [ErrNotHolder] or one of the store, with which
// the lease stays held.
func (m *Manager) Release(name fencing.Resource, secret string) error {
	m.mu.Lock()
	l, err := m.holderLocked(name, secret)
	if err != nil {
		m.stats.Refused++
		m.mu.Unlock()
		return err
	}
	l.busy = true
	number, owner := l.number, l.owner
	m.mu.Unlock()
	err = m.noteFree(l)
	m.released(l, err)
	if err == nil {
		m.log.Info("lease released", attrs(name, number, owner)...)
	}
	return err
}

func (m *Manager) released(l *lease, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		m.freeLocked(l)
		m.stats.Released++
	} else if !m.closed {
		l.timer.Reset(l.remaining()) // it may have run out meanwhile, unseen
	}
	l.busy = false
	m.dispatchLocked(l)
}

// expire ends a lease whose time has run out. number tells the grant for which the timer was set.
func (m *Manager) expire(l *lease, number uint64) {
	name, owner, ok := m.beginExpire(l, number)
	if !ok {
		return
	}
	defer m.background.Done()
	m.log.Info("lease expired", attrs(name, number, owner)...)
	if !m.beginFree(l) {
		return
	}
	defer m.done(l)
	_ = m.noteFree(l) // on error the note says that it is held, and a restart will wait for its end
}

func (m *Manager) beginExpire(l *lease, number uint64) (name fencing.Resource, owner string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || l.busy || !l.held || l.number != number || time.Now().Before(l.expires) {
		return "", "", false // released, or renewed at this moment
	}
	m.background.Add(1)
	name, owner = l.name, l.owner
	m.freeLocked(l)
	m.stats.Expired++
	return name, owner, true
}

// beginFree passes an expired lease on, or reports that it is the caller's to note as free.
func (m *Manager) beginFree(l *lease) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.busy || l.held {
		return false
	}
	if len(l.waiters) > 0 {
		m.dispatchLocked(l)
		return false
	}
	l.busy = true
	return true
}

// fold makes room for one more lease: the note of one that nobody holds, with the lowest token, goes. The order matters: its token is in the
// floor, durably, before the note is gone, or it could be granted again.
func (m *Manager) fold(ctx context.Context) error {
	select {
	case m.folding <- struct{}{}: // one at a time, or a lower floor could come to lie on a higher one
		defer func() { <-m.folding }()
	case <-ctx.Done():
		return ctx.Err()
	}
	l, floor, rises, err := m.beginFold()
	if l == nil || err != nil {
		return err
	}
	defer m.done(l)
	if rises {
		if err := m.notes.SetMeta(floorNote, encodeFloor(floor)); err != nil {
			return err
		}
	}
	m.mu.Lock()
	m.floor = floor
	m.mu.Unlock()
	if err := m.notes.DeleteMeta(l.key); err != nil {
		return err
	}
	m.mu.Lock()
	l.noted = false
	m.mu.Unlock()
	return nil
}

// beginFold chooses the lease to drop. It returns none if there is room by now.
func (m *Manager) beginFold() (victim *lease, floor uint64, rises bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.leases) < m.max {
		return nil, 0, false, nil
	}
	for _, l := range m.leases {
		if !l.held && !l.busy && (victim == nil || l.number < victim.number) {
			victim = l
		}
	}
	if victim == nil {
		return nil, 0, false, ErrTooMany
	}
	victim.busy = true
	return victim, max(m.floor, victim.number), victim.number > m.floor, nil
}

// attrs are the attributes of a log line. No secret is ever among them.
func attrs(name fencing.Resource, number uint64, owner string, more ...any) []any {
	return append([]any{slog.String("resource", string(name)), slog.Uint64("token", number), slog.String("owner", owner)}, more...)
}
