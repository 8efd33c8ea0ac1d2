package proxy_test

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

var errNoSpace error = syscall.ENOSPC

// newTLSRig serves yaml before an upstream that speaks bytes over TLS.
func newTLSRig(t *testing.T, yaml string, serve func(c *wireConn, n int)) *rig {
	t.Helper()
	pattern := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	t.Cleanup(pattern.Close)
	config := &tls.Config{Certificates: pattern.TLS.Certificates}
	url := wire(t, func(c *wireConn, n int) {
		secure := tls.Server(c.Conn, config)
		serve(&wireConn{secure, bufio.NewReader(secure)}, n)
	})
	return newRig(t, strings.Replace(url, "http://", "https://", 1), "upstream: {tls: {ca: "+caFile(t, pattern)+"}}\n"+yaml)
}

func caFile(t *testing.T, srv *httptest.Server) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestUpstreamOverTLS(t *testing.T) {
	store := newPlainStore()
	up := httptest.NewUnstartedServer(store)
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.StartTLS()
	t.Cleanup(up.Close)
	trusted := newRig(t, up.URL, "upstream: {tls: {ca: "+caFile(t, up)+"}}\n"+defaultYAML)
	trusted.put("/a", 33, "x", 201, "admitted")
	trusted.put("/a", 32, "x", 412, "stale")
	stranger := newRig(t, up.URL, defaultYAML)
	got := stranger.put("/a", 33, "y", 502, "admitted")
	if !strings.Contains(got.body, `"forwarded": "no"`) || store.get("/a") != "x" {
		t.Errorf("an upstream that cannot be verified = %v", got)
	}
	if s := stranger.gate.Stats(); s.InFlight+s.InDoubt != 0 {
		t.Errorf("the gate holds %+v", s)
	}
}

func TestUpstreamOnAUnixSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "fp") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	up := &recorder{requests: make(chan string, 8)}
	serveWire(t, ln, func(c *wireConn, _ int) {
		for {
			req, err := c.request()
			if err != nil {
				return
			}
			up.requests <- req
			c.say(okAnswer)
		}
	})
	r := newRig(t, "unix://"+filepath.Join(dir, "s"), defaultYAML)
	if got := r.must("PUT", "/a", "x", "Fencing-Token", "33", "Host", "client.test"); got.code != 200 {
		t.Errorf("PUT = %v; want 200", got)
	}
	if got := <-up.requests; !strings.Contains(got, "\r\nHost: client.test\r\n") {
		t.Errorf("the upstream saw %q", got)
	}
}

func TestEnvironmentProxyIsIgnored(t *testing.T) {
	up, url := record(t, okAnswer)
	r := newRig(t, url, defaultYAML)
	for _, p := range r.proxy.TransportProxies() {
		if p {
			t.Errorf("a transport would go through a proxy of the environment")
		}
	}
	r.put("/a", 1, "x", 200, "admitted")
	if n := len(up.requests); n != 1 {
		t.Errorf("the upstream saw %d requests; want 1", n)
	}
}
