package tokenstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/dgraph-io/badger/v4"
)

// Open opens the store in dir, or creates one there. It returns once every record was read and found to agree with the others,
// which takes about a second of CPU for a million marks, shared by all cores. The error wraps [ErrLocked], [ErrMissing],
// [ErrDamaged] or [ErrNoSpace] where one of them applies; a damaged store stays refused however often it is opened. ctx ends the wait for the lock and is not used afterwards.
//
// Some damage makes Badger panic in a goroutine of its own or exit. The process then ends, and no write is forwarded either.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	s, err := open(ctx, dir, o)
	if err != nil {
		return nil, fmt.Errorf("open token store %s: %w", dir, err)
	}
	return s, nil
}

func open(ctx context.Context, dir string, o Options) (_ *Store, err error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := makeDir(dir, o.MustExist); err != nil {
		return nil, err
	}
	lock, err := lockDir(ctx, dir, o.LockWait)
	if err != nil {
		return nil, err
	}
	s := newStore(dir, o, lock)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.abandon())
		}
	}()

	// The order matters. 1. Inspect before Badger creates or deletes anything. 2. Open Badger. 3. Compare it with what was
	// acknowledged, and its records with their sum. 4. Remove CLEAN durably before a mark can advance: the other way round, a crash
	// would look like a clean stop. 5. Start the writer.
	id, err := inspect(dir, o.MustExist)
	if err != nil {
		return nil, err
	}
	if err := s.space.look(min(openReserve, s.space.reserve)); err != nil {
		return nil, err
	}
	if err := lock.writePID(); err != nil {
		return nil, err
	}
	if id == nil {
		id, err = s.create()
	} else {
		err = s.reopen(id)
	}
	if err != nil {
		return nil, err
	}
	s.id = id.ID
	if err := removeClean(dir); err != nil {
		return nil, err
	}
	if err := s.openSeqFile(); err != nil {
		return nil, err
	}
	head := s.head
	s.published.Store(&head)
	s.start(o)
	return s, nil
}

// newStore returns a store that has opened nothing but its lock.
func newStore(dir string, o Options, lock *dirLock) *Store {
	s := &Store{
		dir:   dir,
		log:   o.Logger,
		most:  o.MaxMarks,
		hooks: o.hooks,
		lock:  lock,
		space: newSpaceGuard(dir, o),
		cache: newCache(cmp.Or(o.hooks.generation, cacheGeneration)),
		stop:  make(chan struct{}),
	}
	s.users.idle.L = &s.users.mu
	s.queue.wake = make(chan struct{}, 1)
	return s
}

// makeDir creates dir unless it must exist.
func makeDir(dir string, mustExist bool) error {
	fi, err := os.Stat(dir)
	switch {
	case err == nil && !fi.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return err
	case mustExist:
		return fmt.Errorf("%w: there is no directory %s, and must_exist forbids to create it: check that the volume is mounted", ErrMissing, dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// create makes a new store. Until the identity says that it is ready, a crash leaves something that the next Open discards.
func (s *Store) create() (*identity, error) {
	s.log.Warn("creating a new token store: every resource starts without a mark", slog.String("dir", s.dir))
	id, err := newIdentity(s.dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(s.dir, dbName), 0o700); err != nil {
		return nil, err
	}
	if err := s.openBadger(); err != nil {
		return nil, err
	}
	s.head = seqRecord{seq: firstSeq}
	err = guarded(func() error {
		return s.db.Update(func(txn *badger.Txn) error {
			if err := txn.Set([]byte(keyID), seal(keyID, append([]byte{recordVersion}, id.ID...))); err != nil {
				return err
			}
			return txn.Set([]byte(keySeq), s.head.encode())
		})
	})
	if err != nil {
		return nil, err
	}
	s.id = id.ID
	if err := errors.Join(syncDir(filepath.Join(s.dir, dbName)), s.openSeqFile()); err != nil {
		return nil, err
	}
	id.State = stateReady
	return id, id.write(s.dir)
}

// reopen opens the store that id names and refuses it if anything is missing, altered or older than what was acknowledged.
func (s *Store) reopen(id *identity) error {
	if err := removeEmptyLogs(filepath.Join(s.dir, dbName)); err != nil {
		return err
	}
	if err := s.openBadger(); err != nil {
		return err
	}
	head, err := s.readHead(id.ID)
	if err != nil {
		return err
	}
	if s.unclean, err = checkSeq(s.dir, id, head); err != nil {
		return err
	}
	s.head = head
	return s.verify(runtime.GOMAXPROCS(0), nil)
}

func (s *Store) openBadger() error {
	log := &badgerLog{log: s.log}
	err := guarded(func() error {
		db, err := badger.Open(badgerOptions(s.dir, log))
		if err == nil { // otherwise Badger returns one that panics when it is closed
			s.db = db
		}
		return err
	})
	switch {
	case err == nil && log.ignored.Load() != nil:
		return damaged("badger opened %s without one of its tables (%s): %s", filepath.Join(s.dir, dbName), *log.ignored.Load(), recoverHint)
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "Cannot acquire directory lock"): // Badger hides the errno
		return lockedBy(filepath.Join(s.dir, dbName, lockName))
	}
	return damaged("badger cannot open %s: %v: %s", filepath.Join(s.dir, dbName), err, recoverHint)
}

// readHead returns the batch counter and checks that the database belongs to this directory.
func (s *Store) readHead(id string) (head seqRecord, err error) {
	err = guarded(func() error {
		return s.db.View(func(txn *badger.Txn) error {
			raw, err := get(txn, keyID)
			if err != nil {
				return err
			}
			got, err := decodeMeta(keyID, raw)
			if err != nil {
				return err
			}
			if got != id {
				return damaged("%s belongs to another store: %s", filepath.Join(s.dir, dbName), recoverHint)
			}
			if raw, err = get(txn, keySeq); err != nil {
				return err
			}
			head, err = decodeSeq(raw)
			return err
		})
	})
	if errors.Is(err, badger.ErrKeyNotFound) {
		return head, damaged("%s has lost acknowledged marks: it does not even know its own id. The files were altered: %s", filepath.Join(s.dir, dbName), recoverHint)
	}
	return head, err
}

// openSeqFile opens the SEQ file, brings it up to date and makes it durable.
func (s *Store) openSeqFile() (err error) {
	if s.seq == nil {
		if s.seq, err = openSeq(s.dir, s.id); err != nil {
			return err
		}
	}
	return errors.Join(s.seq.write(s.head.seq), s.seq.f.Sync(), syncDir(s.dir))
}

// start starts the goroutines of an open store. Close stops both and waits for them.
func (s *Store) start(o Options) {
	s.done.Go(s.write) // ends when the queue is closed and empty
	every := cmp.Or(o.hooks.verifyEvery, verifyInterval)
	s.done.Go(func() { s.verifyEvery(every) }) // ends when stop is closed
}

// abandon releases what a failed open holds.
func (s *Store) abandon() error {
	var errs []error
	if s.db != nil {
		errs = append(errs, guarded(s.db.Close))
	}
	if s.seq != nil {
		errs = append(errs, s.seq.f.Close())
	}
	return errors.Join(append(errs, s.lock.release())...)
}
