package chaos_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Timing. The fence rests on one assumption: a write whose connection is gone has landed, or never will, after in_doubt_hold. The store
// keeps it, with room for the toxics: 600 ms from the head of a request, and a toxic adds at most 110 ms before that.
const (
	inDoubtHold  = 900 * time.Millisecond
	drainTimeout = 1100 * time.Millisecond // above the hold: what waits for its end comes in at once
	upTimeout    = 1500 * time.Millisecond // longest silence of the store
	longestDelay = 450 * time.Millisecond
	storeGivesUp = longestDelay + 150*time.Millisecond // a write not applied by then is not applied at all
	slack        = 150 * time.Millisecond              // a machine that stalls for longer may break the assumption
)

// legacy is the store behind the proxy: it knows nothing of tokens, applies a write after a delay of its own, even if the connection is
// gone, and takes a cut upload for the whole. Each applied write is a line in a log before it is answered.
type legacy struct {
	dir  string
	seed uint64
	drop float64 // share of the writes whose connection it breaks after it has the request; they are applied all the same

	mu  sync.Mutex // guards the values and the log, so that both have one order
	log *os.File

	out sync.Mutex // keeps the lines on stdout whole
}

// storeMain serves until its standard input ends. Arguments: directory, address, seed, drop.
func storeMain(args []string) int {
	s := &legacy{dir: args[0]}
	s.seed, _ = strconv.ParseUint(args[2], 10, 64)
	s.drop, _ = strconv.ParseFloat(args[3], 64)
	if err := s.open(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ln, err := net.Listen("tcp", args[1])
	for i := 0; err != nil && i < 200; i++ { // its last life may still hold the port
		time.Sleep(10 * time.Millisecond)
		ln, err = net.Listen("tcp", args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.say("listen %s", ln.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	fmt.Fprintln(os.Stderr, http.Serve(ln, s))
	return 1
}

func (s *legacy) say(format string, args ...any) {
	s.out.Lock()
	defer s.out.Unlock()
	fmt.Printf(format+"\n", args...)
}

// open finishes what a kill may have interrupted: a write that is in the log and whose value was not put in place.
func (s *legacy) open() error {
	if err := os.MkdirAll(filepath.Join(s.dir, "values"), 0o700); err != nil {
		return err
	}
	lines, err := readLog(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	last := map[string]string{}
	for _, l := range lines {
		last[l.resource] = l.id
	}
	for r, id := range last {
		if err := os.Rename(s.value(r)+"."+id, s.value(r)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	s.log, err = os.OpenFile(filepath.Join(s.dir, "log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	return err
}

func (s *legacy) value(resource string) string {
	return filepath.Join(s.dir, "values", strings.ReplaceAll(resource, "/", "_"))
}

// resourcesOf returns the resources that a path of the tests names: /one/A or /pair/A/B.
func resourcesOf(path string) []string {
	f := strings.Split(strings.Trim(path, "/"), "/")
	var rs []string
	for _, name := range f[1:] {
		rs = append(rs, "r/"+name)
	}
	return rs
}

func (s *legacy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.get(w, r)
		return
	}
	began := time.Now()
	id, token := r.Header.Get("X-Write-Id"), r.Header.Get("Fencing-Token")
	s.say("got %s", id)
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.say("cut %s", id)
	}
	rng := s.draw(id)
	delay := delayOf(rng)
	dropped := rng.Float64() < s.drop
	if dropped {
		s.say("dropped %s", id)
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}
	select {
	case <-time.After(delay):
	case <-r.Context().Done():
		if err == nil {
			s.say("gone %s", id)
		}
		time.Sleep(delay - time.Since(began)) // it does not care
	}
	if time.Since(began) > storeGivesUp { // or the tests' own assumption would not hold
		s.say("late %s", id)
		panic(http.ErrAbortHandler)
	}
	s.apply(resourcesOf(r.URL.Path), token, id, body, err != nil)
	if !dropped {
		s.answer(w, rng)
	}
}

// draw returns the source of what is random about a write. It hangs on the write's id, so that a replay has the same delays.
func (s *legacy) draw(id string) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, id) // a hash takes everything
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

func delayOf(rng *rand.Rand) time.Duration {
	most := 8 * time.Millisecond
	switch n := rng.IntN(100); {
	case n >= 85:
		most = longestDelay
	case n >= 50:
		most = 120 * time.Millisecond
	}
	return time.Duration(rng.Int64N(int64(most)))
}

// apply makes the body the value of the resources and appends it to the log, in one step for all who look. The value waits beside its place
// until the log has it; open redoes the rest after a kill.
func (s *legacy) apply(resources []string, token, id string, body []byte, cut bool) {
	sum := sha256.Sum256(body)
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines strings.Builder
	for _, r := range resources {
		fmt.Fprintf(&lines, "%s %s %s %d %s %v\n", r, token, id, len(body), hex.EncodeToString(sum[:8]), cut)
		if err := os.WriteFile(s.value(r)+"."+id, append([]byte(id+"\n"), body...), 0o600); err != nil {
			panic(err)
		}
	}
	if _, err := s.log.WriteString(lines.String()); err != nil {
		panic(err)
	}
	for _, r := range resources {
		if err := os.Rename(s.value(r)+"."+id, s.value(r)); err != nil {
			panic(err)
		}
	}
}

// answer answers in one of the ways that stores do.
func (s *legacy) answer(w http.ResponseWriter, rng *rand.Rand) {
	switch n := rng.IntN(100); {
	case n < 3:
		http.Error(w, "applied, and then something went wrong", http.StatusInternalServerError)
	case n < 10: // longer than what the proxy takes in before it passes it on, and slow
		for range 10 {
			_, _ = w.Write(make([]byte, 12<<10))
			_ = http.NewResponseController(w).Flush()
			time.Sleep(2 * time.Millisecond)
		}
	case n < 30:
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "stored\n")
	}
}

func (s *legacy) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	b, err := os.ReadFile(s.value(resourcesOf(r.URL.Path)[0]))
	s.mu.Unlock()
	if err != nil {
		http.NotFound(w, r)
		return
	}
	id, _, _ := strings.Cut(string(b), "\n")
	w.Header().Set("X-Write-Id", id)
	_, _ = io.WriteString(w, id)
}

// applied is a line of the store's log.
type applied struct {
	resource string
	token    uint64
	id       string
	size     int
	sum      string
	cut      bool // only a part of the body came
}

func readLog(path string) (all []applied, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for in.Scan() {
		var a applied
		if _, err := fmt.Sscanf(in.Text(), "%s %d %s %d %s %t", &a.resource, &a.token, &a.id, &a.size, &a.sum, &a.cut); err != nil {
			return nil, fmt.Errorf("line %d of the store's log, %q: %w", len(all)+1, in.Text(), err)
		}
		all = append(all, a)
	}
	return all, in.Err()
}
