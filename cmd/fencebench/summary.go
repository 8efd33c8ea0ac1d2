package main

import "slices"

// summary is a workload on a peer, over all rounds. A ratio compares two measurements of one round.
type summary struct {
	Workload   string  `json:"workload"`
	Peer       string  `json:"peer"`
	Ref        string  `json:"ratios_to"`
	Throughput spread  `json:"throughput_ratio"`
	CPURatio   spread  `json:"cpu_ratio"` // of the CPU for one request; without rounds where either has no processes of its own
	P50Ratio   spread  `json:"p50_ratio"`
	PerSecond  float64 `json:"requests_per_second"` // this and the next four are medians
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	CPU        float64 `json:"cpu_us_per_request"`
	RSS        float64 `json:"rss_bytes"`
	Requests   int     `json:"requests"` // this and the following are sums
	Unexpected int     `json:"unexpected"`
	Continues  int     `json:"continues"`
	BodyBytes  int64   `json:"body_bytes"`
	Closed     int     `json:"closed"`
}

// summarise has one entry for each peer that the workload was measured on.
func summarise(cells []cell, w *workload) []summary {
	peers := measured(cells, w.id)
	ref := ""
	for _, name := range w.ref {
		if slices.Contains(peers, name) {
			ref = name
			break
		}
	}
	if ref == "" && len(peers) > 0 {
		ref = peers[0]
	}
	byRound := map[int]cell{}
	for _, c := range cells {
		if c.Workload == w.id && c.Peer == ref {
			byRound[c.Round] = c
		}
	}
	var out []summary
	for _, name := range peers {
		s := summary{Workload: w.id, Peer: name, Ref: ref}
		var throughput, cpu, p50 []float64
		var all [5][]float64
		for _, c := range cells {
			if c.Workload != w.id || c.Peer != name {
				continue
			}
			for n, v := range []float64{c.PerSecond, c.Load.P50, c.Load.P99, c.CPU, float64(c.RSS)} {
				all[n] = append(all[n], v)
			}
			s.Requests += c.Load.Requests
			s.Unexpected += c.Unexpected
			s.Continues += c.Load.Continues
			s.BodyBytes += c.Load.BodyBytes
			s.Closed += c.Load.Closed
			r, ok := byRound[c.Round]
			if !ok {
				continue
			}
			throughput = appendRatio(throughput, c.PerSecond, r.PerSecond)
			cpu = appendRatio(cpu, c.CPU, r.CPU)
			p50 = appendRatio(p50, c.Load.P50, r.Load.P50)
		}
		s.Throughput, s.CPURatio, s.P50Ratio = spreadOf(throughput), spreadOf(cpu), spreadOf(p50)
		for n, v := range []*float64{&s.PerSecond, &s.P50, &s.P99, &s.CPU, &s.RSS} {
			*v = spreadOf(all[n]).Median
		}
		out = append(out, s)
	}
	return out
}

func appendRatio(v []float64, a, b float64) []float64 {
	if a <= 0 || b <= 0 {
		return v
	}
	return append(v, a/b)
}

// find is the summary of a workload on a peer, or nil.
func (r *report) find(workload, peer string) *summary {
	for n := range r.Summary {
		if s := &r.Summary[n]; s.Workload == workload && s.Peer == peer {
			return s
		}
	}
	return nil
}

// landed says of a peer in which experiments a stale write landed last.
func (r *report) landed(peer string) (yes, unclear []string, ran bool) {
	for _, e := range allExperiments() {
		for _, v := range r.Verdicts {
			if v.Peer != peer || v.Experiment != e.name {
				continue
			}
			ran = true
			switch v.answer() {
			case "yes":
				yes = append(yes, e.name)
			case "?":
				unclear = append(unclear, e.name)
			}
		}
	}
	return yes, unclear, ran
}
