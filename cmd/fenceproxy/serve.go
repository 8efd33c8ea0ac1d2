package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/admin"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "stand in front of a store and fence its writes",
		Description: `Fence each path as its own resource:
  fenceproxy serve --upstream http://127.0.0.1:9000 --dir ./marks

With policies, and refusing to start on a wiped volume:
  fenceproxy serve --config /etc/fenceproxy/fenceproxy.yaml --must-exist

SIGHUP reads the policies anew; a bad file changes nothing. SIGTERM lets writes in flight finish.`,
		Flags: append(overrideFlags(),
			&cli.BoolFlag{Name: "accept-key-change", DisableDefaultText: true, EnvVars: []string{"FENCEPROXY_ACCEPT_KEY_CHANGE"}, Usage: "start although a policy's resource keys changed, so that its marks begin anew"},
			&cli.DurationFlag{Name: "lock-wait", EnvVars: []string{"FENCEPROXY_LOCK_WAIT"}, Value: 10 * time.Second, Usage: "wait at most `DURATION` for the last proxy to let go of the token store"},
			&cli.DurationFlag{Name: "shutdown-timeout", EnvVars: []string{"FENCEPROXY_SHUTDOWN_TIMEOUT"}, Value: 25 * time.Second, Usage: "on SIGTERM wait at most `DURATION` for writes in flight"},
		),
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			cfg, err := loadConfig(c)
			if err != nil {
				return err
			}
			warn(c.App.ErrWriter, cfg)
			if err := checkFiles(c, cfg); err != nil {
				return err
			}
			if err := checkSpool(cfg.Spool); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			logger, flush := newLogger(c.App.ErrWriter, cfg.Log)
			defer flush()
			s := &sidecar{
				cfg: cfg, acceptKeyChange: c.Bool("accept-key-change"), shutdown: c.Duration("shutdown-timeout"), lockWait: c.Duration("lock-wait"),
				reload:   func() (*policies.Config, error) { return loadConfig(c) },
				log:      logger,
				listenOn: listenOn,
				ready: func(at addresses) {
					fmt.Fprint(c.App.Writer, at.announce(cfg))
				},
			}
			return s.run(c.Context)
		},
	}
}

// sidecar is one running proxy.
type sidecar struct {
	cfg             *policies.Config
	reload          func() (*policies.Config, error)
	acceptKeyChange bool
	hold            time.Duration // the longest that a write of this run, or of the last if that ended uncleanly, is held in doubt
	shutdown        time.Duration // longest wait for writes in flight
	lockWait        time.Duration // longest wait for the token store to be free
	log             *slog.Logger
	listenOn        func(address string) (net.Listener, error)
	ready           func(addresses) // called when it serves

	store    *tokenstore.Store
	gate     *gate.Gate
	proxy    *proxy.Proxy
	forward  *proxy.Forward // nil if forward mode is off
	leases   *lease.Manager // nil if they are off
	servers  []*proxy.Server
	stopping atomic.Bool
}

// gcPercent trades memory for time: the heap of a proxy is small, and collecting it often costs speed.
const gcPercent = 200

// run serves until ctx ends or the process is told to stop.
func (s *sidecar) run(ctx context.Context) (err error) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer func() {
		signal.Ignore(syscall.SIGHUP) // a reload that comes too late must not make a failure of an orderly stop
		signal.Stop(signals)
	}()
	token, err := adminToken(s.cfg.Admin.TokenFile)
	if err != nil {
		return err
	}
	// The listeners come first, not served yet: a start that is refused for a taken address must not leave a new, empty token store, which
	// a later start would take for the one that must exist.
	listeners, err := s.bind()
	if err != nil {
		return err
	}
	defer func() {
		for _, ln := range listeners {
			_ = ln.Close() // closed by its server, unless none came to be
		}
	}()
	opening, opened := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	s.log.Info("opening the token store", "dir", s.cfg.TokenStore.Dir)
	err = s.openStore(opening)
	stopped := opening.Err() != nil
	opened()
	switch {
	case err != nil && stopped: // told to stop while another process held the store
		s.log.Info("stopped before the token store was free")
		return nil
	case err != nil:
		return err
	}
	clean := !s.store.UncleanStop() // until something was forwarded, the next start finds what this one found
	defer func() {
		if cerr := s.store.Close(clean); err == nil && cerr != nil {
			err = fmt.Errorf("close the token store: %w", cerr)
		}
	}()
	if err := s.checkEpochs(s.cfg.Policies); err != nil {
		return err
	}
	if err := s.checkKeys(s.cfg.Policies, s.acceptKeyChange); err != nil {
		return err
	}
	if err := s.noteEpochs(s.cfg.Policies); err != nil {
		return err
	}
	metrics, err := s.build()
	if err != nil {
		return err
	}
	if err := s.openLeases(metrics); err != nil {
		return err
	}
	if s.leases != nil {
		defer s.leases.Close() // before the store
	}
	servers, failed, err := s.serve(listeners, metrics, token)
	if err != nil {
		return err
	}
	clean = false
	go s.warnReachable(ctx) // ends within a second or two
	err = s.wait(ctx, signals, failed)
	clean = s.stop(servers, signals)
	return err
}

