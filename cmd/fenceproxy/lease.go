package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/lease"
)

func leaseCommand() *cli.Command {
	where := &cli.StringFlag{Name: "leases", EnvVars: leaseVariables(), Value: "http://" + policies.DefaultLeasesListen, Usage: "ask the running proxy whose listener for leases is at `URL`: http://, https:// or unix:///path"}
	ttl := &cli.DurationFlag{Name: "ttl", Value: 30 * time.Second, Usage: "hold it for `DURATION` unless it is renewed; 1s to 24h"}
	wait := &cli.DurationFlag{Name: "wait", Usage: "stand in line for at most `DURATION` while somebody else holds it", DefaultText: "do not wait"}
	owner := &cli.StringFlag{Name: "owner", Usage: "tell others who holds it: `TEXT`", DefaultText: "user@host"}
	secret := &cli.StringFlag{Name: "secret", EnvVars: []string{"FENCING_LEASE_SECRET"}, Usage: "the `SECRET` that came with the lease"}
	return &cli.Command{
		Name:      "lease",
		Usage:     "take a lease with a fencing token from a running proxy",
		UsageText: "fenceproxy lease command [command options]",
		Description: `Leases are off unless the proxy is told to listen for them: fenceproxy serve --leases-listen ` + policies.DefaultLeasesListen + ` …

  fenceproxy lease run rides/7 --ttl 30s -- ./backup.sh
  eval "$(fenceproxy lease acquire rides/7 --ttl 30s --export)"
  curl -X PUT -H "Fencing-Token: $FENCING_TOKEN" --data x http://127.0.0.1:8080/rides/7
  fenceproxy lease release rides/7

NAME is the key that "fenceproxy explain METHOD URL" shows for a request. One proxy, no consensus: the fence gives the safety, the
lease only spares wasted work.`,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c.Command.Subcommands, "fenceproxy lease", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			{
				Name: "run", Usage: "run a command for as long as a lease is held", ArgsUsage: "NAME -- COMMAND [ARGS]", Action: leaseRun,
				Description: `  fenceproxy lease run rides/7 --ttl 30s --wait 5m -- ./backup.sh --full

COMMAND gets FENCING_TOKEN and FENCING_RESOURCE in its environment. The lease is renewed each third of its time, and released at the end.
When it is lost, COMMAND and its children get SIGTERM, after --grace SIGKILL; their writes are refused in any case. Signals are passed
on. The exit code is that of COMMAND, 128 and more if a signal ended it, 1 without a lease, 127 if there is no such COMMAND.`,
				Flags: append(reachFlags("leases"), where, ttl, wait, owner,
					&cli.DurationFlag{Name: "grace", Value: 10 * time.Second, Usage: "when the lease is lost, kill COMMAND after `DURATION`"}),
			},
			{
				Name: "acquire", Usage: "take a lease", ArgsUsage: "NAME", Action: leaseAcquire,
				Description: `  fenceproxy lease acquire rides/7 --ttl 30s --wait 1m --json
  eval "$(fenceproxy lease acquire rides/7 --ttl 30s --export)"

Whoever takes a lease in this way renews it itself.`,
				Flags: append(reachFlags("leases"), where, ttl, wait, owner, jsonFlag(),
					&cli.BoolFlag{Name: "export", DisableDefaultText: true, Usage: "print lines for a shell: FENCING_RESOURCE, FENCING_TOKEN, FENCING_LEASE_SECRET"}),
			},
			{
				Name: "renew", Usage: "give a lease its whole time again", ArgsUsage: "NAME", Action: leaseRenew,
				Description: "  fenceproxy lease renew rides/7      # the secret from FENCING_LEASE_SECRET", Flags: append(reachFlags("leases"), where, secret, jsonFlag()),
			},
			{
				Name: "release", Usage: "give a lease back", ArgsUsage: "NAME", Action: leaseRelease,
				Description: "  fenceproxy lease release rides/7    # the secret from FENCING_LEASE_SECRET", Flags: append(reachFlags("leases"), where, secret),
			},
			{
				Name: "show", Usage: "show who holds a lease", ArgsUsage: "NAME", Action: leaseShow,
				Description: "  fenceproxy lease show rides/7", Flags: append(reachFlags("leases"), where, jsonFlag()),
			},
		},
	}
}

