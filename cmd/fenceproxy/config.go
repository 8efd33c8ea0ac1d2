package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

func configFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "config", Aliases: []string{"c"}, EnvVars: []string{"FENCEPROXY_CONFIG"},
		Usage: "read the configuration from `FILE`; without one each path is fenced as its own resource", TakesFile: true,
	}
}

// overrideFlags are the settings of the file that flags and the environment can override.
func overrideFlags() []cli.Flag {
	return []cli.Flag{
		configFlag(),
		&cli.StringFlag{Name: "upstream", EnvVars: []string{"FENCEPROXY_UPSTREAM"}, Usage: "forward to `URL`: http://, https:// or unix:///path (upstream.url)"},
		&cli.StringFlag{Name: "listen", EnvVars: []string{"FENCEPROXY_LISTEN"}, Usage: "serve clients on `ADDRESS` (listen; default " + policies.DefaultListen + ")"},
		&cli.StringFlag{Name: "dir", EnvVars: []string{"FENCEPROXY_DIR"}, Usage: "keep the marks in `DIR` (token_store.dir; default " + policies.DefaultDir + ")", TakesFile: true},
		&cli.BoolFlag{Name: "must-exist", DisableDefaultText: true, EnvVars: []string{"FENCEPROXY_MUST_EXIST"}, Usage: "refuse to start on an empty or wiped token store (token_store.must_exist)"},
		&cli.DurationFlag{Name: "upstream-timeout", EnvVars: []string{"FENCEPROXY_UPSTREAM_TIMEOUT"}, Usage: "wait at most `DURATION` for the upstream's answer (upstream.timeout)", DefaultText: "1m"},
		&cli.StringFlag{Name: "admin-listen", EnvVars: []string{"FENCEPROXY_ADMIN_LISTEN"}, Usage: "serve operators on `ADDRESS`, or \"off\" (admin.listen; default " + policies.DefaultAdminListen + ")"},
		&cli.StringFlag{Name: "leases-listen", EnvVars: []string{"FENCEPROXY_LEASES_LISTEN"}, Usage: "hand out leases on `ADDRESS`, such as " + policies.DefaultLeasesListen + ", or \"off\" (leases.listen; default off)"},
		&cli.StringFlag{Name: "admin-token-file", EnvVars: []string{"FENCEPROXY_ADMIN_TOKEN_FILE"}, Usage: "read the bearer token for changes from `FILE` (admin.token_file)", TakesFile: true},
		&cli.StringFlag{Name: "unmatched-writes", EnvVars: []string{"FENCEPROXY_UNMATCHED_WRITES"}, Usage: "apply `RULE` to writes that no policy covers: reject, allow or fence (unmatched_writes)"},
		&cli.StringFlag{Name: "log-level", EnvVars: []string{"FENCEPROXY_LOG_LEVEL"}, Usage: "log at `LEVEL` and above: debug, info, warn or error (log.level)"},
		&cli.StringFlag{Name: "log-format", EnvVars: []string{"FENCEPROXY_LOG_FORMAT"}, Usage: "log in `FORMAT`: text or json (log.format)"},
	}
}

// without hides flags that a command takes, as serve does, and that change nothing in what it prints.
func without(flags []cli.Flag, names ...string) []cli.Flag {
	for _, f := range flags {
		if !slices.Contains(names, f.Names()[0]) {
			continue
		}
		switch f := f.(type) {
		case *cli.StringFlag:
			f.Hidden = true
		case *cli.BoolFlag:
			f.Hidden = true
		case *cli.DurationFlag:
			f.Hidden = true
		}
	}
	return flags
}

// loadConfig reads the file that --config names, with flags and environment over it.
func loadConfig(c *cli.Context) (*policies.Config, error) {
	over := policies.Overrides{
		Listen: c.String("listen"), UpstreamURL: c.String("upstream"), Dir: c.String("dir"),
		AdminListen: c.String("admin-listen"), AdminTokenFile: c.String("admin-token-file"),
		LeasesListen:    c.String("leases-listen"),
		UnmatchedWrites: c.String("unmatched-writes"), LogLevel: c.String("log-level"), LogFormat: c.String("log-format"),
	}
	if c.IsSet("must-exist") {
		v := c.Bool("must-exist")
		over.MustExist = &v
	}
	if c.IsSet("upstream-timeout") {
		v := c.Duration("upstream-timeout")
		over.UpstreamTimeout = &v
	}
	return readConfig(c.String("config"), over)
}

func readConfig(file string, over policies.Overrides) (*policies.Config, error) {
	var data []byte
	if file != "" {
		var err error
		if data, err = os.ReadFile(file); err != nil {
			return nil, withHint(fmt.Errorf("read the configuration: %w", err), "name a YAML file with --config, or leave it out and give --upstream")
		}
		if len(data) == 0 {
			return nil, withHint(fmt.Errorf("the configuration %s is empty", file), "leave --config out to fence each path as its own resource")
		}
	}
	over.ReadKey = readKey
	cfg, err := policies.Load(file, data, over)
	if problems, ok := errors.AsType[*policies.Errors](err); ok {
		if file == "" {
			if over.UpstreamURL == "" {
				return nil, withHint(&usageError{err}, "give --upstream URL, or a file with --config")
			}
			return nil, &usageError{err}
		}
		return nil, fmt.Errorf("the configuration cannot be used, %s:\n%w", count(len(problems.Problems), "problem"), err)
	}
	return cfg, err
}

// checkFiles reads the files that the configuration names: certificates, roots, the token for changes. Directories are serve's to open: a
// service manager may make them only then.
func checkFiles(c *cli.Context, cfg *policies.Config) error {
	_, tokenErr := adminToken(cfg.Admin.TokenFile)
	p, err := proxy.New(proxy.Config{Upstream: cfg.Upstream, Spool: cfg.Spool, Policies: cfg.Policies})
	if err == nil {
		if cfg.Forward.Listen.Address != "" {
			_, err = p.NewForward(cfg.Forward)
		}
		if ca := cfg.Forward.CA; err != nil && missing(ca.Cert) && missing(ca.Key) {
			err = withHint(err, "fenceproxy ca init --config "+c.String("config"))
		}
		p.Close()
	}
	errs := []error{err, tokenErr}
	for _, l := range []policies.Listener{cfg.Listen, cfg.Forward.Listen, cfg.Admin.Listen, cfg.Leases.Listen} {
		_, err := proxy.NewServer(http.NotFoundHandler(), l.TLS, slog.New(slog.DiscardHandler))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func missing(file string) bool {
	_, err := os.Stat(file)
	return file != "" && errors.Is(err, fs.ErrNotExist)
}

// checkSpool finds out whether long bodies can be kept, before the first one comes.
func checkSpool(s policies.Spool) error {
	f, err := os.CreateTemp(s.Dir, "fenceproxy-*")
	if err != nil {
		return withHint(fmt.Errorf("spool.dir: %w", err), "bodies longer than spool.memory wait there: make the directory, or name another one")
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// warn prints what is legal and probably not meant.
func warn(w io.Writer, cfg *policies.Config) {
	for _, p := range cfg.Warnings() {
		fmt.Fprintf(w, "fenceproxy: warning: %v\n", p)
	}
}
