package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// A step of a history. n is a number whose meaning depends on what is done.
type step struct {
	do   string
	what int // which name
	d    time.Duration
	wait time.Duration
	n    int
}

// held is a grant as its holder knows it.
type held struct {
	lease.Grant
	until time.Time // it was confirmed until then
	over  bool      // its holder began to release it
}

// attempt is a request for a lease that has no answer yet.
type attempt struct {
	name   fencing.Resource
	at     time.Time
	wait   time.Duration
	floor  uint64 // the mark when it was made
	lowers int    // how often a mark had been lowered then
	cancel context.CancelFunc
}

// machine checks what must hold over any history: the tokens of a name rise, and nobody gets a lease while another holder was promised it.
type machine struct {
	t    testing.TB
	d    *disk
	max  int
	p    *process
	m    *lease.Manager
	open sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	grants  map[fencing.Resource][]*held
	pending map[*attempt]bool
	lowers  int
	trouble error
}

func (x *machine) wrong(format string, args ...any) {
	if x.trouble == nil {
		x.trouble = fmt.Errorf(format, args...)
	}
}

func (x *machine) boot() {
	x.p = &process{d: x.d}
	x.m = x.p.start(x.t, x.max)
}

// restart ends the process, in order or not, and starts another.
func (x *machine) restart(crash bool) {
	if crash {
		x.p.mu.Lock()
		x.p.dead = true
		x.p.mu.Unlock()
	}
	x.m.Stop()
	x.open.Wait()
	x.m.Close()
	x.boot()
}

func (x *machine) acquire(st step) {
	name := names[st.what]
	ctx, cancel := context.WithCancel(context.Background())
	a := &attempt{name: name, at: time.Now(), wait: st.wait, cancel: cancel}
	if m, ok := x.d.mark(names[st.what]); ok {
		a.floor = m.Token.Lo
	}
	x.mu.Lock()
	x.pending[a], a.lowers = true, x.lowers
	x.mu.Unlock()
	m := x.m
	x.open.Go(func() {
		g, err := m.Acquire(ctx, lease.Request{Name: name, TTL: st.d, Wait: st.wait, Owner: "o"})
		x.mu.Lock()
		defer x.mu.Unlock()
		delete(x.pending, a)
		if err != nil {
			return
		}
		mark, _ := x.d.mark(names[st.what])
		if a.lowers == x.lowers && (g.Token <= a.floor || mark.Token.Lo < g.Token) {
			x.wrong("%.9q was granted with %d; the mark was %d and is %d", name, g.Token, a.floor, mark.Token.Lo)
		}
		for _, h := range x.grants[names[st.what]] {
			if g.Token <= h.Token {
				x.wrong("%.9q was granted with %d after %d", name, g.Token, h.Token)
			}
			if !h.over && time.Now().Before(h.until) {
				x.wrong("%.9q was granted with %d at %v, while the holder of %d has it until %v", name, g.Token, time.Now(), h.Token, h.until)
			}
			if g.Secret == h.Secret {
				x.wrong("one secret for two grants of %.9q", name)
			}
		}
		x.grants[names[st.what]] = append(x.grants[names[st.what]], &held{Grant: g, until: time.Now().Add(g.TTL)})
	})
}

// pick returns a grant of a name, the last one most of the time.
func (x *machine) pick(st step) *held {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.grants[names[st.what]]
	if len(all) == 0 {
		return nil
	}
	return all[max(0, len(all)-1-st.n/3)]
}

func (x *machine) renew(st step) {
	h := x.pick(st)
	if h == nil {
		return
	}
	m, over := x.m, h.over
	ttl, err := m.Renew(h.Name, h.Secret)
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.grants[names[st.what]]
	switch last := all[len(all)-1]; {
	case err == nil && last != h:
		x.wrong("the lease %.9q of %d was renewed after %d was granted", h.Name, h.Token, last.Token)
	case err == nil:
		h.until = time.Now().Add(ttl)
	case last == h && !over && time.Now().Before(h.until) && x.p.alive() == nil:
		x.wrong("the lease %.9q of %d was not renewed in time: %v", h.Name, h.Token, err)
	}
}

