package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"
)

// cell is one measurement: a workload against a peer in a round.
type cell struct {
	Workload   string     `json:"workload"`
	Peer       string     `json:"peer"`
	Round      int        `json:"round"`
	Load       loadResult `json:"load"`
	PerSecond  float64    `json:"requests_per_second"`
	CPU        float64    `json:"cpu_us_per_request"` // of all processes of the peer
	RSS        int64      `json:"rss_bytes"`          // of all processes of the peer, after the load
	Processes  int        `json:"processes"`
	Unexpected int        `json:"unexpected"` // answers that the workload is not about
}

// rounds measures every workload of every instance, in every round.
func (l *lab) rounds(ctx context.Context, o *options, works []*workload, progress io.Writer) ([]cell, error) {
	var cells []cell
	begin := time.Now()
	for round := range o.rounds {
		for _, w := range works {
			for _, n := range order(len(l.instances), round) {
				i := l.instances[n]
				if !w.wants(i.peer) {
					continue
				}
				c, err := l.measure(ctx, o, w, i)
				if err != nil {
					return cells, fmt.Errorf("measure %s on %s: %w", i.peer.name, w.id, err)
				}
				c.Round = round
				cells = append(cells, c)
				fmt.Fprintf(progress, "%4.0fs round %d/%d %-12s %-15s %8.0f/s  p50 %7.0f us  cpu %8.1f us\n",
					time.Since(begin).Seconds(), round+1, o.rounds, w.id, i.peer.name, c.PerSecond, c.Load.P50, c.CPU)
			}
		}
	}
	return cells, nil
}

func (l *lab) measure(ctx context.Context, o *options, w *workload, i *instance) (cell, error) {
	spec := w.spec
	spec.Address, spec.Seconds = i.address, o.cell.Seconds()
	if spec.Raise {
		spec.Token = i.tokens
	}
	run := l.runLoad
	if o.load == "wrk" && !w.large && !spec.Expect && spec.Rate == 0 {
		run = l.runWrk
	}
	before, err := i.used()
	if err != nil {
		return cell{}, err
	}
	r, err := run(ctx, spec)
	if err != nil {
		return cell{}, err
	}
	after, err := i.used()
	if err != nil {
		return cell{}, err
	}
	i.tokens = max(i.tokens, r.LastToken)
	if r.Requests == 0 || r.Seconds <= 0 {
		return cell{}, fmt.Errorf("not one request was answered: %s: see whether %s works by hand", r.FirstError, i.peer.name)
	}
	return cell{
		Workload: w.id, Peer: i.peer.name, Load: r, PerSecond: float64(r.Requests) / r.Seconds,
		CPU: float64((after.cpu - before.cpu).Microseconds()) / float64(r.Requests), RSS: after.rss, Processes: after.processes,
		Unexpected: r.Requests - w.expected(i.peer, r) + r.Errors,
	}, nil
}

// prime brings every instance to the state in which the workloads find it.
func (l *lab) prime(ctx context.Context, s sizes, progress io.Writer) error {
	for _, i := range l.instances {
		begin := time.Now()
		for _, spec := range primers(s) {
			spec.Address = i.address
			r, err := l.runLoad(ctx, spec)
			if err != nil {
				return err
			}
			if r.Errors > 0 || r.Statuses["204"] != r.Requests {
				return fmt.Errorf("%s does not take the first writes to %s: answers %v, %s: try --peers without it; its log: %s",
					i.peer.name, spec.Path, r.Statuses, r.FirstError, i.tail())
			}
		}
		fmt.Fprintf(progress, "primed %-15s in %.1fs, on %s\n", i.peer.name, time.Since(begin).Seconds(), i.address)
	}
	return nil
}

// runLoad runs the load generator as a process of its own.
func (l *lab) runLoad(ctx context.Context, spec loadSpec) (loadResult, error) {
	in, err := json.Marshal(spec)
	if err != nil {
		return loadResult{}, err
	}
	var r loadResult
	cmd := exec.CommandContext(ctx, l.self, "load")
	endWithParent(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return r, fmt.Errorf("load generator: %w: %s", err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		return r, fmt.Errorf("read what the load generator printed: %w", err)
	}
	return r, nil
}

// measured are the peers with a cell of a workload, in the order of the reports.
func measured(cells []cell, id string) []string {
	var names []string
	for _, name := range peerNames() {
		if slices.ContainsFunc(cells, func(c cell) bool { return c.Workload == id && c.Peer == name }) {
			names = append(names, name)
		}
	}
	return names
}
