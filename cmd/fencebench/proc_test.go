package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func needProc(t *testing.T) {
	t.Helper()
	if err := supported(); err != nil {
		if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// statLine is a line of /proc/PID/stat.
func statLine(pid int, name string, parent, utime, stime, rss int) string {
	return fmt.Sprintf("%d (%s) S %d 1 1 0 -1 4194304 9 8 7 6 %d %d 77 88 20 0 1 0 123 456789 %d 18446744073709551615 1 1 0\n", pid, name, parent, utime, stime, rss)
}

func TestParseStat(t *testing.T) {
	pid, got, err := parseStat([]byte(statLine(42, "evil) S 1 (name", 7, 150, 25, 10)))
	want := procStat{parent: 7, cpu: 1750 * time.Millisecond, rss: int64(10 * os.Getpagesize())}
	if err != nil || pid != 42 || got != want {
		t.Errorf("parseStat: got %d %+v, %v; want 42 %+v", pid, got, err, want)
	}
	for _, line := range []string{"", "42", "42 (x", "42 (x) S 1 2", "x (x) S " + strings.Repeat("1 ", 40), "42 (x) S " + strings.Repeat("y ", 40)} {
		if _, _, err := parseStat([]byte(line)); err == nil {
			t.Errorf("parseStat(%q): got no error; want one", line)
		}
	}
}

func TestUsedAddsUpAllDescendants(t *testing.T) {
	root := t.TempDir()
	for pid, line := range map[int]string{
		10: statLine(10, "nginx: master", 1, 1, 0, 1),
		11: statLine(11, "nginx: worker", 10, 30, 10, 2),
		12: statLine(12, "nginx: worker", 10, 5, 5, 2),
		13: statLine(13, "helper of a worker", 11, 1, 1, 1),
		20: statLine(20, "redis-server", 1, 100, 0, 4),
		30: statLine(30, "somebody else", 1, 999, 999, 999),
	} {
		dir := filepath.Join(root, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := used(root, []int{10, 20})
	want := usage{cpu: 153 * tick, rss: int64(10 * os.Getpagesize()), processes: 5}
	if err != nil || got != want {
		t.Errorf("used: got %+v, %v; want %+v", got, err, want)
	}
	if _, err := used(t.TempDir(), []int{10}); err == nil {
		t.Error("used without any process: got no error; want one")
	}
}

func TestUsedCountsTheCPUOfAChild(t *testing.T) {
	needProc(t)
	cmd := exec.Command("sh", "-c", "(while :; do :; done) & wait")
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() {
		kill(familyNow([]int{pid}))
		_ = cmd.Wait()
	}()
	deadline := time.Now().Add(20 * time.Second)
	for {
		u, err := used("/proc", []int{pid})
		if err != nil {
			t.Fatal(err)
		}
		if u.processes >= 2 && u.cpu >= 3*tick && u.rss > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("used: got %+v after 20s; want two processes and some CPU", u)
		}
		runtime.Gosched()
	}
}

func TestFamilyEndsWithItsRoots(t *testing.T) {
	procs := map[int]procStat{1: {parent: 0}, 2: {parent: 1}, 3: {parent: 2}, 4: {parent: 1}}
	got := family(procs, []int{2, 3, 99})
	slices.Sort(got)
	if want := []int{2, 3}; !slices.Equal(got, want) {
		t.Errorf("family: got %v; want %v", got, want)
	}
}
