package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
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
		HideVersion:          true,
		Reader:               stdin,
		Writer:               stdout,
		ErrWriter:            stderr,
		EnableBashCompletion: true,
		Suggest:              true,
		OnUsageError:         onUsageError,
		ExitErrHandler:       func(*cli.Context, error) {},
		Commands: []*cli.Command{
			serveCommand(), checkCommand(), explainCommand(), marksCommand(), demoCommand(), completionCommand(), versionCommand(),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return unknownCommand(c, c.Args().First())
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
	for _, sub := range cmd.Subcommands {
		prepare(sub)
	}
}

func onUsageError(_ *cli.Context, err error, _ bool) error {
	return withHint(&usageError{err}, "see fenceproxy --help, or the command's own --help")
}

func unknownCommand(c *cli.Context, name string) error {
	err := usagef("there is no command %q", name)
	var names []string
	for _, cmd := range c.App.Commands {
		if !cmd.Hidden {
			names = append(names, cmd.Name)
		}
	}
	if near := cli.SuggestCommand(c.App.Commands, name); near != "" {
		return withHint(err, fmt.Sprintf("did you mean %q? The commands are %s", near, strings.Join(names, ", ")))
	}
	return withHint(err, "the commands are "+strings.Join(names, ", "))
}

// noArgs refuses arguments where a command takes none.
func noArgs(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("%s takes no arguments, and got %q", c.Command.Name, c.Args().First())
	}
	return nil
}