// build makes the gate and the proxy on the open store.
func (s *sidecar) build() (*proxy.Metrics, error) {
	hold, err := s.recoverFor()
	if err != nil {
		return nil, err
	}
	if hold > 0 {
		s.log.Warn("the last run did not stop cleanly: new tokens wait until its writes cannot land any more", "dur", hold.String())
	}
	timed := &timedStore{Store: s.store}
	s.gate = gate.New(timed, gate.Config{
		Recover: hold, MaxWaiters: s.cfg.Limits.WaitersPerResource, MaxWaitersTotal: s.cfg.Limits.Waiters,
	})
	metrics := proxy.NewMetrics(s.gate)
	metrics.CountResources(s.store.Marks)
	timed.observe = metrics.Advance.Observe
	s.proxy, err = proxy.New(proxy.Config{
		Upstream: s.cfg.Upstream, Spool: s.cfg.Spool, SpoolFloor: 2 * uint64(s.cfg.TokenStore.MinFree),
		Policies: s.cfg.Policies, Gate: s.gate, Notes: s.store, Logger: s.log, Metrics: metrics,
		Limits: s.cfg.Limits,
	})
	if err == nil && s.cfg.Forward.Listen.Address != "" {
		s.forward, err = s.proxy.NewForward(s.cfg.Forward)
	}
	return metrics, err
}

// bind opens the listeners for clients, those for operators and for leases, as far as they are not switched off, in the order in which serve
// takes them.
func (s *sidecar) bind() (listeners []net.Listener, err error) {
	for _, l := range []struct{ address, hint string }{
		{s.reverse(), "choose another address with --listen"},
		{s.cfg.Forward.Listen.Address, "choose another address in forward.listen"},
		{s.cfg.Admin.Listen.Address, "choose another address with --admin-listen, or switch it off with --admin-listen off"},
		{s.cfg.Leases.Listen.Address, "choose another address with --leases-listen, or switch leases off with --leases-listen off"},
	} {
		if l.address == "" {
			continue
		}
		ln, err := s.listenOn(l.address)
		if err != nil {
			for _, ln := range listeners {
				ln.Close()
			}
			return nil, withHint(err, l.hint)
		}
		listeners = append(listeners, ln)
	}
	return listeners, nil
}

// reverse is the address of the listener before the upstream; empty if there is forward mode only.
func (s *sidecar) reverse() string {
	if s.cfg.Upstream.URL == nil {
		return ""
	}
	return s.cfg.Listen.Address
}

