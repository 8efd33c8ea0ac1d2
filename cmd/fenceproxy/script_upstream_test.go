package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// upstream is a store that knows nothing of tokens. A write with X-Hold waits until it is released, then takes effect even if its
// connection is gone, as real stores do.
type upstream struct {
	server *httptest.Server
	ended  chan struct{} // closed by close

	mu sync.Mutex // guards the fields below
	// +checklocks:mu
	objects map[string]string
	// +checklocks:mu
	writes []string
	// +checklocks:mu
	holds map[string]*hold
}

type hold struct {
	arrived, released chan struct{} // closed by the request and by the command release
}

func newUpstream() *upstream {
	u := &upstream{objects: map[string]string{}, holds: map[string]*hold{}, ended: make(chan struct{})}
	u.server = httptest.NewServer(u)
	return u
}

func (u *upstream) close() {
	close(u.ended)
	u.server.CloseClientConnections()
	u.server.Close()
}

func (u *upstream) hold(name string) *hold {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.holds[name] == nil {
		u.holds[name] = &hold{make(chan struct{}), make(chan struct{})}
	}
	return u.holds[name]
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if name := r.Header.Get("X-Hold"); name != "" {
		h := u.hold(name)
		close(h.arrived)
		select {
		case <-h.released:
		case <-u.ended:
		}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		v, ok := u.objects[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, v)
	default:
		u.objects[r.URL.Path] = string(body)
		u.writes = append(u.writes, fmt.Sprintf("%s %s %s", r.Method, r.URL.Path, r.Header.Get("Fencing-Token")))
		w.WriteHeader(http.StatusCreated)
	}
}

func cmdStore(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: store")
	}
	w := worldOf(ts)
	w.upstream = newUpstream()
	ts.Setenv("STORE", w.upstream.server.URL)
}

func (w *world) store(ts *testscript.TestScript) *upstream {
	if w.upstream == nil {
		ts.Fatalf("no store was started")
	}
	return w.upstream
}

func cmdStored(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: [!] stored PATH VALUE")
	}
	u := worldOf(ts).store(ts)
	u.mu.Lock()
	got, ok := u.objects[args[0]]
	u.mu.Unlock()
	if (ok && got == args[1]) == neg {
		ts.Fatalf("the store holds %q under %s (there: %v)", got, args[0], ok)
	}
}

func cmdApplied(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: applied")
	}
	u := worldOf(ts).store(ts)
	u.mu.Lock()
	defer u.mu.Unlock()
	fmt.Fprintln(ts.Stdout(), strings.Join(u.writes, "\n"))
}

func cmdHeld(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: held NAME")
	}
	select {
	case <-worldOf(ts).store(ts).hold(args[0]).arrived:
	case <-deadline():
		ts.Fatalf("the write %s did not reach the store", args[0])
	}
}

func cmdRelease(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: release NAME")
	}
	close(worldOf(ts).store(ts).hold(args[0]).released)
}
