package chaos_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// rig is everything of one round: the store and the proxy (child processes), toxiproxy between them, and the desk.
type rig struct {
	binary string
	dir    string
	seed   uint64
	drop   float64
	desk   *desk
	toxi   *toxiproxy.Proxy
	toxiAt string
	names  []string // of the resources

	trace trace

	config sync.Mutex // held while the file is one that the proxy cannot start with, and while it starts

	mu      sync.Mutex // guards the fields below
	proxy   *process
	admin   string // address of its admin listener
	store   *process
	storeAt string
	crashes []span   // from when the proxy was told to end until it served again
	events  []string // what the store said
	armed   map[string]chan string
	broken  []string // what went wrong that no fault explains
	ending  bool     // the proxy is meant to end
}

// span is a stretch of time since the round began.
type span struct{ from, to time.Duration }

// trace is what was done in a round, for people.
type trace struct {
	began time.Time
	mu    sync.Mutex // guards lines
	lines []string
}

func (t *trace) logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, fmt.Sprintf("%9.1f ms  ", ms(time.Since(t.began)))+fmt.Sprintf(format, args...))
}

func (t *trace) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

const policyFile = `listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
upstream: {url: "http://%s", timeout: %v}
token_store: {dir: %s/marks}
spool: {dir: %s, memory: 64KiB}
unmatched_writes: reject
defaults: {drain_timeout: %v, in_doubt_hold: %v}
policies:
  - {name: one, match: {path: "/one/{a}"}, resource: "r/{a}"}
  - {name: pair, match: {path: "/pair/{a}/{b}"}, resource: ["r/{a}", "r/{b}"]}
`

