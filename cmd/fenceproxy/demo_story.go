package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// demoStore is a store that knows nothing of tokens: PUT keeps a body under its path, the last one wins.
type demoStore struct {
	mu sync.Mutex // guards the fields below
	// +checklocks:mu
	objects map[string]string
	// +checklocks:mu
	applied []string // tokens of the writes, in the order in which they took effect

	slow chan struct{} // gets a value when a slow write has arrived, if there is room
}

func newDemoStore() *demoStore {
	return &demoStore{objects: map[string]string{}, slow: make(chan struct{}, 1)}
}

// delayHeader makes a write take its time on the way, as a slow disk or network would.
const delayHeader = "X-Demo-Delay"

func (s *demoStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		return
	}
	if d, err := time.ParseDuration(r.Header.Get(delayHeader)); err == nil && d > 0 {
		select {
		case s.slow <- struct{}{}:
		default:
		}
		time.Sleep(min(d, 30*time.Second))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		v, ok := s.objects[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintln(w, v)
	case http.MethodPut, http.MethodPost:
		s.objects[r.URL.Path] = strings.TrimRight(string(body), "\n")
		s.applied = append(s.applied, r.Header.Get("Fencing-Token"))
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		delete(s.objects, r.URL.Path)
		s.applied = append(s.applied, r.Header.Get("Fencing-Token"))
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (s *demoStore) holds(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

// order returns the tokens of the writes so far, and forgets them.
func (s *demoStore) order() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := strings.Join(s.applied, ", ")
	s.applied = nil
	return order
}

// story is what demo tells.
type story struct {
	out                          io.Writer
	paint                        func(colour, string) string
	store                        *demoStore
	storeURL, proxyURL, adminURL string
	start                        time.Time
	gone                         func() // called when nobody reads the story any more
}

func (s *story) say(format string, args ...any) {
	if _, err := fmt.Fprintf(s.out, format+"\n", args...); err != nil {
		s.gone()
	}
}

func (s *story) chapter(title string) {
	s.start = time.Now()
	s.say("\n%s", s.paint(bold, title))
}

// tell plays three short scenes. It fails if one does not end as it should.
func (s *story) tell(ctx context.Context) error {
	s.say(`A and B take turns at a lock that hands out rising fencing tokens. A got 33 and
paused, its lease ran out, B got 34. Then A wakes up and believes that it still
holds the lock.

  store       %s  the last write wins
  fenceproxy  %s  before it; each path is a resource`, s.storeURL, s.proxyURL)

	s.chapter("1. Straight to the store: B's work is lost")
	for _, w := range []demoWrite{{"B", 34, "driver B", 0}, {"A", 33, "driver A", 0}} {
		line, err := s.put(ctx, s.storeURL, "/rides/1", w, http.StatusCreated)
		if err != nil {
			return err
		}
		s.say("%s", line)
	}
	if err := s.expect("/rides/1", "driver A", red); err != nil {
		return err
	}

	s.chapter("2. Through fenceproxy: A is refused")
	s.store.order()
	for _, w := range []struct {
		demoWrite
		code int
	}{{demoWrite{"A", 33, "driver A", 0}, 201}, {demoWrite{"B", 34, "driver B", 0}, 201}, {demoWrite{"A", 33, "driver A", 0}, 412}} {
		line, err := s.put(ctx, s.proxyURL, "/rides/2", w.demoWrite, w.code)
		if err != nil {
			return err
		}
		s.say("%s", line)
	}
	if err := s.expect("/rides/2", "driver B", green); err != nil {
		return err
	}
	return s.slow(ctx)
}

// slow is the case that a check alone does not solve.
func (s *story) slow(ctx context.Context) error {
	s.chapter("3. A slow write: 33 was let through, and is still on its way when 34 comes")
	s.store.order()
	const delay, head = 1500 * time.Millisecond, 300 * time.Millisecond
	first := make(chan answer, 1)
	s.note("A", "PUT /rides/3 with 33 leaves, and takes %v to reach the store", delay)
	go func() { // ends with the request, which is bounded by ctx
		line, err := s.put(ctx, s.proxyURL, "/rides/3", demoWrite{"A", 33, "driver A", delay}, 201)
		first <- answer{line, err}
	}()
	for _, begun := range []<-chan struct{}{s.store.slow, after(head)} {
		select {
		case <-begun:
		case a := <-first:
			return cmp.Or(a.err, errors.New("the slow write was answered before its time"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.note("B", "PUT /rides/3 with 34 waits until 33 has an outcome;")
	s.say("              %s", s.paint(faint, "a check alone would let it pass now"))
	// Both answers come at about the same time. A's was first, and is told first.
	line, err := s.put(ctx, s.proxyURL, "/rides/3", demoWrite{"B", 34, "driver B", 0}, 201)
	a := <-first
	if err := errors.Join(err, a.err); err != nil {
		return err
	}
	s.say("%s\n%s", a.line, line)
	if order := s.store.order(); order != "33, 34" {
		return fmt.Errorf("the store saw the tokens %s; the demo expected 33, 34", order)
	}
	s.say("           the store saw 33, then 34")
	return s.expect("/rides/3", "driver B", green)
}

// answer is what put returns.
type answer struct {
	line string
	err  error
}

// after is time.After for those who wait for signals without a value.
func after(d time.Duration) <-chan struct{} {
	c := make(chan struct{})
	time.AfterFunc(d, func() { close(c) })
	return c
}

type demoWrite struct {
	who   string
	token int
	value string
	delay time.Duration
}

func (s *story) note(who, format string, args ...any) {
	s.say("  %s  %s  %s", s.elapsed(), who, s.paint(faint, fmt.Sprintf(format, args...)))
}

func (s *story) elapsed() string { return fmt.Sprintf("%6.3fs", time.Since(s.start).Seconds()) }

// put sends a write and returns a line about its answer.
func (s *story) put(ctx context.Context, base, path string, w demoWrite, want int) (line string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, base+path, strings.NewReader(w.value))
	if err != nil {
		return "", err
	}
	req.Header.Set("Fencing-Token", fmt.Sprint(w.token))
	if w.delay > 0 {
		req.Header.Set(delayHeader, w.delay.String())
	}
	resp, err := (&http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != want {
		return "", fmt.Errorf("PUT %s with token %d was answered %s; the demo expected %d", path, w.token, resp.Status, want)
	}
	result := fmt.Sprint(resp.StatusCode)
	if f := resp.Header.Get("Fencing-Status"); f != "" {
		result += "  Fencing-Status: " + f
	}
	c := green
	if want >= 400 {
		c = red
	}
	return fmt.Sprintf("  %s  %s  PUT %s  token %d   %s", s.elapsed(), w.who, path, w.token, s.paint(c, result)), nil
}

func (s *story) expect(path, want string, c colour) error {
	got := s.store.holds(path)
	if got != want {
		return fmt.Errorf("the store holds %q under %s; the demo expected %q", got, path, want)
	}
	s.say("           the store holds %s", s.paint(c, fmt.Sprintf("%q", got)))
	return nil
}

// invite prints lines to be pasted. /rides/7 is left to those of the README.
func (s *story) invite() {
	s.say(`
%s
  curl -i -X PUT -H 'Fencing-Token: 40' -d mine %[2]s/rides/8
  curl -i -X PUT -H 'Fencing-Token: 39' -d stale %[2]s/rides/8
  curl -i %[2]s/rides/8
  curl -i -X PUT -d 'no token' %[2]s/rides/8`, s.paint(bold, "Your turn. In another terminal:"), s.proxyURL)
	if s.adminURL != "" {
		s.say(`  curl -s %[1]s/v1/resources/rides/8
  curl -s %[1]s/metrics | grep '^fenceproxy_writes'`, s.adminURL)
	}
	s.say("\nCtrl-C ends it.")
}
