package main

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
)

// newApp returns the command line. It writes only to the writers that it is given and never ends the process.
func newApp(stdin io.Reader, stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:  "fenceproxy",
		Usage: "fence writes to an HTTP store that cannot check fencing tokens",
		Description: `See it work:            fenceproxy demo
Put it before a store:  fenceproxy serve --upstream http://127.0.0.1:9000
With policies per path: fenceproxy serve --config fenceproxy.yaml
Ask before you deploy:  fenceproxy explain --config fenceproxy.yaml PUT /rides/7 -H 'Fencing-Token: 33'`,
		Version:              versionText(),
		HideVersion:          true, // the flag below, so that the version goes to stdout and nowhere else
		HideHelpCommand:      true, // helpCommand, which knows how to fail
		Reader:               stdin,
		Writer:               stdout,
		ErrWriter:            stderr,
		EnableBashCompletion: true,
		// A header or a reason may hold a comma.
		DisableSliceFlagSeparator: true,
		OnUsageError:              onUsageError,
		ExitErrHandler:            func(*cli.Context, error) {},
		Flags:                     []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version", DisableDefaultText: true}, cli.HelpFlag},
		Commands: []*cli.Command{
			serveCommand(), checkCommand(), explainCommand(), probeCommand(), marksCommand(), leaseCommand(), tokenCommand(), caCommand(), healthCommand(), demoCommand(),
			completionCommand(), versionCommand(), helpCommand(),
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return unknownCommand(c.App.Commands, "fenceproxy", c.Args().First())
			case c.Bool("version"):
				return printVersion(c)
			}
			return cli.ShowAppHelp(c)
		},
	}
	for _, cmd := range app.Commands {
		prepare(cmd)
	}
	return app
}

func prepare(cmd *cli.Command) {
	cmd.OnUsageError = onUsageError
	cmd.HideHelpCommand = true
	for _, sub := range cmd.Subcommands {
		prepare(sub)
	}
}

// onUsageError adds the next step to a flag that cannot be used.
func onUsageError(c *cli.Context, err error, _ bool) error {
	name, flags := "fenceproxy", c.App.Flags
	if c.Command != nil && c.Command.Name != c.App.Name {
		name, flags = "fenceproxy "+strings.TrimPrefix(c.Command.HelpName, "fenceproxy "), c.Command.Flags
	}
	see := "see " + name + " --help"
	if bad := badDuration.FindStringSubmatch(err.Error()); bad != nil {
		if _, ok := lookup(flags, bad[2]).(*cli.DurationFlag); ok {
			return usagef("--%s: %s is not a duration (write a number with its unit: 500ms, 30s, 2m)", bad[2], bad[1])
		}
	}
	unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !ok {
		return withHint(&usageError{err}, see)
	}
	unknown = strings.TrimLeft(unknown, "-")
	var known []string
	for _, f := range flags {
		known = append(known, f.Names()[0])
	}
	err = usagef("there is no flag --%s", unknown)
	if near := policies.Nearest(unknown, known); near != "" {
		see = fmt.Sprintf("did you mean --%s? %s", near, "S"+see[1:])
	}
	return withHint(err, see)
}

// badDuration is what urfave/cli says of a value, given or from the environment, that a flag cannot take.
var badDuration = regexp.MustCompile(`^(?:invalid value|could not parse) ("(?:[^"\\]|\\.)*") (?:as duration value from .*)?for flag -?([^\s:]+): `)

// unknownCommand says which commands there are. of is what they belong to.
func unknownCommand(commands []*cli.Command, of, name string) error {
	var names []string
	for _, cmd := range commands {
		if !cmd.Hidden {
			names = append(names, cmd.Name)
		}
	}
	hint := "the commands are " + strings.Join(names, ", ")
	if near := policies.Nearest(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q? The commands are %s", of+" "+near, strings.Join(names, ", "))
	}
	return withHint(usagef("there is no command %q", of+" "+name), hint)
}

// helpCommand shows help, as --help does.
func helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "show help for a command", ArgsUsage: "[COMMAND]",
		Action: func(c *cli.Context) error {
			commands, of := c.App.Commands, "fenceproxy"
			args := []string{c.App.Name}
			for _, name := range c.Args().Slice() {
				i := slices.IndexFunc(commands, func(cmd *cli.Command) bool { return cmd.Name == name })
				if i < 0 {
					return unknownCommand(commands, of, name)
				}
				commands, of, args = commands[i].Subcommands, of+" "+name, append(args, name)
			}
			return newApp(c.App.Reader, c.App.Writer, c.App.ErrWriter).RunContext(c.Context, append(args, "--help"))
		},
	}
}

// noArgs refuses arguments where a command takes none.
func noArgs(c *cli.Context) error {
	if !c.Args().Present() {
		return nil
	}
	first := c.Args().First()
	hint := "see fenceproxy " + strings.TrimPrefix(c.Command.HelpName, "fenceproxy ") + " --help"
	if lookup(c.Command.Flags, "config") != nil && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(first)) {
		hint = "did you mean --config " + first + "?"
	}
	return withHint(usagef("%s takes no arguments, and got %q", c.Command.Name, first), hint)
}
