package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// options are the command line.
type options struct {
	args       []string // as given, for the reports
	self       string   // the binary to start the store and the load of; "" for this one
	fenceproxy string   // binary; "" to build it
	out        string
	svg        string
	json       string
	dir        string
	rounds     int
	cell       time.Duration
	conns      int
	resources  int
	rate       float64
	load       string // "builtin" or "wrk"
	peers      []string
	workloads  []string
	smoke      bool
	requireAll bool
	wrong      bool
}

func parseOptions(args []string, stderr io.Writer) (*options, error) {
	o := &options{args: args}
	fs := flag.NewFlagSet("fencebench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.fenceproxy, "fenceproxy", "", "measure this fenceproxy `BINARY`; without it, it is built from this module")
	fs.StringVar(&o.out, "out", "", "write the Markdown to `FILE`; without it, to stdout")
	fs.StringVar(&o.svg, "svg", "", "write a plot to `FILE`")
	fs.StringVar(&o.json, "json", "", "write every measurement to `FILE`")
	fs.StringVar(&o.dir, "dir", "", "work in a new directory below `DIR`, which must be on a disk; without it, the system's temporary one or /var/tmp")
	fs.IntVar(&o.rounds, "rounds", 5, "measure `N` rounds")
	fs.DurationVar(&o.cell, "cell", 2*time.Second, "measure each workload of each peer for `DURATION` a round")
	fs.IntVar(&o.conns, "connections", 64, "use `N` connections for the small workloads")
	fs.IntVar(&o.resources, "resources", 10_000, "spread the small workloads over `N` resources")
	fs.Float64Var(&o.rate, "rate", 1000, "requests a second of the workload with a fixed rate")
	fs.StringVar(&o.load, "load", "builtin", "load generator: builtin, or wrk for the small workloads")
	peers := fs.String("peers", "", "measure only these, `NAME,NAME`: "+strings.Join(peerNames(), ", "))
	loads := fs.String("workloads", "", "measure only these, `ID,ID`: "+strings.Join(workloadIDs(), ", "))
	fs.BoolVar(&o.smoke, "smoke", false, "one short round of what is installed, to see that everything works; its numbers mean nothing")
	fs.BoolVar(&o.requireAll, "require-all", false, "a peer that is not installed is an error")
	fs.BoolVar(&o.wrong, "wrong", true, "run the experiments in which a stale write may land last")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &usageError{fmt.Errorf("%w: see fencebench --help", err)}
	}
	if fs.NArg() > 0 {
		return nil, &usageError{fmt.Errorf("unexpected argument %q: see fencebench --help", fs.Arg(0))}
	}
	o.peers, o.workloads = names(*peers), names(*loads)
	if o.smoke {
		o.rounds, o.cell, o.resources = 1, min(o.cell, 200*time.Millisecond), min(o.resources, 500)
	}
	return o, o.check()
}

func (o *options) check() error {
	for _, n := range o.peers {
		if !slices.Contains(peerNames(), n) {
			return &usageError{fmt.Errorf("--peers: no peer is named %q: take some of %s", n, strings.Join(peerNames(), ", "))}
		}
	}
	for _, n := range o.workloads {
		if !slices.Contains(workloadIDs(), n) {
			return &usageError{fmt.Errorf("--workloads: no workload is named %q: take some of %s", n, strings.Join(workloadIDs(), ", "))}
		}
	}
	switch {
	case o.load != "builtin" && o.load != "wrk":
		return &usageError{fmt.Errorf("--load: %q is not a load generator: take builtin or wrk", o.load)}
	case o.rounds < 1 || o.conns < 1 || o.resources < 1 || o.cell <= 0 || o.rate <= 0:
		return &usageError{errors.New("--rounds, --cell, --connections, --resources and --rate must be above 0")}
	}
	return nil
}

// names splits a comma list.
func names(list string) []string {
	var out []string
	for n := range strings.SplitSeq(list, ",") {
		if n = strings.TrimSpace(n); n != "" {
			out = append(out, n)
		}
	}
	return out
}
