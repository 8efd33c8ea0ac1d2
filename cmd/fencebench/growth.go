package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"
)

// growthOptions are the command line of "fencebench growth".
type growthOptions struct {
	args       []string // as given, for the report
	fenceproxy string   // binary; "" to build it
	dir        string
	out        string
	marks      []int
	touched    int
	clients    int
	writers    int
	starts     int
	rounds     int
	load       time.Duration
}

func parseGrowthOptions(args []string, stderr io.Writer) (*growthOptions, error) {
	o := &growthOptions{args: args}
	fs := flag.NewFlagSet("fencebench growth", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.fenceproxy, "fenceproxy", "", "measure this fenceproxy `BINARY`; without it, it is built from this module")
	fs.StringVar(&o.dir, "dir", "", "work in a new directory below `DIR`, which must be on a disk; without it, the system's temporary one or /var/tmp")
	fs.StringVar(&o.out, "out", "", "write the Markdown to `FILE`; without it, to stdout")
	marks := fs.String("marks", "0,1000000,10000000", "fill token stores with `N,N` marks; ten million need 3 GB of disk meanwhile")
	fs.IntVar(&o.touched, "touched", 1_000_000, "touch `N` resources once each; 0 leaves it out")
	fs.IntVar(&o.clients, "clients", 10_000, "open `N` idle connections; 0 leaves it out")
	fs.IntVar(&o.writers, "writers", 64, "measure rates with `N` writers")
	fs.IntVar(&o.starts, "starts", 3, "start `N` times on each store, and take the median")
	fs.IntVar(&o.rounds, "rounds", 3, "measure each rate `N` times in turns, and take the median")
	fs.DurationVar(&o.load, "load", 5*time.Second, "measure each rate for `DURATION` a round")
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, &usageError{fmt.Errorf("%w: see fencebench growth --help", err)}
	}
	if fs.NArg() > 0 {
		return nil, &usageError{fmt.Errorf("unexpected argument %q: see fencebench growth --help", fs.Arg(0))}
	}
	for _, text := range names(*marks) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, &usageError{fmt.Errorf("--marks: %q is not a number of marks: write 0,1000000", text)}
		}
		if n > 0 && n < o.writers {
			return nil, &usageError{fmt.Errorf("--marks: %d are too few for %d writers, each of which has its own", n, o.writers)}
		}
		o.marks = append(o.marks, n)
	}
	if o.touched < 0 || o.clients < 0 || o.writers < 1 || o.starts < 1 || o.rounds < 1 || o.load <= 0 {
		return nil, &usageError{errors.New("--touched and --clients must not be below 0, --writers, --starts, --rounds and --load must be above it")}
	}
	return o, nil
}

// runGrowth measures what more marks, more resources and more clients cost, and prints tables of it.
func runGrowth(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parseGrowthOptions(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := supported(); err != nil {
		return err
	}
	r, err := measureGrowth(ctx, o, stderr)
	if err != nil {
		return interrupted(ctx, err)
	}
	if o.out == "" {
		_, err = io.WriteString(stdout, growthMarkdown(r))
		return err
	}
	if err := os.WriteFile(o.out, []byte(growthMarkdown(r)), 0o644); err != nil {
		return fmt.Errorf("write the tables: %w: name another file with --out", err)
	}
	return nil
}

// growth is one run.
type growth struct {
	o        *growthOptions
	lab      *lab
	upstream string       // address of a store that takes everything and keeps nothing
	token    atomic.Int64 // the last that was used: each write has a higher one
	started  int
	progress io.Writer
	begin    time.Time
}

// growthReport is what a run found out.
type growthReport struct {
	command  string
	date     time.Time
	duration time.Duration
	machine  machine
	loadEnd  string // average at the end
	version  string
	writers  int
	starts   int
	rounds   int
	load     time.Duration
	stores   []storeFigures
	touched  []touchFigures // while resources are touched once each, from none to all
	idle     *idleFigures
}

func measureGrowth(ctx context.Context, o *growthOptions, progress io.Writer) (*growthReport, error) {
	l := &lab{}
	defer l.close()
	var err error
	if l.dir, err = workDir(o.dir); err != nil {
		return nil, err
	}
	if l.fenceproxy, err = l.findFenceproxy(ctx, o.fenceproxy); err != nil {
		return nil, err
	}
	g := &growth{o: o, lab: l, progress: progress, begin: time.Now()}
	g.token.Store(firstToken)
	stop, err := g.startUpstream()
	if err != nil {
		return nil, err
	}
	defer stop()
	r := &growthReport{
		command: commandLine(&options{args: append([]string{"growth"}, o.args...)}), date: g.begin.UTC(), machine: thisMachine(),
		version: firstMatch(ctx, `fenceproxy (?:version )?(.+)`, l.fenceproxy, "--version"), writers: o.writers, starts: o.starts, rounds: o.rounds, load: o.load,
	}
	if o.clients > 0 {
		if r.idle, err = g.measureIdle(ctx); err != nil {
			return nil, fmt.Errorf("idle clients: %w", err)
		}
	}
	if o.touched > 0 {
		if r.touched, err = g.measureTouched(ctx); err != nil {
			return nil, fmt.Errorf("resources touched once: %w", err)
		}
	}
	for _, n := range o.marks {
		f, err := g.measureStore(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%d marks: %w", n, err)
		}
		r.stores = append(r.stores, f)
	}
	r.duration, r.loadEnd = time.Since(g.begin), loadAverage("/proc/loadavg")
	return r, nil
}

// say tells how far the run is.
func (g *growth) say(format string, args ...any) {
	fmt.Fprintf(g.progress, "%5.0fs %s\n", time.Since(g.begin).Seconds(), fmt.Sprintf(format, args...))
}

// newDir makes a directory for a token store.
func (g *growth) newDir(name string) (string, error) {
	dir := filepath.Join(g.lab.dir, name)
	return dir, os.Mkdir(dir, 0o700)
}

// startUpstream serves the store in this process: it must cost as little as it can, and its memory is not measured.
func (g *growth) startUpstream() (stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a client that is gone gets no answer
		w.WriteHeader(http.StatusNoContent)
	})}
	done := make(chan struct{})
	go func() { // ends with stop
		defer close(done)
		_ = srv.Serve(ln)
	}()
	g.upstream = ln.Addr().String()
	return func() {
		_ = srv.Close()
		<-done
	}, nil
}
