package hold

import (
	"errors"
	"strconv"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// NotHolderError says that another id holds a resource. It does not say which: whoever knows the id of a holder can write. For the id that
// got it, it is final until that hold ends.
type NotHolderError struct {
	Resource fencing.Resource
}

func (e *NotHolderError) Error() string {
	return "another id holds " + strconv.Quote(string(e.Resource))
}

// ErrNotHeld is returned by [Manager.Release] for a resource whose mark names no holder.
var ErrNotHeld = errors.New("the resource is not held")

// ErrChanged is returned by [Manager.Release] when the hold changed while it was being released. Nothing was changed; look again.
var ErrChanged = errors.New("the hold changed meanwhile")
