package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

func caCommand() *cli.Command {
	return &cli.Command{
		Name:      "ca",
		UsageText: "fenceproxy ca command [command options]",
		Usage:     "make the certificate authority with which forward mode opens TLS",
		Description: `  fenceproxy ca init --config fenceproxy.yaml
  fenceproxy ca init --cert ca.pem --key ca.key --host s3.example.test`,
		Subcommands: []*cli.Command{{
			Name:  "init",
			Usage: "write a new certificate authority",
			Description: `For the stores that a configuration names, into the files that it names:
  fenceproxy ca init --config fenceproxy.yaml

Or for hosts by name:
  fenceproxy ca init --cert ca.pem --key ca.key --host s3.example.test

It can vouch for those hosts alone, and for what lies below them. Clients have to trust the certificate: curl --cacert, AWS_CA_BUNDLE,
SSL_CERT_FILE, REQUESTS_CA_BUNDLE, NODE_EXTRA_CA_CERTS. Whoever has the key can imitate the stores to them.`,
			Flags: []cli.Flag{
				configFlag(),
				&cli.StringFlag{Name: "cert", Usage: "write the certificate to `FILE` (default forward.ca.cert)", TakesFile: true},
				&cli.StringFlag{Name: "key", Usage: "write its key to `FILE`, for its owner alone (default forward.ca.key)", TakesFile: true},
				&cli.StringSliceFlag{Name: "host", Usage: "let it vouch for `NAME` and what lies below; may be repeated (default the hosts of forward.upstreams)"},
				&cli.BoolFlag{Name: "any-host", DisableDefaultText: true, Usage: "let it vouch for every host"},
				&cli.StringFlag{Name: "name", Value: "fenceproxy", Usage: "call it `NAME`"},
				&cli.DurationFlag{Name: "life", Value: 10 * 365 * 24 * time.Hour, DefaultText: "ten years", Usage: "let it be valid for `DURATION`"},
			},
			Action: caInit,
		}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c.Command.Subcommands, "fenceproxy ca", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

func caInit(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	files := policies.CertFiles{Cert: c.String("cert"), Key: c.String("key")}
	hosts := c.StringSlice("host")
	if c.String("config") != "" {
		cfg, err := readConfig(c.String("config"), policies.Overrides{})
		if err != nil {
			return err
		}
		if files.Cert == "" {
			files.Cert = cfg.Forward.CA.Cert
		}
		if files.Key == "" {
			files.Key = cfg.Forward.CA.Key
		}
		if len(hosts) == 0 {
			hosts = storeHosts(&cfg.Forward)
		}
	}
	switch {
	case c.Duration("life") <= 0:
		return usagef("--life: %v would be over before it began", c.Duration("life"))
	case files.Cert == "" || files.Key == "":
		return withHint(usagef("it is not known where to write the certificate and its key"), "give --cert FILE and --key FILE, or --config with forward.ca")
	case c.Bool("any-host") && len(c.StringSlice("host")) > 0:
		return usagef("--any-host and --host say different things")
	case c.Bool("any-host"):
		hosts = nil
	case len(hosts) == 0:
		return withHint(usagef("no host is named"), "give --host NAME for each store, or --config with forward.upstreams, or --any-host")
	}
	for i, host := range hosts {
		at, ok := policies.Authority("https", host)
		if !ok {
			return usagef("--host: %q is not a host", host)
		}
		hosts[i], _, _ = net.SplitHostPort(at)
	}
	slices.Sort(hosts)
	hosts = slices.Compact(hosts)
	ca, err := proxy.NewCA(c.String("name"), hosts, c.Duration("life"))
	if err != nil {
		return err
	}
	err = ca.WriteFiles(files)
	if errors.Is(err, fs.ErrExist) {
		return withHint(fmt.Errorf("nothing was written: %w", err), "clients that trust the old one would not trust the new one; move the old files away if you want that")
	}
	if err != nil {
		return err
	}
	whom := "for every host"
	if len(hosts) > 0 {
		whom = "for " + strings.Join(hosts, ", ")
	}
	fmt.Fprintf(c.App.Writer, "fenceproxy: wrote %s, which clients have to trust, and its key %s, which nobody else may read; it can vouch %s until %s\n",
		files.Cert, files.Key, whom, ca.Cert.NotAfter.Format(time.DateOnly))
	return nil
}

// storeHosts lists the hosts under which clients know the stores.
func storeHosts(f *policies.ForwardMode) []string {
	var hosts []string
	for i := range f.Stores {
		for _, name := range f.Stores[i].Names() {
			if host, _, err := net.SplitHostPort(strings.TrimPrefix(name, "*.")); err == nil {
				hosts = append(hosts, host)
			}
		}
	}
	return hosts
}
