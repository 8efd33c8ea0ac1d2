package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var backgroundContext = context.Background()

// fault is a way to break something for a while.
type fault struct {
	name  string
	lane  string // faults of one lane come one after the other; the lanes run side by side
	mild  bool   // it does not come between the proxy and the store: with mild ones alone no write may be cut, lost or in doubt
	apply func(r *rig, rng *rand.Rand)
}

func between(rng *rand.Rand, from, to int) time.Duration {
	return time.Duration(from+rng.IntN(to-from)) * time.Millisecond
}

// The faults. Those without apply are manners of the clients, or of the store.
var faults = []fault{
	{name: "hangup", lane: "client", mild: true},
	{name: "slow", lane: "client", mild: true},
	{name: "pause", lane: "client", mild: true},
	{name: "client-stop", lane: "client", mild: true}, // the round knows the process
	{name: "store-drop", lane: "store"},

	{name: "reload", lane: "reload", mild: true, apply: reload},
	{name: "proxy-stop", lane: "proxy", apply: func(r *rig, rng *rand.Rand) {
		d := between(rng, 50, 700)
		r.trace.logf("SIGSTOP the proxy for %v", d)
		p := r.current()
		p.signal(syscall.SIGSTOP)
		time.Sleep(d)
		p.signal(syscall.SIGCONT)
	}},
	{name: "proxy-kill", lane: "proxy", apply: func(r *rig, rng *rand.Rand) {
		d := between(rng, 0, 60)
		r.trace.logf("kill -9 the proxy, start it after %v", d)
		r.killProxy(syscall.SIGKILL, d)
	}},
	{name: "proxy-term", lane: "proxy", apply: func(r *rig, rng *rand.Rand) {
		r.trace.logf("SIGTERM the proxy, start it again")
		r.killProxy(syscall.SIGTERM, between(rng, 0, 60))
	}},
	{name: "kill-proxy-received", lane: "proxy", apply: func(r *rig, rng *rand.Rand) { killAt(r, "got", "the store has the request and has not answered") }},
	{name: "kill-proxy-half-body", lane: "proxy", apply: func(r *rig, rng *rand.Rand) { killAt(r, "half-body", "a client has sent half of its body") }},
	{name: "kill-proxy-marked", lane: "proxy", apply: killAtMark},
	{name: "store-kill", lane: "store", apply: func(r *rig, rng *rand.Rand) {
		d := between(rng, 0, 150)
		r.trace.logf("kill -9 the store, start it after %v", d)
		r.killStore(d)
	}},
	{name: "kill-store-received", lane: "store", apply: func(r *rig, rng *rand.Rand) {
		if id, ok := r.await("got", time.Second); ok {
			r.trace.logf("kill -9 the store: it has %s and has not answered", id)
			r.killStore(between(rng, 0, 50))
		}
	}},

	{name: "latency", lane: "net", apply: func(r *rig, rng *rand.Rand) {
		r.toxic("latency", stream(rng), map[string]any{"latency": 10 + rng.IntN(60), "jitter": rng.IntN(30)}, between(rng, 50, 400))
	}},
	{name: "bandwidth", lane: "net", apply: func(r *rig, rng *rand.Rand) {
		r.toxic("bandwidth", stream(rng), map[string]any{"rate": 1200 + rng.IntN(3000)}, between(rng, 50, 400))
	}},
	{name: "reset", lane: "net", apply: func(r *rig, rng *rand.Rand) {
		r.toxic("reset_peer", stream(rng), map[string]any{"timeout": rng.IntN(30)}, between(rng, 20, 200))
	}},
	{name: "half-open", lane: "net", apply: func(r *rig, rng *rand.Rand) { // the answer is lost, and nobody is told
		r.toxic("timeout", "downstream", map[string]any{"timeout": 0}, between(rng, 50, 1000))
	}},
	{name: "cut-request", lane: "net", apply: func(r *rig, rng *rand.Rand) {
		r.toxic("limit_data", "upstream", map[string]any{"bytes": rng.IntN(4000)}, between(rng, 20, 200))
	}},
	{name: "cut-answer", lane: "net", apply: func(r *rig, rng *rand.Rand) {
		r.toxic("limit_data", "downstream", map[string]any{"bytes": rng.IntN(200)}, between(rng, 20, 200))
	}},
	{name: "down", lane: "net", apply: func(r *rig, rng *rand.Rand) {
		d := between(rng, 20, 200)
		r.trace.logf("the store's address is closed for %v", d)
		r.toxi.Stop()
		time.Sleep(d)
		if err := r.toxi.Start(); err != nil {
			r.fault("toxiproxy: %v", err)
		}
	}},
}

