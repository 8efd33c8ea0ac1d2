package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// storeFigures say what a store with some marks costs.
type storeFigures struct {
	marks     int
	filled    time.Duration // to import the marks and close the store; 0 without marks
	disk      int64         // allocated once it is filled
	start     startFigures  // after a clean stop, medians
	through   [2]rate       // the proxy: on resources without a mark, and on resources with one
	stop      time.Duration // after these loads
	afterKill startFigures
	alone     [2]rate // the same two, of the store without proxy and HTTP
	load      string  // average of the machine at the end
}

func storeName(i int) string { return fmt.Sprintf("bucket/object/%09d", i) }

// measureStore fills a store and goes through its life.
func (g *growth) measureStore(ctx context.Context, marks int) (f storeFigures, err error) {
	f.marks = marks
	dir, err := g.newDir(fmt.Sprintf("marks-%d", marks))
	if err != nil {
		return f, err
	}
	defer os.RemoveAll(dir) // the next one needs the room
	if marks > 0 {
		g.say("filling a store with %d marks", marks)
		if f.filled, err = fill(ctx, dir, marks); err != nil {
			return f, err
		}
		g.say("filled in %s", f.filled.Round(10*time.Millisecond))
	}
	if f.disk, err = diskUsed(dir); err != nil {
		return f, err
	}
	s, err := g.measureStarts(ctx, dir, &f)
	if err != nil {
		return f, err
	}
	if err := g.measureRates(ctx, s, dir, &f); err != nil {
		return f, err
	}
	f.alone, err = g.measureAlone(ctx, dir, f)
	f.load = loadAverage("/proc/loadavg")
	g.say("%d marks, the store alone: %.0f new and %.0f existing marks a second", marks, f.alone[0].perSecond, f.alone[1].perSecond)
	return f, err
}

// measureStarts starts a few times and leaves the last proxy running.
func (g *growth) measureStarts(ctx context.Context, dir string, f *storeFigures) (s *served, err error) {
	var all []startFigures
	for {
		if s, err = g.serve(ctx, dir); err != nil {
			return nil, err
		}
		all = append(all, s.start)
		g.say("%d marks, start: %s, CPU %s, memory %d + %d MiB", f.marks, s.start.ready.Round(time.Millisecond), s.start.cpu, s.start.memory.own>>20, s.start.memory.mapped>>20)
		if len(all) == g.o.starts {
			f.start = medianStart(all)
			return s, nil
		}
		if _, err = s.stop(ctx); err != nil {
			return nil, err
		}
	}
}

func medianStart(all []startFigures) startFigures {
	middle := func(of func(startFigures) int64) int64 {
		var v []float64
		for _, s := range all {
			v = append(v, float64(of(s)))
		}
		return int64(spreadOf(v).Median)
	}
	return startFigures{
		ready: time.Duration(middle(func(s startFigures) int64 { return int64(s.ready) })),
		cpu:   time.Duration(middle(func(s startFigures) int64 { return int64(s.cpu) })),
		memory: memory{
			own:    middle(func(s startFigures) int64 { return s.memory.own }),
			mapped: middle(func(s startFigures) int64 { return s.memory.mapped }),
		},
	}
}

// measureRates loads the proxy, stops it, and kills another one under load.
func (g *growth) measureRates(ctx context.Context, s *served, dir string, f *storeFigures) (err error) {
	load := func(to *served, path naming) (rate, error) {
		before, err := used("/proc", []int{to.pid()})
		if err != nil {
			return rate{}, err
		}
		r, err := g.drive(ctx, drive{address: to.address, writers: g.o.writers, length: g.o.load, path: path})
		if err != nil {
			return r, err
		}
		after, err := used("/proc", []int{to.pid()})
		r.cpu = (after.cpu - before.cpu) / time.Duration(max(r.writes, 1))
		return r, err
	}
	known := func(first rate) naming { return g.existing(f.marks, "new0", first) }
	if f.through, err = g.inTurns(known, "new", func(name naming) (rate, error) { return load(s, name) }); err != nil {
		return err
	}
	g.say("%d marks, through the proxy: %.0f new and %.0f existing marks a second", f.marks, f.through[0].perSecond, f.through[1].perSecond)
	if f.stop, err = s.stop(ctx); err != nil {
		return err
	}
	if s, err = g.serve(ctx, dir); err != nil {
		return err
	}
	if _, err = load(s, known(f.through[0])); err != nil {
		return err
	}
	killProcesses([]*process{s.process}) // what the load wrote last is in the logs only, and the start reads it back from there
	if s, err = g.serve(ctx, dir); err != nil {
		return err
	}
	f.afterKill = s.start
	g.say("%d marks: stop %s, start after kill -9 %s", f.marks, f.stop.Round(time.Millisecond), f.afterKill.ready.Round(time.Millisecond))
	_, err = s.stop(ctx)
	return err
}

