package proxy_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore"
)

// BenchmarkBesidePlain sends the same requests to a fenceproxy and to a tuned httputil.ReverseProxy, in turns, before one upstream. Look
// at the ratio: above 1 means that fenceproxy takes more requests a second. The rest depends on the machine and its neighbours.
func BenchmarkBesidePlain(b *testing.B) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodGet {
			_, _ = w.Write(kilobyte)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer upstream.Close()
	plain := httptest.NewServer(plainProxy(b, upstream.URL))
	defer plain.Close()
	fenced := fencedProxy(b, upstream.URL)

	for _, bb := range []struct {
		name, method string
		token        func(i int) string // "" for none
	}{
		{"PUT-same-token", http.MethodPut, func(int) string { return "34" }},
		{"PUT-raise", http.MethodPut, func(i int) string { return strconv.Itoa(1000 + i) }},
		{"PUT-stale", http.MethodPut, func(int) string { return "1" }},
		{"GET", http.MethodGet, func(int) string { return "" }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			const workers, each = 16, 50
			n := 0
			round := func(base string) time.Duration {
				start := time.Now()
				var wg sync.WaitGroup
				for w := range workers {
					wg.Go(func() {
						for i := range each {
							// A raise goes to a resource of its own worker, so that nothing has to drain.
							send(b, bb.method, base+"/bench/"+bb.name+"/"+strconv.Itoa(w), bb.token(n+i))
						}
					})
				}
				wg.Wait()
				n += each
				return time.Since(start)
			}
			if bb.name == "PUT-stale" { // the mark that makes them stale
				for w := range workers {
					send(b, bb.method, fenced+"/bench/"+bb.name+"/"+strconv.Itoa(w), "34")
				}
			}
			round(plain.URL)
			round(fenced)
			var ratios, plainRate, fencedRate []float64
			for b.Loop() {
				p, f := round(plain.URL), round(fenced)
				ratios = append(ratios, p.Seconds()/f.Seconds())
				plainRate = append(plainRate, workers*each/p.Seconds())
				fencedRate = append(fencedRate, workers*each/f.Seconds())
			}
			b.ReportMetric(median(ratios), "x-plain")
			b.ReportMetric(median(plainRate), "plain-req/s")
			b.ReportMetric(median(fencedRate), "fenced-req/s")
		})
	}
}

var kilobyte = bytes.Repeat([]byte("x"), 1024)

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

var benchClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}

func send(b *testing.B, method, url, token string) {
	var body io.Reader
	if method == http.MethodPut {
		body = bytes.NewReader(kilobyte)
	}
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		b.Error(err)
		return
	}
	if token != "" {
		req.Header.Set("Fencing-Token", token)
	}
	resp, err := benchClient.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Error(err)
	}
}

// plainProxy is what one would write without a fence, tuned as the fence's own transport is.
func plainProxy(b *testing.B, upstream string) http.Handler {
	u, err := url.Parse(upstream)
	if err != nil {
		b.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(u); r.Out.Host = r.In.Host },
		Transport:  &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true},
		BufferPool: &pool{},
	}
}

type pool struct{ sync.Pool }

func (p *pool) Get() []byte {
	if b, ok := p.Pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 32<<10)
}
func (p *pool) Put(b []byte) { p.Pool.Put(&b) }

func fencedProxy(b *testing.B, upstream string) string {
	cfg, err := policies.Load("", nil, policies.Overrides{UpstreamURL: upstream})
	if err != nil {
		b.Fatal(err)
	}
	store, err := tokenstore.Open(context.Background(), b.TempDir(), tokenstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	g := gate.New(store, gate.Config{})
	p, err := proxy.New(proxy.Config{
		Upstream: cfg.Upstream, Spool: cfg.Spool, Policies: cfg.Policies, Gate: g,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), // a line a write, as in service
	})
	if err != nil {
		b.Fatal(err)
	}
	server, err := proxy.NewServer(p.Handler(), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }() // ends with Shutdown
	b.Cleanup(func() {
		_ = server.Shutdown(context.Background())
		g.Close(context.Background())
		p.Close()
		_ = store.Close(true)
	})
	return "http://" + ln.Addr().String()
}
