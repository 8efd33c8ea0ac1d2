package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// drive is a load of PUTs without a body, each with a higher token than all before.
type drive struct {
	address string
	writers int
	count   int           // stop after so many; 0: after duration
	length  time.Duration // stop after so long
	path    naming
}

// inTurns measures new and existing marks in turns, and returns the medians. The writes of both are those of all rounds.
func (g *growth) inTurns(known func(first rate) naming, kind string, measure func(naming) (rate, error)) (of [2]rate, err error) {
	var rounds [2][]rate
	for round := range g.o.rounds {
		for i := range rounds {
			name := fresh(kind + strconv.Itoa(round))
			if i == 1 {
				name = known(rounds[0][0])
			}
			r, err := measure(name)
			if err != nil {
				return of, err
			}
			rounds[i] = append(rounds[i], r)
		}
	}
	return [2]rate{medianRate(rounds[0]), medianRate(rounds[1])}, nil
}

func medianRate(all []rate) (m rate) {
	var perSecond, cpu []float64
	for _, r := range all {
		m.writes += r.writes
		perSecond, cpu = append(perSecond, r.perSecond), append(cpu, float64(r.cpu))
	}
	m.least = all[0].least
	m.perSecond, m.cpu = spreadOf(perSecond).Median, time.Duration(spreadOf(cpu).Median)
	return m
}

// naming is the resource of a writer's n-th write, as a path without its slash. No two writers write to one resource: of two tokens that
// cross on the way, the lower would be stale.
type naming func(writer, n int) string

// rate is what came of it.
type rate struct {
	writes    int
	least     int // writes of the writer that wrote least, at least 1
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the proxy, or of the store alone, for one write
}

// drive sends the writes. Every answer must be the upstream's: a write that is refused did not advance anything.
func (g *growth) drive(ctx context.Context, d drive) (rate, error) {
	var (
		next      atomic.Int64
		wg        sync.WaitGroup
		mu        sync.Mutex // guards latencies, least and firstErr
		latencies []float64
		firstErr  error
		failed    atomic.Bool
	)
	begin := time.Now()
	over := func(mine int) bool {
		if failed.Load() || ctx.Err() != nil {
			return true
		}
		if d.count > 0 {
			return int(next.Add(1)) > d.count
		}
		return mine > 0 && time.Since(begin) > d.length
	}
	least := math.MaxInt
	for w := range d.writers {
		wg.Go(func() {
			mine, err := g.write(d, w, over)
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, mine...)
			least = min(least, len(mine))
			if err != nil && firstErr == nil {
				firstErr = err
				failed.Store(true)
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	if err := ctx.Err(); err != nil {
		return rate{}, err
	}
	if firstErr != nil {
		return rate{}, firstErr
	}
	slices.Sort(latencies)
	micros := func(q float64) time.Duration {
		return time.Duration(quantile(latencies, q) * float64(time.Microsecond))
	}
	return rate{writes: len(latencies), least: least, perSecond: float64(len(latencies)) / took.Seconds(), p50: micros(0.5), p99: micros(0.99)}, nil
}

// write is one writer. It returns the time that each write took, in microseconds.
func (g *growth) write(d drive, writer int, over func(mine int) bool) (latencies []float64, err error) {
	c := client{address: d.address}
	defer c.close()
	var req []byte
	for !over(len(latencies)) {
		path := d.path(writer, len(latencies))
		req = append(req[:0], "PUT /"...)
		req = append(req, path...)
		req = append(req, " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nFencing-Token: "...)
		req = strconv.AppendInt(req, g.token.Add(1), 10)
		req = append(req, "\r\n\r\n"...)
		begin := time.Now()
		status, err := c.do(req)
		if err != nil {
			return latencies, err
		}
		if status != 204 {
			return latencies, fmt.Errorf("PUT /%s was answered with %d", path, status)
		}
		latencies = append(latencies, float64(time.Since(begin).Nanoseconds())/1e3)
	}
	return latencies, nil
}

// fresh names resources that nobody has touched.
func fresh(kind string) naming {
	return func(writer, n int) string { return kind + "/" + strconv.Itoa(writer) + "/" + strconv.Itoa(n) }
}

// scattered has each writer go through so many resources of its own, in an order in which neighbours are far apart, so that memory is of
// little help. None comes twice before all have come once.
func scattered(each int, name naming) naming {
	const prime = 2_654_435_761
	return func(writer, n int) string { return name(writer, n*prime%each) }
}
