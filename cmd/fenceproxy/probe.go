package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

func probeCommand() *cli.Command {
	return &cli.Command{
		Name:      "probe",
		Usage:     "find out which spellings of a path a store takes for one object, and which settings it needs",
		ArgsUsage: "URL",
		Description: `A store in which the probe may write below a folder, a bucket or a database:
  fenceproxy probe --yes http://127.0.0.1:9000/folder
  fenceproxy probe --yes --user me:secret https://dav.example.test/files
  fenceproxy probe --yes --s3-key KEY --s3-secret SECRET http://127.0.0.1:9000/bucket

It writes objects under a scratch prefix with a random name below that path, removes them at the end, also after Ctrl-C, and says what it
could not remove. Without --yes it says what it would do. Name the store itself, not a fenceproxy in front of it.

To hold a configuration against the store:
  fenceproxy check --config fenceproxy.yaml --probe --probe-prefix /folder --yes`,
		Flags: append(storeFlags(),
			&cli.StringFlag{Name: "ca", Usage: "check the store's certificate against the roots in `FILE` (PEM) instead of the system's", TakesFile: true},
			&cli.BoolFlag{Name: "keep", DisableDefaultText: true, Usage: "leave what was written in the store"},
			jsonFlag(),
		),
		Action: probeStore,
	}
}

// storeFlags say how to speak to a store.
func storeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "yes", DisableDefaultText: true, Usage: "write to the store"},
		&cli.DurationFlag{Name: "timeout", Value: probe.DefaultTimeout, Usage: "wait at most `DURATION` for each answer of the store"},
		&cli.StringSliceFlag{Name: "header", Aliases: []string{"H"}, Usage: "add `HEADER` to each request to the store, as with curl; may be repeated"},
		&cli.StringFlag{Name: "user", EnvVars: []string{"FENCEPROXY_PROBE_USER"}, Usage: "log in as `USER:PASSWORD` (Basic)"},
		&cli.StringFlag{Name: "s3-key", EnvVars: []string{"AWS_ACCESS_KEY_ID"}, Usage: "sign requests with the S3 access key `KEY`"},
		&cli.StringFlag{Name: "s3-secret", EnvVars: []string{"AWS_SECRET_ACCESS_KEY"}, Usage: "the `SECRET` of --s3-key"},
		&cli.StringFlag{Name: "region", EnvVars: []string{"AWS_REGION", "AWS_DEFAULT_REGION"}, Value: "us-east-1", Usage: "sign for the S3 `REGION`"},
	}
}

func probeStore(c *cli.Context) error {
	args, err := arguments(c)
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return withHint(usagef("probe needs the URL of a store, and got %s", count(len(args), "argument")), "fenceproxy probe --yes http://127.0.0.1:9000/folder")
	}
	p, err := newProbe(c, probe.Config{URL: args[0], Keep: c.Bool("keep")}, c.String("ca"))
	if err != nil {
		return err
	}
	if !c.Bool("yes") {
		announce(c.App.Writer, p, c.Bool("keep"))
		return unconfirmed()
	}
	report, err := runProbe(c, p)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		err = writeJSON(c.App.Writer, report)
	} else {
		_, err = report.WriteTo(c.App.Writer)
	}
	if err != nil {
		return err
	}
	if report.Kept {
		fmt.Fprintf(c.App.ErrWriter, "fenceproxy: what was written is kept below %s\n", p.Scratch())
	}
	return leftovers(report)
}

// newProbe adds to a probe's settings how to speak to the store. ca is a PEM file, or empty.
func newProbe(c *cli.Context, cfg probe.Config, ca string) (*probe.Probe, error) {
	if path, ok := strings.CutPrefix(cfg.URL, "unix://"); ok {
		cfg.URL, cfg.Socket = "http://localhost", path
	}
	cfg.Timeout, cfg.Header, cfg.User = c.Duration("timeout"), c.StringSlice("header"), c.String("user")
	if cfg.Timeout <= 0 {
		return nil, usagef("--timeout must be more than 0s")
	}
	key, secret := c.String("s3-key"), c.String("s3-secret")
	ambient := key == os.Getenv("AWS_ACCESS_KEY_ID") && secret == os.Getenv("AWS_SECRET_ACCESS_KEY")
	if (key != "" || secret != "") && (cfg.User == "" || !ambient) { // keys that happen to be around do not stand in the way of a user
		cfg.S3 = &probe.Credentials{Key: key, Secret: secret, Region: c.String("region")}
		if ambient {
			cfg.S3.Session = os.Getenv("AWS_SESSION_TOKEN")
		}
	}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("read the roots: %w", err)
		}
		if cfg.Roots = x509.NewCertPool(); !cfg.Roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM", ca)
		}
	}
	p, err := probe.New(cfg)
	if bad, ok := errors.AsType[*probe.ConfigError](err); ok {
		err = &usageError{err}
		if bad.Hint != "" {
			err = withHint(err, bad.Hint)
		}
	}
	return p, err
}

