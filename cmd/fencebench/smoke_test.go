package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets the test binary be the program, for the processes that a run starts of itself.
func TestMain(m *testing.M) {
	if os.Getenv("FENCEBENCH_MAIN") == "1" || len(os.Args) > 1 && slices.Contains([]string{"upstream", "plain-proxy", "load"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// needPeers skips a test where one of the servers is missing, and fails it under FENCEPROXY_NO_SKIP=1.
func needPeers(t *testing.T) {
	t.Helper()
	l := &lab{modules: nginxModules(t.Context())}
	for _, p := range allPeers() {
		if p.needs == nil {
			continue
		}
		if why := p.needs(l); why != "" {
			if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
				t.Fatalf("%s: %s", p.name, why)
			}
			t.Skipf("%s: %s", p.name, why)
		}
	}
}

func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts every peer: not with -short")
	}
	needProc(t)
	needPeers(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	work := file("work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	args := []string{"--smoke", "--require-all", "--dir", work, "--out", file("b.md"), "--svg", file("b.svg"), "--json", file("b.json"),
		"--workloads", "same,raise,stale,stale-expect", "--cell", "100ms"}
	o, err := parseOptions(args, &stderr)
	if err != nil {
		t.Fatal(err)
	}
	// The store and the load are without the race detector, which would make them several times slower.
	o.self = file("fencebench")
	if out, err := exec.Command("go", "build", "-o", o.self, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	begin := time.Now()
	if err := bench(context.Background(), o, os.Stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	t.Logf("the run took %s:\n%s", time.Since(begin).Round(time.Millisecond), stderr.String())
	b, err := os.ReadFile(file("b.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	for _, name := range peerNames() {
		s := r.find("same", name)
		if s == nil || s.Requests == 0 || s.Unexpected > 0 {
			t.Errorf("%s: got %+v; want answered requests only", name, s)
			continue
		}
		if name != nameDirect && s.RSS <= 0 {
			t.Errorf("%s: got %v bytes of memory; want some", name, s.RSS)
		}
	}
	if s := r.find("stale-expect", nameOurs); s == nil || s.BodyBytes != 0 || s.Continues != 0 || s.Closed != s.Requests || s.Unexpected > 0 {
		t.Errorf("stale-expect: got %+v; want no body byte taken, and every connection closed", s)
	}
	for _, name := range []string{nameRedis, nameStick} {
		yes, unclear, _ := r.landed(name)
		for _, want := range []string{"paused client", "slow store", "above 2^53", "marks evicted"} {
			if !slices.Contains(yes, want) {
				t.Errorf("%s: a stale write landed last in %v, unclear %v; want %q among them", name, yes, unclear, want)
			}
		}
	}
	if yes, unclear, ran := r.landed(nameOurs); !ran || len(yes)+len(unclear) > 0 {
		t.Errorf("fenceproxy: a stale write landed last in %v, unclear %v, ran %v; want none, none, true\n%s", yes, unclear, ran, stderr.String())
	}
	for _, name := range []string{"b.md", "b.svg"} {
		if b, err := os.ReadFile(file(name)); err != nil || len(b) < 1000 {
			t.Errorf("%s: got %d bytes, %v; want a report", name, len(b), err)
		}
	}
	nothingLeft(t, work)
}

// TestInterruptLeavesNothing stops a run in its middle, as Ctrl-C does.
func TestInterruptLeavesNothing(t *testing.T) {
	needProc(t)
	work := t.TempDir()
	cmd := exec.Command(os.Args[0], "--peers", "direct,httputil", "--workloads", "same", "--dir", work, "--fenceproxy", "/bin/true", "--cell", "60s", "--resources", "100")
	cmd.Env = append(os.Environ(), "FENCEBENCH_MAIN=1", "GORACE=atexit_sleep_ms=0") // the detector sleeps a second at each exit
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, &stderr, "primed httputil")
	started := familyNow([]int{cmd.Process.Pid})
	if len(started) < 3 {
		t.Errorf("got %d processes; want the run, its store and its proxy", len(started))
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "interrupted: nothing was written") {
		t.Errorf("got exit code %d, %v, %s; want 1 and the reason", code, err, stderr.String())
	}
	procs, err := snapshot("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range started {
		if _, ok := procs[pid]; ok {
			t.Errorf("process %d is still there", pid)
		}
	}
	nothingLeft(t, work)
}

func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is still there", filepath.Join(dir, e.Name()))
	}
}

func waitFor(t *testing.T, b *lockedBuffer, text string) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !strings.Contains(b.String(), text); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("got %q after a minute; want %q in it", b.String(), text)
		}
	}
}
