// Package examples tests that each example does what its README shows.
package examples

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// programs are built once for all tests.
var programs = struct {
	dir string
	err error
}{}

func TestMain(m *testing.M) {
	code := func() int {
		dir, err := os.MkdirTemp("", "fenceproxy-examples-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		programs.dir = dir
		programs.err = build(dir, "../cmd/fenceproxy", "./legacy-rest/store")
		return m.Run()
	}()
	os.Exit(code)
}

func build(dir string, packages ...string) error {
	out, err := exec.Command("go", append([]string{"build", "-o", dir + "/"}, packages...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func program(t *testing.T, name string) string {
	t.Helper()
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return filepath.Join(programs.dir, name)
}

// needs skips a test for want of a program, by name. Where everything is installed a skip is a failure.
func needs(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
				t.Fatalf("%s is not installed, and FENCEPROXY_NO_SKIP=1 forbids to skip", name)
			}
			t.Skipf("%s is not installed", name)
		}
	}
}

// log keeps what a process prints and wakes who waits for a line.
type log struct {
	mu   sync.Mutex // guards the fields below
	buf  bytes.Buffer
	more chan struct{} // closed and replaced with each write
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.more)
	l.more = make(chan struct{})
	return l.buf.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// await returns the submatches of the first match of pattern.
func (l *log) await(t *testing.T, pattern string) []string {
	t.Helper()
	re, giveUp := regexp.MustCompile(pattern), time.After(30*time.Second)
	for {
		l.mu.Lock()
		m, more := re.FindStringSubmatch(l.buf.String()), l.more
		l.mu.Unlock()
		if m != nil {
			return m
		}
		select {
		case <-more:
		case <-giveUp:
			t.Fatalf("never printed %s:\n%s", pattern, l)
		}
	}
}

// run starts a program that ends with the test, and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) (*exec.Cmd, *log) {
	t.Helper()
	l := &log{more: make(chan struct{})}
	cmd := exec.Command(program(t, name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = dir, l, l, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && name == "fenceproxy" {
			t.Errorf("%s: %v\n%s", name, err, l)
		}
	})
	return cmd, l
}

// rig is an example at work: the store, the proxy with the example's file, and their addresses for demo.sh.
type rig struct {
	dir                 string // a copy of the example
	store, proxy, admin string // URLs
	log                 *log
	cmd                 *exec.Cmd
}

func start(t *testing.T, example string, args ...string) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir()}
	if err := os.CopyFS(r.dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	_, store := run(t, r.dir, nil, "store", "-listen", "127.0.0.1:0")
	r.store = "http://" + store.await(t, `store: serving on (\S+)`)[1]
	env := []string{
		"FENCEPROXY_LISTEN=127.0.0.1:0", "FENCEPROXY_ADMIN_LISTEN=127.0.0.1:0", "FENCEPROXY_UPSTREAM=" + r.store,
		"FENCEPROXY_DIR=./marks", "FENCEPROXY_MUST_EXIST=false",
	}
	r.cmd, r.log = run(t, r.dir, env, "fenceproxy", append([]string{"serve"}, args...)...)
	m := r.log.await(t, `fenceproxy: serving on (\S+), forwarding to \S+, admin on (\S+)`)
	r.proxy, r.admin = "http://"+m[1], "http://"+m[2]
	return r
}

// demo runs demo.sh and returns its output without the comments.
func (r *rig) demo(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"./demo.sh"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "PROXY="+r.proxy, "STORE="+r.store, "ADMIN="+r.admin, "NO_PROXY=*")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, &out, &errs, r.log)
	}
	var b strings.Builder
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "# ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

func (r *rig) stored(t *testing.T, path, want string) {
	t.Helper()
	resp, err := http.Get(r.store + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != want+"\n" {
		t.Errorf("the store has %q under %s (%v); want %q", got, path, err, want)
	}
}

// transcripts returns the commands that the README of an example shows with their output, in order.
func transcripts(t *testing.T, example string) (out []shown) {
	t.Helper()
	f, err := os.Open(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	inside := false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "```"):
			inside = line == "```console"
		case inside && strings.HasPrefix(line, "$ "):
			out = append(out, shown{command: line[2:]})
		case inside && len(out) > 0:
			out[len(out)-1].output += line + "\n"
		}
	}
	return out
}

type shown struct{ command, output string }

// curls joins what the README shows of curl, in the form in which demo.sh prints it.
func curls(all []shown) string {
	var b strings.Builder
	for _, s := range all {
		if strings.HasPrefix(s.command, "curl ") {
			b.WriteString("$ " + s.command + "\n" + s.output)
		}
	}
	return b.String()
}

func sameTranscript(t *testing.T, example, got string) {
	t.Helper()
	if want := curls(transcripts(t, example)); got != want {
		t.Errorf("demo.sh printed\n%s\nand %s/README.md shows\n%s", got, example, want)
	}
}

func TestQuickstartRefusesTheStaleWriter(t *testing.T) {
	needs(t, "sh", "curl")
	for name, args := range map[string][]string{"without a file": nil, "with the file": {"--config", "fenceproxy.yaml"}} {
		t.Run(name, func(t *testing.T) {
			r := start(t, "quickstart", args...)
			sameTranscript(t, "quickstart", r.demo(t))
			r.stored(t, "/rides/7", "driver B")
		})
	}
}

