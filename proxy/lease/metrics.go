package lease

import "github.com/prometheus/client_golang/prometheus"

var (
	heldDesc    = prometheus.NewDesc("fenceproxy_leases_held", "Leases that are held now.", nil, nil)
	waitingDesc = prometheus.NewDesc("fenceproxy_leases_waiting", "Clients that wait for a lease.", nil, nil)
	knownDesc   = prometheus.NewDesc("fenceproxy_leases_known", "Leases of which there is a note, held or not.", nil, nil)
	totalDesc   = prometheus.NewDesc("fenceproxy_leases_total", "What became of leases, and requests that were refused.", []string{"outcome"}, nil)
)

// Describe implements [prometheus.Collector].
func (m *Manager) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{heldDesc, waitingDesc, knownDesc, totalDesc} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. No label ever carries the name of a lease.
func (m *Manager) Collect(out chan<- prometheus.Metric) {
	s := m.Stats()
	for d, n := range map[*prometheus.Desc]int{heldDesc: s.Held, waitingDesc: s.Waiting, knownDesc: s.Known} {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
	for outcome, n := range map[string]uint64{
		"granted": s.Granted, "renewed": s.Renewed, "released": s.Released, "expired": s.Expired, "refused": s.Refused,
	} {
		out <- prometheus.MustNewConstMetric(totalDesc, prometheus.CounterValue, float64(n), outcome)
	}
}
