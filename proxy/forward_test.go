package proxy_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// forwardRig is a rig with a forward listener.
type forwardRig struct {
	*rig
	forward string         // its address
	roots   *x509.CertPool // the CA that clients trust
	stop    func(context.Context) error
}

// storeCert writes what identifies an httptest server with TLS, whose certificate is for example.com and what lies below.
func storeCert(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "store.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newForwardRig serves yaml, whose forward section has {CA} where the files of a new CA belong, and the reverse upstream.
func newForwardRig(t *testing.T, upstream, yaml string, hosts ...string) *forwardRig {
	t.Helper()
	dir := t.TempDir()
	files := policies.CertFiles{Cert: filepath.Join(dir, "ca.pem"), Key: filepath.Join(dir, "ca.key")}
	ca, err := proxy.NewCA("test", hosts, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.WriteFiles(files); err != nil {
		t.Fatal(err)
	}
	yaml = strings.ReplaceAll(yaml, "{CA}", fmt.Sprintf("{cert: %s, key: %s}", files.Cert, files.Key))
	r := &forwardRig{rig: newRig(t, upstream, yaml), roots: x509.NewCertPool()}
	r.roots.AddCert(ca.Cert)
	cfg, err := policies.Load("test.yaml", []byte(yaml), policies.Overrides{UpstreamURL: upstream})
	if err != nil {
		t.Fatal(err)
	}
	fw, err := r.proxy.NewForward(cfg.Forward)
	if err != nil {
		t.Fatal(err)
	}
	server, err := fw.NewServer(cfg.Forward.Listen.TLS)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.forward = ln.Addr().String()
	served := make(chan error, 2)
	go func() { served <- server.Serve(ln) }()
	go func() { served <- fw.Serve() }()
	stopped := false
	r.stop = func(ctx context.Context) error {
		if stopped {
			return nil
		}
		stopped = true
		if err := server.Shutdown(ctx); err != nil {
			return err
		}
		return fw.Shutdown(ctx)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := r.stop(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		for range 2 {
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
	})
	return r
}

// client is one that HTTP_PROXY and HTTPS_PROXY lead to the rig.
func (r *forwardRig) client(t *testing.T, h2 bool) *http.Client {
	t.Helper()
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: r.forward}),
		TLSClientConfig: &tls.Config{RootCAs: r.roots}, DisableCompression: true, ForceAttemptHTTP2: h2,
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// write puts with a token and returns the status, the Fencing-Status and the protocol.
func write(t *testing.T, c *http.Client, at string, token uint64, body string) (code int, status string, proto int) {
	t.Helper()
	req, err := http.NewRequest(http.MethodPut, at, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Fencing-Token", strconv.FormatUint(token, 10))
	resp, err := c.Do(req)
	if err != nil {
		t.Fatalf("PUT %s: %v", at, err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatalf("PUT %s: %v", at, err)
	}
	return resp.StatusCode, resp.Header.Get("Fencing-Status"), resp.ProtoMajor
}

func TestForwardFencesPlainRequests(t *testing.T) {
	store := newPlainStore()
	up := httptest.NewServer(store)
	defer up.Close()
	r := newForwardRig(t, "", fmt.Sprintf(`
forward: {listen: "127.0.0.1:0", upstreams: [{url: "http://store.test", dial: %q}]}
unmatched_writes: fence
`, up.Listener.Addr()))
	c := r.client(t, false)
	for _, w := range []struct {
		token  uint64
		code   int
		status string
	}{{33, 201, "admitted"}, {34, 201, "admitted"}, {33, 412, "stale"}} {
		if code, status, _ := write(t, c, "http://store.test/rides/7", w.token, fmt.Sprint(w.token)); code != w.code || status != w.status {
			t.Errorf("PUT with %d = %d %s; want %d %s", w.token, code, status, w.code, w.status)
		}
	}
	if got := store.get("/rides/7"); got != "34" {
		t.Errorf("the store has %q; want that of 34", got)
	}
	if got := r.mark("store.test:80/rides/7"); got != 34 {
		t.Errorf("the mark of store.test:80/rides/7 is %d; want 34", got)
	}
	if got := r.mark("rides/7"); got != 0 {
		t.Errorf("the key without the store has the mark %d", got)
	}
}

// tlsStores are two stores that are reached by https, with yaml for them.
func tlsStores(t *testing.T) (a, b *plainStore, yaml string) {
	t.Helper()
	a, b = newPlainStore(), newPlainStore()
	upA, upB := httptest.NewTLSServer(a), httptest.NewTLSServer(b)
	t.Cleanup(upA.Close)
	t.Cleanup(upB.Close)
	return a, b, fmt.Sprintf(`
forward:
  listen: 127.0.0.1:0
  ca: {CA}
  upstreams:
    - {url: "https://example.com", dial: %q, tls: {ca: %s}}
    - {url: "https://www.example.com:8443", dial: %q, tls: {ca: %s}}
unmatched_writes: fence
defaults: {in_doubt_hold: 300ms}
`, upA.Listener.Addr(), storeCert(t, upA), upB.Listener.Addr(), storeCert(t, upB))
}

func TestForwardOpensTLSAndFences(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			a, b, yaml := tlsStores(t)
			r := newForwardRig(t, "", yaml, "example.com")
			c := r.client(t, h2)
			for _, w := range []struct {
				at     string
				token  uint64
				code   int
				status string
			}{
				{"https://example.com/k", 33, 201, "admitted"},
				{"https://example.com/k", 34, 201, "admitted"},
				{"https://example.com/k", 33, 412, "stale"},
				{"https://www.example.com:8443/k", 7, 201, "admitted"}, // another store: no mark in common
				{"https://EXAMPLE.com:443/k", 33, 412, "stale"},
			} {
				code, status, proto := write(t, c, w.at, w.token, fmt.Sprint(w.token))
				if code != w.code || status != w.status || (proto == 2) != h2 {
					t.Errorf("PUT %s with %d = %d %s over HTTP/%d; want %d %s", w.at, w.token, code, status, proto, w.code, w.status)
				}
			}
			if a.get("/k") != "34" || b.get("/k") != "7" {
				t.Errorf("the stores have %q and %q; want 34 and 7", a.get("/k"), b.get("/k"))
			}
		})
	}
}

func TestForwardAndReverseShareOneMark(t *testing.T) {
	store := newPlainStore()
	up := httptest.NewServer(store)
	defer up.Close()
	r := newForwardRig(t, up.URL, fmt.Sprintf(`
upstream: {url: "http://ignored.test", authority: "store.test:443"}
forward: {listen: "127.0.0.1:0", upstreams: [{url: "http://store.test", authority: "store.test:443", dial: %q}]}
unmatched_writes: fence
`, up.Listener.Addr()))
	c := r.client(t, false)
	if code, status, _ := write(t, c, "http://store.test/k", 34, "B"); code != 201 {
		t.Fatalf("PUT by the forward listener = %d %s; want 201", code, status)
	}
	r.put("/k", 33, "A", 412, "stale")
	r.put("/k", 35, "C", 201, "admitted")
	if code, status, _ := write(t, c, "http://store.test/k", 34, "B"); code != 412 || status != "stale" {
		t.Errorf("PUT by the forward listener after 35 came by the other = %d %s; want 412 stale", code, status)
	}
	if got := store.get("/k"); got != "C" {
		t.Errorf("the store has %q; want C", got)
	}
}

func TestForwardKeepsBucketsInHostsApart(t *testing.T) {
	store := newPlainStore()
	up := httptest.NewTLSServer(store)
	defer up.Close()
	r := newForwardRig(t, "", fmt.Sprintf(`
forward:
  listen: 127.0.0.1:0
  ca: {CA}
  upstreams: [{url: "https://example.com", aliases: ["https://*.example.com"], dial: %q, tls: {ca: %s}}]
defaults: {dialect: s3, identity: {virtual_host_base: example.com}}
policies: [{name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}]
`, up.Listener.Addr(), storeCert(t, up)), "example.com")
	c := r.client(t, true)
	if code, status, _ := write(t, c, "https://rides.example.com/7", 34, "B"); code != 201 {
		t.Fatalf("PUT with the bucket in the host = %d %s; want 201", code, status)
	}
	if code, status, _ := write(t, c, "https://example.com/rides/7", 33, "A"); code != 412 {
		t.Errorf("PUT of the same object with the bucket in the path = %d %s; want 412", code, status)
	}
	if got := r.mark("example.com:443/rides/7"); got != 34 {
		t.Errorf("the mark of example.com:443/rides/7 is %d; want 34", got)
	}
}

// exchangeRaw sends bytes to the forward listener and returns what comes back until the end, or until it is silent.
func (r *forwardRig) exchangeRaw(t *testing.T, request string) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.forward)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	b, _ := io.ReadAll(conn)
	return string(b)
}

