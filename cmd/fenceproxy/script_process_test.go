package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// deadline is when a test gives up waiting.
func deadline() <-chan time.Time { return time.After(30 * time.Second) }

// output keeps what a process prints and wakes who waits for it.
type output struct {
	mu sync.Mutex // guards the fields below
	// +checklocks:mu
	buf bytes.Buffer
	// +checklocks:mu
	more chan struct{} // closed and replaced with each write
}

func newOutput() *output { return &output{more: make(chan struct{})} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.more)
	o.more = make(chan struct{})
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// await returns the submatches of re once the output matches it. ended, if closed, ends the wait.
func (o *output) await(re *regexp.Regexp, ended <-chan struct{}) []string {
	giveUp := deadline()
	for last := false; ; {
		o.mu.Lock()
		m, more := re.FindStringSubmatch(o.buf.String()), o.more
		o.mu.Unlock()
		if m != nil || last {
			return m
		}
		select {
		case <-more:
		case <-ended:
			last = true
		case <-giveUp:
			last = true
		}
	}
}

// process is a fenceproxy that runs in the background.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *output
	ended          chan struct{} // closed when it has ended; err is set then
	err            error
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

var ready = regexp.MustCompile(`(?m)^fenceproxy: serving on (\S+), forwarding to \S+, admin (?:on )?(\S+)$|^Ctrl-C ends it\.$`)

var leasesAt = regexp.MustCompile(`(?m)^fenceproxy: leases on (\S+)$`)

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME ARGS...")
	}
	p := launch(ts, args)
	m := p.stdout.await(ready, p.ended)
	if m == nil {
		p.kill()
		ts.Fatalf("fenceproxy %s does not serve: %v\n%s%s", strings.Join(args[1:], " "), p.err, p.stdout, p.stderr)
	}
	if name := args[0]; m[1] != "" {
		ts.Setenv(name, "http://"+m[1])
		ts.Setenv(name+"_ADDRESS", m[1])
		ts.Setenv(name+"_ADMIN", "http://"+m[2])
		ts.Setenv(name+"_ADMIN_ADDRESS", m[2])
		if l := leasesAt.FindStringSubmatch(p.stdout.String()); l != nil {
			ts.Setenv(name+"_LEASES", "http://"+l[1])
			ts.Setenv(name+"_LEASES_ADDRESS", l[1])
		}
	}
}

func cmdLaunch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: launch NAME ARGS...")
	}
	launch(ts, args)
}

func launch(ts *testscript.TestScript, args []string) *process {
	p := &process{cmd: exec.Command("fenceproxy", args[1:]...), stdout: newOutput(), stderr: newOutput(), ended: make(chan struct{})}
	path, err := lookPath(ts, "fenceproxy")
	ts.Check(err)
	p.cmd.Path, p.cmd.Err = path, nil
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = ts.MkAbs("."), p.stdout, p.stderr
	p.cmd.WaitDelay = 5 * time.Second // for what it started and left behind
	p.cmd.Env = os.Environ()
	for _, key := range environment {
		if v := ts.Getenv(key); v != "" {
			p.cmd.Env = append(p.cmd.Env, key+"="+v)
		}
	}
	ts.Check(p.cmd.Start())
	go func() { // ends with the process, which world.end kills
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	worldOf(ts).processes[args[0]] = p
	return p
}

// environment names the variables that a script sets for the processes which it starts.
var environment = []string{
	"PATH", "HOME", "TMPDIR", "GORACE", "FENCEPROXY_LISTEN", "FENCEPROXY_ADMIN_LISTEN", "FENCEPROXY_DIR", "FENCEPROXY_CONFIG", "FENCEPROXY_UPSTREAM",
	"FENCEPROXY_MUST_EXIST", "FENCEPROXY_LOG_FORMAT", "FENCEPROXY_LOG_LEVEL", "FENCEPROXY_ADMIN_TOKEN_FILE", "FENCEPROXY_UNMATCHED_WRITES",
	"FENCEPROXY_LEASES_LISTEN", "FENCEPROXY_LEASES",
}

func lookPath(ts *testscript.TestScript, name string) (string, error) {
	for dir := range strings.SplitSeq(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if info, err := os.Stat(dir + "/" + name); err == nil && info.Mode()&0o111 != 0 {
			return dir + "/" + name, nil
		}
	}
	return "", exec.ErrNotFound
}

func (w *world) process(ts *testscript.TestScript, name string) *process {
	p := w.processes[name]
	if p == nil {
		ts.Fatalf("no process %s was started", name)
	}
	return p
}

func cmdAwait(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await NAME PATTERN")
	}
	p := worldOf(ts).process(ts, args[0])
	if p.stderr.await(regexp.MustCompile(args[1]), p.ended) == nil {
		ts.Fatalf("%s never printed %s:\n%s", args[0], args[1], p.stderr)
	}
}

func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL}
	if neg || len(args) != 2 || signals[args[1]] == nil {
		ts.Fatalf("usage: signal NAME TERM|INT|HUP|KILL")
	}
	ts.Check(worldOf(ts).process(ts, args[0]).cmd.Process.Signal(signals[args[1]]))
}

func cmdStopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: stopped NAME CODE|KILL")
	}
	p := worldOf(ts).process(ts, args[0])
	select {
	case <-p.ended:
	case <-deadline():
		ts.Fatalf("%s does not stop:\n%s", args[0], p.stderr)
	}
	_, _ = ts.Stdout().Write([]byte(p.stdout.String()))
	_, _ = ts.Stderr().Write([]byte(p.stderr.String()))
	got := strconv.Itoa(p.cmd.ProcessState.ExitCode())
	if exit, ok := errors.AsType[*exec.ExitError](p.err); ok && exit.Sys().(syscall.WaitStatus).Signaled() {
		got = "KILL"
	}
	if got != args[1] {
		ts.Fatalf("%s ended with %s; want %s\n%s", args[0], got, args[1], p.stderr)
	}
}
