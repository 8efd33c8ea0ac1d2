package proxy

import (
	"sync"
	"time"
)

// Decision is what the proxy made of one write.
type Decision struct {
	Time      time.Time `json:"time"`
	Client    string    `json:"client"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	Policy    string    `json:"policy,omitempty"`
	Resource  string    `json:"resource,omitempty"`
	Token     string    `json:"token,omitempty"`
	Outcome   string    `json:"outcome"`
	Status    int       `json:"status,omitempty"`
	Forwarded string    `json:"forwarded"`
	Seconds   float64   `json:"seconds"`
	Reason    string    `json:"reason,omitempty"`
}

// decisionsKept is how many of the last decisions are remembered.
const decisionsKept = 256

// Decisions remembers the last decisions. It is safe for concurrent use.
type Decisions struct {
	mu sync.Mutex // guards the fields below
	// +checklocks:mu
	ring []Decision
	// +checklocks:mu
	next int
}

func newDecisions() *Decisions { return &Decisions{ring: make([]Decision, 0, decisionsKept)} }

func (d *Decisions) add(one Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ring) < decisionsKept {
		d.ring = append(d.ring, one)
		return
	}
	d.ring[d.next] = one
	d.next = (d.next + 1) % decisionsKept
}

// Last returns the decisions that are remembered, the newest first.
func (d *Decisions) Last() []Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Decision, 0, len(d.ring))
	for i := range d.ring {
		out = append(out, d.ring[(d.next+len(d.ring)-1-i)%len(d.ring)])
	}
	return out
}
