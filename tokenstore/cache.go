package tokenstore

import (
	"strings"
	"sync"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// cache keeps what the store holds for the resources that were used last, and that it holds nothing for others. It has two
// generations: a resource that is used moves to the young one, and when that is full the old one is dropped as a whole. So
// its size is bounded without a list to maintain on every hit.
type cache struct {
	limit int // cost of one generation, in bytes

	mu sync.Mutex // guards the fields below; never held across I/O
	// +checklocks:mu
	young map[fencing.Resource]cached
	// +checklocks:mu
	old map[fencing.Resource]cached // young comes first: an entry here may be out of date if young has one too
	// +checklocks:mu
	cost int // of young
}

// cached is the answer for one resource; ok is false if the store has no mark for it.
type cached struct {
	mark fencing.Mark
	ok   bool
}

const (
	cacheGeneration = 16 << 20 // bytes
	cacheOverhead   = 256      // bytes an entry costs beside its texts
)

func newCache(limit int) *cache {
	return &cache{limit: limit, young: map[fencing.Resource]cached{}}
}

func (c *cache) get(r fencing.Resource) (e cached, hit bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, hit = c.young[r]; hit {
		return e, true
	}
	if e, hit = c.old[r]; hit {
		c.putLocked(r, e)
	}
	return e, hit
}

// put stores the answer for r in place of any other.
func (c *cache) put(r fencing.Resource, e cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(r, e)
}

// +checklocks:c.mu
func (c *cache) putLocked(r fencing.Resource, e cached) {
	if prev, ok := c.young[r]; ok {
		c.cost += textLen(e) - textLen(prev)
		c.young[r] = e
		return
	}
	r = fencing.Resource(strings.Clone(string(r))) // r may be part of a larger text
	cost := cacheOverhead + len(r) + textLen(e)
	if c.cost+cost > c.limit {
		c.old, c.young, c.cost = c.young, map[fencing.Resource]cached{}, 0
	}
	c.young[r] = e
	c.cost += cost
}

func textLen(e cached) int {
	return len(e.mark.By) + len(e.mark.Policy) + len(e.mark.Reason) + len(e.mark.Holder)
}
