package main

import (
	"math"
	"slices"
)

// spread is the middle of some numbers and how far they lie apart.
type spread struct {
	Median float64 `json:"median"`
	Q1     float64 `json:"q1"`
	Q3     float64 `json:"q3"`
	N      int     `json:"n"`
}

func spreadOf(v []float64) spread {
	v = slices.Sorted(slices.Values(v))
	return spread{Median: quantile(v, 0.5), Q1: quantile(v, 0.25), Q3: quantile(v, 0.75), N: len(v)}
}

// quantile is the q-th quantile of sorted numbers, between two of them in proportion; 0 of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// order is the order of n peers in a round: rotated by one each round, and turned round in every second one, so that none always
// comes after the same neighbour.
func order(n, round int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = (i + round) % n
	}
	if round%2 == 1 {
		slices.Reverse(out)
	}
	return out
}
