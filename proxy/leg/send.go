package leg

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// own are the headers that the client writes itself.
var own = map[string]bool{"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true, "Connection": true}

// head writes the head of the request.
func (r *Request) head(b *bytes.Buffer) error {
	b.WriteString(r.Method)
	b.WriteByte(' ')
	b.WriteString(r.Target)
	b.WriteString(" HTTP/1.1\r\nHost: ")
	b.WriteString(r.Host)
	b.WriteString("\r\n")
	if strings.ContainsAny(r.Target, " \r\n\t\x00") || strings.ContainsAny(r.Host, "\r\n") || r.Target == "" {
		return fmt.Errorf("the request target %q cannot be sent", r.Target)
	}
	if err := r.Header.WriteSubset(b, own); err != nil {
		return err
	}
	switch n := r.length(); {
	case n < 0:
		b.WriteString("Transfer-Encoding: chunked\r\n")
		if len(r.Trailer) > 0 {
			names := make([]string, 0, len(r.Trailer))
			for name := range r.Trailer {
				names = append(names, name)
			}
			b.WriteString("Trailer: " + strings.Join(names, ", ") + "\r\n")
		}
	case n > 0 || r.Method == http.MethodPut || r.Method == http.MethodPost || r.Method == http.MethodPatch:
		b.WriteString("Content-Length: ")
		b.Write(strconv.AppendInt(b.AvailableBuffer(), n, 10))
		b.WriteString("\r\n")
	}
	b.WriteString("\r\n")
	return nil
}

func (r *Request) length() int64 {
	if r.Body == nil {
		return 0
	}
	return r.Body.Len()
}

// unread reports whether the body can still be sent from its beginning.
func (r *Request) unread() bool {
	if r.Body == nil {
		return true
	}
	s, ok := r.Body.(io.Seeker)
	if !ok {
		return false
	}
	_, err := s.Seek(0, io.SeekStart)
	return err == nil
}

// send writes the request: in one piece with a short body, and by a goroutine of its own where the body is long, since the upstream may
// answer before it has taken all of it.
func (c *conn) send(r *Request) (*sending, error) {
	b := buffers.Get().(*bytes.Buffer)
	defer func() {
		if b.Cap() <= 2*smallBody {
			b.Reset()
			buffers.Put(b)
		}
	}()
	if err := r.head(b); err != nil {
		return nil, err
	}
	n := r.length()
	if n >= 0 && n <= smallBody {
		if n > 0 {
			if m, err := io.CopyN(b, r.Body, n); err != nil {
				return nil, fmt.Errorf("read the request's body: %d of %d bytes: %w", m, n, err)
			}
		}
		return nil, c.write(b.Bytes())
	}
	if err := c.write(b.Bytes()); err != nil {
		return nil, err
	}
	s := &sending{done: make(chan struct{})}
	go s.run(c, r) // ends when the body is sent or the connection is closed
	return s, nil
}

// sending is a long body on its way.
type sending struct {
	done chan struct{} // closed by run
	err  error         // why it did not get all the way; valid once done is closed
}

func (s *sending) run(c *conn, r *Request) {
	defer close(s.done)
	buf := make([]byte, 64<<10)
	n := r.Body.Len()
	chunked := n < 0
	var sent int64
	for {
		// A chunk's size has at most four hexadecimal digits here; leave room for it before the data.
		const room = 6
		m, err := r.Body.Read(buf[room : len(buf)-2])
		if m > 0 {
			p := buf[room : room+m]
			if chunked {
				p = frame(buf, room, m)
			} else if sent += int64(m); sent > n {
				s.err = errors.New("the request's body is longer than its Content-Length")
				c.net.Close()
				return
			}
			if s.err = c.write(p); s.err != nil {
				return
			}
			c.progress()
		}
		switch {
		case errors.Is(err, io.EOF):
			s.end(c, r, chunked, sent)
			return
		case err != nil:
			s.err = fmt.Errorf("read the request's body: %w", err)
			c.net.Close() // the upstream must not take what came for the whole
			return
		}
	}
}

// frame puts the size of a chunk before its data and a line end behind it.
func frame(buf []byte, room, m int) []byte {
	size := strconv.FormatInt(int64(m), 16) + "\r\n"
	copy(buf[room-len(size):], size)
	copy(buf[room+m:], "\r\n")
	return buf[room-len(size) : room+m+2]
}

func (s *sending) end(c *conn, r *Request, chunked bool, sent int64) {
	if !chunked {
		if sent < r.Body.Len() {
			s.err = io.ErrUnexpectedEOF
			c.net.Close()
		}
		return
	}
	var b bytes.Buffer
	b.WriteString("0\r\n")
	_ = r.Trailer.Write(&b) // into memory
	b.WriteString("\r\n")
	s.err = c.write(b.Bytes())
}

// finished reports whether the body was sent whole, waiting a moment for it.
func (s *sending) finished() bool {
	if s == nil {
		return true
	}
	select {
	case <-s.done:
		return s.err == nil
	case <-time.After(writerPatience):
		return false
	}
}

// abandon closes the connection and waits until nobody reads the body any more.
func (s *sending) abandon(c *conn) {
	c.net.Close()
	if s != nil {
		<-s.done
	}
}
