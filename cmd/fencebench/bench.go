package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// bench is a whole run.
func bench(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	if err := supported(); err != nil {
		return err
	}
	l, err := newLab(ctx, o)
	defer l.close()
	if err != nil {
		return err
	}
	r := newReport(ctx, o, l)
	r.Missing, err = l.startPeers(ctx, o.wantsPeer, o.requireAll)
	if err != nil {
		return err
	}
	for name, why := range r.Missing {
		fmt.Fprintf(stderr, "missing: %s: %s\n", name, why)
	}
	if len(l.instances) == 0 {
		return errors.New("no peer can be measured: install one, or choose others with --peers")
	}
	s := sizesOf(o)
	for _, w := range allWorkloads(s) {
		if len(o.workloads) == 0 || slices.Contains(o.workloads, w.id) {
			r.works = append(r.works, w)
		}
	}
	if err := l.prime(ctx, s, stderr); err != nil {
		return interrupted(ctx, err)
	}
	if r.Cells, err = l.rounds(ctx, o, r.works, stderr); err != nil {
		return interrupted(ctx, err)
	}
	if o.wrong {
		if r.Verdicts, err = l.experiments(ctx, stderr); err != nil {
			return interrupted(ctx, err)
		}
	}
	r.finish()
	return r.write(o, stdout)
}

func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was written")
	}
	return err
}

func (o *options) wantsPeer(p *peer) bool {
	return len(o.peers) == 0 || slices.Contains(o.peers, p.name)
}

// report is everything that a run found out. It is what --json writes.
type report struct {
	Command  string            `json:"command"`
	Date     time.Time         `json:"date"`
	Duration string            `json:"duration"`
	Machine  machine           `json:"machine"`
	Versions []version         `json:"versions"`
	Rounds   int               `json:"rounds"`
	Cell     string            `json:"cell"`
	Smoke    bool              `json:"smoke"`
	Peers    []string          `json:"peers"` // that were asked for
	Missing  map[string]string `json:"missing"`
	Summary  []summary         `json:"summary"`
	Verdicts []verdict         `json:"verdicts"`
	Cells    []cell            `json:"cells"`

	works []*workload
}

func newReport(ctx context.Context, o *options, l *lab) *report {
	r := &report{
		Command: commandLine(o), Date: time.Now().UTC().Truncate(time.Second), Machine: thisMachine(),
		Versions: versions(ctx, l), Rounds: o.rounds, Cell: o.cell.String(), Smoke: o.smoke,
	}
	for _, p := range allPeers() {
		if o.wantsPeer(p) {
			r.Peers = append(r.Peers, p.name)
		}
	}
	return r
}

func (r *report) finish() {
	r.Duration = time.Since(r.Date).Round(time.Second).String()
	for _, w := range r.works {
		r.Summary = append(r.Summary, summarise(r.Cells, w)...)
	}
}

func (r *report) write(o *options, stdout io.Writer) error {
	md := markdown(r)
	if o.out == "" {
		if _, err := io.WriteString(stdout, md); err != nil {
			return err
		}
	} else if err := os.WriteFile(o.out, []byte(md), 0o644); err != nil {
		return fmt.Errorf("write the table: %w: name another file with --out", err)
	}
	if o.svg != "" {
		if err := os.WriteFile(o.svg, []byte(plot(r)), 0o644); err != nil {
			return fmt.Errorf("write the plot: %w: name another file with --svg", err)
		}
	}
	if o.json != "" {
		b, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return fmt.Errorf("write the measurements: %w: name another file with --json", err)
		}
	}
	return nil
}
