//go:build unix

package leg

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// alive reports whether an idle connection has nothing to be read: neither its end nor bytes that nobody asked for.
func (c *conn) alive() bool {
	nc := c.net
	for { // below TLS and other wrappers
		w, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		nc = w.NetConn()
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	if c.net.SetReadDeadline(time.Time{}) != nil { // a deadline that has passed would hide what is there
		return false
	}
	var quiet bool
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}
