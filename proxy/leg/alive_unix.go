//go:build unix

package leg

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// alive reports whether an idle connection has nothing to be read: neither its end nor bytes that nobody asked for. Such bytes would be
// taken for the answer to the next request.
func (c *conn) alive() bool {
	nc := c.net
	for { // below TLS and other wrappers
		w, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = w.NetConn()
	}
	if c.net.SetReadDeadline(time.Time{}) != nil { // a deadline that has passed would hide what is there
		return false
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return c.drained()
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	var quiet bool
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet && (nc == c.net || c.drained())
}

// drained reports whether a wrapper such as TLS, which reads ahead, holds no bytes either.
func (c *conn) drained() bool {
	if c.net.SetReadDeadline(time.Unix(1, 0)) != nil { // nothing is to come from the network now
		return false
	}
	var b [1]byte
	n, err := c.net.Read(b[:])
	return n == 0 && isTimeout(err)
}
