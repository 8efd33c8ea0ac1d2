package tokenstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// closeFailedWait is how long Close waits for Badger after a failure, which may have left it hanging.
const closeFailedWait = 5 * time.Second

// Close finishes the calls that are waiting, then closes the store; calls that come later get [ErrClosed]. clean says that every
// write that was forwarded has an outcome: then [Store.UncleanStop] will be false at the next start. A store that has failed
// is never closed cleanly. Close may be called again and returns the same error.
func (s *Store) Close(clean bool) error {
	s.closeOnce.Do(func() {
		if err := s.close(clean); err != nil {
			s.closeErr = fmt.Errorf("close token store %s: %w", s.dir, err)
		}
	})
	return s.closeErr
}

func (s *Store) close(clean bool) error {
	s.queue.close()
	close(s.stop)
	s.done.Wait() // the writer empties the queue first
	s.users.close()
	if !s.state.CompareAndSwap(nil, &stopped{ErrClosed}) {
		return errors.Join(s.Err(), s.closeFailed())
	}
	// CLEAN comes last: it vouches for everything before it.
	err := errors.Join(guarded(s.db.Close), s.seq.f.Sync(), s.seq.f.Close())
	if err == nil && clean {
		err = cleanMark{ID: s.id, Seq: s.head.seq}.write(s.dir)
	}
	return errors.Join(err, s.lock.release())
}

// closeFailed gives Badger a while to close. The lock is kept if it does not: a goroutine of Badger may still write.
func (s *Store) closeFailed() error {
	closed := make(chan error, 1)
	go func() { closed <- guarded(s.db.Close) }() // left behind if Badger hangs; the process is about to end
	select {
	case err := <-closed:
		return errors.Join(err, s.seq.f.Close(), s.lock.release())
	case <-time.After(closeFailedWait):
		return errors.New("badger does not close; end the process")
	}
}

// Stats describes a store for metrics and health.
type Stats struct {
	Marks     uint64 // number of resources with a mark, exact
	MaxMarks  uint64 // [Options.MaxMarks]
	Seq       uint64 // number of the last durable batch
	Batches   uint64 // batches committed since Open
	LastBatch int    // calls that shared the last commit
	DiskBytes int64  // allocated for the store's files
	FreeBytes uint64 // free on its volume, at least 1; 0 if unknown
	Reserve   uint64 // marks are refused while FreeBytes is below this
}

// Stats returns the current numbers. It looks at the store's files and costs some microseconds for each.
func (s *Store) Stats() Stats {
	head := s.published.Load()
	st := Stats{
		Marks:     head.marks,
		MaxMarks:  s.most,
		Seq:       head.seq,
		Batches:   s.batches.Load(),
		LastBatch: int(s.lastBatch.Load()),
		DiskBytes: allocated(filepath.Join(s.dir, dbName)),
		Reserve:   s.space.reserve,
	}
	if free, err := s.space.free(); err == nil {
		st.FreeBytes = max(free, 1)
	}
	return st
}

// Marks is [Stats.Marks] alone. It costs one atomic load.
func (s *Store) Marks() uint64 { return s.published.Load().marks }

// allocated sums up the blocks of a directory's files. Badger's logs are sparse: their length says nothing.
func allocated(dir string) (n int64) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			if st, ok := fi.Sys().(*syscall.Stat_t); ok {
				n += st.Blocks * 512
			}
		}
	}
	return n
}
