package main

import (
	"fmt"
	"slices"
	"strings"
)

// markdown is the report for people: one table over everything, then one for each workload and one for the experiments.
func markdown(r *report) string {
	var b strings.Builder
	heading(&b, r)
	overview(&b, r)
	experimentTable(&b, r)
	for _, w := range r.works {
		workloadTable(&b, r, w)
	}
	return b.String()
}

func heading(b *strings.Builder, r *report) {
	fmt.Fprintf(b, "# fenceproxy beside its peers\n\n")
	if r.Smoke {
		fmt.Fprintf(b, "**A smoke run: it shows that everything works. Its numbers mean nothing.**\n\n")
	}
	fmt.Fprintf(b, "    %s\n\n", r.Command)
	fmt.Fprintf(b, "%s, %s, %s, %d cores shared by the store, the load and the peer, load average %s at the start. %s, %s a cell, in %s. %s.\n\n",
		r.Date.Format("2006-01-02 15:04 MST"), r.Machine.Kernel, r.Machine.CPU, r.Machine.Cores, r.Machine.Load, rounds(r.Rounds), r.Cell, r.Duration, versionText(r))
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return fmt.Sprintf("%d rounds", n)
}

func versionText(r *report) string {
	var v []string
	for _, x := range r.Versions {
		v = append(v, x.Name+" "+x.Value)
	}
	return strings.Join(v, ", ")
}

// overview is the table of all peers: is it right, how fast is it, what does it cost.
func overview(b *strings.Builder, r *report) {
	fmt.Fprintf(b, "Each cell is *throughput / CPU for one request*, both as a ratio to the reference of its column: the median of the rounds, each ratio\nwithin one round. More throughput is better, less CPU is better. With a fixed rate it is *p50 / CPU*, and less of both is better.\n\n")
	row := []string{"peer", "stale write landed last"}
	for _, w := range r.works {
		title := w.title
		if w.spec.Rate > 0 {
			title += " (p50 / CPU)"
		}
		row = append(row, title)
	}
	table := [][]string{row}
	ref := []string{"*ratios to*", ""}
	for _, w := range r.works {
		name := ""
		for _, s := range r.Summary {
			if s.Workload == w.id {
				name = s.Ref
			}
		}
		ref = append(ref, "*"+name+"*")
	}
	table = append(table, ref)
	for _, name := range r.Peers {
		if why, ok := r.Missing[name]; ok {
			table = append(table, append([]string{name, "**missing**: " + why}, make([]string, len(r.works))...))
			continue
		}
		row := []string{strong(name), landedText(r, name)}
		for _, w := range r.works {
			row = append(row, overviewCell(r.find(w.id, name), w.spec.Rate > 0))
		}
		table = append(table, row)
	}
	writeTable(b, table)
	for _, p := range allPeers() {
		if slices.Contains(r.Peers, p.name) {
			fmt.Fprintf(b, "- %s: %s\n", p.name, strings.TrimPrefix(p.what, p.name+": "))
		}
	}
	b.WriteString("\n")
}

func strong(name string) string {
	if name == nameOurs {
		return "**" + name + "**"
	}
	return name
}

func overviewCell(s *summary, fixedRate bool) string {
	if s == nil {
		return "-"
	}
	cpu := "-"
	if s.CPURatio.N > 0 {
		cpu = fmt.Sprintf("%.2f", s.CPURatio.Median)
	}
	first := s.Throughput
	if fixedRate {
		first = s.P50Ratio
	}
	return ratio(first.Median) + " / " + cpu + doubt(s)
}

