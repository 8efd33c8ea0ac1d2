package proxy_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// writer writes once every 50 ms until stop is called, which returns how many writes were answered 201, and the others.
func (r *rig) writer() (stop func() (good int, bad []string)) {
	var good int
	var bad []string
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			got, err := r.do(http.MethodPut, "/writer", "x", "Fencing-Token", "33")
			if err != nil || got.code != http.StatusCreated {
				bad = append(bad, fmt.Sprint(got, err))
				continue
			}
			good++
		}
	}()
	return func() (int, []string) {
		cancel()
		<-done
		return good, bad
	}
}

// wantEveryWrite checks what stop of writer returned.
func wantEveryWrite(t *testing.T, good int, bad []string) {
	t.Helper()
	if len(bad) > 0 || good == 0 {
		t.Errorf("%d writes were answered 201 beside the flood, and %d were not; want all. The first that was not: %.300s", good, len(bad), append(bad, "")[0])
	}
}

func TestSlowClientsDoNotDisturbAWriter(t *testing.T) {
	slow := storetest.Program(t, "slowhttptest")
	for _, tt := range []struct {
		name string
		args []string
	}{
		{"slow heads", []string{"-H", "-i", "1"}},
		{"slow bodies", []string{"-B", "-i", "1", "-s", "8192"}},
		{"slow readers", []string{"-X", "-w", "1", "-y", "2", "-n", "1", "-z", "1", "-k", "3"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := newPlainStore()
			r := newRigWith(t, store, defaultYAML+"limits: {header_timeout: 2s, body_timeout: 2s, min_upload_rate: 1KiB}")
			r.put("/big", 1, strings.Repeat("x", 1<<20), 201, "admitted")
			stop := r.writer()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			args := append(tt.args, "-c", "300", "-r", "100", "-l", "8", "-p", "3", "-u", r.url+"/big")
			out, err := exec.CommandContext(ctx, slow, args...).CombinedOutput()
			good, bad := stop()
			if err != nil {
				t.Fatalf("slowhttptest: %v\n%s", err, out)
			}
			wantEveryWrite(t, good, bad)
			eventually(t, "no slow client is left", func() bool { open, _ := r.connections.Open(); return open == 0 })
			t.Logf("%d writes", good)
		})
	}
}

func TestFloodFromOneAddressDoesNotTakeAllConnections(t *testing.T) {
	r := newRigWith(t, newPlainStore(), defaultYAML+"limits: {connections: 60, connections_per_client: 20}")
	stop := r.writer()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var held, turned atomic.Int64
	var wg sync.WaitGroup
	for range 50 { // each holds one connection for as long as it may, and comes back at once
		wg.Go(func() {
			for ctx.Err() == nil {
				c, err := r.dialFrom("127.0.0.2")
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
				_, _ = io.WriteString(c, "PUT /a HTTP/1.1\r\n")
				if b, _ := io.ReadAll(c); strings.HasPrefix(string(b), "HTTP/1.1 429") {
					turned.Add(1)
				} else {
					held.Add(1)
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	good, bad := stop()
	wantEveryWrite(t, good, bad)
	if turned.Load() == 0 || held.Load() == 0 {
		t.Errorf("%d connections of the flood were held and %d turned away; want both", held.Load(), turned.Load())
	}
}

// randomPaths is how many TestRandomPathsThatTheStoreRefusesLeaveNothing tries; `make flood` sets it to a million.
const randomPaths = "FENCEPROXY_RANDOM_PATHS"

func TestRandomPathsThatTheStoreRefusesLeaveNothing(t *testing.T) {
	count := 10_000
	if s := os.Getenv(randomPaths); s != "" {
		var err error
		if count, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	refuses := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.WriteHeader(http.StatusForbidden)
	})
	r := newRigWith(t, refuses, "unmatched_writes: fence\nlimits: {new_resources_per_client: 1000000}\nlog: {level: error}", func(c *rigConfig) { c.dir = dir })
	keep := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	defer keep.CloseIdleConnections()
	flood := func(from, to int) {
		var next atomic.Int64
		next.Store(int64(from))
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= to || t.Failed() {
						return
					}
					if i%1000 == 0 {
						r.logs.reset() // the test's own memory
					}
					req, err := http.NewRequest(http.MethodPut, fmt.Sprintf("%s/%x", r.url, sha256.Sum256([]byte(strconv.Itoa(i)))), nil)
					if err != nil {
						t.Error(err)
						return
					}
					req.Header.Set("Fencing-Token", strconv.Itoa(i+1))
					resp, err := keep.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
						t.Errorf("path %d: %d; want 403", i, resp.StatusCode)
						return
					}
				}
			})
		}
		wg.Wait()
		r.logs.reset()
	}
	// The store's cache remembers that so many paths have no mark, in 32 MiB at most, and is full after some 100,000. From then on nothing
	// may be added: with a million paths the bound is below 100 bytes a path.
	first := count / 5
	flood(0, first)
	before := heap()
	flood(first, count)
	grown := heap() - before
	if most := min(int64(count-first)<<10, 40<<20); grown > most {
		t.Errorf("the heap grew by %d bytes for %d paths; want at most %d", grown, count-first, most)
	}
	if err := r.store.Range("", func(m fencing.ResourceMark) error { t.Errorf("%s has a mark", m.Resource); return nil }); err != nil {
		t.Error(err)
	}
	if n := r.store.Marks(); n != 0 {
		t.Errorf("%d marks; want none", n)
	}
	eventually(t, "the gate is empty", func() bool { return r.gate.Stats().Resources == 0 })
	if n := proxy.NewcomersOf(r.proxy).Size(); n > 2 {
		t.Errorf("the table of clients holds %d; want one client in each generation at most", n)
	}
	size := diskBytes(t, dir)
	if most := int64(96 << 20); size > most {
		t.Errorf("the token store takes %d MiB; want at most %d, whatever came", size>>20, most>>20)
	}
	t.Logf("%d paths: heap +%d KiB, disk %d KiB", count, grown>>10, size>>10)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // the first one leaves what pools hold
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func diskBytes(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil { // otherwise it was compacted away meanwhile
			n += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return n
}