// newRig starts everything. close it in every case.
func newRig(binary, dir string, seed uint64, drop float64, resources int) (r *rig, err error) {
	r = &rig{binary: binary, dir: dir, seed: seed, drop: drop, desk: newDesk(), armed: map[string]chan string{}, storeAt: "127.0.0.1:0"}
	r.trace.began = r.desk.began
	r.desk.at = func(point string) { r.point(point, "") }
	for i := range resources {
		r.names = append(r.names, string(rune('a'+i)))
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err := os.Mkdir(filepath.Join(dir, "spool"), 0o700); err != nil {
		return r, err
	}
	if err := r.startStore(); err != nil {
		return r, err
	}
	zerolog.SetGlobalLevel(zerolog.Disabled) // toxiproxy writes to stdout whatever logger it is given
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	r.toxi = toxiproxy.NewProxy(server, "store", "127.0.0.1:0", r.storeAt)
	if err := r.toxi.Start(); err != nil {
		return r, err
	}
	r.toxiAt = r.toxi.Listen
	if err := r.writeConfig(""); err != nil {
		return r, err
	}
	return r, r.startProxy()
}

func (r *rig) configFile() string { return filepath.Join(r.dir, "fenceproxy.yaml") }

// writeConfig writes the configuration and more below it.
func (r *rig) writeConfig(more string) error {
	text := fmt.Sprintf(policyFile, r.toxiAt, upTimeout, r.dir, filepath.Join(r.dir, "spool"), drainTimeout, inDoubtHold)
	if err := os.WriteFile(r.configFile()+".new", []byte(text+more), 0o600); err != nil {
		return err
	}
	return os.Rename(r.configFile()+".new", r.configFile())
}

// startStore starts the store, the second time at the address of the first.
func (r *rig) startStore() error {
	at := make(chan string, 1)
	p, err := start(reexec("store", filepath.Join(r.dir, "store"), r.storeAt, strconv.FormatUint(r.seed, 10), fmt.Sprint(r.drop)), func(line string) {
		word, arg, _ := strings.Cut(line, " ")
		if word == "listen" {
			at <- arg
			return
		}
		r.mu.Lock()
		r.events = append(r.events, line)
		r.mu.Unlock()
		r.point(word, arg)
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.store = p
	r.mu.Unlock()
	select {
	case r.storeAt = <-at:
		return nil
	case <-p.ended:
		return fmt.Errorf("the store ended: %v: %s", p.err, p.stderr())
	case <-time.After(20 * time.Second):
		return errors.New("the store does not start")
	}
}

// startProxy starts the proxy and waits until it serves.
func (r *rig) startProxy() error {
	r.config.Lock()
	defer r.config.Unlock()
	at := make(chan [2]string, 1)
	cmd := exec.Command(r.binary, "serve", "--config", r.configFile(), "--log-level", "warn", "--shutdown-timeout", "5s")
	cmd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // or it lingers for a second, deaf to signals
	p, err := start(cmd, func(line string) {
		f := strings.Fields(strings.ReplaceAll(line, ",", ""))
		if len(f) == 10 && f[1] == "serving" {
			at <- [2]string{f[3], f[9]}
		}
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.proxy, r.ending = p, false
	r.mu.Unlock()
	select {
	case a := <-at:
		r.desk.moveTo(a[0])
		r.mu.Lock()
		r.admin = a[1]
		r.mu.Unlock()
		go r.watch(p) // ends with the process
		return nil
	case <-p.ended:
		return fmt.Errorf("the proxy does not start: %v: %s", p.err, p.stderr())
	case <-time.After(30 * time.Second):
		return errors.New("the proxy does not start within 30 s: " + p.stderr())
	}
}

// watch notices when a proxy ends that nobody told to, and what it complained of.
func (r *rig) watch(p *process) {
	<-p.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	if text := p.stderr(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") || strings.Contains(text, "fatal error") {
		r.broken = append(r.broken, "the proxy complains:\n"+text)
	}
	if !r.ending && p == r.proxy {
		r.broken = append(r.broken, fmt.Sprintf("the proxy ended by itself (%v):\n%s", p.err, p.stderr()))
	}
}

func (r *rig) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = append(r.broken, fmt.Sprintf(format, args...))
}

// point is called when something has come to a named point. It lets whoever is armed for it go on, once.
func (r *rig) point(name, arg string) {
	r.mu.Lock()
	c := r.armed[name]
	delete(r.armed, name)
	r.mu.Unlock()
	if c != nil {
		c <- arg
	}
}

// await waits until something comes to a named point.
func (r *rig) await(point string, most time.Duration) (arg string, ok bool) {
	c := make(chan string, 1)
	r.mu.Lock()
	r.armed[point] = c
	r.mu.Unlock()
	select {
	case arg = <-c:
		return arg, true
	case <-time.After(most):
		return "", false
	}
}

func (r *rig) current() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.proxy
}

// killProxy ends the proxy with SIGKILL, or in order with SIGTERM, waits, and starts it again.
func (r *rig) killProxy(s syscall.Signal, pause time.Duration) {
	from := time.Since(r.desk.began)
	r.mu.Lock()
	p := r.proxy
	r.ending = true
	r.mu.Unlock()
	p.signal(s)
	if err := p.wait(15 * time.Second); err != nil && s == syscall.SIGTERM {
		r.fault("the proxy does not stop in order: %v\n%s", err, p.stderr())
		p.kill()
	}
	time.Sleep(pause)
	if err := r.startProxy(); err != nil {
		r.fault("%v", err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.crashes = append(r.crashes, span{from, time.Since(r.desk.began)})
}

func (r *rig) killStore(pause time.Duration) {
	r.mu.Lock()
	p := r.store
	r.mu.Unlock()
	p.kill()
	time.Sleep(pause)
	if err := r.startStore(); err != nil {
		r.fault("%v", err)
	}
}

// toxic adds a toxic for a while. Its direction is that of the bytes: upstream carries requests, downstream answers.
func (r *rig) toxic(kind, direction string, attributes map[string]any, d time.Duration) {
	b, _ := json.Marshal(map[string]any{"name": kind + direction, "type": kind, "stream": direction, "toxicity": 1, "attributes": attributes})
	r.trace.logf("toxic %s %s %v for %v", kind, direction, attributes, d)
	if _, err := r.toxi.Toxics.AddToxicJson(strings.NewReader(string(b))); err != nil {
		r.fault("toxiproxy: %v", err)
		return
	}
	time.Sleep(d)
	if err := r.toxi.Toxics.RemoveToxic(backgroundContext, kind+direction); err != nil {
		r.fault("toxiproxy: %v", err)
	}
}

// marks asks the running proxy for the durable marks.
func (r *rig) marks() (map[string]uint64, error) {
	r.mu.Lock()
	admin := r.admin
	r.mu.Unlock()
	resp, err := adminClient.Get("http://" + admin + "/v1/resources")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var page struct {
		Resources []struct{ Resource, Token string }
	}
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil {
		return nil, err
	}
	marks := map[string]uint64{}
	for _, m := range page.Resources {
		if marks[m.Resource], err = strconv.ParseUint(m.Token, 10, 64); err != nil {
			return nil, err
		}
	}
	return marks, nil
}

// export stops the proxy in order and reads the marks from its directory.
func (r *rig) export() (map[string]uint64, error) {
	r.mu.Lock()
	p := r.proxy
	r.ending = true
	r.mu.Unlock()
	p.signal(syscall.SIGTERM)
	if err := p.wait(15 * time.Second); err != nil {
		return nil, fmt.Errorf("the proxy does not stop in order: %w\n%s", err, p.stderr())
	}
	return exportMarks(r.binary, filepath.Join(r.dir, "marks"))
}

// exportMarks reads the marks of a stopped proxy's directory.
func exportMarks(binary, dir string) (map[string]uint64, error) {
	out, err := exec.Command(binary, "marks", "export", "--dir", dir).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("marks export: %w", err)
	}
	marks := map[string]uint64{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var m struct{ Resource, Token string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return marks, nil
		} else if err != nil {
			return nil, err
		}
		if m.Resource == "" {
			continue // the trailer
		}
		if marks[m.Resource], err = strconv.ParseUint(m.Token, 10, 64); err != nil {
			return nil, err
		}
	}
}

// startClient starts the process that can be stopped as a whole.
func (r *rig) startClient(url string, m manners) (*process, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return start(reexec("client", url, strconv.FormatUint(r.seed, 10), string(b), strings.Join(r.names, ",")), func(string) {})
}

// close ends every process of the round.
func (r *rig) close() {
	r.mu.Lock()
	r.ending = true
	all := []*process{r.proxy, r.store}
	r.mu.Unlock()
	for _, p := range all {
		if p != nil {
			p.kill()
		}
	}
	if r.toxi != nil {
		r.toxi.Stop()
	}
	adminClient.CloseIdleConnections()
}

var adminClient = &http.Client{Timeout: 2 * time.Second}

// stalls measures by how much this process was kept from running.
type stalls struct {
	worst atomic.Int64
	stop  chan struct{}
	done  chan struct{}
}

func watchStalls() *stalls {
	s := &stalls{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		const tick = 10 * time.Millisecond
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-s.stop:
				return
			case <-time.After(tick):
			}
			if over := int64(time.Since(last) - tick); over > s.worst.Load() {
				s.worst.Store(over)
			}
		}
	}()
	return s
}

func (s *stalls) end() time.Duration {
	close(s.stop)
	<-s.done
	return time.Duration(s.worst.Load())
}
