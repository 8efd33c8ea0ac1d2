package chaos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"time"
)

// op is one write as its client saw it.
type op struct {
	ID        string
	Client    string
	Path      string
	Resources []string
	Token     uint64
	Size      int
	Call      time.Duration // since the round began
	Return    time.Duration // zero while it has not ended
	Outcome   string
	Stale     string // of a stale one: the resource that refused it
	How       string // what the client did, for people
}

// Outcomes of a write.
const (
	isOK      = "ok"      // 2xx: it was applied
	isStale   = "stale"   // not forwarded, and a higher token was seen
	isRefused = "refused" // not forwarded
	isCut     = "cut"     // the client did not send the whole body: it must not be applied
	isFailed  = "failed"  // the store answered with an error; it may have applied the write all the same
	isUnknown = "unknown"
)

// desk is where writers get their tokens and where history is written: a lock service, and a recorder whose clock is the only one. It
// stands in the test's process; the client process reaches it over HTTP.
type desk struct {
	began time.Time
	at    func(point string) // called when a writer has come to a named point

	mu      sync.Mutex // guards the fields below
	addr    string     // of the proxy
	next    uint64     // one counter for all resources, as etcd's revision
	leases  map[string]lease
	ops     map[string]*op
	running int
}

type lease struct {
	holder string
	token  uint64
	until  time.Time
}

// leaseFor is how long a lease runs. Nobody tells its holder when it is over: that is the point.
const leaseFor = 200 * time.Millisecond

func newDesk() *desk {
	return &desk{began: time.Now(), at: func(string) {}, next: 1000, leases: map[string]lease{}, ops: map[string]*op{}}
}

// Lease grants who a lease on all resources, with a token above every earlier one, unless somebody else holds one of them.
func (d *desk) Lease(who string, resources []string) (token uint64, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, r := range resources {
		if l := d.leases[r]; l.holder != who && now.Before(l.until) {
			return 0, false
		}
	}
	d.next++
	for _, r := range resources {
		d.leases[r] = lease{who, d.next, now.Add(leaseFor)}
	}
	return d.next, true
}

// Begin notes that a write is about to be sent, and says where to.
func (d *desk) Begin(o op) (addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.Call = time.Since(d.began)
	d.ops[o.ID] = &o
	d.running++
	return d.addr
}

// End notes what became of a write.
func (d *desk) End(id, outcome, stale string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.ops[id]
	o.Return, o.Outcome, o.Stale = time.Since(d.began), outcome, stale
	d.running--
}

func (d *desk) At(point string) { d.at(point) }

func (d *desk) moveTo(addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.addr = addr
}

func (d *desk) proxy() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.addr
}

// history returns the writes in the order in which they began.
func (d *desk) history() []op {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []op
	for _, o := range d.ops {
		all = append(all, *o)
	}
	slices.SortFunc(all, func(a, b op) int { return int(a.Call - b.Call) })
	return all
}

// message is what the client process says to the desk, and the answer.
type message struct {
	Who       string
	Resources []string
	Op        op
	Outcome   string
	Stale     string
	Token     uint64
	OK        bool
	Addr      string
}

// serve lets the client process in.
func (d *desk) serve() *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		switch r.URL.Path {
		case "/lease":
			m.Token, m.OK = d.Lease(m.Who, m.Resources)
		case "/begin":
			m.Addr = d.Begin(m.Op)
		case "/end":
			d.End(m.Op.ID, m.Outcome, m.Stale)
		}
		_ = json.NewEncoder(w).Encode(m) // the client may be gone
	}))
}

// remoteDesk is the desk as the client process sees it.
type remoteDesk struct{ url string }

func (r remoteDesk) call(path string, m message) message {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	resp, err := http.Post(r.url+path, "application/json", bytes.NewReader(b))
	if err != nil {
		panic(fmt.Sprintf("the desk is gone: %v", err))
	}
	defer resp.Body.Close()
	var back message
	if err := json.NewDecoder(resp.Body).Decode(&back); err != nil {
		panic(err)
	}
	return back
}

func (r remoteDesk) Lease(who string, resources []string) (uint64, bool) {
	m := r.call("/lease", message{Who: who, Resources: resources})
	return m.Token, m.OK
}

func (r remoteDesk) Begin(o op) string { return r.call("/begin", message{Op: o}).Addr }

func (r remoteDesk) End(id, outcome, stale string) {
	r.call("/end", message{Op: op{ID: id}, Outcome: outcome, Stale: stale})
}

func (r remoteDesk) At(string) {}

func (o op) String() string {
	return fmt.Sprintf("%9.1f..%-9.1f %-8s %-12s %6d %-6s %-8s %s", ms(o.Call), ms(o.Return), o.Client, strings.Join(o.Resources, "+"), o.Token, o.ID, o.Outcome, o.How)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
