package gate

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// ErrClosed is returned once [Gate.Close] was called. Nothing was forwarded.
var ErrClosed = errors.New("the gate is closed: the proxy is shutting down")

// ErrWouldLower is returned by [Gate.SetMark] when the new mark is below the present one and lowering was not asked for.
var ErrWouldLower = errors.New("the new mark is below the present one")

// ErrChanged is returned by [Gate.SetMark] when the mark moved while it was being set. Nothing was changed; look again.
var ErrChanged = errors.New("the mark changed meanwhile")

// StaleTokenError says that a token is below the mark of a resource, or not above it where the write had to be. It is final for
// that token.
type StaleTokenError struct {
	Resource fencing.Resource
	Token    fencing.Token
	Mark     fencing.Token // what it is stale by
	Greater  bool          // the write had to be above the mark
}

func (e *StaleTokenError) Error() string {
	relation := " is below the mark "
	if e.Greater {
		relation = " is not above the mark "
	}
	return "token " + e.Token.String() + relation + e.Mark.String() + " of " + strconv.Quote(string(e.Resource))
}

// JumpError says that a token is further above the proven mark of a resource than [Write.MaxJump] lets it be. Nothing was forwarded, and no mark
// was touched.
type JumpError struct {
	Resource fencing.Resource
	Token    fencing.Token
	Mark     fencing.Token // the proven one
	Max      uint64
}

func (e *JumpError) Error() string {
	return fmt.Sprintf("token %v is more than %d above the mark %v of %q", e.Token, e.Max, e.Mark, e.Resource)
}

// TreeReason says what lies beneath a tree that had to be empty.
type TreeReason string

// The reasons of a [TreeError].
const (
	TreeMarks  TreeReason = "marks"  // a token was seen on a resource beneath, now or ever
	TreeWrites TreeReason = "writes" // a write beneath was under way: waiting, in flight or in doubt
)

// TreeError says that a write with [Tree.Empty] found something beneath its tree. Nothing was forwarded. For TreeMarks it is final:
// marks do not expire.
type TreeError struct {
	Resource fencing.Resource // the tree's key
	Reason   TreeReason
}

func (e *TreeError) Error() string {
	if e.Reason == TreeWrites {
		return fmt.Sprintf("writes beneath %q were under way", e.Resource)
	}
	return fmt.Sprintf("resources beneath %q have marks", e.Resource)
}

// BusyReason says what a write waited for in vain.
type BusyReason string

// The reasons of a [BusyError].
const (
	BusyInFlight   BusyReason = "in-flight"  // writes with another token have no outcome yet
	BusyInDoubt    BusyReason = "in-doubt"   // a write's outcome is unknown and its hold runs
	BusyRecovering BusyReason = "recovering" // the proxy stopped uncleanly and waits out the writes of its last run
	BusyWaiters    BusyReason = "waiters"    // too many writes wait already
	BusyUnproven   BusyReason = "unproven"   // a higher token waits, and the upstream may turn its writer away
)

// BusyError says that a write waited as long as it may, or that too many wait already. Nothing was forwarded, and the same token
// may be sent again, unless it has to be [Write.Greater] than the mark: it is the mark now.
type BusyError struct {
	Resource   fencing.Resource
	Reason     BusyReason
	RetryAfter time.Duration // a hint; at least a second
}

func (e *BusyError) Error() string {
	switch e.Reason {
	case BusyInDoubt:
		return fmt.Sprintf("a write on %q with another token is in doubt and may still land", e.Resource)
	case BusyRecovering:
		return fmt.Sprintf("the proxy stopped uncleanly; writes on %q from before may still land", e.Resource)
	case BusyWaiters:
		return fmt.Sprintf("too many writes wait for %q", e.Resource)
	case BusyUnproven:
		return fmt.Sprintf("a write on %q with a higher token has no outcome yet", e.Resource)
	}
	return fmt.Sprintf("writes on %q with another token did not end in time", e.Resource)
}

// StoreError wraps an error of the [Store]. Nothing was forwarded.
type StoreError struct {
	Op  string // "load", "advance" or "restore"
	Err error
}

func (e *StoreError) Error() string { return e.Op + " mark: " + e.Err.Error() }

// Unwrap returns the store's error.
func (e *StoreError) Unwrap() error { return e.Err }
