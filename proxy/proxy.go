package proxy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/hold"
)

// Config is what a [Proxy] is made of.
type Config struct {
	Upstream policies.Upstream // where [Proxy.Handler] forwards to; without a URL there is forward mode only
	Spool    policies.Spool    // where bodies wait
	// SpoolFloor is how many bytes bodies leave free on the volume of Spool.Dir. Keep it above what the token store needs.
	SpoolFloor uint64
	Policies   *policies.Set // replaced with [Proxy.SetPolicies]
	Gate       *gate.Gate
	Notes      Notes        // keeps the tokens of multipart uploads; needed only for upload_token: create
	Logger     *slog.Logger // nil: nothing is logged
	Metrics    *Metrics     // nil: nothing is counted
	// Limits are what a client may take. The ones of connections and heads are the listener's: see [Server.Limit].
	Limits policies.Limits
}

// Proxy forwards requests to one upstream and fences writes on the way. It is safe for concurrent use.
type Proxy struct {
	gate      *gate.Gate
	holds     *hold.Manager
	policies  atomic.Pointer[policies.Set]
	upstream  *upstream         // nil: there is forward mode only
	target    policies.Upstream // what upstream was made from
	spool     *spooler
	log       *slog.Logger
	metrics   *Metrics
	decisions *Decisions
	uploads   *uploads
	parsing   chan struct{} // holds one element for each long body that is searched for resources
	root      http.Handler
	limits    policies.Limits
	stall     time.Duration  // limits.body_timeout
	minRate   int64          // limits.min_upload_rate
	grace     time.Duration  // uploadGrace
	newcomers *newcomers     // nil: anybody may write to any number of new resources
	leftovers sync.WaitGroup // answers that are read to their end although their clients are gone
}

// New returns a proxy. It does not connect to the upstream; the error is about files that Config names.
func New(c Config) (*Proxy, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var up *upstream
	if c.Upstream.URL != nil {
		var err error
		if up, err = newUpstream(c.Upstream, c.Logger); err != nil {
			return nil, err
		}
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics(nil)
	}
	p := &Proxy{
		gate: c.Gate, holds: hold.New(c.Gate, nil), upstream: up, target: c.Upstream, spool: newSpooler(c.Spool, c.SpoolFloor), log: c.Logger, metrics: c.Metrics,
		decisions: newDecisions(), stall: cmp.Or(c.Limits.BodyTimeout, clientStall), minRate: c.Limits.MinUploadRate, grace: uploadGrace,
		newcomers: newNewcomers(c.Limits.NewResourcesPerClient), limits: c.Limits, uploads: &uploads{notes: c.Notes, now: time.Now},
		parsing: make(chan struct{}, parsers),
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
	if p.upstream != nil {
		p.upstream.close()
	}
}

// dispatcher returns goproxy with carry behind it. What goproxy would do by default with CONNECT (a raw tunnel) and with an
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
	d.NonproxyHandler = http.HandlerFunc(p.carry)
	return d
}

func noDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("not a forward proxy")
}