func TestForwardRefusesWhatIsNotForAStore(t *testing.T) {
	elsewhere := newPlainStore()
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	_, _, yaml := tlsStores(t)
	r := newForwardRig(t, "", yaml, "example.com")
	at := other.Listener.Addr()
	for _, tt := range []struct{ name, request, want string }{
		{"CONNECT to an unlisted host", fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", at, at), "403 Forbidden"},
		{"absolute target of an unlisted host", fmt.Sprintf("PUT http://%s/k HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", at, at), "403 Forbidden"},
		{"a listed name at another port", "CONNECT example.com:80 HTTP/1.1\r\nHost: example.com:80\r\n\r\n", "403 Forbidden"},
		{"CONNECT without a port", "CONNECT example.com HTTP/1.1\r\nHost: example.com\r\n\r\n", "400 Bad Request"},
		{"origin form", "PUT /k HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
		{"https without CONNECT", "PUT https://example.com/k HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
		{"two hosts", "PUT http://example.com/k HTTP/1.1\r\nHost: example.com\r\nHost: other.test\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
	} {
		if got := r.exchangeRaw(t, tt.request); !strings.HasPrefix(got, "HTTP/1.1 "+tt.want) {
			t.Errorf("%s: %q; want %s", tt.name, got, tt.want)
		}
	}
	if n := len(elsewhere.applied()); n != 0 {
		t.Errorf("%d writes reached the unlisted host", n)
	}
}

// connect opens a tunnel and speaks TLS in it.
func (r *forwardRig) connect(t *testing.T, to string, protos ...string) *tls.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", r.forward)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to)
	br := bufio.NewReader(conn)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect})
	if err != nil || resp.StatusCode != http.StatusOK || br.Buffered() > 0 {
		t.Fatalf("CONNECT %s: %v, %v", to, resp, err)
	}
	host, _, _ := net.SplitHostPort(to)
	c := tls.Client(conn, &tls.Config{RootCAs: r.roots, ServerName: host, NextProtos: protos})
	if err := c.Handshake(); err != nil {
		t.Fatalf("TLS to %s: %v", to, err)
	}
	return c
}

func TestForwardTunnelsHoldWhatTheListenerHolds(t *testing.T) {
	a, _, yaml := tlsStores(t)
	r := newForwardRig(t, "", yaml, "example.com")
	for _, tt := range []struct{ name, request, want string }{
		{"another Host than that of CONNECT", "PUT /k HTTP/1.1\r\nHost: www.example.com:8443\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx", "421 Misdirected Request"},
		{"a foreign absolute target", "PUT https://www.example.com:8443/k HTTP/1.1\r\nHost: example.com\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx", "421 Misdirected Request"},
		{"http in an absolute target", "PUT http://example.com:443/k HTTP/1.1\r\nHost: example.com\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx", "421 Misdirected Request"},
		{"no token", "PUT /k HTTP/1.1\r\nHost: example.com\r\nContent-Length: 1\r\n\r\nx", "428 Precondition Required"},
		{"a token that Connection names", "PUT /k HTTP/1.1\r\nHost: example.com\r\nConnection: Fencing-Token\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
		{"CONNECT in a tunnel", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", "405 Method Not Allowed"},
		{"Upgrade", "PUT /k HTTP/1.1\r\nHost: example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nFencing-Token: 34\r\nContent-Length: 0\r\n\r\n", "400 Bad Request"},
		{"HTTP/1.0 and chunked", "PUT /k HTTP/1.0\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\nFencing-Token: 34\r\n\r\n1\r\nx\r\n0\r\n\r\n", "411 Length Required"},
		{"two Hosts", "PUT /k HTTP/1.1\r\nHost: example.com\r\nHost: example.com\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx", "400 Bad Request"},
		{"a header too long", "PUT /k HTTP/1.1\r\nHost: example.com\r\nX: " + strings.Repeat("x", 80<<10) + "\r\n\r\n", "431 Request Header Fields Too Large"},
		{"the same authority, spelled otherwise", "PUT https://EXAMPLE.com:443/k HTTP/1.1\r\nHost: Example.Com.:443\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx", "201 Created"},
	} {
		c := r.connect(t, "example.com:443")
		if _, err := io.WriteString(c, tt.request); err != nil && tt.want[0] != '4' {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		line, err := bufio.NewReader(c).ReadString('\n')
		if _, status, _ := strings.Cut(strings.TrimSpace(line), " "); status != tt.want {
			t.Errorf("%s: %q, %v; want %s", tt.name, line, err, tt.want)
		}
	}
	if got := a.applied(); len(got) != 1 {
		t.Errorf("the store applied %q; want the last one only", got)
	}
}

func TestForwardTunnelTakesWhatComesWithConnect(t *testing.T) {
	store := newPlainStore()
	up := httptest.NewServer(store)
	defer up.Close()
	r := newForwardRig(t, "", fmt.Sprintf(`
forward: {listen: "127.0.0.1:0", upstreams: [{url: "http://store.test:7000", dial: %q}]}
unmatched_writes: fence
`, up.Listener.Addr()))
	got := r.exchangeRaw(t, "CONNECT store.test:7000 HTTP/1.1\r\nHost: store.test:7000\r\n\r\n"+
		"PUT /a%2Fb HTTP/1.1\r\nHost: store.test:7000\r\nFencing-Token: 34\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
	if !strings.Contains(got, "200 Connection established") || !strings.Contains(got, "400 Bad Request") { // an encoded slash: the policies saw the bytes
		t.Errorf("a request in one piece with CONNECT: %q", got)
	}
	got = r.exchangeRaw(t, "CONNECT store.test:7000 HTTP/1.1\r\nHost: store.test:7000\r\n\r\n"+
		"PUT /k%20k?a=%2F HTTP/1.1\r\nHost: store.test:7000\r\nFencing-Token: 34\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx")
	if !strings.Contains(got, "201 Created") || len(store.applied()) != 1 || store.applied()[0] != "PUT /k%20k 34" {
		t.Errorf("a request in one piece with CONNECT: %q; the store applied %q", got, store.applied())
	}
}

func TestForwardTunnelsUnlistedHostsWhereTold(t *testing.T) {
	store, elsewhere := newPlainStore(), newPlainStore()
	up, other, secret := httptest.NewServer(store), httptest.NewServer(elsewhere), httptest.NewTLSServer(elsewhere)
	defer up.Close()
	defer other.Close()
	defer secret.Close()
	r := newForwardRig(t, "", fmt.Sprintf(`
forward: {listen: "127.0.0.1:0", unlisted: tunnel, upstreams: [{url: "http://localhost:81", dial: %q}]}
unmatched_writes: fence
`, up.Listener.Addr()))
	c := r.client(t, false)
	c.Transport.(*http.Transport).TLSClientConfig = secret.Client().Transport.(*http.Transport).TLSClientConfig
	for _, at := range []string{other.URL, secret.URL} {
		if code, status, _ := write(t, c, at+"/k", 34, "x"); code != 201 || status != "" {
			t.Errorf("PUT %s = %d %q; want 201, unfenced", at, code, status)
		}
	}
	if n := len(elsewhere.applied()); n != 2 {
		t.Errorf("%d writes reached the unlisted hosts; want 2", n)
	}
	// The store itself is not to be reached so: by its address, nor by its name at another port.
	_, port, _ := net.SplitHostPort(up.Listener.Addr().String())
	for _, host := range []string{up.Listener.Addr().String(), "localhost:" + port, "LOCALHOST.:" + port, "[::ffff:127.0.0.1]:" + port, "0.0.0.0:" + port, "[::]:" + port} {
		for _, request := range []string{
			fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\nPUT /k HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", host, host),
			fmt.Sprintf("PUT http://%s/k HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", host, host),
		} {
			if got := r.exchangeRaw(t, request); !strings.HasPrefix(got, "HTTP/1.1 403") {
				t.Errorf("%.60q: %q; want 403", request, got)
			}
		}
	}
	if got := store.applied(); len(got) > 0 {
		t.Errorf("unfenced writes reached the store: %q", got)
	}
}

func TestForwardShutdownWaitsForWritesInTunnels(t *testing.T) {
	a, _, yaml := tlsStores(t)
	arrived, goOn := make(chan struct{}), make(chan struct{})
	a.before = func(*http.Request) { close(arrived); <-goOn }
	r := newForwardRig(t, "", yaml, "example.com")
	c := r.client(t, true)
	idle := r.connect(t, "example.com:443")
	fmt.Fprint(idle, "HEAD /k HTTP/1.1\r\nHost: example.com\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(idle), &http.Request{Method: http.MethodHead}); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("HEAD in the idle tunnel: %v, %v", resp, err)
	}
	type answer struct {
		code   int
		status string
	}
	answered := make(chan answer, 1)
	go func() {
		code, status, _ := write(t, c, "https://example.com/k", 34, "x")
		answered <- answer{code, status}
	}()
	<-arrived
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		stopped <- r.stop(ctx)
	}()
	_ = idle.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, idle); err != nil {
		t.Errorf("an idle tunnel ended with %v; want an orderly end", err)
	}
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returned (%v) while a write was in flight", err)
	default:
	}
	close(goOn)
	if got := <-answered; got.code != 201 {
		t.Errorf("the write in flight was answered %+v; want 201", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

func TestForwardGoesOnWhenTheClientOfATunnelHangsUp(t *testing.T) {
	a, _, yaml := tlsStores(t)
	arrived, goOn := make(chan struct{}, 2), make(chan struct{})
	a.before = func(r *http.Request) {
		arrived <- struct{}{}
		if r.Header.Get("Fencing-Token") == "33" {
			<-goOn
		}
	}
	r := newForwardRig(t, "", yaml, "example.com")
	conn := r.connect(t, "example.com:443")
	fmt.Fprint(conn, "PUT /k HTTP/1.1\r\nHost: example.com\r\nFencing-Token: 33\r\nContent-Length: 1\r\n\r\nA")
	<-arrived
	conn.Close()
	done := make(chan int, 1)
	go func() {
		code, _, _ := write(t, r.client(t, false), "https://example.com/k", 34, "B")
		done <- code
	}()
	select {
	case <-arrived:
		t.Fatal("34 reached the store while 33 was in flight")
	case <-time.After(300 * time.Millisecond): // as long as it takes to be nearly sure
	}
	close(goOn)
	if code := <-done; code != 201 || a.get("/k") != "B" {
		t.Errorf("34 was answered %d and the store has %q; want 201 and B", code, a.get("/k"))
	}
}

func TestNewForwardSaysWhatIsWrongWithTheCA(t *testing.T) {
	up := httptest.NewTLSServer(newPlainStore())
	defer up.Close()
	p, err := proxy.New(proxy.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	expired, err := proxy.NewCA("old", nil, -time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := expired.WriteFiles(policies.CertFiles{Cert: file("old.pem"), Key: file("old.key")}); err != nil {
		t.Fatal(err)
	}
	if err := expired.WriteFiles(policies.CertFiles{Cert: file("new.pem"), Key: file("old.key")}); err == nil {
		t.Error("an existing key was overwritten")
	}
	for _, tt := range []struct {
		files policies.CertFiles
		want  string
	}{
		{policies.CertFiles{Cert: file("none.pem"), Key: file("none.key")}, "no such file"},
		{policies.CertFiles{Cert: file("old.pem"), Key: file("old.key")}, "expired on"},
		{policies.CertFiles{Cert: storeCert(t, up), Key: file("old.key")}, "does not match"},
	} {
		_, err := p.NewForward(policies.ForwardMode{CA: tt.files})
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "forward.ca") {
			t.Errorf("NewForward(%v) = %v; want an error about forward.ca with %q", tt.files, err, tt.want)
		}
	}
}

func TestForwardShutdownWaitsForNoSilentTunnel(t *testing.T) {
	_, _, yaml := tlsStores(t)
	r := newForwardRig(t, "", yaml+"limits: {header_timeout: 1h}\n", "example.com")
	conn, err := net.Dial("tcp", r.forward)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 200 ") {
		t.Fatalf("CONNECT: %q, %v", line, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.stop(ctx); err != nil { // it would wait for an hour
		t.Errorf("Shutdown: %v", err)
	}
}

func TestForwardTunnelIsNoWayForRedirects(t *testing.T) {
	to := ""
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	}))
	defer up.Close()
	for _, unlisted := range []string{"refuse", "tunnel"} {
		r := newForwardRig(t, "", fmt.Sprintf(`
forward: {listen: "127.0.0.1:0", unlisted: %s, upstreams: [{url: "http://store.test", dial: %q}]}
unmatched_writes: fence
`, unlisted, up.Listener.Addr()))
		c := r.client(t, false)
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for target, want := range map[string]int{"http://elsewhere.test/k": 502, "//elsewhere.test/k": 502, "http://store.test/l": 307, "/l": 307} {
			if to = target; unlisted == "refuse" { // what follows is refused there
				want = 307
			}
			if code, status, _ := write(t, c, "http://store.test/k", 34, "x"); code != want {
				t.Errorf("unlisted: %s, a redirect to %s = %d %s; want %d", unlisted, target, code, status, want)
			}
		}
	}
}

func TestForwardTunnelEndsAfterTwoLengths(t *testing.T) {
	a, _, yaml := tlsStores(t)
	r := newForwardRig(t, "", yaml, "example.com")
	c := r.connect(t, "example.com:443")
	fmt.Fprint(c, "PUT /k HTTP/1.1\r\nHost: example.com\r\nFencing-Token: 34\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"PUT /smuggled HTTP/1.1\r\nHost: example.com\r\nFencing-Token: 34\r\nContent-Length: 1\r\n\r\nx")
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got, err := io.ReadAll(c)
	if n := strings.Count(string(got), "HTTP/1.1 "); err != nil || n != 1 {
		t.Errorf("%d answers, %v: %q; want one, and the end", n, err, got)
	}
	if got := a.applied(); len(got) > 1 || len(got) == 1 && got[0] != "PUT /k 34" {
		t.Errorf("the store applied %q; want nothing but the first", got)
	}
}
