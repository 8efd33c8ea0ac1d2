package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestChaos plays rounds of faults and checks after each what the store was made to apply.
func TestChaos(t *testing.T) {
	c := campaign{binary: proxyBinary(t), seed: *seed, rounds: *rounds, only: *only, active: 2200 * time.Millisecond, logf: t.Logf, dir: t.TempDir}
	if c.seed == 0 {
		c.seed = time.Now().UnixNano() % 1e9
	}
	c.until = time.Now().Add(*runFor)
	if *runFor == 0 && c.rounds == 0 {
		if c.rounds = 4; testing.Short() {
			c.rounds, c.active = 2, 800*time.Millisecond
		}
	}
	t.Logf("seed %d", c.seed)
	if err := c.run(); err != nil {
		t.Error(err)
	}
}

// campaign is a series of rounds.
type campaign struct {
	binary string
	seed   int64
	rounds int       // 0: until
	until  time.Time // used if rounds is 0
	only   string
	active time.Duration // how long each round writes
	logf   func(format string, args ...any)
	dir    func() string
	quiet  bool // no progress lines

	played, writes, landed, unknown, open, inconclusive int
}

// run plays until the end or until a round fails.
func (c *campaign) run() error {
	began, told := time.Now(), time.Now()
	for i := 0; c.rounds > 0 && i < c.rounds || c.rounds == 0 && time.Now().Before(c.until); i++ {
		s := c.seed + int64(i)
		if err := c.round(s); err != nil {
			replay := fmt.Sprintf("go test -run 'TestChaos$' -count=1 ./proxy/chaos -args -chaos.rounds=1 -chaos.seed=%d", s)
			if c.only != "" {
				replay += " -chaos.only=" + c.only
			}
			return fmt.Errorf("seed %d: %w\nreplay: %s", s, err, replay)
		}
		if c.rounds == 0 && !c.quiet && time.Since(told) > 10*time.Second {
			told = time.Now()
			fmt.Printf("chaos: %v, next seed %d, %v\n", time.Since(began).Round(time.Second), s+1, c)
		}
	}
	c.logf("%v", c)
	if c.inconclusive > 1+c.played/10 {
		return fmt.Errorf("%d of %d rounds say nothing, since this machine stalled", c.inconclusive, c.played)
	}
	return nil
}

func (c *campaign) String() string {
	return fmt.Sprintf("%d rounds, %d writes, %d applied, %d with an unknown outcome, %d histories too hard, %d rounds inconclusive",
		c.played, c.writes, c.landed, c.unknown, c.open, c.inconclusive)
}

// round plays one round and returns what is wrong.
func (c *campaign) round(seed int64) (err error) {
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	p, err := draw(rng, c.only)
	if err != nil {
		return err
	}
	stall := watchStalls()
	r, err := newRig(c.binary, c.dir(), uint64(seed), p.drop, 3+rng.IntN(4))
	if err != nil {
		stall.end()
		return err
	}
	defer r.close()
	r.trace.logf("seed %d, faults %v, resources %d", seed, p, len(r.names))
	e, err := c.play(r, p)
	stalled := stall.end()
	if err != nil {
		return fmt.Errorf("%w\n%v", err, &r.trace)
	}
	if *verbose {
		c.logf("%v", &r.trace)
	}
	bad := e.check()
	for _, text := range r.broken {
		bad = append(bad, violation{text, false})
	}
	c.count(e)
	var resources []string
	for _, name := range r.names {
		resources = append(resources, "r/"+name)
	}
	worse, open := e.linearize(resources, 3*time.Second)
	c.open += open
	return c.verdict(r, e, append(bad, worse...), stalled)
}

func (c *campaign) count(e *evidence) {
	c.played++
	c.writes += len(e.ops)
	c.landed += len(e.log)
	for _, o := range e.ops {
		if o.Outcome == isUnknown {
			c.unknown++
		}
	}
}

// verdict makes an error of the violations, unless all of them may come of the machine.
func (c *campaign) verdict(r *rig, e *evidence, bad []violation, stalled time.Duration) error {
	if len(bad) == 0 {
		return nil
	}
	if stalled > slack && !slices.ContainsFunc(bad, func(v violation) bool { return !v.soft }) {
		c.inconclusive++
		c.logf("inconclusive: this process stalled for %v, so the timing assumption may not have held: %s", stalled, bad[0].text)
		return nil
	}
	var b strings.Builder
	for i, v := range bad {
		if i == 8 {
			fmt.Fprintf(&b, "... and %d more\n", len(bad)-i)
			break
		}
		fmt.Fprintln(&b, v.text)
	}
	for _, name := range r.names {
		if strings.Contains(bad[0].text, "r/"+name) {
			fmt.Fprintf(&b, "writes on r/%s:\n%s", name, e.about("r/"+name))
			break
		}
	}
	return fmt.Errorf("%d violations (the worst stall of this process was %v):\n%s\nwhat was done:\n%v", len(bad), stalled, b.String(), &r.trace)
}

