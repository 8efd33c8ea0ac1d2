package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/admin"
	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "validate a configuration and print its policy table",
		Description: `  fenceproxy check --config fenceproxy.yaml
  fenceproxy check --config fenceproxy.yaml --probe --probe-prefix /folder --yes

It reads the file exactly as serve does and shows every problem with its line; then the files that it names (certificates, CAs, the
token of the operators), whose problems have none. It listens nowhere and opens no directory. With --probe it also writes to the store, below a scratch prefix that it removes, as "fenceproxy probe" does.`,
		Flags: append(append(without(overrideFlags(), "dir", "must-exist", "upstream-timeout", "log-level", "log-format"), probeFlags()...), jsonFlag()),
		Action: func(c *cli.Context) error {
			if err := noArgs(c); err != nil {
				return err
			}
			cfg, err := loadConfig(c)
			if err == nil {
				err = checkFiles(c, cfg)
			}
			var weak []probe.Weakness
			if err == nil {
				if weak, err = probeConfig(c, cfg); isUsage(err) {
					return err
				}
			}
			if c.Bool("json") {
				return checkJSON(c, cfg, weak, err)
			}
			if err != nil {
				return err
			}
			warn(c.App.ErrWriter, cfg)
			for _, w := range weak {
				fmt.Fprintf(c.App.ErrWriter, "fenceproxy: warning: %v\n", w)
			}
			printListeners(c.App.Writer, cfg)
			w := tabwriter.NewWriter(c.App.Writer, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "POLICY\tMATCH\tMETHODS\tRESOURCE\tTOKEN\tMODE")
			for _, r := range cfg.Policies.Describe() {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Name, r.Match, r.Methods, r.Resource, r.Token, r.Mode)
			}
			return w.Flush()
		},
	}
}

// printListeners prints what is served to clients, and the limits that differ from the usual ones.
func printListeners(w io.Writer, cfg *policies.Config) {
	if cfg.Upstream.URL != nil {
		fmt.Fprintf(w, "%s -> %s\n", cfg.Listen.Address, cfg.Upstream)
	}
	for i := range cfg.Forward.Stores {
		store := &cfg.Forward.Stores[i]
		names := strings.Join(store.Names(), ", ")
		fmt.Fprintf(w, "%s (forward) -> %s as %s/...; named %s\n", cfg.Forward.Listen.Address, store.Upstream, store.Authority, names)
	}
	if limits := cfg.DescribeLimits(); limits != "" {
		fmt.Fprintf(w, "limits: %s\n", limits)
	}
	fmt.Fprintln(w)
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
	Policy  string `json:"policy,omitempty"` // of what the store, not the file, shows
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func checkJSON(c *cli.Context, cfg *policies.Config, weak []probe.Weakness, err error) error {
	out := checked{OK: err == nil}
	list := func(ps []policies.Problem) (out []checkedProblem) {
		for _, p := range ps {
			out = append(out, checkedProblem{File: p.File, Line: p.Line, Column: p.Column, Path: p.Path, Message: p.Message, Hint: p.Hint})
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
		for _, w := range weak {
			out.Warnings = append(out.Warnings, checkedProblem{Policy: w.Policy, Path: w.Option, Message: w.Message, Hint: w.Fix()})
		}
		for _, r := range cfg.Policies.Describe() {
			out.Policies = append(out.Policies, admin.Policy(r))
		}
	}
	if werr := writeJSON(c.App.Writer, out); werr != nil {
		return werr
	}
	return err
}

func isUsage(err error) bool {
	_, ok := errors.AsType[*usageError](err)
	return ok
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
