package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// runLoad is the load generator as a process: a spec on stdin, a result on stdout.
func runLoad(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var spec loadSpec
	if err := json.NewDecoder(stdin).Decode(&spec); err != nil {
		return &usageError{fmt.Errorf("read the load from stdin: %w: let fencebench start it", err)}
	}
	return json.NewEncoder(stdout).Encode(generate(ctx, spec))
}

// mostErrors ends a connection's work: what it measures is no longer the peer.
const mostErrors = 50

// generate sends the requests of a spec and returns when the last is answered.
func generate(ctx context.Context, spec loadSpec) loadResult {
	g := &generator{spec: spec, reqs: buildRequests(spec), start: time.Now()}
	g.end = g.start.Add(spec.duration())
	workers := make([]worker, spec.Conns)
	var wg sync.WaitGroup
	for i := range workers {
		w := &workers[i]
		w.g, w.statuses = g, map[int]int{}
		w.client = client{address: spec.Address, body: g.reqs.body, size: int64(spec.Size)}
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	return g.sum(workers)
}

// generator is shared by the connections of a load.
type generator struct {
	spec       loadSpec
	reqs       *requests
	start, end time.Time
	next       atomic.Int64 // number of the next request
}

// take is the number of the next request, and when it is due. ok is false after the last.
func (g *generator) take() (n int, due time.Time, ok bool) {
	n = int(g.next.Add(1)) - 1
	if g.spec.Count > 0 {
		return n, time.Time{}, n < g.spec.Count
	}
	if g.spec.Rate > 0 {
		due = g.start.Add(time.Duration(float64(n) / g.spec.Rate * float64(time.Second)))
		return n, due, due.Before(g.end)
	}
	return n, time.Time{}, time.Now().Before(g.end)
}

// worker is one connection.
type worker struct {
	g         *generator
	client    client
	scratch   []byte
	latencies []float64 // microseconds
	statuses  map[int]int
	errors    int
	first     error
	last      time.Time
}

func (w *worker) run(ctx context.Context) {
	defer w.client.close()
	for ctx.Err() == nil && w.errors < mostErrors {
		n, due, ok := w.g.take()
		if !ok {
			return
		}
		if !due.IsZero() {
			time.Sleep(time.Until(due))
		} else {
			due = time.Now()
		}
		req := w.g.reqs.get(n, &w.scratch)
		var status int
		var err error
		if w.g.spec.Expect {
			status, err = w.client.expect(req)
		} else {
			status, err = w.client.do(req)
		}
		w.last = time.Now()
		if err != nil {
			w.errors++
			if w.first == nil {
				w.first = err
			}
			continue
		}
		w.statuses[status]++
		w.latencies = append(w.latencies, float64(w.last.Sub(due).Nanoseconds())/1e3)
	}
}

func (g *generator) sum(workers []worker) loadResult {
	r := loadResult{Statuses: map[string]int{}, LastToken: g.spec.Token}
	if g.spec.Raise {
		r.LastToken += int(g.next.Load())
	}
	var latencies []float64
	end := g.start
	for i := range workers {
		w := &workers[i]
		latencies = append(latencies, w.latencies...)
		for _, status := range slices.Sorted(maps.Keys(w.statuses)) {
			r.Statuses[strconv.Itoa(status)] += w.statuses[status]
		}
		r.Errors += w.errors
		if w.first != nil && r.FirstError == "" {
			r.FirstError = w.first.Error()
		}
		if w.last.After(end) {
			end = w.last
		}
		c := &w.client
		r.Reconnects += max(c.dials-1, 0)
		r.Continues += c.continues
		r.BodyBytes += c.bodyBytes
		r.Closed += c.closed
	}
	r.Requests = len(latencies)
	r.Seconds = end.Sub(g.start).Seconds()
	slices.Sort(latencies)
	r.P50, r.P99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
	return r
}