func TestLegacyRestIsRolledOutByObservingFirst(t *testing.T) {
	needs(t, "sh", "curl", "sed")
	r := start(t, "legacy-rest", "--config", "fenceproxy.yaml")
	got := r.demo(t, "observe")
	r.stored(t, "/rides/7/driver", "driver C") // nothing was refused
	r.log.await(t, `msg=write outcome=would-reject .* policy=rides resource=rides/7 token=33 .* reason="token 33 is below the mark 34`)

	// The README's own line edits the file.
	edited := false
	for _, s := range transcripts(t, "legacy-rest") {
		if strings.HasPrefix(s.command, "sed ") {
			cmd := exec.Command("sh", "-c", s.command)
			cmd.Dir = r.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", s.command, err, out)
			}
			edited = true
		}
	}
	if !edited {
		t.Fatal("the README shows no line that edits the file")
	}
	if pid, err := os.ReadFile(filepath.Join(r.dir, "marks", "LOCK")); err != nil || strings.TrimSpace(string(pid)) != fmt.Sprint(r.cmd.Process.Pid) {
		t.Errorf("marks/LOCK, to which the README sends the signal, holds %q (%v); want %d", pid, err, r.cmd.Process.Pid)
	}
	if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.log.await(t, `msg="reloaded the policies" policies=2`)
	sameTranscript(t, "legacy-rest", got+r.demo(t, "enforce"))
	r.stored(t, "/rides/7/driver", "driver B")
	r.stored(t, "/orders/7", `{"order": {"id": 7, "state": "paid"}}`)

	// What the README says of other ways to the same order.
	req, err := http.NewRequest(http.MethodPut, r.proxy+"/orders/7", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("PUT /orders/7 was answered %s; want 403", resp.Status)
	}
}

func TestDeploymentsDoWhatTheirPagesShow(t *testing.T) {
	needs(t, "sh", "curl")
	for _, example := range []string{"systemd", "kubernetes", "compose"} {
		t.Run(example, func(t *testing.T) {
			t.Parallel()
			spool := t.TempDir()
			file := filepath.Join(t.TempDir(), "fenceproxy.yaml")
			text, err := os.ReadFile(filepath.Join(example, "fenceproxy.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			// The only change: a directory that exists here.
			text = regexp.MustCompile(`/var/(cache|spool)/fenceproxy`).ReplaceAll(text, []byte(spool))
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			r := start(t, example, "--config", file)
			sameTranscript(t, example, r.demo(t))
			r.stored(t, "/rides/7", "driver B")
		})
	}
}

func TestDemoFailsOnAnotherAnswer(t *testing.T) {
	needs(t, "sh", "curl")
	r := start(t, "quickstart")
	for _, script := range []string{"quickstart/demo.sh", "systemd/demo.sh"} {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-s")
		cmd.Stdin = bytes.NewReader(text)
		cmd.Env = append(os.Environ(), "PROXY="+r.store, "STORE="+r.store, "ADMIN="+r.store) // no fence there
		out, err := cmd.CombinedOutput()
		if _, failed := errors.AsType[*exec.ExitError](err); !failed || !bytes.Contains(out, []byte("demo.sh: expected")) || !bytes.Contains(out, []byte("clean up first")) {
			t.Errorf("%s before an unfenced store: %v; want a failure that says what was expected\n%s", script, err, out)
		}
	}
}

// TestReadmesShowWhatTheCommandPrints runs each "fenceproxy check" and "fenceproxy explain" of the pages.
func TestReadmesShowWhatTheCommandPrints(t *testing.T) {
	for _, example := range folders(t) {
		t.Run(example, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
				t.Fatal(err)
			}
			path := "PATH=" + programs.dir + string(os.PathListSeparator) + os.Getenv("PATH")
			program(t, "fenceproxy")
			for _, line := range makesKeys(t, example) {
				cmd := exec.Command("sh", "-c", line)
				cmd.Dir, cmd.Env = dir, append(os.Environ(), path)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v\n%s", line, err, out)
				}
			}
			ran := 0
			for _, s := range transcripts(t, example) {
				if !strings.HasPrefix(s.command, "fenceproxy check ") && !strings.HasPrefix(s.command, "fenceproxy explain ") {
					continue
				}
				cmd := exec.Command("sh", "-c", strings.ReplaceAll(s.command, "/etc/fenceproxy/", "")) // where the page has put the file
				cmd.Dir, cmd.Env = dir, append(os.Environ(), path)
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != strings.ReplaceAll(s.output, "/etc/fenceproxy/", "") {
					t.Errorf("%s (%v) prints\n%s\nand the README shows\n%s", s.command, err, out, s.output)
				}
				ran++
			}
			if ran == 0 {
				t.Error("the README does not show fenceproxy check")
			}
		})
	}
}

// makesKeys returns the lines of an example's page that make keys, which its configuration names.
func makesKeys(t *testing.T, example string) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(example, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^fenceproxy (?:ca init|token keygen) .*`).FindAllString(string(page), -1)
}

func folders(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*/fenceproxy.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no example has a fenceproxy.yaml: %v", err)
	}
	for _, f := range files {
		names = append(names, filepath.Dir(f))
	}
	return names
}

func TestEachExampleIsWhole(t *testing.T) {
	index, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, example := range folders(t) {
		page, err := os.ReadFile(filepath.Join(example, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\n## Needs\n", "\n## Start\n", "\n## What to notice\n", "\n## Clean up\n"} {
			if !bytes.Contains(page, []byte(want)) {
				t.Errorf("%s/README.md lacks %q", example, strings.TrimSpace(want))
			}
		}
		if !bytes.Contains(index, []byte("]("+example+"/README.md)")) {
			t.Errorf("README.md does not list %s", example)
		}
		if info, err := os.Stat(filepath.Join(example, "demo.sh")); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s/demo.sh cannot be run: %v", example, err)
		}
	}
}
