package chaos_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Flags of this package's tests; they come after -args.
var (
	runFor  = flag.Duration("chaos.for", 0, "run TestChaos for this long, with progress lines (0: a fixed small number of rounds)")
	seed    = flag.Int64("chaos.seed", 0, "seed of the first round (0: from the clock); each further round adds one")
	rounds  = flag.Int("chaos.rounds", 0, "run this many rounds (0: as many as fit)")
	only    = flag.String("chaos.only", "", "comma list of fault kinds to draw from")
	guards  = flag.String("chaos.guards", "", "run TestChaosFindsMissingGuards: \"all\", \"short\" or a comma list of guards")
	binary  = flag.String("chaos.binary", "", "use this fenceproxy binary instead of building one")
	verbose = flag.Bool("chaos.trace", false, "print what was done in each round, not only in those that fail")
)

// childEnv names what the test binary does when a test starts it as a child process.
const childEnv = "CHAOS_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childEnv); mode {
	case "":
		flag.Parse()
		code := m.Run()
		nurse.stop()
		if built.dir != "" {
			os.RemoveAll(built.dir)
		}
		os.Exit(code)
	case "store":
		os.Exit(storeMain(os.Args[1:]))
	case "client":
		os.Exit(clientMain(os.Args[1:]))
	case "nurse":
		os.Exit(nurseMain())
	default:
		fmt.Fprintf(os.Stderr, "unknown child mode %q\n", mode)
		os.Exit(2)
	}
}

// reexec returns a command that runs this very binary in another mode.
func reexec(mode string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	return cmd
}

// built is the product's binary, made once for all tests of a run.
var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// proxyBinary returns the path of the fenceproxy binary, with the race detector in it where there is a C compiler.
func proxyBinary(t *testing.T) string {
	t.Helper()
	if *binary != "" {
		return *binary
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "chaos-bin-*"); built.err == nil {
			built.path = filepath.Join(built.dir, "fenceproxy")
			built.err = buildProxy(built.path, hasRace())
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

func buildProxy(to string, race bool, more ...string) error {
	args := append([]string{"build", "-o", to}, more...)
	if race {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/fenceproxy/fenceproxy/cmd/fenceproxy")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
	}
	return nil
}

// hasRace reports whether the race detector can be built: it needs cgo and a C compiler.
func hasRace() bool {
	out, err := exec.Command("go", "env", "CGO_ENABLED", "CC").Output()
	f := strings.Fields(string(out))
	if err != nil || len(f) < 2 || f[0] != "1" {
		return false
	}
	_, err = exec.LookPath(f[1])
	return err == nil
}

// nurse is a child process that kills the other children if this process ends without having done so: a test binary that runs into its
// time limit runs no cleanups.
var nurse nursery

type nursery struct {
	mu    sync.Mutex // guards the fields below
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

func (n *nursery) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd == nil {
		cmd := reexec("nurse")
		stdin, err := cmd.StdinPipe()
		if err != nil || cmd.Start() != nil {
			return
		}
		n.cmd, n.stdin = cmd, stdin
	}
	fmt.Fprintf(n.stdin, format+"\n", args...)
}

func (n *nursery) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cmd != nil {
		n.stdin.Close()
		_ = n.cmd.Wait()
	}
}

func nurseMain() int {
	pids := map[int]bool{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, arg, _ := strings.Cut(in.Text(), " ")
		pid, err := strconv.Atoi(arg)
		if err != nil || pid < 2 {
			continue
		}
		if pids[pid] = word == "born"; word == "gone" {
			delete(pids, pid)
		}
	}
	for pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return 0
}

// needs skips the test by name, or fails it where FENCEPROXY_NO_SKIP=1 says that everything is installed.
func needs(t *testing.T, what string, ok bool) {
	t.Helper()
	if ok {
		return
	}
	if os.Getenv("FENCEPROXY_NO_SKIP") == "1" {
		t.Fatalf("this test needs %s, and FENCEPROXY_NO_SKIP=1 forbids to skip", what)
	}
	t.Skipf("this test needs %s", what)
}

// eventually waits for a condition that another process is about to make true.
func eventually(t testing.TB, within time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("still not so after %v: %s", within, what)
		}
	}
}
