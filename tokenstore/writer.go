package tokenstore

import (
	"fmt"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// submit hands a call to the writer and waits for its outcome.
func (s *Store) submit(o *op) error {
	if err := s.Err(); err != nil {
		return err
	}
	o.done = make(chan struct{})
	if !s.queue.put(o) {
		return ErrClosed
	}
	<-o.done
	return o.err
}

// write is the one goroutine that commits. Badger syncs once for each transaction, so whatever waits while a batch is being synced
// goes into the next one together. There is no timer: a lone call is committed at once.
func (s *Store) write() {
	for {
		ops := s.queue.take()
		if ops == nil {
			return
		}
		s.commit(ops)
		for _, o := range ops {
			close(o.done)
		}
	}
}

// commit makes the calls durable together and sets the outcome of each.
func (s *Store) commit(ops []*op) {
	all := func(err error) {
		for _, o := range ops {
			o.err = err
		}
	}
	if err := s.Err(); err != nil {
		all(err)
		return
	}
	txn := s.db.NewTransaction(true)
	defer txn.Discard()

	size := 0
	for _, o := range ops {
		size += o.bytes
	}
	b := newBatch(txn, s.space.check(size), s.head.marks, s.most)
	for _, o := range ops {
		o.err = guarded(func() error { return o.stage(b) })
	}
	next, changed, err := b.flush(s.head)
	if err != nil {
		all(fmt.Errorf("stage a batch: %w", err)) // nothing was sent to Badger
		return
	}
	if changed {
		if err := s.makeDurable(b, next); err != nil {
			all(err)
			return
		}
		s.lastBatch.Store(int64(len(ops)))
	}
	for _, o := range ops {
		if o.err == nil && o.committed != nil {
			o.committed()
		}
	}
}

// makeDurable commits the batch and publishes it. Any error is the end of the store: Badger may show the batch although it is not on
// the disk, or lose later ones behind it.
func (s *Store) makeDurable(b *batch, next seqRecord) error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()

	// The order matters. 1. Commit: durable when it returns. 2. The cache: before it, a look-up could answer "34" from Badger
	// and a later one "33" from the cache. 3. SEQ: before the commit it would refuse a store that lost nothing; after the
	// acknowledgement a lost mark could go unnoticed. 4. The caller acknowledges.
	err := guarded(func() error {
		if f := s.hooks.beforeCommit; f != nil {
			if err := f(); err != nil {
				return err
			}
		}
		return b.txn.Commit()
	})
	if err != nil {
		return s.fail(fmt.Errorf("commit batch %d: %w", next.seq, err))
	}
	if f := s.hooks.afterCommit; f != nil {
		f()
	}
	for key, e := range b.entries {
		if r, ok := strings.CutPrefix(key, kindMark); ok && e.bad == nil {
			s.cache.put(fencing.Resource(r), e.cached)
		}
	}
	s.head = next
	s.published.Store(&next)
	s.batches.Add(1)
	if err := s.seq.write(next.seq); err != nil {
		return s.fail(fmt.Errorf("write %s: %w", seqName, err))
	}
	return nil
}