// ratio has two decimals, or none where they would say nothing.
func ratio(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// doubt marks a measurement in which many answers were not the ones that it is about.
func doubt(s *summary) string {
	if 100*s.Unexpected > s.Requests {
		return fmt.Sprintf(" (%.0f%% other answers)", 100*float64(s.Unexpected)/float64(max(s.Requests, 1)))
	}
	return ""
}

func landedText(r *report, name string) string {
	yes, unclear, ran := r.landed(name)
	text := "no"
	switch {
	case !ran:
		return "-"
	case len(yes) > 0:
		text = "**yes**: " + strings.Join(yes, ", ")
		if p := peerNamed(name); p != nil && !p.fence {
			text = "**yes** (no fence)"
		}
	}
	if len(unclear) > 0 {
		text += "; unclear: " + strings.Join(unclear, ", ")
	}
	return text
}

func peerNamed(name string) *peer {
	for _, p := range allPeers() {
		if p.name == name {
			return p
		}
	}
	return nil
}

// experimentTable says for each fence and experiment whether a stale write landed last.
func experimentTable(b *strings.Builder, r *report) {
	if len(r.Verdicts) == 0 {
		return
	}
	fmt.Fprintf(b, "## Stale write landed last\n\nThe store is asked itself, after the newer write was acknowledged and both have ended. In parentheses: what the sender of the stale\nwrite was told.\n\n")
	head := []string{"experiment"}
	for _, name := range r.Peers {
		if p := peerNamed(name); p.fence && r.Missing[name] == "" {
			head = append(head, strong(name))
		}
	}
	table := [][]string{head}
	for _, e := range allExperiments() {
		row := []string{e.name}
		for _, name := range head[1:] {
			row = append(row, verdictText(r, e.name, strings.Trim(name, "*")))
		}
		table = append(table, row)
	}
	writeTable(b, table)
	for _, e := range allExperiments() {
		fmt.Fprintf(b, "- %s: %s\n", e.name, e.what)
	}
	b.WriteString("\n")
}

func verdictText(r *report, experiment, peer string) string {
	for _, v := range r.Verdicts {
		if v.Experiment != experiment || v.Peer != peer {
			continue
		}
		switch v.answer() {
		case "?":
			return "unclear: " + v.Failed
		case "yes":
			return fmt.Sprintf("**yes** (%d)", v.Stale)
		}
		return fmt.Sprintf("no (%d)", v.Stale)
	}
	return "-"
}

func workloadTable(b *strings.Builder, r *report, w *workload) {
	head := []string{"peer", "throughput ×", "CPU ×", "p50 ×", "per second", "p50 µs", "p99 µs", "CPU µs", "RSS MiB"}
	if w.large {
		head[4] = "MiB/s"
	}
	if w.spec.Expect {
		head = append(head, "body bytes sent", "100 Continue", "closed by the server")
	}
	table := [][]string{head}
	ref := ""
	for _, s := range r.Summary {
		if s.Workload != w.id {
			continue
		}
		ref = s.Ref
		perSecond := fmt.Sprintf("%.0f", s.PerSecond)
		if w.large {
			perSecond = fmt.Sprintf("%.0f", s.PerSecond*float64(w.bytes())/(1<<20))
		}
		row := []string{strong(s.Peer) + doubt(&s), spreadText(s.Throughput), spreadText(s.CPURatio), spreadText(s.P50Ratio), perSecond,
			fmt.Sprintf("%.0f", s.P50), fmt.Sprintf("%.0f", s.P99), orDash(s.CPU, 1), orDash(s.RSS, 1<<20)}
		if w.spec.Expect {
			row = append(row, fmt.Sprint(s.BodyBytes), fmt.Sprint(s.Continues), fmt.Sprintf("%d of %d", s.Closed, s.Requests))
		}
		table = append(table, row)
	}
	if len(table) == 1 {
		return
	}
	conns := fmt.Sprintf("%d connections", w.spec.Conns)
	if w.large {
		conns = "closed loop"
	}
	fmt.Fprintf(b, "## %s (`%s`)\n\nRatios to %s, median [quartiles] of the rounds; %s. CPU is that of all processes of the peer, for one request.\n\n", w.title, w.id, ref, conns)
	writeTable(b, table)
}

func spreadText(s spread) string {
	if s.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%s [%s-%s]", ratio(s.Median), ratio(s.Q1), ratio(s.Q3))
}

func orDash(v, unit float64) string {
	if v <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", v/unit)
}

func writeTable(b *strings.Builder, table [][]string) {
	for n, row := range table {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if n == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	b.WriteString("\n")
}
