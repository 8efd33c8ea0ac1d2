package main

import (
	"slices"
	"testing"
)

func TestSpreadOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   []float64
		want spread
	}{
		{"none", nil, spread{}},
		{"one", []float64{3}, spread{Median: 3, Q1: 3, Q3: 3, N: 1}},
		{"odd and unsorted", []float64{5, 1, 3, 2, 4}, spread{Median: 3, Q1: 2, Q3: 4, N: 5}},
		{"between two", []float64{1, 2, 3, 4}, spread{Median: 2.5, Q1: 1.75, Q3: 3.25, N: 4}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := slices.Clone(tt.in)
			if got := spreadOf(in); got != tt.want {
				t.Errorf("spreadOf(%v) = %+v; want %+v", tt.in, got, tt.want)
			}
			if !slices.Equal(in, tt.in) {
				t.Errorf("spreadOf changed its argument to %v; want %v", in, tt.in)
			}
		})
	}
}

func TestQuantileOfManyIsTheirRank(t *testing.T) {
	var v []float64
	for i := range 101 {
		v = append(v, float64(i))
	}
	for _, q := range []float64{0, 0.5, 0.99, 1} {
		if got, want := quantile(v, q), q*100; got != want {
			t.Errorf("quantile(0..100, %v) = %v; want %v", q, got, want)
		}
	}
}

func TestOrderRotatesAndTurnsRound(t *testing.T) {
	for round, want := range [][]int{{0, 1, 2, 3}, {0, 3, 2, 1}, {2, 3, 0, 1}, {2, 1, 0, 3}} {
		if got := order(4, round); !slices.Equal(got, want) {
			t.Errorf("order(4, %d) = %v; want %v", round, got, want)
		}
	}
}

func TestSummariseComparesWithinARound(t *testing.T) {
	at := func(peer string, round int, perSecond, cpu float64) cell {
		return cell{Workload: "same", Peer: peer, Round: round, PerSecond: perSecond, CPU: cpu, RSS: 1 << 20, Load: loadResult{Requests: 100, P50: 1e6 / perSecond}}
	}
	// The machine is half as fast in the second round: the ratio does not change.
	cells := []cell{
		at(nameDirect, 0, 4000, 0), at(nameNginx, 0, 1000, 50), at(nameOurs, 0, 1500, 60),
		at(nameOurs, 1, 750, 120), at(nameNginx, 1, 500, 100), at(nameDirect, 1, 2000, 0),
	}
	got := summarise(cells, allWorkloads(sizes{})[0])
	if len(got) != 3 || got[0].Peer != nameDirect || got[1].Peer != nameNginx || got[2].Peer != nameOurs {
		t.Fatalf("summarise: got %+v; want direct, nginx, fenceproxy", got)
	}
	ours := got[2]
	if want := (spread{Median: 1.5, Q1: 1.5, Q3: 1.5, N: 2}); ours.Ref != nameNginx || ours.Throughput != want {
		t.Errorf("throughput: got %+v to %s; want %+v to nginx", ours.Throughput, ours.Ref, want)
	}
	if want := (spread{Median: 1.2, Q1: 1.2, Q3: 1.2, N: 2}); ours.CPURatio != want {
		t.Errorf("CPU: got %+v; want %+v", ours.CPURatio, want)
	}
	if ours.PerSecond != 1125 || ours.Requests != 200 {
		t.Errorf("got %v a second of %d requests; want 1125 of 200", ours.PerSecond, ours.Requests)
	}
	if got[0].CPURatio.N != 0 {
		t.Errorf("direct has no processes: got a CPU ratio %+v; want none", got[0].CPURatio)
	}
}
