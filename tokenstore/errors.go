package tokenstore

import (
	"errors"
	"fmt"
)

var (
	// ErrNoSpace is returned by everything that writes while the volume has less free space than [Options.MinFree]. Nothing was
	// attempted and nothing changed; the store stays usable and takes marks again by itself once there is room.
	ErrNoSpace = errors.New("token store volume is short of space")

	// ErrFull is returned by [Store.Advance] when it would give a resource its first mark and there are [Options.MaxMarks] already.
	// Nothing was changed; marks that are there advance as before.
	ErrFull = errors.New("token store has as many marks as it may")

	// ErrFailed is returned by everything once a commit, a check or the disk has failed. What the disk holds is unknown from
	// then on, so the store never becomes usable again in this process: close it and open it anew.
	ErrFailed = errors.New("token store has failed and accepts nothing more")

	// ErrClosed is returned by everything after [Store.Close] was called.
	ErrClosed = errors.New("token store is closed")

	// ErrLocked is returned by [Open] when another process holds the directory for longer than [Options.LockWait].
	ErrLocked = errors.New("token store is in use by another process")

	// ErrMissing is returned by [Open] with [Options.MustExist] when the directory is missing, empty, wiped or was never
	// initialised to the end.
	ErrMissing = errors.New("token store is missing")

	// ErrDamaged is returned when what is on disk contradicts itself: files are missing, foreign, altered, or older than marks
	// that were acknowledged. [Open] refuses such a store and changes nothing that would make it pass the next time. [Store.Load]
	// returns it for a record that cannot be read.
	ErrDamaged = errors.New("token store is damaged")

	// ErrTooLarge is returned for one call that does not fit in one transaction: more than [MaxAdvance] resources, or about
	// 1 MiB of resource keys.
	ErrTooLarge = errors.New("too much for one transaction")

	// ErrHolders is returned by [Store.ExportWithoutHolders] where a mark has a holder.
	ErrHolders = errors.New("the marks hold ids of holders, which are not for everybody")

	// ErrImport is returned by [Store.Import] for input that is not a whole, unaltered export. Nothing was changed.
	ErrImport = errors.New("not a complete export of a token store")
)

// damaged wraps ErrDamaged with what was found and what to do about it.
func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrDamaged, fmt.Errorf(format, args...))
}

// recoverHint ends every refusal that only a new store can solve.
const recoverHint = "put back the whole directory from one copy, or move it aside, start with an empty one, import the last export " +
	"and set each mark to at least the lock service's current token before clients write"
