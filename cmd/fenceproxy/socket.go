package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// socketMode lets the owner and the group of a Unix socket connect.
const socketMode = 0o660

// listenOn listens on host:port, or on unix:///path. The file of a socket is removed when its listener is closed.
func listenOn(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, "unix://")
	if !ok {
		return net.Listen("tcp", address)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	own, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false) // by Close below, which looks whose file it is
	return &socket{Listener: ln, path: path, own: own}, nil
}

// socket is a listener that removes its file when it is closed, and no other that has taken its place.
type socket struct {
	net.Listener
	path string
	own  os.FileInfo
}

// Close implements [net.Listener].
func (s *socket) Close() error {
	err := s.Listener.Close()
	if now, lerr := os.Lstat(s.path); err == nil && lerr == nil && os.SameFile(s.own, now) {
		err = os.Remove(s.path)
	}
	return err
}

// removeStale removes the socket of a process that is gone: nobody answers there.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("listen on %s: it exists and is no socket", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("listen on %s: another process listens there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	return os.Remove(path)
}

// addressOf is how a listener is named to people, and to --admin and --leases.
func addressOf(ln net.Listener) string {
	if a := ln.Addr(); a.Network() == "unix" {
		return "unix://" + a.String()
	}
	return ln.Addr().String()
}
