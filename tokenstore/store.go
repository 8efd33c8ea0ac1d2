package tokenstore

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Options says how [Open] opens a store. The zero value opens or creates one.
type Options struct {
	// MustExist refuses a directory that is missing, empty, wiped or was never initialised to the end, with [ErrMissing].
	MustExist bool
	// MinFree is the number of bytes that must be free on the volume for a mark to be made durable; below it every write is
	// refused with [ErrNoSpace]. A value below the built-in reserve of 64 MiB counts as 64 MiB: a volume that runs full under
	// Badger kills the process.
	MinFree uint64
	// MaxMarks bounds the marks: above it [Store.Advance] gives no resource its first one. Zero is no bound. [Store.Set] and [Store.Import]
	// are not bounded.
	MaxMarks uint64
	// LockWait is how long Open retries while another process holds the directory, as during a rolling restart.
	LockWait time.Duration
	// Logger gets the lines about lowered marks and failures; nil discards them.
	Logger *slog.Logger

	hooks hooks
}

// hooks are the places where tests reach in. The zero value changes nothing.
type hooks struct {
	freeSpace    func() (uint64, error) // instead of statfs
	reserve      uint64                 // instead of builtinReserve
	spaceEvery   time.Duration          // instead of spaceInterval
	verifyEvery  time.Duration          // instead of verifyInterval
	beforeCommit func() error           // an error takes the place of the commit
	afterCommit  func()                 // between the commit and its acknowledgement
	generation   int                    // instead of cacheGeneration
}

// Store is a set of durable high-water marks. Its methods may be called from any number of goroutines.
type Store struct {
	dir     string
	id      string // random, written when the store was created
	log     *slog.Logger
	hooks   hooks
	db      *badger.DB
	lock    *dirLock
	seq     *seqFile
	cache   *cache
	space   *spaceGuard // used by the writer goroutine only
	unclean bool
	most    uint64 // Options.MaxMarks

	state atomic.Pointer[stopped] // nil while usable
	users users                   // calls that are inside Badger outside the writer
	queue queue                   // waiting for the writer
	stop  chan struct{}           // closed by Close; ends the verifier
	done  sync.WaitGroup          // the writer and the verifier

	// commitMu is held for writing from just before a commit until its marks are in the cache (or the store has failed), and for
	// reading from a look-up in Badger until its answer is in the cache. So no look-up caches a mark that a commit replaces, and none
	// returns a value that Badger shows although its sync failed.
	commitMu sync.RWMutex

	closeOnce sync.Once
	closeErr  error

	head      seqRecord // the writer's, and Open's before it starts
	published atomic.Pointer[seqRecord]
	batches   atomic.Uint64
	lastBatch atomic.Int64
}

// stopped is why a store is no longer usable.
type stopped struct{ err error }

// Err returns nil while the store is usable, an error that wraps [ErrFailed] once it has failed, and [ErrClosed] once it is
// closed. It costs one atomic load.
func (s *Store) Err() error {
	if st := s.state.Load(); st != nil {
		return st.err
	}
	return nil
}

// fail makes the store unusable for the rest of its life and returns the error that every call returns from now on.
func (s *Store) fail(cause error) error {
	err := fmt.Errorf("%w: %w (restart the process: the directory %s is checked when it is opened again)", ErrFailed, cause, s.dir)
	if !s.state.CompareAndSwap(nil, &stopped{err}) {
		return s.Err()
	}
	s.log.Error("token store failed; every write is refused until a restart", slog.Any(attrErr, cause))
	return err
}

// UncleanStop reports whether the previous run on this directory ended without Close(true) although the store had been in use.
// Writes that it forwarded may then still be on their way. It is false for a new store.
func (s *Store) UncleanStop() bool { return s.unclean }

// Names of log attributes.
const (
	attrResource = "resource"
	attrToken    = "token"
	attrMark     = "mark"
	attrBy       = "by"
	attrReason   = "reason"
	attrErr      = "err"
)

// users counts the calls that are inside Badger, so that Close can wait for them: Badger panics when it is read after it was
// closed. A call may enter again while it is inside.
type users struct {
	mu   sync.Mutex // guards the fields below; never held across I/O
	idle sync.Cond  // L is &mu; signalled when n reaches 0
	// +checklocks:mu
	n int
	// +checklocks:mu
	closed bool
}

func (u *users) enter() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return ErrClosed
	}
	u.n++
	return nil
}

func (u *users) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n--; u.n == 0 {
		u.idle.Broadcast()
	}
}

// close refuses newcomers and waits for those inside.
func (u *users) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for u.n > 0 {
		u.idle.Wait()
	}
}

// guarded runs fn and turns a panic of Badger into an error. Panics in Badger's own goroutines and its calls of log.Fatal end the
// process, which also forwards nothing more.
func guarded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("badger panicked: %v", p)
		}
	}()
	return fn()
}
