package proxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// plainStore is a store that knows nothing of tokens: PUT keeps a body under the raw path, GET gives it back, DELETE drops it.
type plainStore struct {
	mu      sync.Mutex
	objects map[string]string
	log     []string // "PUT /k token" for each write that was applied, in order
	calls   int
	before  func(*http.Request) // called before a write is applied, without the lock
}

func newPlainStore() *plainStore { return &plainStore{objects: map[string]string{}} }

func (s *plainStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && s.before != nil {
		s.before(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.URL.EscapedPath()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		v, ok := s.objects[key]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, v)
	case http.MethodDelete:
		delete(s.objects, key)
		s.log = append(s.log, "DELETE "+key+" "+r.Header.Get("Fencing-Token"))
		w.WriteHeader(http.StatusNoContent)
	default:
		s.objects[key] = string(body)
		s.log = append(s.log, r.Method+" "+key+" "+r.Header.Get("Fencing-Token"))
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "stored\n")
	}
}

func (s *plainStore) get(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key]
}

func (s *plainStore) applied() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.log...)
}

// rig is a proxy before an upstream, with everything real but the upstream.
type rig struct {
	t       *testing.T
	proxy   *proxy.Proxy
	gate    *gate.Gate
	store   *tokenstore.Store
	url     string
	logs    *syncBuffer
	spool   string // directory of bodies
	metrics *proxy.Metrics

	connections *proxy.Connections
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}
func (b *syncBuffer) reset()         { b.mu.Lock(); defer b.mu.Unlock(); b.buf.Reset() }
func (b *syncBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.buf.String() }

// defaultYAML fences each path below /.
const defaultYAML = `
unmatched_writes: fence
defaults: {drain_timeout: 5s, in_doubt_hold: 300ms}
`

type rigOption func(*rigConfig)

type rigConfig struct {
	dir     string
	recover time.Duration
}

// recovering starts the gate as after an unclean stop.
func recovering(d time.Duration) rigOption { return func(c *rigConfig) { c.recover = d } }

// newRig serves yaml before upstream (an http:// URL) and stops with the test.
func newRig(t *testing.T, upstream, yaml string, opts ...rigOption) *rig {
	t.Helper()
	rc := rigConfig{dir: t.TempDir()}
	for _, o := range opts {
		o(&rc)
	}
	cfg, err := policies.Load("test.yaml", []byte(yaml), policies.Overrides{UpstreamURL: upstream, ReadKey: signingKeys})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Spool.Dir = t.TempDir()
	store, err := tokenstore.Open(context.Background(), rc.dir, tokenstore.Options{MaxMarks: uint64(cfg.TokenStore.MaxResources)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: store, logs: &syncBuffer{}, spool: cfg.Spool.Dir}
	r.gate = gate.New(store, gate.Config{Recover: rc.recover, MaxWaiters: cfg.Limits.WaitersPerResource, MaxWaitersTotal: cfg.Limits.Waiters})
	r.metrics = proxy.NewMetrics(r.gate)
	r.proxy, err = proxy.New(proxy.Config{
		Upstream: cfg.Upstream, Spool: cfg.Spool, Policies: cfg.Policies, Gate: r.gate, Notes: store,
		Logger: slog.New(slog.NewTextHandler(r.logs, nil)), Metrics: r.metrics, Limits: cfg.Limits,
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := proxy.NewServer(r.proxy.Handler(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.connections = proxy.NewConnections(cfg.Limits, r.metrics)
	server.Limit(cfg.Limits, r.connections)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	r.url = "http://" + ln.Addr().String()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		r.gate.Close(ctx)
		if s := r.gate.Stats(); s.InFlight != 0 || s.Waiting != 0 {
			t.Errorf("the gate holds %+v after the end; want nothing in flight", s)
		}
		r.proxy.Close()
		if n := r.proxy.SpooledBytes(); n != 0 {
			t.Errorf("%d bytes of bodies are left in memory", n)
		}
		if left, err := filepath.Glob(filepath.Join(r.spool, "*")); err != nil || len(left) > 0 {
			t.Errorf("left in the spool directory: %v, %v", left, err)
		}
		if err := store.Close(true); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return r
}

// newRigWith serves yaml before a handler.
func newRigWith(t *testing.T, h http.Handler, yaml string, opts ...rigOption) *rig {
	t.Helper()
	up := httptest.NewServer(h)
	t.Cleanup(up.Close)
	return newRig(t, up.URL, yaml, opts...)
}

// reply is an answer that was read whole.
type reply struct {
	code   int
	header http.Header
	body   string
}

func (r reply) String() string {
	return fmt.Sprintf("%d %s %q", r.code, r.header.Get("Fencing-Status"), r.body)
}

// do sends a request; header alternates names and values.
func (r *rig) do(method, path, body string, header ...string) (reply, error) {
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, r.url+"/", rd)
	if err != nil {
		return reply{}, err
	}
	req.URL = &url.URL{Scheme: "http", Host: req.URL.Host, Opaque: path}
	for i := 0; i+1 < len(header); i += 2 {
		if strings.EqualFold(header[i], "Host") {
			req.Host = header[i+1]
			continue
		}
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

// client follows no redirects, keeps no connection and speaks through no proxy.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (r *rig) must(method, path, body string, header ...string) reply {
	r.t.Helper()
	got, err := r.do(method, path, body, header...)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

// put writes with a token and checks the status and the Fencing-Status.
func (r *rig) put(path string, token uint64, body string, wantCode int, wantStatus string) reply {
	r.t.Helper()
	got := r.must(http.MethodPut, path, body, "Fencing-Token", strconv.FormatUint(token, 10))
	if got.code != wantCode || got.header.Get("Fencing-Status") != wantStatus {
		r.t.Errorf("PUT %s with %d = %v; want %d %s", path, token, got, wantCode, wantStatus)
	}
	return got
}

// mark returns the durable mark of a resource, or 0.
func (r *rig) mark(resource fencing.Resource) uint64 {
	r.t.Helper()
	m, _, err := r.store.Load(resource)
	if err != nil {
		r.t.Fatal(err)
	}
	return m.Token.Lo
}

// raw sends bytes as they are and returns everything that comes back until the connection ends or timeout passes.
func (r *rig) raw(request string, timeout time.Duration) string {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		r.t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(timeout))
	b, _ := io.ReadAll(conn)
	return string(b)
}
