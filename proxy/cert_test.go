package proxy_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// replace puts the content of from into to under another inode, as certbot and Kubernetes do.
func replace(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to+".new", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(to+".new", to); err != nil {
		t.Fatal(err)
	}
}

// certRig is a server whose certificate the test replaces.
type certRig struct {
	*proxy.Server
	addr string
	logs *syncBuffer
}

func newCertRig(t *testing.T, l *policies.ListenerTLS) *certRig {
	t.Helper()
	r := &certRig{logs: &syncBuffer{}}
	s, err := proxy.NewServer(http.NotFoundHandler(), l, slog.New(slog.NewTextHandler(r.logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() {
		_ = s.Shutdown(t.Context())
		if err := receive(t, "Serve returns", served); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	r.Server, r.addr = s, ln.Addr().String()
	return r
}

// shows returns the certificate that a new client gets to see. mine are the client's own.
func (r *certRig) shows(mine ...tls.Certificate) (string, error) {
	conn, err := tls.Dial("tcp", r.addr, &tls.Config{InsecureSkipVerify: true, Certificates: mine})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
		return "", err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // a certificate that is refused shows here, in TLS 1.3
		return "", err
	}
	return string(conn.ConnectionState().PeerCertificates[0].Raw), nil
}

func (r *certRig) wantShown(t *testing.T, want tls.Certificate, mine ...tls.Certificate) {
	t.Helper()
	if got, err := r.shows(mine...); err != nil || got != string(want.Certificate[0]) {
		t.Errorf("the server shows another certificate than wanted (%v)", err)
	}
}

func TestCertificateIsReadAgainOnReload(t *testing.T) {
	first, cert, key := selfSigned(t)
	second, cert2, key2 := selfSigned(t)
	r := newCertRig(t, &policies.ListenerTLS{Cert: cert, Key: key})
	r.wantShown(t, first)
	replace(t, key, key2)
	if err := r.Reload(); err == nil || !strings.Contains(err.Error(), "listen.tls: the certificate "+cert+" and the key "+key+" cannot be used together: ") {
		t.Errorf("Reload of a key without its certificate: %v", err)
	}
	r.wantShown(t, first)
	replace(t, cert, cert2)
	if err := r.Reload(); err != nil {
		t.Errorf("Reload: %v", err)
	}
	if err := r.Reload(); err != nil { // nothing has changed
		t.Errorf("Reload: %v", err)
	}
	r.wantShown(t, second)
	if n := strings.Count(r.logs.String(), "a changed certificate is in use"); n != 1 {
		t.Errorf("a new pair was logged %d times; want once:\n%s", n, r.logs)
	}
}

func TestCertificateThatChangesIsNoticed(t *testing.T) {
	first, cert, key := selfSigned(t)
	second, cert2, key2 := selfSigned(t)
	r := newCertRig(t, &policies.ListenerTLS{Cert: cert, Key: key})
	r.LookAtEachHandshake()
	r.wantShown(t, first)
	replace(t, key, key2) // a broken pair
	for range 3 {
		r.wantShown(t, first)
	}
	if n := strings.Count(r.logs.String(), "a changed certificate cannot be used"); n != 1 {
		t.Errorf("a broken pair was logged %d times; want once:\n%s", n, r.logs)
	}
	replace(t, cert, cert2)
	r.wantShown(t, second)
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	r.wantShown(t, second)
}

func TestClientAuthoritiesThatChangeAreNoticed(t *testing.T) {
	server, cert, key := selfSigned(t)
	alice, ca, _ := selfSigned(t)
	bob, ca2, _ := selfSigned(t)
	r := newCertRig(t, &policies.ListenerTLS{Cert: cert, Key: key, ClientCA: ca})
	r.LookAtEachHandshake()
	r.wantShown(t, server, alice)
	if _, err := r.shows(bob); err == nil {
		t.Errorf("a certificate of another authority was accepted")
	}
	replace(t, ca, ca2)
	r.wantShown(t, server, bob)
	if _, err := r.shows(alice); err == nil {
		t.Errorf("a certificate of the authority from before is still accepted")
	}
}