func stream(rng *rand.Rand) string {
	if rng.IntN(2) == 0 {
		return "upstream"
	}
	return "downstream"
}

// killAt kills the proxy at a named point that lies outside of it.
func killAt(r *rig, point, what string) {
	if arg, ok := r.await(point, time.Second); ok {
		r.killProxy(syscall.SIGKILL, 0)
		r.trace.logf("killed -9 the proxy: %s %s", what, arg)
	}
}

// killAtMark kills the proxy when it has just written a mark: SEQ changes after each batch is durable and before anybody is told.
func killAtMark(r *rig, _ *rand.Rand) {
	seq := filepath.Join(r.dir, "marks", "SEQ")
	before, err := os.ReadFile(seq)
	for end := time.Now().Add(500 * time.Millisecond); err == nil && time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		var now []byte
		if now, err = os.ReadFile(seq); err == nil && string(now) != string(before) {
			r.killProxy(syscall.SIGKILL, 0)
			r.trace.logf("killed -9 the proxy: it had just made a mark durable")
			return
		}
	}
}

// reload has the proxy read its file again: a good one, and several that must change nothing.
func reload(r *rig, rng *rand.Rand) {
	what, more := "a good file", "  - {name: more, match: {path: \"/more/{a}\"}, resource: \"more/{a}\"}\n"
	switch rng.IntN(5) {
	case 0:
		what, more = "a bad file", "nonsense: true\n"
	case 1:
		what, more = "a policy that lets all by and is not YAML", "  - {name: all, match: {path: \"/{x...}\"}, mode: off"
	case 2:
		what, more = "other keys for a policy in use, and a mode that is none", "  - {name: one, match: {path: \"/x/{a}\"}, resource: \"x/{a}\", mode: none}\n"
	}
	r.config.Lock()
	defer r.config.Unlock()
	r.trace.logf("SIGHUP with %s", what)
	if err := r.writeConfig(more); err != nil {
		r.fault("%v", err)
		return
	}
	r.current().signal(syscall.SIGHUP)
	time.Sleep(between(rng, 20, 60))
	if err := r.writeConfig(""); err != nil {
		r.fault("%v", err)
	}
	r.current().signal(syscall.SIGHUP)
}

// plan is what a round draws from its seed.
type plan struct {
	kinds   []fault
	manners manners
	drop    float64
}

func (p plan) has(name string) bool {
	return slices.ContainsFunc(p.kinds, func(f fault) bool { return f.name == name })
}

// mild reports whether nothing comes between the proxy and the store.
func (p plan) mild() bool {
	return !slices.ContainsFunc(p.kinds, func(f fault) bool { return !f.mild })
}

func (p plan) String() string {
	var names []string
	for _, f := range p.kinds {
		names = append(names, f.name)
	}
	return strings.Join(names, ",")
}

// draw draws a plan: every fifth round has the mild faults alone, the others some of all. Only, if not empty, names what to draw from;
// then everything in it is taken.
func draw(rng *rand.Rand, only string) (p plan, err error) {
	if only != "" {
		for name := range strings.SplitSeq(only, ",") {
			i := slices.IndexFunc(faults, func(f fault) bool { return f.name == name })
			if i < 0 {
				return p, fmt.Errorf("there is no fault %q", name)
			}
			p.kinds = append(p.kinds, faults[i])
		}
	} else {
		mild := rng.IntN(5) == 0
		for _, f := range faults {
			if f.mild && (mild || rng.IntN(2) == 0) || !f.mild && !mild && rng.IntN(4) == 0 {
				p.kinds = append(p.kinds, f)
			}
		}
	}
	p.manners = manners{Hangup: p.has("hangup"), Slow: p.has("slow"), Pause: p.has("pause")}
	if p.has("store-drop") {
		p.drop = 0.06
	}
	return p, nil
}
