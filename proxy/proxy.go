package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
)

// Config is what a [Proxy] is made of.
type Config struct {
	Upstream policies.Upstream // where to forward
	Spool    policies.Spool    // where bodies wait
	// SpoolFloor is how many bytes bodies leave free on the volume of Spool.Dir. Keep it above what the token store needs.
	SpoolFloor uint64
	Policies   *policies.Set // replaced with [Proxy.SetPolicies]
	Gate       *gate.Gate
	Logger     *slog.Logger // nil: nothing is logged
	Metrics    *Metrics     // nil: nothing is counted
}

// Proxy forwards requests to one upstream and fences writes on the way. It is safe for concurrent use.
type Proxy struct {
	gate      *gate.Gate
	policies  atomic.Pointer[policies.Set]
	upstream  *upstream
	spool     *spooler
	log       *slog.Logger
	metrics   *Metrics
	decisions *Decisions
	root      http.Handler
	stall     time.Duration  // clientStall
	leftovers sync.WaitGroup // answers that are read to their end although their clients are gone
}

// New returns a proxy. It does not connect to the upstream; the error is about files that Config names.
func New(c Config) (*Proxy, error) {
	up, err := newUpstream(c.Upstream)
	if err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	p := &Proxy{
		gate: c.Gate, upstream: up, spool: newSpooler(c.Spool, c.SpoolFloor), log: c.Logger, metrics: c.Metrics,
		decisions: newDecisions(), stall: clientStall,
	}
	p.policies.Store(c.Policies)
	p.root = p.dispatcher()
	return p, nil
}

// Handler returns the handler for clients' requests.
func (p *Proxy) Handler() http.Handler { return http.HandlerFunc(p.edge) }

// Policies returns the policies in force.
func (p *Proxy) Policies() *policies.Set { return p.policies.Load() }

// SetPolicies puts other policies in force for requests that come from now on. Requests under way keep the old ones.
func (p *Proxy) SetPolicies(set *policies.Set) { p.policies.Store(set) }

// Decisions returns the last decisions.
func (p *Proxy) Decisions() *Decisions { return p.decisions }

// Close waits for answers that are still read for clients that went away, and closes idle connections to the upstream. Call it when no
// request is under way.
func (p *Proxy) Close() {
	p.leftovers.Wait()
	p.upstream.transport.CloseIdleConnections()
	p.upstream.client.CloseIdle()
}

// dispatcher returns goproxy with the reverse proxy behind it. What goproxy would do by default with CONNECT (a raw tunnel) and with an
// absolute target (an open proxy) is refused by the edge before it gets here, and here once more.
func (p *Proxy) dispatcher() http.Handler {
	d := goproxy.NewProxyHttpServer()
	d.Logger = log.New(io.Discard, "", 0)
	d.Tr = &http.Transport{Proxy: nil, DialContext: noDial}
	d.ConnectDial = nil
	d.OnRequest().HandleConnect(goproxy.AlwaysReject)
	d.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		return r, goproxy.NewResponse(r, "text/plain", http.StatusBadRequest, "not a forward proxy\n")
	})
	d.NonproxyHandler = &httputil.ReverseProxy{
		Rewrite:      p.rewrite,
		Transport:    fence{p},
		BufferPool:   new(bufferPool),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	return d
}

// rewrite makes the outgoing request say what the incoming one said. ReverseProxy has removed hop-by-hop headers (RFC 9110 section
// 7.6.1); whatever else it drops is put back.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	x := exchangeOf(r.In.Context())
	out := r.Out
	out.URL = p.upstream.url(x.target)
	out.Host = r.In.Host
	if !p.upstream.preserveHost {
		out.Host = p.upstream.host
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if vs := r.In.Header[name]; vs != nil {
			out.Header[name] = vs
		}
	}
	out.Trailer = x.in.Trailer
}

type bufferPool struct{ sync.Pool }

func (b *bufferPool) Get() []byte {
	if p, ok := b.Pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(p []byte) { b.Pool.Put(&p) }

func noDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("not a forward proxy")
}
