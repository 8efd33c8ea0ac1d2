package tokenstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// ImportResult says what an import did.
type ImportResult struct {
	Marks  int    `json:"marks"`  // in the export
	Raised int    `json:"raised"` // marks that are new or higher now
	Kept   int    `json:"kept"`   // marks that were as high already
	Store  string `json:"store"`  // id of the store that wrote the export
	Seq    uint64 `json:"seq"`    // its batch at the time
}

const (
	maxExportLine = 64 << 10 // a resource of 4 KiB may take six times that when it is escaped
	importChunk   = 5000     // marks in one transaction, unless [maxBatchBytes] is less: each costs a sync
	throughChunk  = 1000     // marks that are raised at once while the store is in use
)

// Import merges an export into the store: each resource keeps the higher of the two marks. Nothing is changed before the whole
// input was read and found complete and unaltered; otherwise the error wraps [ErrImport] and names the line. An import that is
// interrupted by anything else has raised some marks and not others; it can be run again.
//
// The input is kept in a file without a name on the store's volume meanwhile.
func (s *Store) Import(r io.Reader) (ImportResult, error) {
	return s.importFrom(r, importChunk, s.merge)
}

// ImportThrough is Import for a store in use: raise is called for each mark, by several goroutines, in place of Advance, and reports
// whether the mark rose.
func (s *Store) ImportThrough(r io.Reader, raise func(fencing.ResourceMark) (bool, error)) (ImportResult, error) {
	return s.importFrom(r, throughChunk, func(chunk []fencing.ResourceMark) (int, error) {
		var (
			wg     sync.WaitGroup
			mu     sync.Mutex // guards raised and errs
			raised int
			errs   []error
		)
		for _, m := range chunk {
			wg.Go(func() {
				up, err := raise(m)
				mu.Lock()
				defer mu.Unlock()
				if up {
					raised++
				}
				if err != nil {
					errs = append(errs, err)
				}
			})
		}
		wg.Wait()
		return raised, errors.Join(errs...)
	})
}

// mergeFunc raises some marks, durably, and returns how many rose.
type mergeFunc func([]fencing.ResourceMark) (raised int, err error)

func (s *Store) importFrom(r io.Reader, most int, merge mergeFunc) (ImportResult, error) {
	res, err := s.importVerified(r, most, merge)
	if err != nil {
		return res, fmt.Errorf("import: %w", err)
	}
	return res, nil
}

func (s *Store) importVerified(r io.Reader, most int, merge mergeFunc) (res ImportResult, err error) {
	if err := s.Err(); err != nil {
		return res, err
	}
	spool, err := os.CreateTemp(s.dir, "import-*.tmp")
	if err != nil {
		return res, err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return res, err
	}
	out := &spaceWriter{w: spool, check: func() error { return s.space.look(s.space.reserve) }}
	end, err := readExport(io.TeeReader(r, out), func(fencing.ResourceMark) error { return nil })
	if err != nil {
		return res, err
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return res, err
	}
	res.Store, res.Seq = end.Store, end.Seq
	c := chunks{most: most, merge: merge, res: &res}
	// The second pass checks again: a spool that reads back differently is no longer what was verified.
	_, err = readExport(spool, c.add)
	if err == nil {
		err = c.flush()
	}
	return res, errors.Join(err, c.wait())
}

// chunks merges marks a chunk at a time. One chunk is being made durable while the next is read.
type chunks struct {
	most  int // marks in a chunk
	merge mergeFunc
	res   *ImportResult // counts what was merged; written by wait only

	next    []fencing.ResourceMark
	bytes   int // of next
	running int // marks of the chunk that is being merged
	raised  int
	err     error
	done    chan struct{} // closed by the goroutine that merges, after it has set raised and err; nil if there is none
}

func (c *chunks) add(m fencing.ResourceMark) error {
	n := markBytes(m.Resource, m.Mark)
	if len(c.next) == c.most || c.bytes+n > maxBatchBytes {
		if err := c.flush(); err != nil {
			return err
		}
	}
	c.next, c.bytes = append(c.next, m), c.bytes+n
	return nil
}

