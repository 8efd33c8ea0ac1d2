package tokenstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	lockName  = "LOCK" // holds the process id, for people; the lock itself is on the directory
	lockRetry = 50 * time.Millisecond
)

// dirLock is an exclusive lock on the store's directory. Badger locks db/ too, but only once it opens, and the guards must not
// touch the files of a store that is running.
type dirLock struct {
	f   *os.File // the directory
	pid string   // path of the LOCK file
}

// lockDir locks dir, and retries for at most wait while another process holds it.
func lockDir(ctx context.Context, dir string, wait time.Duration) (*dirLock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, errWaited)
	defer cancel()
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return &dirLock{f: f, pid: filepath.Join(dir, lockName)}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock: %w", err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			if cause := context.Cause(ctx); !errors.Is(cause, errWaited) {
				return nil, cause
			}
			return nil, lockedBy(filepath.Join(dir, lockName))
		case <-time.After(lockRetry):
		}
	}
}

var errWaited = errors.New("waited long enough")

func lockedBy(pidFile string) error {
	who := "whose id is not known"
	if b, err := os.ReadFile(pidFile); err == nil && len(b) < 32 {
		who = strings.TrimSpace(string(b))
	}
	return fmt.Errorf("%w: process %s (from %s); stop it, or give this one a directory of its own: two proxies cannot share one store",
		ErrLocked, who, pidFile)
}

// writePID says in the LOCK file who holds the lock.
func (l *dirLock) writePID() error {
	return os.WriteFile(l.pid, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600)
}

func (l *dirLock) release() error {
	err := os.Remove(l.pid)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.f.Close())
}
