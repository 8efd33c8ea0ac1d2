package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	readyWait = 10 * time.Minute // for a start on a large store
	closeTime = 5 * time.Minute  // for an orderly stop
)

// served is a running "fenceproxy serve".
type served struct {
	*process
	address, admin string
	start          startFigures
}

// startFigures say what a start took.
type startFigures struct {
	ready  time.Duration // from exec to the first 200 of /readyz
	cpu    time.Duration // until then, on all cores
	memory memory        // right after
}

// serve starts the real binary on a directory, as a user would, and waits until it is ready.
func (g *growth) serve(ctx context.Context, dir string) (*served, error) {
	var s served
	for _, a := range []*string{&s.address, &s.admin} {
		var err error
		if *a, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	g.started++
	log := filepath.Join(g.lab.dir, fmt.Sprintf("serve-%d.log", g.started))
	begin := time.Now()
	p, err := startProcess([]string{g.lab.fenceproxy, "serve", "--upstream", "http://" + g.upstream, "--dir", dir,
		"--listen", s.address, "--admin-listen", s.admin}, log, g.lab.dir)
	if err != nil {
		return nil, err
	}
	g.lab.instances = append(g.lab.instances, &instance{procs: []*process{p}}) // ends with the lab
	s.process = p
	if err := s.waitReady(ctx); err != nil {
		return nil, err
	}
	s.start.ready = time.Since(begin)
	u, err := used("/proc", []int{p.pid()})
	if err != nil {
		return nil, err
	}
	s.start.cpu = u.cpu
	s.start.memory, err = s.memory()
	return &s, err
}

func (s *served) waitReady(ctx context.Context) error {
	for end := time.Now().Add(readyWait); time.Now().Before(end); {
		if _, err := s.ask(ctx, "/readyz"); err == nil {
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("fenceproxy ended at once: %s", tail(s.log))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return fmt.Errorf("fenceproxy is not ready after %s: %s", readyWait, tail(s.log))
}

// ask gets a page of the admin listener.
func (s *served) ask(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+path, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true // a kept connection would count as memory of the proxy
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, resp.Status)
	}
	return b, err
}

// metrics reads some metrics, in the order of their names.
func (s *served) metrics(ctx context.Context, names ...string) ([]float64, error) {
	page, err := s.ask(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(page, names)
}

func parseMetrics(page []byte, names []string) ([]float64, error) {
	found := map[string]float64{}
	for line := range bytes.Lines(page) {
		if name, value, ok := strings.Cut(strings.TrimSpace(string(line)), " "); ok {
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				found[name] = v
			}
		}
	}
	values := make([]float64, len(names))
	for i, name := range names {
		v, ok := found[name]
		if !ok {
			return nil, fmt.Errorf("fenceproxy has no metric %s", name)
		}
		values[i] = v
	}
	return values, nil
}

// stop asks the process to end and returns how long that took.
func (s *served) stop(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(closeTime):
		return 0, fmt.Errorf("fenceproxy does not end after %s: %s", closeTime, tail(s.log))
	}
	if !s.cmd.ProcessState.Success() {
		return 0, fmt.Errorf("fenceproxy ended with %s: %s", s.cmd.ProcessState, tail(s.log))
	}
	return time.Since(begin), nil
}

// memory is the resident memory of a process, in bytes.
type memory struct {
	own    int64 // heap, stacks: nobody can take it back
	mapped int64 // pages of files, such as the tables of the store: the system takes them back when it needs them
}

func (s *served) memory() (memory, error) { return memoryOf("/proc", s.pid()) }

func memoryOf(root string, pid int) (m memory, err error) {
	file := filepath.Join(root, strconv.Itoa(pid), "status")
	b, err := os.ReadFile(file)
	if err != nil {
		return m, err
	}
	found := 0
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) != 3 {
			continue
		}
		to := map[string]*int64{"RssAnon:": &m.own, "RssFile:": &m.mapped}[f[0]]
		if to == nil {
			continue
		}
		kb, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return m, fmt.Errorf("%s: %w", file, err)
		}
		*to = kb << 10
		found++
	}
	if found != 2 {
		return m, fmt.Errorf("%s does not tell RssAnon and RssFile", file)
	}
	return m, nil
}
