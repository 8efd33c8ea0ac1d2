package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// guard connects to hosts that forward mode passes on unseen (unlisted: tunnel), and to none where that would be a way round the fence or into
// the proxy's own machine:
//
//   - a name under which clients know a store, at whatever port;
//   - an address at which a store is, at whatever port: another name, or the address itself;
//   - link-local addresses, where clouds keep their credentials, and those of no host;
//   - addresses of this machine, loopback or not, unless the client itself comes from loopback; and then at none of a store's ports, if a store
//     is on this machine: what listens on one of its addresses mostly listens on all.
//
// A connection on which nothing moved for a while is cut, with that of its client.
type guard struct {
	mode   *policies.ForwardMode
	stores []policies.Upstream
	lookup func(context.Context, string) ([]netip.Addr, error)
	own    func() ([]net.Addr, error) // the addresses of this machine
	idle   time.Duration

	mu sync.Mutex // guards the fields below
	// +checklocks:mu
	conns map[*guardedConn]struct{}
	// +checklocks:mu
	closed bool
}

func newGuard(mode *policies.ForwardMode, reverse policies.Upstream) *guard {
	g := &guard{mode: mode, conns: map[*guardedConn]struct{}{}, own: net.InterfaceAddrs, idle: tunnelIdle}
	g.lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}
	for i := range mode.Stores {
		g.stores = append(g.stores, mode.Stores[i].Upstream)
	}
	if reverse.URL != nil {
		g.stores = append(g.stores, reverse)
	}
	return g
}

// tunnelIdle is how long nothing may move on a connection to an unlisted host.
const tunnelIdle = 10 * time.Minute

// errGuarded is why the guard does not connect.
var errGuarded = errors.New("unlisted: tunnel does not lead there: it is a store's own address, or one of this machine")

// dial connects to an unlisted host. The context is that of the client's request.
func (g *guard) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if len(g.mode.NamesAt(strings.ToLower(address))) > 0 { // front has refused it already
		return nil, fmt.Errorf("%w (%s)", errGuarded, host)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	taken, err := g.addresses(ctx)
	if err != nil {
		return nil, err
	}
	local := fromLoopback(ctx)
	here, err := g.here()
	if err != nil {
		return nil, err
	}
	d := net.Dialer{ControlContext: func(_ context.Context, _, at string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(at)
		if err != nil || refused(netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), taken, here, local) {
			return fmt.Errorf("%w (%s)", errGuarded, at)
		}
		return nil
	}}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		c.Close()
		return nil, errGuarded
	}
	return g.keep(ctx, t)
}

// here returns whether an address is one of this machine.
func (g *guard) here() (func(netip.Addr) bool, error) {
	addrs, err := g.own()
	if err != nil {
		return nil, err
	}
	own := map[netip.Addr]bool{}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own[p.Addr().Unmap()] = true
		}
	}
	return func(ip netip.Addr) bool { return ip.IsLoopback() || own[ip] }, nil
}

// awsMetadata is where EC2 keeps credentials under IPv6. Its address is not link-local.
var awsMetadata = netip.MustParseAddr("fd00:ec2::254")

// refused reports whether an address is one that no unlisted host may have.
func refused(to netip.AddrPort, taken []netip.AddrPort, here func(netip.Addr) bool, local bool) bool {
	ip := to.Addr().WithZone("")
	if ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == awsMetadata || here(ip) && !local {
		return true
	}
	for _, t := range taken {
		if t.Addr() == ip && (t.Port() == to.Port() || !here(ip)) || t.Port() == to.Port() && here(t.Addr()) && here(ip) {
			return true
		}
	}
	return false
}

// addresses returns where the stores are now. A store that cannot be found might be anywhere: nothing is connected to then.
func (g *guard) addresses(ctx context.Context) (out []netip.AddrPort, err error) {
	for _, s := range g.stores {
		if s.Socket != "" {
			continue
		}
		hosts := []string{s.URL.Host}
		if s.Dial != "" {
			hosts = append(hosts, s.Dial)
		}
		for i, hostport := range hosts {
			at, _ := policies.Authority(s.URL.Scheme, hostport)
			host, port, err := net.SplitHostPort(at)
			if err != nil {
				return nil, err
			}
			n, err := netip.ParseAddrPort("0.0.0.0:" + port)
			if err != nil {
				return nil, err
			}
			ips, err := g.lookup(ctx, host)
			if err != nil && (i == 1 || s.Dial == "") {
				return nil, fmt.Errorf("the store %s cannot be found, so no unlisted host can be told from it: %w", host, err)
			}
			for _, ip := range ips {
				out = append(out, netip.AddrPortFrom(ip.Unmap(), n.Port()))
			}
		}
	}
	return out, nil
}

// fromLoopback reports whether the client of a request is on this machine.
func fromLoopback(ctx context.Context) bool {
	c, ok := connAs[*net.TCPConn](ctx)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// guardedConn is a connection to an unlisted host.
type guardedConn struct {
	*net.TCPConn
	g     *guard
	timer *time.Timer // cuts it, and its client's, when nothing moves
}

func (g *guard) keep(ctx context.Context, t *net.TCPConn) (net.Conn, error) {
	c := &guardedConn{TCPConn: t, g: g}
	client, _ := ctx.Value(connKey{}).(net.Conn)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		_ = t.Close() // nothing was sent
		return nil, net.ErrClosed
	}
	g.conns[c] = struct{}{}
	c.timer = time.AfterFunc(g.idle, func() {
		_ = c.Close() // it is cut off, as is the client's
		if client != nil {
			_ = client.Close()
		}
	})
	return c, nil
}

// Read implements [net.Conn].
func (c *guardedConn) Read(p []byte) (int, error) { return c.moved(c.TCPConn.Read(p)) }

// Write implements [net.Conn].
func (c *guardedConn) Write(p []byte) (int, error) { return c.moved(c.TCPConn.Write(p)) }

// ReadFrom implements [io.ReaderFrom] by way of Write, which sees what moves.
func (c *guardedConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c}, r)
}

// WriteTo implements [io.WriterTo] by way of Read.
func (c *guardedConn) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

func (c *guardedConn) moved(n int, err error) (int, error) {
	if n > 0 {
		c.timer.Reset(c.g.idle)
	}
	return n, err
}

// Close implements [net.Conn].
func (c *guardedConn) Close() error {
	c.g.mu.Lock()
	delete(c.g.conns, c)
	c.timer.Stop()
	c.g.mu.Unlock()
	return c.TCPConn.Close()
}

// close cuts all connections, and lets none be made.
func (g *guard) close() {
	g.mu.Lock()
	g.closed = true
	conns := g.conns
	g.conns = map[*guardedConn]struct{}{}
	g.mu.Unlock()
	for c := range conns {
		_ = c.TCPConn.Close() // it is cut off
	}
}
