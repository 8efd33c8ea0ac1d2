package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// recorder is a server that remembers what it was sent.
type recorder struct {
	mu     sync.Mutex // guards the fields below
	tokens map[string][]int
	bodies int64
	count  int
}

func (s *recorder) record(r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	token, _ := strconv.Atoi(r.Header.Get("Fencing-Token"))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	s.bodies += n
	if s.tokens == nil {
		s.tokens = map[string][]int{}
	}
	s.tokens[r.URL.Path] = append(s.tokens[r.URL.Path], token)
}

func load(t *testing.T, h http.HandlerFunc, spec loadSpec) loadResult {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	spec.Address = srv.Listener.Addr().String()
	r := generate(context.Background(), spec)
	if r.Errors > 0 {
		t.Fatalf("got %d errors, the first: %s; want none", r.Errors, r.FirstError)
	}
	return r
}

func TestLoadCountsRequests(t *testing.T) {
	var s recorder
	r := load(t, func(w http.ResponseWriter, r *http.Request) {
		s.record(r)
		w.WriteHeader(http.StatusNoContent)
	}, loadSpec{Method: "PUT", Path: "/r/", Resources: 7, Token: 100, Size: 1024, Conns: 4, Count: 70})
	if r.Requests != 70 || r.Statuses["204"] != 70 || s.count != 70 || s.bodies != 70*1024 {
		t.Errorf("got %d requests, %v; the server %d with %d bytes; want 70 of 1024 bytes each", r.Requests, r.Statuses, s.count, s.bodies)
	}
	if len(s.tokens) != 7 || len(s.tokens["/r/6"]) != 10 || s.tokens["/r/6"][9] != 100 {
		t.Errorf("got %v; want token 100 ten times on each of 7 resources", s.tokens)
	}
	if r.P50 <= 0 || r.P99 < r.P50 || r.Seconds <= 0 {
		t.Errorf("got p50 %v, p99 %v in %vs; want times above 0", r.P50, r.P99, r.Seconds)
	}
}

func TestLoadRaisesEveryToken(t *testing.T) {
	var s recorder
	r := load(t, func(w http.ResponseWriter, r *http.Request) { s.record(r) },
		loadSpec{Method: "PUT", Path: "/r/", Resources: 5, Token: firstToken, Raise: true, Size: 10, Conns: 1, Count: 50})
	last := 0
	seen := map[int]bool{}
	for path, tokens := range s.tokens {
		for i, token := range tokens {
			if i > 0 && token <= tokens[i-1] {
				t.Errorf("%s: got %v; want each token above the last", path, tokens)
			}
			seen[token] = true
			last = max(last, token)
		}
	}
	if len(seen) != 50 || r.LastToken < last {
		t.Errorf("got %d different tokens up to %d, reported %d; want 50, and the last one reported", len(seen), last, r.LastToken)
	}
}

func TestLoadSendsNoBodyThatIsRefused(t *testing.T) {
	var s recorder
	r := load(t, func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		s.count++
		s.mu.Unlock()
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusPreconditionFailed) // without reading the body: net/http sends no 100 Continue
	}, loadSpec{Method: "PUT", Path: "/r/", Resources: 3, Token: 5, Size: 10 << 20, Expect: true, Conns: 2, Count: 20})
	if r.Requests != 20 || r.Statuses["412"] != 20 || s.count != 20 {
		t.Errorf("got %d requests, %v; want 20 times 412", r.Requests, r.Statuses)
	}
	if r.BodyBytes != 0 || r.Continues != 0 || r.Closed != 20 {
		t.Errorf("got %d body bytes, %d continues, %d closed; want 0, 0, 20", r.BodyBytes, r.Continues, r.Closed)
	}
}