// play runs writers, readers and faults, lets everything settle and gathers the evidence.
func (c *campaign) play(r *rig, p plan) (*evidence, error) {
	server := r.desk.serve()
	defer server.Close()
	client, err := r.startClient(server.URL, p.manners)
	if err != nil {
		return nil, err
	}
	defer client.kill()

	var stopWriters, stopLooking atomic.Bool
	var writers, watchers sync.WaitGroup
	for i := range 5 {
		w := newWriter(fmt.Sprintf("g%d", i), r.seed, uint64(10+i), p.manners, &stopWriters, r.names)
		w.desk = r.desk
		writers.Go(w.run)
	}
	e := &evidence{mild: p.mild()}
	watchers.Go(func() { e.looks = r.look(&stopLooking) })
	watchers.Go(func() { e.reads = r.readValues(&stopLooking) })

	r.misbehave(p, client, time.Now().Add(c.active))

	stopWriters.Store(true)
	client.stdin.Close()
	writers.Wait()
	if err := client.wait(20 * time.Second); err != nil {
		return nil, fmt.Errorf("the client process: %w\n%s", err, client.stderr())
	}
	if err := r.alive(); err != nil {
		return nil, err
	}
	stopLooking.Store(true)
	watchers.Wait()
	if e.final, err = r.export(); err != nil {
		return nil, err
	}
	e.end = time.Since(r.desk.began)
	e.ops, e.crashes, e.events = r.desk.history(), r.crashes, r.events
	return e, e.gather(r.dir)
}

// misbehave applies faults until the end, each lane beside the others, and leaves everything running and connected.
func (r *rig) misbehave(p plan, client *process, end time.Time) {
	lanes := map[string][]fault{}
	for _, f := range p.kinds {
		if f.name == "client-stop" {
			f.apply = func(r *rig, rng *rand.Rand) {
				d := between(rng, 50, 600)
				r.trace.logf("SIGSTOP the client process for %v", d)
				client.signal(syscall.SIGSTOP)
				time.Sleep(d)
				client.signal(syscall.SIGCONT)
			}
		}
		if f.apply != nil {
			lanes[f.lane] = append(lanes[f.lane], f)
		}
	}
	var running sync.WaitGroup
	for lane, most := range map[string]int{"client": 300, "proxy": 700, "store": 700, "net": 350, "reload": 300} {
		own := rand.New(rand.NewPCG(r.seed, uint64(most)<<8+uint64(lane[0]))) // each lane its own, so that they do not disturb each other
		kinds := lanes[lane]
		if len(kinds) == 0 {
			continue
		}
		running.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(between(own, 10, most))
				kinds[own.IntN(len(kinds))].apply(r, own)
			}
		})
	}
	time.Sleep(time.Until(end))
	running.Wait()
}

// alive writes to each resource with a new token until that succeeds: nothing may be stuck once the faults have ended.
func (r *rig) alive() error {
	var stop atomic.Bool
	w := newWriter("end", r.seed, 99, manners{}, &stop, r.names)
	w.desk = r.desk
	defer w.hangUp(false)
	for _, name := range r.names {
		path := "/one/" + name
		for began, ok := time.Now(), false; !ok; {
			if time.Since(began) > 15*time.Second {
				return fmt.Errorf("stuck: no write on %s succeeds, 15 s after the last fault\n%s", path, r.current().stderr())
			}
			token, held := r.desk.Lease("end", resourcesOf(path))
			if !held {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			ok = w.write(path, resourcesOf(path), token) == isOK
		}
	}
	return nil
}

// look asks for the marks again and again.
func (r *rig) look(stop *atomic.Bool) (all []look) {
	for ; !stop.Load(); time.Sleep(60 * time.Millisecond) {
		l := look{applied: map[string]uint64{}}
		log, err := readLog(filepath.Join(r.dir, "store", "log"))
		if err != nil {
			r.fault("%v", err)
			return all
		}
		for _, a := range log {
			l.applied[a.resource] = max(l.applied[a.resource], a.token)
		}
		l.from = time.Since(r.desk.began)
		if l.marks, err = r.marks(); err != nil {
			continue // it is down
		}
		l.to = time.Since(r.desk.began)
		all = append(all, l)
	}
	return all
}

// readValues reads the resources through the proxy again and again.
func (r *rig) readValues(stop *atomic.Bool) (all []read) {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for i := 0; !stop.Load(); i++ {
		time.Sleep(40 * time.Millisecond)
		name := r.names[i%len(r.names)]
		one := read{resource: "r/" + name}
		one.from = time.Since(r.desk.began)
		resp, err := client.Get("http://" + r.desk.proxy() + "/one/" + name)
		if err != nil {
			continue
		}
		resp.Body.Close()
		one.to, one.id = time.Since(r.desk.began), resp.Header.Get("X-Write-Id")
		if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusOK && one.id != "" {
			all = append(all, one)
		}
	}
	return all
}
