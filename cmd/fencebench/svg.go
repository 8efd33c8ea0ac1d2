package main

import (
	"fmt"
	"html"
	"strings"
)

// plot is an SVG with three groups of bars: how fast a fenced write is, what it costs, and how fast one is where every token is new.
// Each bar says in words whether a stale write landed last. It reads on a light and on a dark page.
func plot(r *report) string {
	const width, left, barMax, rowHeight = 860, 150, 400, 24
	var body strings.Builder
	y := 64
	for _, g := range []struct {
		title, workload string
		value           func(*summary) spread
	}{
		{"Same-token PUT 1 KiB: throughput, ratio to %s (longer is better)", "same", func(s *summary) spread { return s.Throughput }},
		{"Same-token PUT 1 KiB: CPU for one request, ratio to %s (shorter is better)", "same", func(s *summary) spread { return s.CPURatio }},
		{"A higher token on every PUT: throughput, ratio to %s (longer is better)", "raise", func(s *summary) spread { return s.Throughput }},
	} {
		rows, top, ref := plotRows(r, g.workload, g.value)
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(&body, `<text class="t" x="12" y="%d">%s</text>`+"\n", y, html.EscapeString(fmt.Sprintf(g.title, ref)))
		y += 10
		for _, row := range rows {
			x := func(v float64) float64 { return left + v/top*barMax }
			fmt.Fprintf(&body, `<text class="n%s" x="%d" y="%d" text-anchor="end">%s</text>`+"\n", row.strong, left-8, y+16, html.EscapeString(row.name))
			fmt.Fprintf(&body, `<rect class="%s" x="%d" y="%d" width="%.1f" height="16" rx="2"/>`+"\n", row.class, left, y+4, max(1, x(row.v.Median)-left))
			fmt.Fprintf(&body, `<path class="q" d="M%.1f %d H%.1f"/>`+"\n", x(row.v.Q1), y+12, x(row.v.Q3))
			fmt.Fprintf(&body, `<text class="v" x="%.1f" y="%d">%s</text>`+"\n", max(x(row.v.Q3), x(row.v.Median))+8, y+16, html.EscapeString(row.label))
			y += rowHeight
		}
		y += 30
	}
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n", width, y+52, width, y+52)
	out.WriteString(`<title id="title">fenceproxy beside its peers</title>
<desc id="desc">Bars of throughput and CPU as ratios, and whether a stale write landed last; the same numbers as in the table</desc>
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.h { font-size: 16px; font-weight: 600 } .t, .nb { font-weight: 600 } .s { font-size: 11px; fill: #59636e }
.ours { fill: #1a7f37 } .wrong { fill: #cf222e } .plain { fill: #8c959f } .q { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .s { fill: #9198a1 }
.ours { fill: #3fb950 } .wrong { fill: #f85149 } .plain { fill: #6e7681 } .q { stroke: #e6edf3 }
}
</style>
`)
	fmt.Fprintf(&out, `<text class="h" x="12" y="26">%s</text>`+"\n", html.EscapeString(plotTitle(r)))
	fmt.Fprintf(&out, `<text class="s" x="12" y="43">Median over the rounds (%d); the line at its end spans the quartiles. Green: a fence that held; red: a fence that a stale write got past; grey: no fence.</text>`+"\n", r.Rounds)
	out.WriteString(body.String())
	fmt.Fprintf(&out, `<text class="s" x="12" y="%d">%s</text>`+"\n", y+4, html.EscapeString(r.Command))
	fmt.Fprintf(&out, `<text class="s" x="12" y="%d">%s</text>`+"\n", y+20, html.EscapeString(fmt.Sprintf("%s · %s · %d cores · %s", r.Date.Format("2006-01-02"), r.Machine.Kernel, r.Machine.Cores, r.Machine.CPU)))
	fmt.Fprintf(&out, `<text class="s" x="12" y="%d">%s</text>`+"\n", y+36, html.EscapeString(versionText(r)))
	out.WriteString("</svg>\n")
	return out.String()
}

func plotTitle(r *report) string {
	if r.Smoke {
		return "fenceproxy beside its peers: a smoke run, its numbers mean nothing"
	}
	return "fenceproxy beside its peers"
}

// plotRow is one bar.
type plotRow struct {
	name, class, label string
	strong             string // "b" for a bold name
	v                  spread
}

// plotRows are the bars of a group. top is the value that the longest may have, which leaves room for the quartiles.
func plotRows(r *report, workload string, value func(*summary) spread) (rows []plotRow, top float64, ref string) {
	for _, name := range r.Peers {
		s := r.find(workload, name)
		if s == nil {
			continue
		}
		v := value(s)
		if v.N == 0 {
			continue
		}
		ref = s.Ref
		row := plotRow{name: name, class: "plain", v: v, label: ratio(v.Median)}
		yes, _, ran := r.landed(name)
		switch fence := peerNamed(name).fence; {
		case fence && ran && len(yes) > 0:
			row.class = "wrong"
			row.label += fmt.Sprintf(", stale write landed last in %d of %d", len(yes), len(allExperiments()))
		case fence && ran:
			row.class = "ours"
			row.label += ", no stale write landed last"
		case !fence:
			row.label += ", no fence"
		}
		if name == nameOurs {
			row.strong = "b"
		}
		rows = append(rows, row)
		top = max(top, v.Median, v.Q3)
	}
	return rows, top, ref
}
