package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/admin"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func marksCommand() *cli.Command {
	where := append(adminFlags(),
		&cli.StringFlag{Name: "admin-token-file", EnvVars: []string{"FENCEPROXY_ADMIN_TOKEN_FILE"}, Usage: "read the bearer token for changes from `FILE`", TakesFile: true},
		&cli.StringFlag{Name: "dir", Usage: "open the token store in `DIR`, of a proxy that is stopped", TakesFile: true},
	)
	with := func(flags ...cli.Flag) []cli.Flag { return append(append([]cli.Flag(nil), where...), flags...) }
	asJSON := jsonFlag()
	return &cli.Command{
		Name:      "marks",
		Usage:     "look at high-water marks, move them, or set one by hand",
		UsageText: "fenceproxy marks command [command options]",
		Description: `They talk to a running proxy at --admin, or open the directory of a stopped one with --dir.

  fenceproxy marks list --prefix rides/
  fenceproxy marks get rides/7
  fenceproxy marks set --admin-token-file admin.token rides/7 40
  fenceproxy marks set --dir ./marks --lower --reason 'etcd restored from backup' rides/7 3
  fenceproxy marks release --admin-token-file admin.token --reason 'ride was cancelled' rides/7
  fenceproxy marks export --output marks.jsonl
  fenceproxy marks import --dir ./marks marks.jsonl`,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c.Command.Subcommands, "fenceproxy marks", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "list marks in the order of their resources", Action: marksList,
				Description: "  fenceproxy marks list --prefix rides/\n  fenceproxy marks list --dir ./marks --json",
				Flags:       with(&cli.StringFlag{Name: "prefix", Usage: "only resources that begin with `PREFIX`"}, asJSON),
			},
			{
				Name: "get", Usage: "show one mark", ArgsUsage: "RESOURCE", Action: marksGet, Flags: with(asJSON),
				Description: "  fenceproxy marks get rides/7\n  fenceproxy marks get --dir ./marks rides/7",
			},
			{
				Name: "set", Usage: "set one mark; upwards, unless told otherwise", ArgsUsage: "RESOURCE TOKEN", Action: marksSet,
				Description: `  fenceproxy marks set --admin-token-file admin.token rides/7 40
  fenceproxy marks set --dir ./marks --lower --reason 'etcd restored from backup' rides/7 3

RESOURCE is the key that "fenceproxy explain METHOD URL" shows for a request.`,
				Flags: with(
					&cli.StringFlag{Name: "format", Usage: "read TOKEN in `FORMAT`: decimal, hex, znode or pair (default: that of the present mark)"},
					&cli.UintFlag{Name: "epoch", DefaultText: "that of the present mark", Usage: "let TOKEN count in the policy's epoch `N`"},
					&cli.BoolFlag{Name: "lower", DisableDefaultText: true, Usage: "let the mark fall; old tokens are let in again"},
					&cli.StringFlag{Name: "reason", Usage: "say `WHY`; it is kept with the mark and in the log"}, asJSON),
			},
			{
				Name: "release", Usage: "end the hold that an id has on a resource", ArgsUsage: "RESOURCE", Action: marksRelease,
				Description: `  fenceproxy marks release --admin-token-file admin.token --reason 'ride was cancelled' rides/7
  fenceproxy marks release --dir ./marks --reason 'ride was cancelled' rides/7

The next id that writes claims the resource; writes of the old holder that are under way are waited for.`,
				Flags: with(&cli.StringFlag{Name: "reason", Usage: "say `WHY`; it is kept with the mark and in the log"}, asJSON),
			},
			{
				Name: "export", Usage: "write all marks as JSON lines", Action: marksExport,
				Description: "  fenceproxy marks export --output marks.jsonl\n  fenceproxy marks export --dir ./marks --output marks.jsonl",
				Flags:       with(&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to `FILE` instead of standard output", TakesFile: true}),
			},
			{
				Name: "import", Usage: "merge an export: each resource keeps the higher mark", ArgsUsage: "FILE", Action: marksImport,
				Description: `  fenceproxy marks import --admin-token-file admin.token marks.jsonl
  fenceproxy marks import --dir ./marks marks.jsonl

FILE - is standard input. A cut or altered file changes nothing.`, Flags: with(asJSON),
			},
		},
	}
}

