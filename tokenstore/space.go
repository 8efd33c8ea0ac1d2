package tokenstore

import (
	"cmp"
	"fmt"
	"syscall"
	"time"
)

const (
	builtinReserve = 64 << 20 // Badger needs room for a flush and a compaction, and dies of SIGBUS when there is none
	openReserve    = 32 << 20 // recovery writes one table for each log it finds
	spaceInterval  = 250 * time.Millisecond
	spaceBytes     = 4 << 20 // written between two looks at most
)

// spaceGuard says whether there is room for another batch. It looks at the volume every now and then, not for each batch.
type spaceGuard struct {
	free    func() (uint64, error)
	reserve uint64
	every   time.Duration

	looked  time.Time
	since   int   // bytes written since
	verdict error // of the last look
}

func newSpaceGuard(dir string, o Options) *spaceGuard {
	g := &spaceGuard{
		free:    o.hooks.freeSpace,
		reserve: cmp.Or(o.hooks.reserve, max(o.MinFree, builtinReserve)),
		every:   cmp.Or(o.hooks.spaceEvery, spaceInterval),
	}
	if g.free == nil {
		g.free = func() (uint64, error) { return FreeSpace(dir) }
	}
	return g
}

// check returns an error that wraps ErrNoSpace if there is no room for n more bytes.
func (g *spaceGuard) check(n int) error {
	g.since += n
	if time.Since(g.looked) < g.every && g.since < spaceBytes {
		return g.verdict
	}
	g.looked, g.since = time.Now(), 0
	g.verdict = g.look(g.reserve)
	return g.verdict
}

func (g *spaceGuard) look(reserve uint64) error {
	free, err := g.free()
	switch {
	case err != nil:
		return fmt.Errorf("%w: free space is unknown: %v", ErrNoSpace, err)
	case free < reserve:
		return fmt.Errorf("%w: %d MiB free, %d MiB needed; free some or enlarge the volume, writes then go on by themselves",
			ErrNoSpace, free>>20, reserve>>20)
	}
	return nil
}

// FreeSpace returns the bytes that an unprivileged process may still write on dir's volume.
func FreeSpace(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, err
	}
	return uint64(st.Bavail) * uint64(st.Bsize), nil
}
