package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

var (
	// ErrClosed is returned by [Manager.Acquire] once the manager is stopping, to those that wait too.
	ErrClosed = errors.New("the proxy is stopping and grants no more leases")

	// ErrNotHolder is returned when the secret is not that of the lease as it is held now.
	ErrNotHolder = errors.New("the secret is not that of the present holder")

	// ErrGone is returned when nobody holds the lease: it was released, or its time ran out.
	ErrGone = errors.New("nobody holds the lease: it was released, or its time ran out")

	// ErrTooMany is returned when as many leases are held as there may be, or too many clients wait.
	ErrTooMany = errors.New("there are too many leases or waiting clients")

	// ErrExhausted is returned when the next token would be above [MaxToken].
	ErrExhausted = errors.New("the token of the resource is the highest that there is; to go on an operator has to lower its mark")

	// ErrOvertaken is returned by [Marks] when a mark moved at the same moment.
	ErrOvertaken = errors.New("the mark moved meanwhile")

	// ErrNoSpace is what [Notes] and [Marks] wrap when their volume is short of space. Nothing was changed then.
	ErrNoSpace = errors.New("the volume of the token store is short of space")
)

// HeldError is returned by [Manager.Acquire] when somebody else holds the lease, for the whole wait if there was one.
type HeldError struct {
	Name      fencing.Resource
	Owner     string        // what the holder said of itself
	Remaining time.Duration // until the lease ends, unless it is renewed
}

// Error says who holds the lease.
func (e *HeldError) Error() string {
	owner := "somebody"
	if e.Owner != "" {
		owner = fmt.Sprintf("%q", e.Owner)
	}
	return fmt.Sprintf("%s holds the lease for another %s, unless it is renewed or released", owner, e.Remaining.Round(time.Millisecond))
}

// RequestError is a request that cannot be granted as it is.
type RequestError struct{ Reason string }

// Error says what is wrong.
func (e *RequestError) Error() string { return e.Reason }