// flush begins to merge the next chunk once the last one is durable.
func (c *chunks) flush() error {
	if err := c.wait(); err != nil || len(c.next) == 0 {
		return err
	}
	ms := c.next
	c.next, c.bytes, c.running, c.done = make([]fencing.ResourceMark, 0, len(ms)), 0, len(ms), make(chan struct{})
	go func() { // wait waits for it, on every way out of the import
		c.raised, c.err = c.merge(ms)
		close(c.done)
	}()
	return nil
}

// wait returns once nothing is being merged. It returns each error once.
func (c *chunks) wait() error {
	if c.done == nil {
		return nil
	}
	<-c.done
	c.done = nil
	c.res.Raised += c.raised
	c.res.Kept += c.running - c.raised
	c.res.Marks += c.running
	return c.err
}

// merge advances the marks of one chunk and returns how many rose.
func (s *Store) merge(ms []fencing.ResourceMark) (raised int, err error) {
	o := &op{entries: len(ms)}
	for i, m := range ms {
		o.bytes += markBytes(m.Resource, m.Mark)
		ms[i].Mark.Draining = m.Mark.Draining || s.unclean // see Set
	}
	o.stage = func(b *batch) error {
		for _, m := range ms {
			if _, err := b.mark(m.Resource); err != nil {
				return err
			}
		}
		for _, m := range ms {
			cur, err := b.mark(m.Resource)
			if err != nil {
				return err
			}
			if err := advance(b, m); err != nil {
				return err
			}
			if !cur.ok || cur.mark.Token.Less(m.Mark.Token) {
				raised++
			}
		}
		return nil
	}
	if err := s.submit(o); err != nil {
		return 0, err
	}
	return raised, nil
}

// readExport reads a whole export and calls fn for each mark. It fails unless the last line vouches for all before it.
func readExport(r io.Reader, fn func(fencing.ResourceMark) error) (end trailer, err error) {
	refuse := func(line uint64, format string, args ...any) (trailer, error) {
		return trailer{}, fmt.Errorf("%w: line %d: %w; nothing was changed, export again from the source", ErrImport, line, fmt.Errorf(format, args...))
	}
	br := bufio.NewReaderSize(r, maxExportLine)
	hash := sha256.New()
	for n := uint64(1); ; n++ {
		line, err := br.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return refuse(n, "it is longer than %d bytes", maxExportLine)
		case errors.Is(err, io.EOF):
			return refuse(n, "the export ends here, without its last line {\"trailer\": ...}: it was cut short")
		case err != nil:
			return trailer{}, fmt.Errorf("line %d: %w", n, err)
		}
		if bytes.HasPrefix(line, []byte(`{"trailer":`)) {
			if err := strictJSON(line, &end); err != nil {
				return refuse(n, "the last line cannot be read (%w)", err)
			}
			switch _, err := br.ReadByte(); {
			case end.Trailer != exportVersion:
				return refuse(n, "the export has version %d and this program reads %d", end.Trailer, exportVersion)
			case end.Marks != n-1:
				return refuse(n, "it speaks of %d marks and there are %d", end.Marks, n-1)
			case end.SHA256 != hex.EncodeToString(hash.Sum(nil)):
				return refuse(n, "the checksum is wrong: a line before this one was altered")
			case !errors.Is(err, io.EOF):
				return refuse(n+1, "there is something after the last line")
			}
			return end, nil
		}
		hash.Write(line)
		var l exportLine
		if err := strictJSON(line, &l); err != nil {
			return refuse(n, "it is not a mark (%w)", err)
		}
		m, err := l.mark()
		if err != nil {
			return refuse(n, "%w", err)
		}
		if err := fn(m); err != nil {
			return trailer{}, err
		}
	}
}

// strictJSON decodes one line that holds one object with known keys only.
func strictJSON(line []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	// Asking the decoder for another token would have it make its buffer four times as large, for each line.
	if len(bytes.Trim(line[d.InputOffset():], " \t\r\n")) > 0 {
		return errors.New("there is more than one value")
	}
	return nil
}

// spaceWriter refuses to fill the volume.
type spaceWriter struct {
	w     io.Writer
	check func() error
	since int // bytes since the last check
	begun bool
}

func (s *spaceWriter) Write(p []byte) (int, error) {
	if s.since += len(p); !s.begun || s.since > spaceBytes {
		s.begun, s.since = true, 0
		if err := s.check(); err != nil {
			return 0, err
		}
	}
	return s.w.Write(p)
}
