package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/proxy/admin"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func marksCommand() *cli.Command {
	where := append(adminFlags(),
		&cli.StringFlag{Name: "admin-token-file", EnvVars: []string{"FENCEPROXY_ADMIN_TOKEN_FILE"}, Usage: "bearer token for changes, in `FILE`", TakesFile: true},
		&cli.StringFlag{Name: "dir", Usage: "the token store of a stopped proxy, `DIR`", TakesFile: true},
	)
	with := func(flags ...cli.Flag) []cli.Flag { return append(append([]cli.Flag(nil), where...), flags...) }
	asJSON := &cli.BoolFlag{Name: "json", Usage: "print JSON"}
	return &cli.Command{
		Name:  "marks",
		Usage: "look at high-water marks, move them, or set one by hand",
		Description: `They talk to a running proxy at --admin, or open the directory of a stopped one with --dir.

  fenceproxy marks list --prefix rides/
  fenceproxy marks get rides/7
  fenceproxy marks set --admin-token-file admin.token rides/7 40
  fenceproxy marks set --dir ./marks --lower --reason 'etcd restored from backup' rides/7 3
  fenceproxy marks export --output marks.jsonl
  fenceproxy marks import --dir ./marks marks.jsonl`,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("there is no command %q under marks: use list, get, set, export or import", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list marks in the order of their resources", Action: marksList,
				Flags: with(&cli.StringFlag{Name: "prefix", Usage: "only resources that begin with `PREFIX`"}, asJSON),
			},
			{Name: "get", Usage: "show one mark", ArgsUsage: "RESOURCE", Action: marksGet, Flags: with(asJSON)},
			{
				Name: "set", Usage: "set one mark; upwards, unless told otherwise", ArgsUsage: "RESOURCE TOKEN", Action: marksSet,
				Flags: with(
					&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the token: decimal, hex, znode or pair (default: that of the present mark)"},
					&cli.BoolFlag{Name: "lower", Usage: "let the mark fall; old tokens are let in again"},
					&cli.StringFlag{Name: "reason", Usage: "`WHY`; kept with the mark and in the log"}, asJSON),
			},
			{
				Name: "export", Usage: "write all marks as JSON lines", Action: marksExport,
				Flags: with(&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` instead of standard output", TakesFile: true}),
			},
			{
				Name: "import", Usage: "merge an export: each resource keeps the higher mark", ArgsUsage: "FILE", Action: marksImport,
				Description: "FILE - is standard input. A cut or altered file changes nothing.", Flags: with(asJSON),
			},
		},
	}
}

// marks is where the marks are: at a running proxy or in a directory.
type marks interface {
	list(ctx context.Context, prefix string, each func(admin.Mark) error) error
	get(ctx context.Context, r fencing.Resource) (admin.Mark, error)
	set(ctx context.Context, r fencing.Resource, c admin.Change) (admin.Changed, error)
	export(ctx context.Context, w io.Writer) error
	imports(ctx context.Context, r io.Reader) (tokenstore.ImportResult, error)
}

// withMarks opens what the flags name and closes it.
func withMarks(c *cli.Context, do func(marks) error) (err error) {
	dir := c.String("dir")
	if dir == "" {
		r, err := newRemote(c)
		if err != nil {
			return err
		}
		return do(remoteMarks{r})
	}
	if c.IsSet("admin") {
		return usagef("give --admin for a running proxy or --dir for a stopped one, not both")
	}
	log := slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := tokenstore.Open(c.Context, dir, tokenstore.Options{MustExist: true, Logger: log})
	if err != nil {
		return storeError(err)
	}
	// The proxy's own stop decides whether its next start has to wait for writes, not this look at its directory.
	clean := !s.UncleanStop()
	defer func() {
		if cerr := s.Close(clean); err == nil {
			err = cerr
		}
	}()
	return do(localMarks{s})
}

func resourceArg(c *cli.Context, n int) (fencing.Resource, error) {
	if c.Args().Len() != n {
		return "", withHint(usagef("marks %s needs %s, and got %s", c.Command.Name, c.Command.ArgsUsage, count(c.Args().Len(), "argument")), "flags stand before the arguments")
	}
	r := fencing.Resource(c.Args().First())
	if err := r.Check(); err != nil {
		return "", &usageError{err}
	}
	return r, nil
}

func marksList(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	return withMarks(c, func(m marks) error {
		if c.Bool("json") {
			all := []admin.Mark{}
			if err := m.list(c.Context, c.String("prefix"), func(one admin.Mark) error { all = append(all, one); return nil }); err != nil {
				return err
			}
			return writeJSON(c.App.Writer, all)
		}
		w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "RESOURCE\tMARK\tADVANCED\tBY\tPOLICY\tIN FLIGHT\tIN DOUBT\tWAITING")
		err := m.list(c.Context, c.String("prefix"), func(one admin.Mark) error {
			_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", one.Resource, one.Token, one.At.Format(time.RFC3339), one.By, one.Policy, one.InFlight, one.InDoubt, one.Waiting)
			return err
		})
		if err != nil {
			return err
		}
		return w.Flush()
	})
}

func marksGet(c *cli.Context) error {
	r, err := resourceArg(c, 1)
	if err != nil {
		return err
	}
	return withMarks(c, func(m marks) error {
		one, err := m.get(c.Context, r)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return writeJSON(c.App.Writer, one)
		}
		fmt.Fprintf(c.App.Writer, "%s  %s (%s)\nadvanced  %s by %s through policy %q\n", one.Resource, one.Token, one.Format, one.At.Format(time.RFC3339), one.By, one.Policy)
		if one.Reason != "" {
			fmt.Fprintf(c.App.Writer, "reason    %s\n", one.Reason)
		}
		return nil
	})
}

func marksSet(c *cli.Context) error {
	r, err := resourceArg(c, 2)
	if err != nil {
		return err
	}
	change := admin.Change{Token: c.Args().Get(1), Format: c.String("format"), Lower: c.Bool("lower"), Reason: c.String("reason"), By: operator()}
	if change.Lower && change.Reason == "" {
		return withHint(usagef("to lower a mark give a --reason"), "it is kept with the mark and in the log")
	}
	return withMarks(c, func(m marks) error {
		done, err := m.set(c.Context, r, change)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return writeJSON(c.App.Writer, done)
		}
		if done.Old == "" {
			done.Old = "(none)"
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s: %s -> %s\n", done.Resource, done.Old, done.New)
		return err
	})
}

// operator names who runs the command, for the record.
func operator() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	name := "unknown user"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return name + "@" + host
}

func marksExport(c *cli.Context) error {
	if err := noArgs(c); err != nil {
		return err
	}
	file := c.String("output")
	return withMarks(c, func(m marks) error {
		if file == "" || file == "-" {
			return m.export(c.Context, c.App.Writer)
		}
		return writeFile(file, func(w io.Writer) error { return m.export(c.Context, w) })
	})
}

// writeFile has write fill a file that appears under its name only when it is whole.
func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func marksImport(c *cli.Context) error {
	if c.Args().Len() != 1 {
		return withHint(usagef("marks import needs one FILE, or - for standard input"), "flags stand before the arguments")
	}
	in := c.App.Reader
	if name := c.Args().First(); name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	return withMarks(c, func(m marks) error {
		res, err := m.imports(c.Context, in)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return writeJSON(c.App.Writer, res)
		}
		_, err = fmt.Fprintf(c.App.Writer, "%s read, %d raised, %d kept as they were\n", count(res.Marks, "mark"), res.Raised, res.Kept)
		return err
	})
}