// existing names the resources that the store was filled with, or else those that a first load has made.
func (g *growth) existing(marks int, kind string, first rate) naming {
	if marks == 0 {
		return scattered(first.least, fresh(kind))
	}
	return scattered(marks/g.o.writers, func(writer, n int) string { return storeName(n*g.o.writers + writer) })
}

// fill imports marks, as "fenceproxy marks import" does into the directory of a stopped proxy.
func fill(ctx context.Context, dir string, marks int) (time.Duration, error) {
	s, err := tokenstore.Open(ctx, dir, tokenstore.Options{})
	if err != nil {
		return 0, err
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeExport(ctx, w, marks)) }() // ends with the import, which closes r
	begin := time.Now()
	res, err := s.Import(r)
	_ = r.Close() // it never fails
	if err == nil && res.Raised != marks {
		err = fmt.Errorf("got %d new marks; want %d", res.Raised, marks)
	}
	err = errors.Join(err, s.Close(true))
	return time.Since(begin), err
}

// writeExport writes what the export of another store would be.
func writeExport(ctx context.Context, w io.Writer, marks int) error {
	hash := sha256.New()
	buf := bufio.NewWriterSize(io.MultiWriter(w, hash), 64<<10)
	for i := range marks {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := fmt.Fprintf(buf, `{"resource":"%s","token":"34","format":"decimal","at":"2026-05-04T10:00:00.123Z","by":"192.0.2.7","policy":"(unmatched)"}`+"\n", storeName(i))
		if err != nil {
			return err
		}
	}
	if err := buf.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `{"trailer":1,"store":"growth","marks":%d,"seq":1,"sha256":"%x"}`+"\n", marks, hash.Sum(nil))
	return err
}

// measureAlone measures the store in this process, once nobody else uses it.
func (g *growth) measureAlone(ctx context.Context, dir string, f storeFigures) (rates [2]rate, err error) {
	s, err := tokenstore.Open(ctx, dir, tokenstore.Options{MustExist: true})
	if err != nil {
		return rates, err
	}
	if got, want := s.Stats().Marks, uint64(f.marks+f.through[0].writes); got != want { // also after the kill
		return rates, errors.Join(fmt.Errorf("the store has %d marks; want %d", got, want), s.Close(true))
	}
	known := func(first rate) naming { return g.existing(f.marks, "alone0", first) }
	rates, err = g.inTurns(known, "alone", func(name naming) (rate, error) { return g.advance(ctx, s, name) })
	return rates, errors.Join(err, s.Close(true))
}

// advance advances marks from many goroutines, one at a time each.
func (g *growth) advance(ctx context.Context, s *tokenstore.Store, name naming) (rate, error) {
	var (
		done  = make([]int, g.o.writers)
		wg    sync.WaitGroup
		errs  = make(chan error, g.o.writers)
		begin = time.Now()
	)
	before, err := used("/proc", []int{os.Getpid()})
	if err != nil {
		return rate{}, err
	}
	for w := range g.o.writers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil && (n == 0 || time.Since(begin) < g.o.load); n++ {
				r := fencing.Resource(name(w, n))
				m := fencing.Mark{Token: fencing.Number(uint64(g.token.Add(1))), Format: fencing.Decimal, At: time.Now(), By: "192.0.2.7", Policy: "(unmatched)"}
				if err := s.Advance([]fencing.ResourceMark{{Resource: r, Mark: m}}); err != nil {
					errs <- err
					return
				}
				done[w]++
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	after, err := used("/proc", []int{os.Getpid()})
	if err != nil {
		return rate{}, err
	}
	select {
	case err := <-errs:
		return rate{}, err
	default:
	}
	n := 0
	for _, of := range done {
		n += of
	}
	return rate{writes: n, least: slices.Min(done), perSecond: float64(n) / took.Seconds(), cpu: (after.cpu - before.cpu) / time.Duration(max(n, 1))}, ctx.Err()
}

// diskUsed is what a directory takes. Badger's logs are sparse: their length says nothing.
func diskUsed(dir string) (bytes int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += st.Blocks * 512
		}
		return nil
	})
	return bytes, err
}
