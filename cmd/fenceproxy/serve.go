package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
			if err := checkFiles(cfg); err != nil {
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
				listenOn: func(address string) (net.Listener, error) { return net.Listen("tcp", address) },
				ready: func(listen, admin string) {
					at := "off"
					if admin != "" {
						at = "on " + admin
					}
					fmt.Fprintf(c.App.Writer, "fenceproxy: serving on %s, forwarding to %s, admin %s\n", listen, cfg.Upstream, at)
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
	ready           func(listen, admin string) // called when it serves; admin is empty without an admin listener

	store    *tokenstore.Store
	gate     *gate.Gate
	proxy    *proxy.Proxy
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
	if err := s.checkKeys(s.cfg.Policies, s.acceptKeyChange); err != nil {
		return err
	}
	metrics, err := s.build()
	if err != nil {
		return err
	}
	servers, failed, err := s.serve(listeners, metrics, token)
	if err != nil {
		return err
	}
	clean = false
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
	s.gate = gate.New(timed, gate.Config{Recover: hold})
	metrics := proxy.NewMetrics(s.gate)
	timed.observe = metrics.Advance.Observe
	s.proxy, err = proxy.New(proxy.Config{
		Upstream: s.cfg.Upstream, Spool: s.cfg.Spool, SpoolFloor: 2 * uint64(s.cfg.TokenStore.MinFree),
		Policies: s.cfg.Policies, Gate: s.gate, Notes: s.store, Logger: s.log, Metrics: metrics,
	})
	return metrics, err
}

// bind opens the listener for clients and, unless it is switched off, that for operators.
func (s *sidecar) bind() (listeners []net.Listener, err error) {
	ln, err := s.listenOn(s.cfg.Listen.Address)
	if err != nil {
		return nil, withHint(err, "choose another address with --listen")
	}
	if s.cfg.Admin.Listen == "" {
		return []net.Listener{ln}, nil
	}
	aln, err := s.listenOn(s.cfg.Admin.Listen)
	if err != nil {
		ln.Close()
		return nil, withHint(err, "choose another address with --admin-listen, or switch it off with --admin-listen off")
	}
	return []net.Listener{ln, aln}, nil
}

// serve serves the listeners that bind has opened. failed gets the error of one that breaks.
func (s *sidecar) serve(listeners []net.Listener, metrics *proxy.Metrics, token string) (servers []*proxy.Server, failed chan error, err error) {
	failed = make(chan error, 2)
	main, err := proxy.NewServer(s.proxy.Handler(), s.cfg.Listen.TLS, s.log)
	if err != nil {
		return nil, nil, err
	}
	ops, err := proxy.NewServer(admin.New(admin.Config{
		Proxy: s.proxy, Gate: s.gate, Store: s.store, Metrics: metrics, Token: token, Stopping: s.stopping.Load, Logger: s.log,
	}), nil, s.log)
	if err != nil {
		return nil, nil, err
	}
	servers = []*proxy.Server{main, ops}[:len(listeners)]
	for i, srv := range servers {
		go func() { // ends with Shutdown, which stop calls
			if err := srv.Serve(listeners[i]); err != nil {
				failed <- err
			}
		}()
	}
	listen, adminAt := listeners[0].Addr().String(), ""
	if len(listeners) > 1 {
		adminAt = listeners[1].Addr().String()
	}
	s.ready(listen, adminAt)
	s.log.Info("serving", "listen", listen, "upstream", s.cfg.Upstream.String(), "admin", cmp.Or(adminAt, "off"), "dir", s.cfg.TokenStore.Dir)
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
				s.log.Error("reload: nothing was changed", "error", err, "hint", hintOf(err))
			}
		}
	}
}

// stop lets requests under way finish, and reports whether none was left without an outcome. A second signal cuts them off.
func (s *sidecar) stop(servers []*proxy.Server, signals <-chan os.Signal) (clean bool) {
	s.stopping.Store(true)
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
	if err != nil {
		return "", withHint(fmt.Errorf("admin.token_file: %w", err), "name the file with --admin-token-file")
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 16 {
		return "", withHint(errors.New("admin.token_file: the token is shorter than 16 characters"), "make one with: head -c 32 /dev/urandom | base64")
	}
	return token, nil
}