// withLease calls do with the only argument, the name of a lease, and who to ask.
func withLease(c *cli.Context, do func(ctx context.Context, l *leaseClient, name string) error) error {
	args, err := arguments(c)
	if err != nil {
		return err
	}
	if len(args) != 1 || args[0] == "" {
		return withHint(usagef("lease %s takes NAME, and got %s", c.Command.Name, count(len(args), "argument")), "fenceproxy lease "+c.Command.Name+" rides/7")
	}
	l, err := newLeaseClient(c)
	if err != nil {
		return err
	}
	return leaseHint(do(c.Context, l, args[0]))
}

// leaseHint adds the next step to a refusal.
func leaseHint(err error) error {
	refusal, ok := errors.AsType[*leaseRefusal](err)
	switch {
	case !ok:
	case refusal.Type == lease.TypeHeld:
		return withHint(err, "stand in line with --wait 1m")
	case refusal.Type == lease.TypeExhausted:
		return withHint(err, "fenceproxy marks set --lower --reason WHY "+refusal.Resource+" N, once no writer with a higher token is left")
	}
	return err
}

// ownerOf returns what others are told.
func ownerOf(c *cli.Context) string {
	if c.IsSet("owner") {
		return c.String("owner")
	}
	who := operator()
	return who[:min(len(who), lease.MaxOwner)]
}

func leaseAcquire(c *cli.Context) error {
	return withLease(c, func(ctx context.Context, l *leaseClient, name string) error {
		if c.Bool("json") && c.Bool("export") {
			return usagef("give --json or --export, not both")
		}
		g, err := l.acquire(ctx, name, c.Duration("ttl"), c.Duration("wait"), ownerOf(c))
		switch {
		case err != nil:
			return err
		case c.Bool("json"):
			return writeJSON(c.App.Writer, g)
		case c.Bool("export"):
			_, err := fmt.Fprintf(c.App.Writer, "export FENCING_RESOURCE=%s FENCING_TOKEN=%s FENCING_LEASE_SECRET=%s\n", quoted(g.Name), quoted(g.Token), quoted(g.Secret))
			return err
		}
		return facts(c.App.Writer, "resource", g.Name, "token", g.Token, "secret", g.Secret, "ttl", spell(g.TTL))
	})
}

// quoted is s as a word of a shell.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func spell(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}

// facts prints names and values, two by two.
func facts(out io.Writer, pairs ...string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(w, "%s\t%s\n", pairs[i], pairs[i+1])
	}
	return w.Flush()
}

func leaseSecret(c *cli.Context) (string, error) {
	if s := c.String("secret"); s != "" {
		return s, nil
	}
	return "", withHint(usagef("the secret of the lease is missing"), "it came with the lease: set FENCING_LEASE_SECRET, or give --secret")
}

func leaseRenew(c *cli.Context) error {
	return withLease(c, func(ctx context.Context, l *leaseClient, name string) error {
		secret, err := leaseSecret(c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		r, err := l.renew(ctx, name, secret)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return writeJSON(c.App.Writer, r)
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s: held for another %s\n", r.Name, spell(r.TTL))
		return err
	})
}

func leaseRelease(c *cli.Context) error {
	return withLease(c, func(ctx context.Context, l *leaseClient, name string) error {
		secret, err := leaseSecret(c)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return l.release(ctx, name, secret)
	})
}

func leaseShow(c *cli.Context) error {
	return withLease(c, func(ctx context.Context, l *leaseClient, name string) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		s, err := l.show(ctx, name)
		switch {
		case err != nil:
			return err
		case c.Bool("json"):
			return writeJSON(c.App.Writer, s)
		case !s.Held:
			_, err := fmt.Fprintf(c.App.Writer, "%s: nobody holds it\n", s.Name)
			return err
		}
		return facts(c.App.Writer, "resource", s.Name, "owner", s.Owner, "ttl", spell(s.TTL), "ends in", spell(s.Remaining), "waiting", fmt.Sprint(s.Waiting))
	})
}