// marks is where the marks are: at a running proxy or in a directory.
type marks interface {
	list(ctx context.Context, prefix string, each func(admin.Mark) error) error
	get(ctx context.Context, r fencing.Resource) (admin.Mark, error)
	set(ctx context.Context, r fencing.Resource, c admin.Change) (admin.Changed, error)
	release(ctx context.Context, c admin.Release) error
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
	if c.IsSet("admin") && !fromEnvironment(c.String("admin")) {
		return usagef("give --admin for a running proxy or --dir for a stopped one, not both")
	}
	log := slog.New(slog.NewTextHandler(c.App.ErrWriter, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := tokenstore.Open(c.Context, dir, tokenstore.Options{MustExist: true, Logger: log})
	if err != nil {
		if errors.Is(err, tokenstore.ErrMissing) {
			return withHint(fmt.Errorf("there is no token store in %s", dir), "name the directory of the proxy's token_store.dir with --dir, or leave it out to ask a running proxy")
		}
		return storeError(dir, err)
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

// marksArgs returns a command's arguments, which have to be as many as its usage names.
func marksArgs(c *cli.Context) ([]string, error) {
	args, err := arguments(c)
	if err != nil {
		return nil, err
	}
	want := c.Command.ArgsUsage
	if len(args) != len(strings.Fields(want)) {
		if want == "" {
			want = "no arguments"
		}
		return nil, withHint(usagef("marks %s takes %s, and got %s", c.Command.Name, want, count(len(args), "argument")),
			"see fenceproxy marks "+c.Command.Name+" --help")
	}
	return args, nil
}

// resourceArgs returns a command's arguments, of which the first is a resource.
func resourceArgs(c *cli.Context) (fencing.Resource, []string, error) {
	args, err := marksArgs(c)
	if err != nil {
		return "", nil, err
	}
	r := fencing.Resource(args[0])
	if err := r.Check(); err != nil {
		return "", nil, &usageError{err}
	}
	return r, args, nil
}

func marksList(c *cli.Context) error {
	if _, err := marksArgs(c); err != nil {
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
		fmt.Fprintln(w, "RESOURCE\tMARK\tEPOCH\tHOLD\tSINCE\tBY\tPOLICY\tIN FLIGHT\tIN DOUBT\tWAITING")
		err := m.list(c.Context, c.String("prefix"), func(one admin.Mark) error {
			_, err := fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", one.Resource, one.Token, one.Epoch, describeHold(one.Hold), one.At.Format(time.RFC3339), one.By, one.Policy, one.InFlight, one.InDoubt, one.Waiting)
			return err
		})
		if err != nil {
			return err
		}
		return w.Flush()
	})
}

func marksGet(c *cli.Context) error {
	r, _, err := resourceArgs(c)
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
		return printMark(c.App.Writer, one)
	})
}

func printMark(w io.Writer, m admin.Mark) error {
	line := func(name, format string, args ...any) string {
		return fmt.Sprintf("%-9s ", name) + fmt.Sprintf(format, args...) + "\n"
	}
	text := line("resource", "%s", m.Resource) + line("mark", "%s (%s)", m.Token, m.Format)
	if m.Epoch != 0 {
		text += line("epoch", "%d", m.Epoch)
	}
	text += line("since", "%s", m.At.Format(time.RFC3339))
	if m.Hold != nil {
		text += line("hold", "%s", describeHold(m.Hold))
		if m.Hold.Holder != "" {
			text += line("holder", "%s", m.Hold.Holder)
		}
	}
	for _, l := range []struct{ name, value string }{{"by", m.By}, {"policy", m.Policy}, {"reason", m.Reason}} {
		if l.value != "" {
			text += line(l.name, "%s", l.value)
		}
	}
	if m.InFlight+m.InDoubt+m.Waiting > 0 {
		text += line("now", "%d in flight, %d in doubt, %d waiting", m.InFlight, m.InDoubt, m.Waiting)
	}
	_, err := io.WriteString(w, text)
	return err
}

// describeHold says in some words how long a hold lasts.
func describeHold(h *admin.Hold) string {
	switch {
	case h == nil:
		return "-"
	case h.Expired:
		return "expired"
	case h.TTL == "":
		return "held"
	case h.Left == 0:
		return "held, ttl " + h.TTL
	}
	return fmt.Sprintf("held, %s left", max(time.Second, time.Duration(h.Left*float64(time.Second)).Round(time.Second)))
}

func marksRelease(c *cli.Context) error {
	r, _, err := resourceArgs(c)
	if err != nil {
		return err
	}
	release := admin.Release{Resource: string(r), Reason: c.String("reason"), By: operator()}
	if release.Reason == "" {
		return withHint(usagef("to release a hold give a --reason"), "it is kept with the mark and in the log")
	}
	return withMarks(c, func(m marks) error {
		if err := m.release(c.Context, release); err != nil {
			return err
		}
		if c.Bool("json") {
			return writeJSON(c.App.Writer, admin.Released{Resource: release.Resource})
		}
		_, err := fmt.Fprintf(c.App.Writer, "%s: released\n", release.Resource)
		return err
	})
}

func marksSet(c *cli.Context) error {
	r, args, err := resourceArgs(c)
	if err != nil {
		return err
	}
	change := admin.Change{Token: args[1], Format: c.String("format"), Lower: c.Bool("lower"), Reason: c.String("reason"), By: operator()}
	if c.IsSet("epoch") {
		n := c.Uint("epoch")
		if n > policies.MaxEpoch {
			return usagef("--epoch %d is out of range: 0 to %d", n, policies.MaxEpoch)
		}
		epoch := uint32(n)
		change.Epoch = &epoch
	}
	if change.Lower && change.Reason == "" {
		return withHint(usagef("to lower a mark give a --reason"), "it is kept with the mark and in the log")
	}
	return withMarks(c, func(m marks) error {
		done, err := m.set(c.Context, r, change)
		if err != nil {
			if change.Epoch == nil && strings.HasSuffix(err.Error(), admin.ErrEpoch.Error()) {
				return withHint(err, "add --epoch N, that of the policy")
			}
			if hex := strings.ToLower(change.Token); change.Format == "" && strings.HasPrefix(hex, "0x") && hintOf(err) == "" {
				return withHint(err, "for a hexadecimal token add --format hex")
			}
			return err
		}
		if done.Old == "" {
			warnNewMark(c.App.ErrWriter, r)
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

// warnNewMark says that a mark was set where there was none: the key may be mistyped, and would guard nothing.
func warnNewMark(w io.Writer, r fencing.Resource) {
	fmt.Fprintf(w, "fenceproxy: warning: %q had no mark before; fenceproxy explain METHOD URL shows the key that a request has\n", r)
	if bare := strings.TrimLeft(string(r), "/"); bare != "" && bare != string(r) {
		fmt.Fprintf(w, "hint: did you mean %s? A key that comes from a path has no slash in front\n", bare)
	}
}

// operator names who runs the command, for the record.
func operator() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return userName() + "@" + host
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", os.Getuid()) // in a container there may be no /etc/passwd
}

func marksExport(c *cli.Context) error {
	if _, err := marksArgs(c); err != nil {
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
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // the temporary file is nobody's business
		}
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer os.Remove(f.Name())
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func marksImport(c *cli.Context) error {
	args, err := marksArgs(c)
	if err != nil {
		return err
	}
	in := c.App.Reader
	if name := args[0]; name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return withHint(err, "name a file that fenceproxy marks export has written, or - for standard input")
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
