package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
)

// Metrics are the proxy's Prometheus metrics. No label ever carries a resource, a path or a token.
type Metrics struct {
	Registry *prometheus.Registry
	writes   *prometheus.CounterVec
	gateWait prometheus.Histogram
	upstream prometheus.Histogram
	// Advance is observed by whoever makes marks durable.
	Advance prometheus.Histogram
}

// NewMetrics makes the metrics, with Go's and the process's own. g gives the gauges; without it there are none.
func NewMetrics(g *gate.Gate) *Metrics {
	seconds := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name, Help: help,
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		})
	}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenceproxy_writes_total", Help: "Writes by policy and outcome.",
		}, []string{"policy", "outcome"}),
		gateWait: seconds("fenceproxy_gate_wait_seconds", "Time from asking the gate to being admitted or refused, the advance included."),
		upstream: seconds("fenceproxy_upstream_seconds", "Time from forwarding a write to the head of the upstream's answer."),
		Advance:  seconds("fenceproxy_advance_seconds", "Time to make a mark durable."),
	}
	m.Registry.MustRegister(m.writes, m.gateWait, m.upstream, m.Advance,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if g != nil {
		gauge := func(name, help string, of func(gate.Stats) int) {
			m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
				func() float64 { return float64(of(g.Stats())) }))
		}
		gauge("fenceproxy_in_flight", "Writes forwarded and without outcome.", func(s gate.Stats) int { return s.InFlight })
		gauge("fenceproxy_in_doubt", "Writes whose outcome is unknown and whose hold runs.", func(s gate.Stats) int { return s.InDoubt })
		gauge("fenceproxy_waiting", "Writes that wait for the gate.", func(s gate.Stats) int { return s.Waiting })
		gauge("fenceproxy_resources_in_use", "Resources with a write in flight, in doubt or waiting.", func(s gate.Stats) int { return s.Resources })
	}
	return m
}
