package tokenstore

import "sync"

// op is one call that waits for the writer.
type op struct {
	entries int // records that it may write
	bytes   int // size of their keys and values, at most
	// stage looks up what it needs in the batch and stages its changes there. It must not stage anything if it returns an error.
	stage func(b *batch) error
	// committed, if set, runs after the commit and before the acknowledgement.
	committed func()
	err       error         // the outcome; set before done is closed
	done      chan struct{} // closed by the writer
}

// Limits of one batch. Badger takes 13,105 entries and 1.2 MB in a transaction. A call with more entries, which an import makes, is a
// batch of its own.
const (
	maxBatchEntries = 1000
	maxBatchBytes   = 1 << 20
	entryOverhead   = 32 // bytes Badger counts beside key and value, generously
)

// queue holds the calls in the order in which they came.
type queue struct {
	wake chan struct{} // capacity 1; holds a value while there may be something to take; never closed

	mu sync.Mutex // guards the fields below; never held across I/O
	// +checklocks:mu
	ops []*op
	// +checklocks:mu
	closed bool
}

// put returns false if the queue is closed; then o was not taken and nothing of it will happen.
func (q *queue) put(o *op) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.ops = append(q.ops, o)
	q.signal()
	return true
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

func (q *queue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take waits for calls and returns as many of them, in order, as fit in one batch. It returns nil once the queue is closed and
// empty.
func (q *queue) take() []*op {
	for {
		ops, closed := q.takeNow()
		if ops != nil || closed {
			return ops
		}
		<-q.wake
	}
}

func (q *queue) takeNow() (ops []*op, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var n, entries, bytes int
	for _, o := range q.ops {
		if entries, bytes = entries+o.entries, bytes+o.bytes; n > 0 && (entries > maxBatchEntries || bytes > maxBatchBytes) {
			break
		}
		n++
	}
	if n == 0 {
		return nil, q.closed
	}
	ops, q.ops = q.ops[:n:n], q.ops[n:]
	return ops, false
}
