package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/admin"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "validate a configuration and print its policy table",
		Description: `  fenceproxy check --config fenceproxy.yaml

It reads the file, and those that it names, exactly as serve does, and shows every problem with its line. It listens nowhere and opens
no directory.`,
		Flags: append(without(overrideFlags(), "dir", "must-exist", "upstream-timeout", "log-level", "log-format"), jsonFlag()),
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			cfg, err := loadConfig(c)
			if err == nil {
				err = checkFiles(cfg)
			}
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

// checked is what check --json prints.
type checked struct {
	OK       bool             `json:"ok"`
	Problems []checkedProblem `json:"problems,omitempty"`
	Warnings []checkedProblem `json:"warnings,omitempty"`
	Policies []admin.Policy   `json:"policies,omitempty"`
}

type checkedProblem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func checkJSON(c *cli.Context, cfg *policies.Config, err error) error {
	out := checked{OK: err == nil}
	list := func(ps []policies.Problem) (out []checkedProblem) {
		for _, p := range ps {
			out = append(out, checkedProblem(p))
		}
		return out
	}
	if problems, ok := errors.AsType[*policies.Errors](err); ok {
		out.Problems = list(problems.Problems)
		err = fmt.Errorf("the configuration cannot be used, %s", count(len(problems.Problems), "problem"))
	} else if err != nil {
		out.Problems = []checkedProblem{{File: c.String("config"), Message: err.Error(), Hint: hintOf(err)}}
	}
	if cfg != nil {
		out.Warnings = list(cfg.Warnings())
		for _, r := range cfg.Policies.Describe() {
			out.Policies = append(out.Policies, admin.Policy(r))
		}
	}
	if werr := writeJSON(c.App.Writer, out); werr != nil {
		return werr
	}
	return err
}

func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", DisableDefaultText: true, Usage: "print JSON"}
}

func writeJSON(w interface{ Write([]byte) (int, error) }, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
