package leg

import (
	"context"
	"errors"
	"io"
	"sync"
)

// answer is the body of the upstream's answer. When it was read to its end the connection is kept; when it is closed before that, the
// connection is reset. Read and Close may run at the same time.
type answer struct {
	conn     *conn
	from     io.ReadCloser
	sending  *sending
	ctx      context.Context
	stop     func() bool // ends the watch on ctx; nil if there is none
	reusable bool

	once sync.Once
	err  error // what Read returns after the end; by the one goroutine that reads
}

// Read implements [io.Reader]. Its error is [io.EOF] at the end of the answer, and otherwise an [*Error].
func (a *answer) Read(p []byte) (int, error) {
	if a.err != nil {
		return 0, a.err
	}
	a.conn.progress() // the time that the caller took since the last read is not the upstream's silence
	n, err := a.from.Read(p)
	if err == nil {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		a.finish(true)
		a.err = io.EOF
	} else {
		a.finish(false)
		a.err = failure(a.ctx, true, err)
	}
	return n, a.err
}

// Close implements [io.Closer].
func (a *answer) Close() error {
	a.finish(false)
	return nil
}

// finish keeps the connection, or resets it. Once it returns nobody reads the request's body any more.
func (a *answer) finish(whole bool) {
	a.once.Do(func() {
		watched := a.stop == nil || a.stop()
		// The rest of a request that the upstream did not care for must not be taken for the next one.
		if whole && watched && a.reusable && a.conn.r.Buffered() == 0 && a.sending.finished() {
			a.conn.client.put(a.conn)
			return
		}
		a.sending.abandon(a.conn)
	})
}