func (x *machine) release(st step) {
	h := x.pick(st)
	if h == nil {
		return
	}
	x.mu.Lock()
	before := h.over
	h.over = true
	x.mu.Unlock()
	m, p := x.m, x.p
	x.open.Go(func() {
		err := m.Release(h.Name, h.Secret)
		if errors.Is(err, lease.ErrGone) || errors.Is(err, lease.ErrNotHolder) || err == nil {
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		if p.alive() == nil { // it is held as before
			h.over = before
		}
	})
}

func (x *machine) do(st step) {
	switch st.do {
	case "acquire":
		x.acquire(st)
	case "renew":
		x.renew(st)
	case "release":
		x.release(st)
	case "pass":
		time.Sleep(st.d)
	case "cancel":
		x.mu.Lock()
		for a := range x.pending {
			if a.name == names[st.what] {
				a.cancel()
			}
		}
		x.mu.Unlock()
	case "write": // by whoever has a higher token, from a lease or not
		m, _ := x.d.mark(names[st.what])
		m.Token.Lo += uint64(st.n)
		x.d.set(names[st.what], m)
	case "lower": // by an operator
		if m, ok := x.d.mark(names[st.what]); ok {
			m.Token.Lo -= min(m.Token.Lo, uint64(st.n))
			x.mu.Lock()
			x.lowers++
			x.mu.Unlock()
			x.d.set(names[st.what], m)
		}
	case "crash soon":
		x.p.mu.Lock()
		x.p.crash, x.p.after = 1+st.n/2, st.n%2 == 0
		x.p.mu.Unlock()
	case "slow":
		x.p.mu.Lock()
		x.p.slow = time.Duration(st.n) * 300 * time.Millisecond
		x.p.mu.Unlock()
		if st.n == 0 {
			time.Sleep(3 * time.Second) // for what is under way
		}
	case "full":
		x.p.mu.Lock()
		x.p.fail = nil
		if st.n%2 == 0 {
			x.p.fail = lease.ErrNoSpace
		}
		x.p.mu.Unlock()
	case "race":
		x.p.mu.Lock()
		x.p.races = st.n
		x.p.mu.Unlock()
	case "restart":
		x.restart(false)
	case "kill":
		x.restart(true)
	}
	if x.p.slow == 0 {
		synctest.Wait()
	}
	if x.p.alive() != nil {
		x.restart(true)
	}
	x.look()
}

// look checks what must hold at every moment at which nothing is under way.
func (x *machine) look() {
	x.p.mu.Lock()
	calm := x.p.slow == 0 && x.p.fail == nil && x.p.races == 0
	x.p.mu.Unlock()
	if !calm {
		return
	}
	time.Sleep(10 * time.Millisecond) // the pauses of a mark that moves
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	for a := range x.pending {
		switch state := x.m.Inspect(a.name); {
		case !state.Held:
			x.wrong("somebody waits for %.9q, which nobody holds", a.name)
		case a.wait == 0:
			x.wrong("a request for %.9q that does not wait has no answer", a.name)
		case time.Since(a.at) > a.wait:
			x.wrong("a request for %.9q waits for longer than %v", a.name, a.wait)
		}
	}
	for name, all := range x.grants {
		h := all[len(all)-1]
		if state := x.m.Inspect(name); !state.Held && !h.over && time.Now().Before(h.until) {
			x.wrong("nobody holds %.9q, which %d has until %v", name, h.Token, h.until)
		}
	}
}

// finish ends everything and wants each lease to be free again.
func (x *machine) finish() error {
	x.p.mu.Lock()
	x.p.slow, x.p.fail, x.p.races = 0, nil, 0
	x.p.mu.Unlock()
	x.open.Wait()
	time.Sleep(time.Minute)
	synctest.Wait()
	if x.p.alive() != nil { // the crash that was due came with the last expiry
		x.restart(true)
		time.Sleep(time.Minute)
		synctest.Wait()
	}
	x.p.mu.Lock()
	x.p.crash = 0
	x.p.mu.Unlock()
	if s := x.m.Stats(); s.Held != 0 || s.Waiting != 0 {
		x.wrong("Stats = %+v; want nothing held and nobody waiting", s)
	}
	for i := range 3 { // more names than there may be leases
		x.acquire(step{what: i, d: time.Second})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(x.grants[names[i]]) == 0 {
			x.wrong("%.9q cannot be had", names[i])
		}
	}
	if n := len(x.d.noteNames()); n > x.max {
		x.wrong("%d notes are kept; want at most %d", n, x.max)
	}
	x.m.Close()
	return x.trouble
}

var names = []fencing.Resource{"rides/7", fencing.Resource(strings.Repeat(`long "name" `, 300)), "c"}

func drawSteps(rt *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			do: rapid.SampledFrom([]string{
				"acquire", "acquire", "acquire", "acquire", "renew", "renew", "release", "release", "pass", "pass", "pass", "cancel",
				"write", "lower", "crash soon", "slow", "full", "race", "restart", "kill",
			}).Draw(rt, "do"),
			what: rapid.IntRange(0, len(names)-1).Draw(rt, "name"),
			d:    time.Duration(rapid.IntRange(1000, 5000).Draw(rt, "ms")) * time.Millisecond,
			wait: rapid.SampledFrom([]time.Duration{0, 0, 700 * time.Millisecond, 3 * time.Second, 20 * time.Second}).Draw(rt, "wait"),
			n:    rapid.IntRange(0, 7).Draw(rt, "n"),
		}
	}), 1, 40).Draw(rt, "steps")
}

func TestTokensRiseOverAnyHistory(t *testing.T) {
	for _, most := range []int{2, 100} { // with 2, notes are dropped all the time
		t.Run(fmt.Sprintf("at most %d leases", most), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := drawSteps(rt)
				var trouble error
				synctest.Test(t, func(*testing.T) {
					x := &machine{t: t, d: newDisk(), max: most, grants: map[fencing.Resource][]*held{}, pending: map[*attempt]bool{}}
					x.boot()
					for i, st := range steps {
						if x.do(st); x.trouble != nil {
							x.trouble = fmt.Errorf("step %d, %s: %w", i, st.do, x.trouble)
							break
						}
					}
					trouble = x.finish()
				})
				if trouble != nil {
					rt.Fatal(trouble)
				}
			})
		})
	}
}
