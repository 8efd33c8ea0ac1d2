package tokenstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// batch is what the writer is about to commit in one transaction: for each key that was looked up, the record on disk and the one
// that will take its place. Later calls of a batch see what earlier ones staged.
type batch struct {
	txn     *badger.Txn
	noSpace error  // if set, nothing may be staged
	marks   uint64 // that there will be after the batch
	most    uint64 // that advances may make of them; 0: any number
	entries map[string]*entry
	size    int // bytes staged
}

type entry struct {
	before []byte // on disk; nil if there is none
	after  []byte // staged; nil to delete, the same as before if nothing was staged
	cached cached // of a mark: what after says
	bad    error  // before cannot be read; a Set may still replace it
}

func newBatch(txn *badger.Txn, noSpace error, marks, most uint64) *batch {
	return &batch{txn: txn, noSpace: noSpace, marks: marks, most: most, entries: map[string]*entry{}}
}

// room returns [ErrFull] if the batch cannot take so many first marks.
func (b *batch) room(first int) error {
	if b.most > 0 && first > 0 && b.marks+uint64(first) > b.most {
		return ErrFull
	}
	return nil
}

// get returns the record of key, or badger.ErrKeyNotFound.
func get(txn *badger.Txn, key string) ([]byte, error) {
	item, err := txn.Get([]byte(key))
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(nil)
}

// entry looks key up, on disk the first time.
func (b *batch) entry(key string) (*entry, error) {
	if e, ok := b.entries[key]; ok {
		return e, nil
	}
	raw, err := get(b.txn, key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		raw, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	e := &entry{before: raw, after: raw}
	b.entries[key] = e
	return e, nil
}

// mark returns what the batch so far says about r. The error wraps [ErrDamaged] if the record on disk cannot be read.
func (b *batch) mark(r fencing.Resource) (cached, error) {
	e, err := b.markEntry(r)
	if err != nil {
		return cached{}, err
	}
	return e.cached, e.bad
}

func (b *batch) markEntry(r fencing.Resource) (*entry, error) {
	key := kindMark + string(r)
	_, known := b.entries[key]
	e, err := b.entry(key)
	if err != nil || known || e.before == nil {
		return e, err
	}
	m, err := decodeMark(key, e.before)
	e.cached, e.bad = cached{mark: m, ok: err == nil}, err
	return e, nil
}

// stage puts m, or nothing if m is nil, in place of the mark of r, which must have been looked up in this batch.
func (b *batch) stage(r fencing.Resource, m *fencing.Mark) error {
	if b.noSpace != nil {
		return b.noSpace
	}
	e, err := b.markEntry(r)
	if err != nil {
		return err
	}
	e.bad = nil
	switch {
	case m == nil && e.after != nil:
		b.marks--
	case m != nil && e.after == nil:
		b.marks++
	}
	if m == nil {
		e.after, e.cached = nil, cached{}
		return nil
	}
	n := normalise(*m)
	e.after, e.cached = encodeMark(kindMark+string(r), n), cached{mark: n, ok: true}
	return nil
}

// flush hands the changes to the transaction and returns the record that sums the store up after them. changed is false if
// there is nothing to commit.
func (b *batch) flush(head seqRecord) (next seqRecord, changed bool, err error) {
	next = head
	for key, e := range b.entries {
		if (e.before == nil) == (e.after == nil) && bytes.Equal(e.before, e.after) {
			continue
		}
		changed = true
		if e.before != nil {
			next = next.without(key, e.before)
		}
		if e.after == nil {
			err = b.txn.Delete([]byte(key))
		} else {
			next = next.with(key, e.after)
			err = b.txn.Set([]byte(key), e.after)
		}
		if err != nil {
			return head, false, err
		}
		b.size += len(key) + len(e.after) + entryOverhead
	}
	if !changed {
		return head, false, nil
	}
	next.seq++
	return next, true, b.txn.Set([]byte(keySeq), next.encode())
}