func announce(w io.Writer, p *probe.Probe, keep bool) {
	end := "Then it would remove all of them."
	if keep {
		end = "It would leave them there."
	}
	fmt.Fprintf(w, `The probe would write to %s:
  objects under the scratch prefix %s, whose name is new with each probe,
  at most %d requests: PUT, GET, DELETE, POST, and MKCOL, COPY, MOVE, LOCK where the store knows them.
%s
`, p.URL(), p.Scratch(), p.MaxRequests(), end)
}

func unconfirmed() error {
	return withHint(usagef("nothing was sent: the probe writes to the store"), "add --yes to go on")
}

// runProbe probes until it is done or a signal comes. A second signal ends the process at once.
func runProbe(c *cli.Context, p *probe.Probe) (*probe.Report, error) {
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)()
	fmt.Fprintf(c.App.ErrWriter, "fenceproxy: probing %s below %s\n", p.URL(), p.Scratch())
	report, err := p.Run(ctx)
	if err == nil {
		return report, nil
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if left := leftovers(report); left != nil {
		return nil, errors.Join(err, left)
	}
	hint := ""
	if e, ok := errors.AsType[*probe.StoreError](err); ok {
		hint = e.Hint
	} else if e, ok := errors.AsType[*probe.ConfigError](err); ok {
		err, hint = &usageError{err}, e.Hint
	} else if errors.Is(err, probe.ErrFenceproxy) {
		hint = "name the store behind it: the upstream of its configuration"
	}
	if hint != "" {
		err = withHint(err, hint)
	}
	return nil, err
}

// leftovers is an error that names what could not be removed.
func leftovers(report *probe.Report) error {
	if len(report.Left) == 0 {
		return nil
	}
	return fmt.Errorf("these could not be removed from the store:\n  %s", strings.Join(report.Left, "\n  "))
}

// probeFlags are what check takes for --probe.
func probeFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.BoolFlag{Name: "probe", DisableDefaultText: true, Usage: "try the store itself, and warn where a policy is weaker than what it does; needs --yes"},
		&cli.StringFlag{Name: "probe-prefix", Usage: "let the probe write below the `PATH` in the store: a folder, a bucket, a database", DefaultText: "/"},
	}, storeFlags()...)
}

// probeConfig holds a configuration against its upstream.
func probeConfig(c *cli.Context, cfg *policies.Config) ([]probe.Weakness, error) {
	if !c.Bool("probe") {
		for _, name := range []string{"yes", "probe-prefix", "timeout", "header"} {
			if c.IsSet(name) {
				return nil, withHint(usagef("--%s has no effect without --probe", name), "add --probe, or leave it out")
			}
		}
		return nil, nil
	}
	prefix := c.String("probe-prefix")
	if prefix != "" && !strings.HasPrefix(prefix, "/") {
		return nil, withHint(usagef("--probe-prefix: %q does not begin with /", prefix), "--probe-prefix /"+prefix)
	}
	settings := probe.Config{URL: cfg.Upstream.URL.String() + prefix, Socket: cfg.Upstream.Socket}
	p, err := newProbe(c, settings, cfg.Upstream.CA)
	if err != nil {
		return nil, err
	}
	if !c.Bool("yes") {
		announce(c.App.ErrWriter, p, false)
		return nil, unconfirmed()
	}
	report, err := runProbe(c, p)
	if err != nil {
		return nil, err
	}
	return report.Compare(cfg.Policies), leftovers(report)
}
