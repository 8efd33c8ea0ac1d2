package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "validate a configuration and print its policy table",
		Description: `  fenceproxy check --config fenceproxy.yaml

It reads the file exactly as serve does, names every problem with its line, and listens nowhere.`,
		Flags: append(overrideFlags(), &cli.BoolFlag{Name: "json", Usage: "print JSON"}),
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			cfg, err := loadConfig(c)
			if c.Bool("json") {
				return checkJSON(c, cfg, err)
			}
			if err != nil {
				return err
			}
			warn(c.App.ErrWriter, cfg)
			fmt.Fprintf(c.App.Writer, "%s -> %s\n\n", cfg.Listen.Address, cfg.Upstream)
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "POLICY\tMATCH\tMETHODS\tRESOURCE\tTOKEN\tMODE")
			for _, r := range cfg.Policies.Describe() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Match, r.Methods, r.Resource, r.Token, r.Mode)
			}
			return w.Flush()
		},
	}
}

func checkJSON(c *cli.Context, cfg *policies.Config, err error) error {
	out := struct {
		OK       bool               `json:"ok"`
		Problems []policies.Problem `json:"problems,omitempty"`
		Warnings []policies.Problem `json:"warnings,omitempty"`
		Policies []policies.Row     `json:"policies,omitempty"`
	}{OK: err == nil}
	if problems, ok := errors.AsType[*policies.Errors](err); ok {
		out.Problems = problems.Problems
	} else if err != nil {
		return err
	}
	if cfg != nil {
		out.Warnings, out.Policies = cfg.Warnings(), cfg.Policies.Describe()
	}
	if werr := writeJSON(c.App.Writer, out); werr != nil {
		return werr
	}
	return err
}

func writeJSON(w interface{ Write([]byte) (int, error) }, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
