package conformance_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var binary = flag.String("conformance.binary", "", "use this fenceproxy binary instead of building one")

// build makes the binary once. Its directory is removed when the tests end.
var build = sync.OnceValues(func() (string, error) {
	if *binary != "" {
		return filepath.Abs(*binary)
	}
	dir, err := os.MkdirTemp("", "fenceproxy-conformance-*")
	if err != nil {
		return "", err
	}
	buildDir = dir
	path := filepath.Join(dir, "fenceproxy")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy").CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return path, nil
})

var buildDir string

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if buildDir != "" {
		_ = os.RemoveAll(buildDir)
	}
	os.Exit(code)
}

// way is how a suite reaches the store.
type way struct {
	name  string
	mode  string // of the policies; empty: directly
	token bool   // a hop adds one to every request
}

var (
	directly = way{name: "directly"}
	proxied  = []way{
		{name: "observe", mode: "observe", token: true},
		{name: "observe, no tokens", mode: "observe"},
		{name: "enforce", mode: "enforce", token: true},
	}
)

// open returns where the suite has to go to reach the store at addr this way. policies is the part of the configuration that says what
// is fenced; MODE in it stands for the mode.
func (w way) open(t *testing.T, addr, policies string) (at string, log func() string) {
	t.Helper()
	if w.mode == "" {
		return addr, func() string { return "" }
	}
	at, log = serve(t, addr, strings.ReplaceAll(policies, "MODE", w.mode))
	if w.token {
		at = hop(t, at, "Fencing-Token: 34")
	}
	return at, log
}

var serving = regexp.MustCompile(`^fenceproxy: serving on ([0-9.:]+),`)

// serve runs the binary before addr until the test ends. log is all that it has logged.
func serve(t *testing.T, addr, policies string) (listen string, log func() string) {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "fenceproxy.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nupstream: {url: \"http://%s\", timeout: 5m}\ntoken_store: {dir: %q, min_free: 16MiB}\nadmin: {listen: \"off\"}\n%s", addr, filepath.Join(dir, "marks"), policies)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	logFile, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	log = func() string { b, _ := os.ReadFile(logFile.Name()); return string(b) }
	cmd := exec.Command(program, "serve", "--config", config)
	cmd.Stderr = logFile
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("fenceproxy ended with %v\n%.4000s", err, log())
		}
		logFile.Close()
	})
	late := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	in := bufio.NewReader(stdout)
	for {
		line, err := in.ReadString('\n')
		if m := serving.FindStringSubmatch(line); m != nil {
			go func() { _, _ = io.Copy(io.Discard, in) }() // ends with the process
			return m[1], log
		}
		if err != nil {
			t.Fatalf("fenceproxy does not serve: %v\n%s", err, log())
		}
	}
}

// results are the verdicts of a suite by the name of the test.
type results map[string]string

// count says how many there are of each verdict.
func (r results) count() string {
	n := map[string]int{}
	for _, v := range r {
		n[v]++
	}
	var parts []string
	for v, c := range n {
		parts = append(parts, fmt.Sprintf("%d %s", c, v))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// diff lists the tests that do not have the verdict that they had directly.
func diff(direct, through results) []string {
	var lines []string
	for name, v := range direct {
		if got, ok := through[name]; !ok {
			lines = append(lines, fmt.Sprintf("%s: %s directly, not run through the proxy", name, v))
		} else if got != v {
			lines = append(lines, fmt.Sprintf("%s: %s directly, %s through the proxy", name, v, got))
		}
	}
	for name, v := range through {
		if _, ok := direct[name]; !ok {
			lines = append(lines, fmt.Sprintf("%s: not run directly, %s through the proxy", name, v))
		}
	}
	slices.Sort(lines)
	return lines
}

// optIn skips a suite that takes minutes unless it is asked for.
func optIn(t *testing.T) {
	t.Helper()
	if os.Getenv("FENCEPROXY_CONFORMANCE") != "1" {
		t.Skip("takes minutes: FENCEPROXY_CONFORMANCE=1 (make conformance) runs it")
	}
}
