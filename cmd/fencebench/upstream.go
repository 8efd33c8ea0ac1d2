package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Paths of the store that are not objects.
const (
	arrivedPath = "/-/arrived" // + the path of an object: 200 once a slow or unfinished PUT of it has reached the store
	blobPath    = "/-/blob/"   // + a size: that many bytes
	delayHeader = "X-Delay-Ms" // a PUT with it is applied so much later: a slow store
	keepBelow   = 1 << 20      // longer bodies are read and forgotten
	textHeader  = "Content-Type"
)

// memoryStore is the store behind every peer: objects in memory, applied whole when the last byte of their body is there.
type memoryStore struct {
	mu      sync.RWMutex // guards the fields below; never held across I/O
	objects map[string][]byte
	arrived map[string]bool // paths of PUTs whose body or delay took a while
	blob    []byte
}

func newMemoryStore() *memoryStore {
	return &memoryStore{objects: map[string][]byte{}, arrived: map[string]bool{}, blob: make([]byte, 256<<10)}
}

func (s *memoryStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPut:
		s.put(w, r)
	case strings.HasPrefix(r.URL.Path, blobPath):
		s.serveBlob(w, strings.TrimPrefix(r.URL.Path, blobPath))
	case strings.HasPrefix(r.URL.Path, arrivedPath):
		s.mu.RLock()
		ok := s.arrived[strings.TrimPrefix(r.URL.Path, arrivedPath)]
		s.mu.RUnlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
	default:
		s.mu.RLock()
		b, ok := s.objects[r.URL.Path]
		s.mu.RUnlock()
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set(textHeader, "application/octet-stream")
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		_, _ = w.Write(b)
	}
}

func (s *memoryStore) put(w http.ResponseWriter, r *http.Request) {
	delay, _ := strconv.Atoi(r.Header.Get(delayHeader))
	if strings.HasPrefix(r.URL.Path, wrongPath) {
		s.mu.Lock()
		s.arrived[r.URL.Path] = true
		s.mu.Unlock()
	}
	if r.ContentLength >= keepBelow {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.WriteHeader(http.StatusNoContent)
		return
	}
	body, err := readBody(r)
	if err != nil {
		return // the client is gone, and its body is not whole: nothing is applied
	}
	if delay > 0 {
		time.Sleep(time.Duration(delay) * time.Millisecond) // as a slow store, which goes on when its client has hung up
	}
	s.mu.Lock()
	s.objects[r.URL.Path] = body
	s.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(io.LimitReader(r.Body, keepBelow))
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

func (s *memoryStore) serveBlob(w http.ResponseWriter, size string) {
	n, err := strconv.Atoi(size)
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set(textHeader, "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(n))
	for n > 0 {
		m, err := w.Write(s.blob[:min(n, len(s.blob))])
		if err != nil {
			return
		}
		n -= m
	}
}

// runUpstream is the store as a process.
func runUpstream(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("fencebench upstream", flag.ContinueOnError)
	listen := fs.String("listen", "", "`ADDRESS` to serve")
	if err := fs.Parse(args); err != nil {
		return &usageError{err}
	}
	return serve(ctx, *listen, newMemoryStore())
}

// serve serves until ctx ends.
func serve(ctx context.Context, listen string, h http.Handler) error {
	srv := &http.Server{Addr: listen, Handler: h}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %q: %w: give a free address with --listen", listen, err)
	}
	return nil
}
