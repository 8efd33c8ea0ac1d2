package tokenstore

import (
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// The setters let tests reach the hooks of Options.

func (o *Options) SetFreeSpace(f func() (uint64, error)) {
	o.hooks.freeSpace, o.hooks.spaceEvery = f, time.Nanosecond
}
func (o *Options) SetReserve(n uint64)            { o.hooks.reserve = n }
func (o *Options) SetBeforeCommit(f func() error) { o.hooks.beforeCommit = f }
func (o *Options) SetAfterCommit(f func())        { o.hooks.afterCommit = f }
func (o *Options) SetCacheGeneration(bytes int)   { o.hooks.generation = bytes }
func (o *Options) SetVerifyEvery(d time.Duration) { o.hooks.verifyEvery = d }

// Queued returns the number of calls that the writer has not taken yet.
func (s *Store) Queued() int {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	return len(s.queue.ops)
}

// Cached returns the number of answers in memory.
func (s *Store) Cached() int {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	return len(s.cache.young) + len(s.cache.old)
}

// PutRaw stores a record of a mark as it is, for records that this release would not write.
func (s *Store) PutRaw(r fencing.Resource, raw []byte) error {
	key := kindMark + string(r)
	return s.submit(&op{entries: 1, bytes: len(key) + len(raw), stage: func(b *batch) error {
		e, err := b.entry(key)
		if err == nil {
			e.after, e.bad = raw, ErrDamaged
		}
		return err
	}})
}

// BadgerOptions returns the options with which the store opens Badger.
func BadgerOptions() badger.Options { return badgerOptions("dir", nil) }

// Verify runs the periodic check at once.
func (s *Store) Verify() error { return s.verify(1, nil) }

var (
	EncodeMark = encodeMark
	DecodeMark = decodeMark
	Normalise  = normalise
	Seal       = seal
)
