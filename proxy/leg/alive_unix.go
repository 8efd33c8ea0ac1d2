//go:build unix

package leg

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// peeker looks at what waits on a connection. It is made once for each, since one request allocates as little as it can.
type peeker struct {
	raw     syscall.RawConn // nil if there is no socket to look at
	wrapped bool            // TLS or another wrapper stands between the socket and the requests
	look    func(fd uintptr)
	quiet   bool // what look found: nothing to be read, and no end
}

func newPeeker(nc net.Conn) *peeker {
	p := &peeker{}
	for { // below TLS and other wrappers
		w, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc, p.wrapped = w.NetConn(), true
	}
	if sc, ok := nc.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn() // without it drained looks
	}
	p.look = func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		p.quiet = errors.Is(err, syscall.EAGAIN)
	}
	return p
}

// alive reports whether an idle connection has nothing to be read: neither its end nor bytes that nobody asked for. Such bytes would be
// taken for the answer to the next request.
func (c *conn) alive() bool {
	if c.peek == nil {
		c.peek = newPeeker(c.net)
	}
	p := c.peek
	if p.raw == nil {
		return c.drained()
	}
	p.quiet = false
	// Control and not Read, which does not look at all when the deadline of the last exchange has passed.
	err := p.raw.Control(p.look)
	return err == nil && p.quiet && (!p.wrapped || c.drained())
}

// drained reports whether a wrapper such as TLS, which reads ahead, holds no bytes either.
func (c *conn) drained() bool {
	c.deadline.Store(0)                                // the next exchange has to set its own
	if c.net.SetReadDeadline(time.Unix(1, 0)) != nil { // nothing is to come from the network now
		return false
	}
	var b [1]byte
	n, err := c.net.Read(b[:])
	return n == 0 && isTimeout(err)
}
