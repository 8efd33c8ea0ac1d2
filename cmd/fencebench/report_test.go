package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// sampleReport is of a run in which HAProxy was not installed.
func sampleReport() *report {
	r := &report{
		Command: `go run ./cmd/fencebench --out <a&b>.md`, Date: time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC), Rounds: 2, Cell: "2s",
		Machine: machine{Kernel: "Linux 6.1", CPU: "a <CPU> & more", Cores: 2, Load: "0.1 0.2 0.3"}, Versions: []version{{"nginx", "1.22.1"}, {"haproxy", "not installed"}},
		Peers: peerNames(), Missing: map[string]string{"haproxy": "haproxy is not installed: apt-get install haproxy", nameStick: "haproxy is not installed: apt-get install haproxy"},
		works: allWorkloads(sizesOf(&options{conns: 64, rate: 1000, resources: 10_000})),
	}
	for round := range 2 {
		for _, w := range r.works {
			for n, p := range allPeers() {
				if w.wants(p) && r.Missing[p.name] == "" {
					r.Cells = append(r.Cells, cell{Workload: w.id, Peer: p.name, Round: round, PerSecond: float64(1000 * (n + 1)), CPU: float64(10 * n), RSS: 20 << 20,
						Load: loadResult{Requests: 2000, P50: 500, P99: 900, Statuses: map[string]int{}}})
				}
			}
		}
	}
	for _, e := range allExperiments() {
		r.Verdicts = append(r.Verdicts, verdict{Experiment: e.name, Peer: nameRedis, Landed: e.name != "zxid", Stale: 204, Newer: 204},
			verdict{Experiment: e.name, Peer: nameOurs, Stale: 412, Newer: 204}, verdict{Experiment: e.name, Peer: nameNginx, Landed: true, Stale: 204, Newer: 204})
	}
	for _, w := range r.works {
		r.Summary = append(r.Summary, summarise(r.Cells, w)...)
	}
	return r
}

func TestMarkdown(t *testing.T) {
	got := markdown(sampleReport())
	for _, want := range []string{
		"| haproxy | **missing**: haproxy is not installed: apt-get install haproxy |",
		"| **fenceproxy** | no | 4.00 / 7.00 |",
		"| nginx+lua+redis | **yes**: paused client, slow store, above 2^53, kill -9, marks evicted |",
		"| nginx | **yes** (no fence) | 1.00 / 1.00 |",
		"| zxid | no (204) | no (412) |",
		"body bytes sent",
		"2026-11-29 20:00 UTC", "Linux 6.1", "2 cores", "nginx 1.22.1", "go run ./cmd/fencebench",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %q; want it in:\n%s", want, got)
		}
	}
	columns := 0
	for line := range strings.Lines(got) {
		switch n := strings.Count(line, "|"); {
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = n
		case n != columns:
			t.Errorf("got %d columns in a table of %d; want the same: %s", n-1, columns-1, line)
		}
	}
}

func TestMarkdownNamesAPeerThatAnsweredSomethingElse(t *testing.T) {
	r := sampleReport()
	r.find("same", nameOurs).Unexpected = 2000
	if got, want := markdown(r), "4.00 / 7.00 (50% other answers)"; !strings.Contains(got, want) {
		t.Errorf("got no %q; want it in:\n%s", want, got)
	}
}

func TestPlotIsWellFormed(t *testing.T) {
	empty := &report{Peers: peerNames(), Smoke: true}
	for name, r := range map[string]*report{"full": sampleReport(), "empty": empty} {
		t.Run(name, func(t *testing.T) {
			svg := plot(r)
			d := xml.NewDecoder(strings.NewReader(svg))
			d.Strict = true
			var texts []string
			for {
				tok, err := d.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%v in:\n%s", err, svg)
				}
				if s, ok := tok.(xml.CharData); ok {
					texts = append(texts, string(s))
				}
			}
			all := strings.Join(texts, "\n")
			if name == "empty" {
				return
			}
			for _, want := range []string{"fenceproxy", "nginx+lua+redis", "stale write landed last in 5 of 6", "no stale write landed last", "<a&b>.md", "Linux 6.1", "2 cores"} {
				if !strings.Contains(all, want) {
					t.Errorf("got no text %q; want it in:\n%s", want, all)
				}
			}
			for _, not := range []string{"NaN", "Inf", "url(", "href", "@import", "<image"} {
				if strings.Contains(svg, not) {
					t.Errorf("got %q; want it nowhere in:\n%s", not, svg)
				}
			}
			if !strings.Contains(svg, "prefers-color-scheme: dark") {
				t.Error("got no colours for a dark page; want them")
			}
		})
	}
}