// serve serves the listeners that bind has opened. failed gets the error of one that breaks.
func (s *sidecar) serve(listeners []net.Listener, metrics *proxy.Metrics, token string) (servers []*proxy.Server, failed chan error, err error) {
	failed = make(chan error, len(listeners)+1)
	at := addresses{}
	clients := proxy.NewConnections(s.cfg.Limits, metrics)
	// Leases count for themselves: a flood of writes must not keep holders from renewing. Operators always get in.
	add := func(srv *proxy.Server, err error, address *string) error {
		if err == nil {
			var connections *proxy.Connections
			switch address {
			case &at.listen, &at.forward:
				connections = clients
			case &at.leases:
				connections = proxy.NewConnections(s.cfg.Limits, metrics)
			}
			srv.Limit(s.cfg.Limits, connections)
			*address = addressOf(listeners[len(servers)])
			servers = append(servers, srv)
		}
		return err
	}
	if s.reverse() != "" {
		srv, err := proxy.NewServer(s.proxy.Handler(), s.cfg.Listen.TLS, s.log)
		if err := add(srv, err, &at.listen); err != nil {
			return nil, nil, err
		}
	}
	if s.forward != nil {
		srv, err := s.forward.NewServer(s.cfg.Forward.Listen.TLS)
		if err := add(srv, err, &at.forward); err != nil {
			return nil, nil, err
		}
	}
	if s.cfg.Admin.Listen.Address != "" {
		h := admin.New(admin.Config{
			Proxy: s.proxy, Gate: s.gate, Store: s.store, Metrics: metrics, Token: token, Stopping: s.stopping.Load, Logger: s.log,
		})
		srv, err := proxy.NewServer(h, s.cfg.Admin.Listen.TLS, s.log)
		if err := add(srv, err, &at.admin); err != nil {
			return nil, nil, err
		}
	}
	if s.leases != nil {
		srv, err := proxy.NewServer(s.leases.Handler(), s.cfg.Leases.Listen.TLS, s.log)
		if err := add(srv, err, &at.leases); err != nil {
			return nil, nil, err
		}
	}
	if s.forward != nil {
		go func() { // ends with Shutdown, which stop calls
			if err := s.forward.Serve(); err != nil {
				failed <- err
			}
		}()
	}
	for i, srv := range servers {
		go func() { // ends with Shutdown, which stop calls
			if err := srv.Serve(listeners[i]); err != nil {
				failed <- err
			}
		}()
	}
	s.servers = servers
	s.ready(at)
	s.log.Info("serving", "listen", cmp.Or(at.listen, "off"), "upstream", s.cfg.Upstream.String(), "admin", cmp.Or(at.admin, "off"),
		"leases", cmp.Or(at.leases, "off"), "forward", cmp.Or(at.forward, "off"), "dir", s.cfg.TokenStore.Dir)
	return servers, failed, nil
}

// wait returns when the process is to stop. It reloads on SIGHUP.
func (s *sidecar) wait(ctx context.Context, signals <-chan os.Signal, failed <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case sig := <-signals:
			if sig != syscall.SIGHUP {
				s.log.Info("stopping", "signal", sig.String(), "in_flight", s.gate.Stats().InFlight)
				return nil
			}
			if err := s.reloadPolicies(); err != nil {
				about := []any{"error", err}
				if hint := hintOf(err); hint != "" {
					about = append(about, "hint", hint)
				}
				s.log.Error("reload: nothing was changed", about...)
			}
			s.reloadCertificates()
		}
	}
}

// reloadCertificates reads the certificates anew, each for itself: one that cannot be used does not keep the others old.
func (s *sidecar) reloadCertificates() {
	errs := []error{s.proxy.ReloadCertificates()}
	if s.forward != nil {
		errs = append(errs, s.forward.ReloadCertificates())
	}
	for _, srv := range s.servers {
		errs = append(errs, srv.Reload())
	}
	for _, err := range errs {
		if err != nil {
			s.log.Error("reload: a certificate cannot be used; the one from before stays", "error", err)
		}
	}
}

// stop lets requests under way finish, and reports whether none was left without an outcome. A second signal cuts them off.
func (s *sidecar) stop(servers []*proxy.Server, signals <-chan os.Signal) (clean bool) {
	s.stopping.Store(true)
	if s.leases != nil {
		s.leases.Stop() // those that wait are told; holders may renew and release until the end
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.shutdown)
	defer cancel()
	go func() { // ends with ctx
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-signals:
				if sig != syscall.SIGHUP {
					cancel()
				}
			}
		}
	}()
	for _, srv := range servers {
		if err := srv.Shutdown(ctx); err != nil {
			s.log.Warn("requests were cut off by the shutdown", "error", err)
		}
	}
	if s.forward != nil {
		if err := s.forward.Shutdown(ctx); err != nil {
			s.log.Warn("requests of forward mode were cut off by the shutdown", "error", err)
		}
	}
	clean = s.gate.Close(ctx)
	if clean {
		s.proxy.Close()
	} else {
		left := s.gate.Stats()
		s.log.Warn("stopped with writes that have no outcome: the next start waits for them", "in_flight", left.InFlight, "in_doubt", left.InDoubt)
	}
	s.log.Info("stopped", "clean", clean)
	return clean
}

// adminToken reads the bearer token for changes.
func adminToken(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", withHint(fmt.Errorf("admin.token_file: %w", err), "make one with: head -c 32 /dev/urandom | base64 > "+file)
	case err != nil:
		return "", fmt.Errorf("admin.token_file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 16 {
		return "", withHint(errors.New("admin.token_file: the token is shorter than 16 characters"), "make one with: head -c 32 /dev/urandom | base64")
	}
	return token, nil
}
