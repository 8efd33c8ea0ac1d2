package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
)

// tunnel is the connection of a client that asked CONNECT for a store.
type tunnel struct {
	net.Conn
	via via
}

// peek returns the first byte and leaves it to be read.
func (t *tunnel) peek() (byte, error) {
	b := make([]byte, 1)
	if _, err := io.ReadFull(t.Conn, b); err != nil {
		return 0, err
	}
	t.Conn = &replayed{Conn: t.Conn, ahead: b}
	return b[0], nil
}

// NetConn returns the client's connection itself.
func (t *tunnel) NetConn() net.Conn { return t.Conn }

// tunnels hands opened tunnels to the server of the requests in them, as a listener does.
type tunnels struct {
	conns  chan net.Conn
	closed chan struct{} // closed by Close
	once   sync.Once
}

func newTunnels() *tunnels { return &tunnels{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (t *tunnels) add(c net.Conn) error {
	select {
	case t.conns <- c:
		return nil
	case <-t.closed:
		return net.ErrClosed
	}
}

// Accept implements [net.Listener].
func (t *tunnels) Accept() (net.Conn, error) {
	select {
	case c := <-t.conns:
		return c, nil
	case <-t.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (t *tunnels) Close() error {
	t.once.Do(func() { close(t.closed) })
	return nil
}

// Addr implements [net.Listener].
func (t *tunnels) Addr() net.Addr { return &net.UnixAddr{Name: "tunnel", Net: "unix"} }

// replayingWriter gives whoever hijacks the connection what the client sent right after its CONNECT. goproxy would lose it.
type replayingWriter struct{ http.ResponseWriter }

// Hijack implements [http.Hijacker].
func (w *replayingWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if n := rw.Reader.Buffered(); n > 0 {
		ahead, err := rw.Reader.Peek(n)
		if err != nil {
			conn.Close()
			return nil, nil, err
		}
		conn = &replayed{Conn: conn, ahead: append([]byte(nil), ahead...)}
		rw = bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	}
	return conn, rw, nil
}

// replayed is a connection of which something was read already.
type replayed struct {
	net.Conn
	ahead []byte
}

func (c *replayed) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// NetConn returns the connection itself.
func (c *replayed) NetConn() net.Conn { return c.Conn }
