package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
)

func demoCommand() *cli.Command {
	return &cli.Command{
		Name:  "demo",
		Usage: "play the story of a paused writer with real HTTP, then stay to be tried with curl",
		Description: `It starts a small store in memory and a fenceproxy before it, with its marks in a temporary directory:
  fenceproxy demo
  fenceproxy demo --once      # end after the story`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", EnvVars: []string{"FENCEPROXY_LISTEN"}, Value: policies.DefaultListen, Usage: "serve the proxy on `ADDRESS`; on another port if that one is taken"},
			&cli.StringFlag{Name: "admin-listen", EnvVars: []string{"FENCEPROXY_ADMIN_LISTEN"}, Value: policies.DefaultAdminListen, Usage: "serve operators on `ADDRESS`; likewise"},
			&cli.StringFlag{Name: "store-listen", Value: "127.0.0.1:9000", Usage: "serve the store on `ADDRESS`; likewise"},
			&cli.BoolFlag{Name: "once", DisableDefaultText: true, Usage: "end after the story"},
		},
		Action: demo,
	}
}

func demo(c *cli.Context) (err error) {
	if err := noArgs(c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	// When nobody reads the story any more ("demo | head"), writing it fails instead of ending the process before it has cleaned up.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	dir, err := os.MkdirTemp("", "fenceproxy-demo-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	at := c.String("store-listen")
	if _, _, err := net.SplitHostPort(at); err != nil {
		return usagef("store-listen: %q is not an address (write host:port without a scheme: 127.0.0.1:9000)", at)
	}
	ln, err := listenNear(at)
	if err != nil {
		return err
	}
	store := newDemoStore()
	server := &http.Server{Handler: store, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(ln) }()  // ends with Close
	defer func() { _ = server.Close() }() // the process ends

	cfg, err := demoConfig(c, "http://"+ln.Addr().String(), dir)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	story := &story{out: c.App.Writer, paint: colours(c.App.Writer), store: store, storeURL: "http://" + ln.Addr().String(), gone: end}
	told := make(chan error, 1)
	s := &sidecar{
		cfg: cfg, shutdown: 5 * time.Second, log: slog.New(slog.DiscardHandler), listenOn: listenNear,
		reload: func() (*policies.Config, error) { return cfg, nil },
		ready: func(at addresses) {
			story.proxyURL = "http://" + at.listen
			if at.admin != "" {
				story.adminURL = "http://" + at.admin
			}
			go func() { // ends with the story, which is bounded by ctx
				err := story.tell(ctx)
				if ctx.Err() != nil { // interrupted, or nobody reads it any more
					told <- nil
					return
				}
				if err == nil && !c.Bool("once") {
					story.invite()
					told <- nil
					return
				}
				told <- err
				end()
			}()
		},
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	select {
	case err = <-told:
	default: // interrupted in the middle of the story
	}
	return err
}

// demoConfig is the configuration of a proxy without a file: each path is its own resource.
func demoConfig(c *cli.Context, upstream, dir string) (*policies.Config, error) {
	cfg, err := readConfig("", policies.Overrides{UpstreamURL: upstream, Dir: dir, Listen: c.String("listen"), AdminListen: c.String("admin-listen")})
	if err == nil {
		cfg.TokenStore.MinFree = 0 // a few marks on a temporary directory
	}
	return cfg, err
}

// listenNear listens on an address, or on a free port of its host if the port is taken.
func listenNear(address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
		return ln, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// colours returns a function that paints text for a terminal, and leaves it alone elsewhere. See https://no-color.org.
func colours(w io.Writer) func(colour, string) string {
	plain := func(_ colour, s string) string { return s }
	f, ok := w.(*os.File)
	if _, off := os.LookupEnv("NO_COLOR"); off || !ok || os.Getenv("TERM") == "dumb" {
		return plain
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return plain
	}
	return func(c colour, s string) string { return fmt.Sprintf("\x1b[%dm%s\x1b[0m", c, s) }
}

type colour int

const (
	bold  colour = 1
	faint colour = 2
	red   colour = 31
	green colour = 32
)
