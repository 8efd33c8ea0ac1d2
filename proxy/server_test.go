package proxy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// selfSigned writes a certificate that is its own authority, and its key.
func selfSigned(t *testing.T) (pair tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pair, err = tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair, certFile, keyFile
}

// startServer serves h until the test ends.
func startServer(t *testing.T, h http.Handler, listener *policies.ListenerTLS) (*proxy.Server, string) {
	t.Helper()
	s, err := proxy.NewServer(h, listener, slog.New(slog.DiscardHandler))
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
		_ = s.Shutdown(context.Background())
		if err := receive(t, "Serve returns", served); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return s, ln.Addr().String()
}

func TestListenerTLSWithClientCertificates(t *testing.T) {
	pair, cert, key := selfSigned(t)
	stranger, _, _ := selfSigned(t)
	_, addr := startServer(t, http.NotFoundHandler(), &policies.ListenerTLS{Cert: cert, Key: key, ClientCA: cert})
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(t, pair))
	for _, tt := range []struct {
		name  string
		certs []tls.Certificate
		old   bool
		ok    bool
	}{{"right", []tls.Certificate{pair}, false, true}, {"none", nil, false, false}, {"stranger", []tls.Certificate{stranger}, false, false}, {"TLS 1.1", []tls.Certificate{pair}, true, false}} {
		t.Run(tt.name, func(t *testing.T) {
			config := &tls.Config{RootCAs: pool, Certificates: tt.certs, NextProtos: []string{"h2", "http/1.1"}}
			if tt.old {
				config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			}
			tr := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Get("https://" + addr + "/")
			if (err == nil) != tt.ok {
				t.Errorf("got %v; want success: %v", err, tt.ok)
			}
			if err == nil {
				resp.Body.Close()
				if resp.ProtoMajor != 2 {
					t.Errorf("it speaks %s; want HTTP/2", resp.Proto)
				}
			}
		})
	}
}

func mustParse(t *testing.T, pair tls.Certificate) *x509.Certificate {
	t.Helper()
	c, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBadFilesAreReportedAtStart(t *testing.T) {
	_, cert, key := selfSigned(t)
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, l := range []policies.ListenerTLS{{Cert: "/nowhere", Key: key}, {Cert: cert, Key: cert}, {Cert: cert, Key: key, ClientCA: "/nowhere"}, {Cert: cert, Key: key, ClientCA: junk}} {
		if _, err := proxy.NewServer(http.NotFoundHandler(), &l, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v was accepted", l)
		}
	}
	for _, ca := range []string{"/nowhere", junk} {
		cfg, err := policies.Load("x.yaml", []byte("upstream: {url: 'https://x', tls: {ca: "+ca+"}}\nunmatched_writes: fence"), policies.Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proxy.New(proxy.Config{Upstream: cfg.Upstream, Spool: cfg.Spool, Policies: cfg.Policies}); err == nil {
			t.Errorf("the authority %s was accepted", ca)
		}
	}
}

func TestShutdownWaitsForRequestsUnderWay(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s, addr := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-end
		_, _ = io.WriteString(w, "done")
	}), nil)
	got := make(chan string, 1)
	go func() {
		resp, err := client.Get("http://" + addr + "/")
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got <- string(b)
	}()
	receive(t, "the request", begun)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(context.Background()) }()
	eventually(t, "nobody is accepted any more", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	select {
	case err := <-stopped:
		t.Errorf("Shutdown returned %v with a request under way", err)
	default:
	}
	close(end)
	if body := receive(t, "the answer", got); body != "done" {
		t.Errorf("the answer is %q", body)
	}
	if err := receive(t, "Shutdown returns", stopped); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestShutdownCutsOffWhenItsTimeIsOver(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s, addr := startServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(ended)
	}), nil)
	go func() {
		if resp, err := client.Get("http://" + addr + "/"); err == nil {
			resp.Body.Close()
		}
	}()
	receive(t, "the request", begun)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown = %v; want the context's error", err)
	}
	receive(t, "the request is cut off", ended)
}
