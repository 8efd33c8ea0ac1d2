package hold

import (
	"container/heap"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// term is the time of one holder, or that of nobody. Every field is guarded by Manager.mu.
type term struct {
	token fencing.Token // grows from term to term
	id    string        // empty: nobody holds the resource
	ttl   time.Duration // as the mark has it; 0: until it is released
	until time.Duration // on the manager's clock; once started

	users    int  // claims without an outcome
	renewing int  // of users, those that renew the hold: it does not expire while their writes are under way
	started  bool // the time runs: a write was admitted, or the mark had the hold
	begun    bool // the gate has admitted a write
	proven   bool // the mark stands: a write of the term was accepted, or may have been
}

// heldLocked reports whether somebody holds the resource.
func (t *term) heldLocked(now time.Duration) bool {
	return t.id != "" && (t.ttl == 0 || !t.started || t.renewing > 0 || now < t.until)
}

// entry is what is known of one resource. Every field is guarded by Manager.mu.
type entry struct {
	resource fencing.Resource
	refs     int // claims without an outcome, of all terms, and look-ups under way. The entry stays while there are any
	top      *term
	// highest is the highest token of a claim since the entry was made. A mark may fall back when its claim was refused, but a token that a
	// claim still carries is never given to another id.
	highest fencing.Token
	changes uint64 // counts what makes a look-up that is under way worthless
	foreign bool   // the mark was changed from outside: its hold runs from when that is seen
	lost    *term  // a claim of which no write was accepted. If the mark has it all the same, it runs from when that is seen
	index   int    // in Manager.due, or -1
	due     time.Duration
}

// schedule is a heap of the entries that stay for their time alone, by when to look at them again.
type schedule []*entry

var _ heap.Interface = (*schedule)(nil)

func (s schedule) Len() int           { return len(s) }
func (s schedule) Less(i, j int) bool { return s[i].due < s[j].due }
func (s schedule) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].index, s[j].index = i, j
}

// Push implements [heap.Interface].
func (s *schedule) Push(x any) {
	e := x.(*entry)
	e.index = len(*s)
	*s = append(*s, e)
}

// Pop implements [heap.Interface].
func (s *schedule) Pop() any {
	old := *s
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*s, e.index = old[:len(old)-1], -1
	return e
}