func TestLoadSendsABodyThatIsAskedFor(t *testing.T) {
	var s recorder
	const size = 1<<20 + 3
	r := load(t, func(w http.ResponseWriter, r *http.Request) {
		s.record(r)
		w.WriteHeader(http.StatusConflict)
	}, loadSpec{Method: "PUT", Path: "/r", Token: 5, Size: size, Expect: true, Conns: 2, Count: 6})
	if r.Continues != 6 || r.BodyBytes != 6*size || s.bodies != 6*size || r.Statuses["409"] != 6 {
		t.Errorf("got %d continues, %d bytes sent, %d received, %v; want 6 and %d", r.Continues, r.BodyBytes, s.bodies, r.Statuses, 6*size)
	}
}

func TestLoadReadsEveryKindOfAnswer(t *testing.T) {
	for _, tt := range []struct {
		name       string
		answer     http.HandlerFunc
		reconnects int
	}{
		{"with a length", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1000)) }, 0},
		{"in chunks", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, 1000))
			w.(http.Flusher).Flush()
			_, _ = w.Write(make([]byte, 100_000))
		}, 0},
		{"and closed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			_, _ = w.Write(make([]byte, 1000))
		}, 9},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := load(t, tt.answer, loadSpec{Method: "GET", Path: "/r/", Resources: 2, Conns: 1, Count: 10})
			if r.Requests != 10 || r.Statuses["200"] != 10 || r.Reconnects != tt.reconnects {
				t.Errorf("got %d requests, %v, %d reconnects; want 10 and %d", r.Requests, r.Statuses, r.Reconnects, tt.reconnects)
			}
		})
	}
}

func TestLoadSendsLongBodiesInPieces(t *testing.T) {
	var s recorder
	const size = 3<<20 + 1
	r := load(t, func(_ http.ResponseWriter, r *http.Request) { s.record(r) },
		loadSpec{Method: "PUT", Path: "/r/", Resources: 2, Token: 5, Size: size, Conns: 2, Count: 4})
	if r.Requests != 4 || s.bodies != 4*size {
		t.Errorf("got %d requests with %d bytes; want 4 with %d", r.Requests, s.bodies, 4*size)
	}
}

func TestLoadKeepsAFixedRate(t *testing.T) {
	var s recorder
	r := load(t, func(_ http.ResponseWriter, r *http.Request) { s.record(r) },
		loadSpec{Method: "PUT", Path: "/r", Token: 5, Size: 10, Conns: 4, Rate: 200, Seconds: 0.25})
	if r.Requests != 50 || s.count != 50 {
		t.Errorf("got %d requests; want 50: 200 a second for a quarter of one", r.Requests)
	}
}

func TestLoadGivesUpOnABrokenServer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }))
	defer srv.Close()
	r := generate(context.Background(), loadSpec{Address: srv.Listener.Addr().String(), Method: "GET", Path: "/", Conns: 2, Count: 1000})
	if r.Requests != 0 || r.Errors != 2*mostErrors || r.FirstError == "" {
		t.Errorf("got %d requests, %d errors, first %q; want 0 and %d", r.Requests, r.Errors, r.FirstError, 2*mostErrors)
	}
}

func TestLoadIsAProgramOfItsOwn(t *testing.T) {
	if err := runLoad(context.Background(), strings.NewReader("not a spec"), io.Discard); err == nil {
		t.Error("a broken spec: got no error; want one")
	}
}

func TestParseWrk(t *testing.T) {
	out := "Running 1s test\n  64 connections\nJSON{\"requests\":1000,\"seconds\":2.5,\"p50_us\":300,\"p99_us\":900,\"errors\":1,\"error_statuses\":10}\n"
	r, err := parseWrk([]byte(out), loadSpec{Raise: true, Token: firstToken, Conns: 4})
	if err != nil || r.Requests != 1000 || r.Seconds != 2.5 || r.P99 != 900 || r.Errors != 1 || r.Statuses["204"] != 990 || r.LastToken < firstToken+1000 {
		t.Errorf("parseWrk: got %+v, %v; want what was printed", r, err)
	}
	if _, err := parseWrk([]byte("unable to connect"), loadSpec{}); err == nil {
		t.Error("no result: got no error; want one")
	}
}
