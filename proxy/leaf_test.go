package proxy

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

func testLeaves(t *testing.T, life time.Duration, hosts ...string) (*leaves, *x509.CertPool) {
	t.Helper()
	ca, err := NewCA("test", hosts, life)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := policies.CertFiles{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key")}
	if err := ca.WriteFiles(files); err != nil {
		t.Fatal(err)
	}
	l, err := newLeaves(files, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Cert)
	return l, roots
}

func TestLeavesVouchForTheirHostAlone(t *testing.T) {
	l, roots := testLeaves(t, time.Hour, "s3.test", "127.0.0.1")
	for _, tt := range []struct {
		host, asked string
		good        bool
	}{
		{"s3.test", "s3.test", true},
		{"b.s3.test", "b.s3.test", true},
		{"s3.test", "b.s3.test", false},
		{"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false},
		{"127.0.0.2", "127.0.0.2", false}, // the CA may not
		{"xs3.test", "xs3.test", false},
		{"::1", "::1", false},
	} {
		c, err := l.certificate(tt.host)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: tt.asked}); (err == nil) != tt.good {
			t.Errorf("the certificate of %s for %s: %v; want it good %v", tt.host, tt.asked, err, tt.good)
		}
	}
}

func TestLeavesAreKeptAndRenewedAndBounded(t *testing.T) {
	l, _ := testLeaves(t, 30*time.Hour)
	now := time.Now()
	l.now = func() time.Time { return now }
	get := func(host string) *x509.Certificate {
		c, err := l.certificate(host)
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf
	}
	first := get("a.test")
	if get("a.test") != first {
		t.Error("a second certificate was made for one host")
	}
	now = now.Add(leafLife - leafRenewal + time.Minute)
	second := get("a.test")
	if second == first || !second.NotAfter.After(first.NotAfter) {
		t.Error("a certificate near its end was not made anew")
	}
	if last := l.ca.Leaf.NotAfter; second.NotAfter.After(last) {
		t.Errorf("a certificate is good until %v, after its CA's %v", second.NotAfter, last)
	}
	for i := range 2 * maxLeaves {
		get(fmt.Sprintf("b%d.test", i))
	}
	l.mu.Lock()
	n := len(l.certs)
	l.mu.Unlock()
	if n > maxLeaves {
		t.Errorf("%d certificates are kept; want at most %d", n, maxLeaves)
	}
	now = now.Add(30 * time.Hour)
	if _, err := l.certificate("c.test"); err == nil {
		t.Error("a certificate was made with a CA that has expired")
	}
}

func TestGuardConnectsToNoWayRound(t *testing.T) {
	taken := []netip.AddrPort{netip.MustParseAddrPort("10.0.0.7:443"), netip.MustParseAddrPort("127.0.0.1:9000"), netip.MustParseAddrPort("[2001:db8::7]:443")}
	here := func(ip netip.Addr) bool { return ip.IsLoopback() || ip == netip.MustParseAddr("10.0.0.1") }
	for _, tt := range []struct {
		to      string
		local   bool // the client is on this machine
		refused bool
	}{
		{"10.0.0.7:443", false, true},
		{"10.0.0.7:80", false, true}, // the store at another port
		{"10.0.0.8:443", false, false},
		{"[2001:db8::7]:9000", true, true},
		{"[2001:db8::8]:443", false, false},
		{"127.0.0.1:9000", true, true},
		{"127.0.0.1:9001", true, false},
		{"127.0.0.1:8081", false, true}, // the admin listener, for others than this machine
		{"[::1]:8081", false, true},
		{"0.0.0.0:9000", true, true},
		{"[::]:9000", true, true},
		{"169.254.169.254:80", false, true},
		{"[fe80::1]:80", false, true},
		{"224.0.0.1:80", false, true},
		{"[fd00:ec2::254]:80", false, true},
		{"127.0.0.2:9000", true, true}, // the store listens on all addresses, perhaps
		{"[::1]:9000", true, true},
		{"10.0.0.1:9000", true, true},
		{"10.0.0.1:9001", true, false},
		{"10.0.0.1:8081", false, true},
	} {
		if got := refused(netip.MustParseAddrPort(tt.to), taken, here, tt.local); got != tt.refused {
			t.Errorf("refused(%s, local %v) = %v; want %v", tt.to, tt.local, got, tt.refused)
		}
	}
}

func TestGuardKnowsStoresByNameAndAddress(t *testing.T) {
	cfg, err := policies.Load("test.yaml", []byte(`
unmatched_writes: fence
forward: {listen: "127.0.0.1:0", unlisted: tunnel, upstreams: [{url: "http://s3.test", aliases: ["http://*.s3.test"]}]}
defaults: {dialect: s3, identity: {virtual_host_base: s3.test}}
`), policies.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	g := newGuard(&cfg.Forward, policies.Upstream{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:" + port}})
	lost := false
	g.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if lost {
			return nil, errors.New("no such host")
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil // s3.test and the upstream
	}
	for _, to := range []string{"s3.test:81", "S3.test.:443", "b.s3.test:80", "127.0.0.1:" + port, "127.0.0.1:80"} {
		if c, err := g.dial(t.Context(), "tcp", to); !errors.Is(err, errGuarded) {
			t.Errorf("dial %s = %v, %v; want errGuarded", to, c, err)
		}
	}
	lost = true
	if c, err := g.dial(t.Context(), "tcp", "127.0.0.2:"+port); err == nil || !strings.Contains(err.Error(), "cannot be found") {
		t.Errorf("dial while the stores cannot be found = %v, %v; want an error that says so", c, err)
	}
}

func TestGuardCutsWhatIsIdle(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, other := net.Pipe()
	defer other.Close()
	g := newGuard(&policies.ForwardMode{}, policies.Upstream{})
	g.idle = 2 * time.Second
	g.own = func() ([]net.Addr, error) { return nil, nil }
	ctx := context.WithValue(t.Context(), connKey{}, client)
	if _, err := g.dial(ctx, "tcp", ln.Addr().String()); !errors.Is(err, errGuarded) {
		t.Fatalf("loopback for a client of whom nothing is known: %v; want errGuarded", err)
	}
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := g.keep(ctx, raw.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	host, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // longer than what is idle
		if _, err := host.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatalf("cut while something moved: %v", err)
		}
		time.Sleep(800 * time.Millisecond) // a host that takes its time
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("an idle connection: %v; want it closed", err)
	}
	if _, err := other.Read(make([]byte, 1)); err == nil {
		t.Error("the client's connection was left open")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.conns) != 0 {
		t.Errorf("%d connections are kept in mind; want none", len(g.conns))
	}
}
