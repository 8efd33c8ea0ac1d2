package tokenstore

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// MaxAdvance is the number of resources that one call of [Store.Advance] takes.
const MaxAdvance = maxBatchEntries

// Load returns the mark of r; ok is false if r has none. An error never means that there is no mark: the caller must reject. The
// mark is durable. Load answers from memory for resources that were used lately and then neither blocks nor allocates; otherwise it
// may wait for a commit.
func (s *Store) Load(r fencing.Resource) (m fencing.Mark, ok bool, err error) {
	if err := s.Err(); err != nil {
		return fencing.Mark{}, false, err
	}
	if e, hit := s.cache.get(r); hit {
		return e.mark, e.ok, nil
	}
	e, err := s.lookUp(r)
	if err != nil {
		return fencing.Mark{}, false, fmt.Errorf("load mark of %q: %w", r, err)
	}
	return e.mark, e.ok, nil
}

// lookUp reads the mark of r from Badger and caches the answer.
func (s *Store) lookUp(r fencing.Resource) (e cached, err error) {
	if err := r.Check(); err != nil {
		return e, err
	}
	if err := s.users.enter(); err != nil {
		return e, err
	}
	defer s.users.leave()
	s.commitMu.RLock()
	defer s.commitMu.RUnlock()
	if err := s.Err(); err != nil { // it may have failed in the commit that was waited for
		return e, err
	}
	key := kindMark + string(r)
	err = guarded(func() error {
		return s.db.View(func(txn *badger.Txn) error {
			raw, err := get(txn, key)
			if errors.Is(err, badger.ErrKeyNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			e.mark, err = decodeMark(key, raw)
			e.ok = err == nil
			return err
		})
	})
	if err != nil {
		return cached{}, err
	}
	s.cache.put(r, e)
	return e, nil
}

// Advance raises the marks of all resources in ms, in one transaction, and returns once that is durable. Where the store already
// has a higher token it keeps it: a mark never falls. On an equal token it keeps what it has, except that Draining is set if
// either says so. If Advance returns an error, none of ms is durable as far as the caller may assume; with [ErrNoSpace], [ErrFull],
// [ErrTooLarge], [ErrClosed] and [ErrDamaged] nothing was changed.
func (s *Store) Advance(ms []fencing.ResourceMark) error {
	o := &op{entries: len(ms)}
	for _, m := range ms {
		if err := m.Resource.Check(); err != nil {
			return fmt.Errorf("advance mark of %q: %w", m.Resource, err)
		}
		o.bytes += markBytes(m.Resource, m.Mark)
	}
	if o.entries > maxBatchEntries || o.bytes > maxBatchBytes {
		return fmt.Errorf("advance %d marks: %w", len(ms), ErrTooLarge)
	}
	o.stage = func(b *batch) error {
		first := 0
		for _, m := range ms { // all are read before one is staged
			cur, err := b.mark(m.Resource)
			if err != nil {
				return err
			}
			if !cur.ok {
				first++
			}
		}
		if err := b.room(first); err != nil {
			return err
		}
		for _, m := range ms {
			if err := advance(b, m); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.submit(o); err != nil {
		return fmt.Errorf("advance %d marks: %w", len(ms), err)
	}
	return nil
}

func advance(b *batch, m fencing.ResourceMark) error {
	cur, err := b.mark(m.Resource)
	if err != nil {
		return err
	}
	if cur.ok {
		switch c := m.Mark.Token.Compare(cur.mark.Token); {
		case c < 0, c == 0 && (cur.mark.Draining || !m.Mark.Draining):
			return nil
		case c == 0:
			cur.mark.Draining = true
			return b.stage(m.Resource, &cur.mark)
		}
	}
	return b.stage(m.Resource, &m.Mark)
}

// markBytes bounds what a record of m takes in a transaction. A byte that is not UTF-8 becomes three.
func markBytes(r fencing.Resource, m fencing.Mark) int {
	return len(kindMark) + len(r) + recordFixed + 3*2 + 4 + entryOverhead +
		min(3*len(m.By), maxBy) + min(3*len(m.Policy), maxPolicy) + min(3*len(m.Reason), maxReason) + heldFixed + len(m.Holder)
}

// Restore undoes an advance: if the mark of r still has the token from, it puts back to, or no mark if to is nil, and returns true
// once that is durable. If the mark has another token by now it stays, and Restore returns false. Restore takes its turn with Advance,
// so a higher mark is never undone. It leaves a line in the log.
func (s *Store) Restore(r fencing.Resource, from fencing.Token, to *fencing.Mark) (restored bool, err error) {
	if err := r.Check(); err != nil {
		return false, fmt.Errorf("restore mark of %q: %w", r, err)
	}
	if to != nil {
		m := *to
		to = &m // the caller may reuse its own
	}
	o := &op{entries: 1, bytes: maxRecord + len(r) + entryOverhead}
	o.stage = func(b *batch) error {
		cur, err := b.mark(r)
		if err != nil || !cur.ok || cur.mark.Token != from {
			return err
		}
		if err := b.stage(r, to); err != nil {
			return err
		}
		restored = true
		return nil
	}
	o.committed = func() {
		if restored {
			s.log.Info("mark restored", slog.String(attrResource, string(r)), slog.String(attrToken, from.String()), slog.String(attrMark, printMark(to)))
		}
	}
	if err := s.submit(o); err != nil {
		return false, fmt.Errorf("restore mark of %q: %w", r, err)
	}
	return restored, nil
}

// Set gives r the mark m, whatever it had, and returns once that is durable. It is for operators: it may lower a mark, and lets
// writes through that the fence has refused until then. It is also the way out for a record that cannot be read. It leaves a line in
// the log if the mark was lowered.
//
// After an unclean stop the mark is Draining, whatever m says: writes of the last run may still land after one that carries the
// very token which is set here.
func (s *Store) Set(r fencing.Resource, m fencing.Mark) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("set mark of %q: %w", r, err)
	}
	var was cached
	var bad error
	m.Draining = m.Draining || s.unclean
	o := &op{entries: 1, bytes: markBytes(r, m)}
	o.stage = func(b *batch) error {
		e, err := b.markEntry(r)
		if err != nil {
			return err
		}
		was, bad = e.cached, e.bad
		return b.stage(r, &m)
	}
	o.committed = func() {
		if bad == nil && was.ok && was.mark.Holder != "" && was.mark.Holder != m.Holder {
			s.log.Warn("hold released by an operator", slog.String(attrResource, string(r)), slog.String(attrToken, m.Format.Describe(m.Token)),
				slog.String(attrMark, printMark(&was.mark)), slog.String(attrBy, m.By), slog.String(attrReason, m.Reason))
		}
		if bad == nil && (!was.ok || !m.Token.Less(was.mark.Token)) {
			return
		}
		old := "unreadable"
		if bad == nil {
			old = printMark(&was.mark)
		}
		s.log.Warn("mark lowered by an operator", slog.String(attrResource, string(r)), slog.String(attrToken, m.Format.Describe(m.Token)),
			slog.String(attrMark, old), slog.String(attrBy, m.By), slog.String(attrReason, m.Reason))
	}
	if err := s.submit(o); err != nil {
		return fmt.Errorf("set mark of %q: %w", r, err)
	}
	return nil
}

func printMark(m *fencing.Mark) string {
	if m == nil {
		return "none"
	}
	return m.Format.Describe(m.Token)
}
