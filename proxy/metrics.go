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

	limited     *prometheus.CounterVec // by limit
	refused     *prometheus.CounterVec // connections, by limit
	connections prometheus.Gauge

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
	m.limited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fenceproxy_limited_total", Help: "What was refused or cut off because a limit was reached, by limit.",
	}, []string{"limit"})
	m.refused = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fenceproxy_connections_refused_total", Help: "Connections that were one too many, by limit.",
	}, []string{"reason"})
	m.connections = prometheus.NewGauge(prometheus.GaugeOpts{Name: "fenceproxy_connections", Help: "Open connections of clients."})
	for _, name := range limitNames { // a counter that is not there yet cannot be watched
		m.limited.WithLabelValues(name)
	}
	for _, name := range []string{limitPerClient, limitConnections} {
		m.refused.WithLabelValues(name)
	}
	m.Registry.MustRegister(m.writes, m.gateWait, m.upstream, m.Advance, m.limited, m.refused, m.connections,
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

// CountResources adds a gauge of the marks in the store.
func (m *Metrics) CountResources(marks func() uint64) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "fenceproxy_resources", Help: "Resources that have a mark."},
		func() float64 { return float64(marks()) }))
}
