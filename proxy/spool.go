package proxy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/leg"
	"github.com/fenceproxy/fenceproxy/tokenstore"
)

// spooler takes bodies in before the gate is asked, in memory while they are small and there is room, else in files that have no name
// and so vanish with the process.
type spooler struct {
	memory int64 // longest body kept in memory
	budget int64 // bytes that all bodies together may keep in memory
	max    int64 // longest body taken at all
	dir    string
	floor  uint64 // bytes that stay free on the volume of dir
	used   atomic.Int64
	wrap   func(io.Writer) io.Writer // if set, comes between a body and its file; for tests
}

// bodiesInMemory bounds the memory that spooled bodies share, in bodies of the largest size kept there.
const bodiesInMemory = 64

func newSpooler(c policies.Spool, floor uint64) *spooler {
	dir := c.Dir
	if dir == "" {
		dir = os.TempDir()
	}
	return &spooler{memory: c.Memory, budget: c.Memory * bodiesInMemory, max: c.Max, dir: dir, floor: floor}
}

// errTooLarge is returned for a body above spool.max.
var errTooLarge = errors.New("the body is longer than the proxy takes in")

// spoolError says that the disk refused a body.
type spoolError struct{ err error }

func (e *spoolError) Error() string { return "take the body in: " + e.err.Error() }
func (e *spoolError) Unwrap() error { return e.err }

// full reports whether the reason is a lack of space.
func (e *spoolError) full() bool {
	return errors.Is(e.err, syscall.ENOSPC) || errors.Is(e.err, syscall.EDQUOT)
}

// spooled is a body that was taken in. It can be read more than once.
type spooled struct {
	s    *spooler
	mem  []byte
	file *os.File // nil if the body is in memory
	size int64
}

// take reads r to its end. length is what the client announced, or -1. The error is that of r, errTooLarge, or a [*spoolError].
func (s *spooler) take(r io.Reader, length int64) (*spooled, error) {
	if s.max > 0 && length > s.max {
		return nil, errTooLarge
	}
	room := length
	if length < 0 {
		room = s.memory
	}
	if room <= s.memory && s.reserve(room) {
		b := &spooled{s: s, size: room}
		err := b.fill(r, length)
		if err == nil || !errors.Is(err, errNoRoom) {
			if err != nil {
				b.release()
				return nil, err
			}
			return b, nil
		}
		defer s.used.Add(-room)
		return s.toFile(io.MultiReader(bytes.NewReader(b.mem), r))
	}
	return s.toFile(r)
}

func (s *spooler) reserve(n int64) bool {
	if s.used.Add(n) <= s.budget {
		return true
	}
	s.used.Add(-n)
	return false
}

var errNoRoom = errors.New("longer than what may be kept in memory")

// fill reads r into memory. For a body of unknown length it gives back what it reserved too much.
func (b *spooled) fill(r io.Reader, length int64) error {
	if length >= 0 {
		b.mem = make([]byte, length)
		if _, err := io.ReadFull(r, b.mem); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		// The server delivers end-of-body with the next read, and the client's trailers with that.
		_, err := r.Read(make([]byte, 1))
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		return nil
	}
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(r, b.size+1))
	b.mem = buf.Bytes()
	switch {
	case err != nil:
		return err
	case n > b.size:
		return errNoRoom
	}
	b.s.used.Add(n - b.size)
	b.size = n
	return nil
}

func (s *spooler) toFile(r io.Reader) (_ *spooled, err error) {
	f, err := os.CreateTemp(s.dir, "fenceproxy-body-*")
	if err != nil {
		return nil, &spoolError{err}
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := os.Remove(f.Name()); err != nil {
		return nil, &spoolError{err}
	}
	limited := r
	if s.max > 0 {
		limited = io.LimitReader(r, s.max+1)
	}
	w := &fileWriter{w: f, room: s.room}
	if s.wrap != nil {
		w.w = s.wrap(f)
	}
	n, err := io.CopyBuffer(w, struct{ io.Reader }{limited}, make([]byte, 128<<10))
	switch {
	case w.err != nil:
		return nil, &spoolError{w.err}
	case err != nil:
		return nil, err
	case s.max > 0 && n > s.max:
		return nil, errTooLarge
	}
	return &spooled{s: s, file: f, size: n}, nil
}

// room returns an error when the volume has too little space for another spoolLook bytes: bodies must not take the room that marks need.
func (s *spooler) room() error {
	if s.floor == 0 {
		return nil
	}
	free, err := tokenstore.FreeSpace(s.dir)
	if err == nil && free < s.floor+spoolLook {
		err = syscall.ENOSPC
	}
	return err
}

// spoolLook is how much of a body is written between two looks at the free space.
const spoolLook = 4 << 20

// fileWriter tells errors of the disk from those of the client.
type fileWriter struct {
	w      io.Writer
	room   func() error
	looked int // bytes written since the last look at the free space
	err    error
}

func (w *fileWriter) Write(p []byte) (int, error) {
	if w.looked -= len(p); w.looked < 0 {
		if w.err = w.room(); w.err != nil {
			return 0, w.err
		}
		w.looked = spoolLook
	}
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// open returns the body for reading. length is what is announced to the upstream: that of the client, or -1 for chunks.
func (b *spooled) open(length int64) leg.Body {
	if length > 0 {
		length = b.size
	}
	return &spooledBody{ReadSeeker: b.reader(), length: length}
}

func (b *spooled) reader() io.ReadSeeker {
	if b.file != nil {
		return io.NewSectionReader(b.file, 0, b.size)
	}
	return bytes.NewReader(b.mem)
}

// spooledBody is a body on its way to the upstream.
type spooledBody struct {
	io.ReadSeeker
	length int64
}

// Len implements [leg.Body].
func (b *spooledBody) Len() int64 { return b.length }

// head returns the first most bytes of the body, and one more to show that there is more.
func (b *spooled) head(most int) ([]byte, error) {
	if b.file == nil {
		return b.mem, nil
	}
	mem, err := io.ReadAll(io.LimitReader(b.reader(), int64(most)+1))
	if err != nil {
		return nil, &spoolError{err}
	}
	return mem, nil
}

func (b *spooled) release() {
	if b.file != nil {
		b.file.Close()
		return
	}
	b.s.used.Add(-b.size)
	b.mem = nil
}
