package tokenstore_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// childEnv names what the test binary does when a test starts it as a child process.
const childEnv = "TOKENSTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	switch mode := os.Getenv(childEnv); mode {
	case "":
		goleak.VerifyTestMain(m)
	case "dump":
		os.Exit(childDump(os.Args[1]))
	case "load":
		os.Exit(childLoad(os.Args[1]))
	case "hold":
		os.Exit(childHold(os.Args[1]))
	default:
		fmt.Fprintf(os.Stderr, "unknown child mode %q\n", mode)
		os.Exit(2)
	}
}

// child returns a command that runs this binary in the given mode. It inherits nothing that could make it run tests.
func child(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, dir)
	cmd.Env = append(os.Environ(), childEnv+"="+mode)
	return cmd
}

// childDump prints the marks of the store in dir, and whether its last stop was unclean.
func childDump(dir string) int {
	s, err := tokenstore.Open(context.Background(), dir, tokenstore.Options{MustExist: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, "refused:", err)
		return 3
	}
	fmt.Println("unclean", s.UncleanStop())
	err = s.Range("", func(m fencing.ResourceMark) error {
		_, err := fmt.Println("mark", m.Resource, m.Mark.Token)
		return err
	})
	if err == nil {
		err = s.Close(true)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "failed:", err)
		return 4
	}
	return 0
}

// childLoad advances marks until it is killed, and prints each one once it was acknowledged.
func childLoad(dir string) int {
	s, err := tokenstore.Open(context.Background(), dir, tokenstore.Options{MustExist: true})
	if err != nil {
		fmt.Fprintln(os.Stderr, "refused:", err)
		return 3
	}
	var mu sync.Mutex // keeps lines whole
	for w := range 16 {
		go func() {
			for i := 0; ; i++ {
				r := fencing.Resource(fmt.Sprintf("w%d/r%d", w, i%20))
				m, _, err := s.Load(r)
				if err == nil {
					m.Token.Lo++
					m.Reason = strings.Repeat("x", 400) // fills the log, so that kills meet flushes
					err = s.Advance([]fencing.ResourceMark{{Resource: r, Mark: m}})
				}
				mu.Lock()
				if err != nil {
					fmt.Fprintln(os.Stderr, "failed:", err)
					os.Exit(4)
				}
				fmt.Println("mark", r, m.Token)
				mu.Unlock()
			}
		}()
	}
	select {}
}

// childHold keeps the store open until its standard input ends.
func childHold(dir string) int {
	s, err := tokenstore.Open(context.Background(), dir, tokenstore.Options{})
	if err != nil {
		fmt.Fprintln(os.Stderr, "refused:", err)
		return 3
	}
	fmt.Println("open")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(true); err != nil {
		return 4
	}
	return 0
}

// scanMarks reads lines of the form "mark RESOURCE TOKEN" and returns the highest token of each resource. A last line without an
// end is not counted.
func scanMarks(t *testing.T, r io.Reader) map[fencing.Resource]fencing.Token {
	t.Helper()
	marks := map[fencing.Resource]fencing.Token{}
	br := bufio.NewReader(r)
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return marks
		}
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "mark" {
			continue
		}
		tok, err := fencing.Decimal.Parse(f[2])
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if r := fencing.Resource(f[1]); marks[r].Less(tok) {
			marks[r] = tok
		}
	}
}

// openStore opens dir and closes it cleanly when the test ends, if the test has not done so.
func openStore(t testing.TB, dir string, o tokenstore.Options) *tokenstore.Store {
	t.Helper()
	s, err := tokenstore.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(true) })
	return s
}

func closeStore(t testing.TB, s *tokenstore.Store, clean bool) {
	t.Helper()
	if err := s.Close(clean); err != nil {
		t.Fatal(err)
	}
}

func number(n uint64) fencing.Mark {
	return fencing.Mark{Token: fencing.Number(n), Format: fencing.Decimal}
}

func one(r fencing.Resource, n uint64) []fencing.ResourceMark {
	return []fencing.ResourceMark{{Resource: r, Mark: number(n)}}
}

func advance(t testing.TB, s *tokenstore.Store, ms ...fencing.ResourceMark) {
	t.Helper()
	if err := s.Advance(ms); err != nil {
		t.Fatal(err)
	}
}

// wantMark checks the token of r; 0 stands for no mark.
func wantMark(t testing.TB, s *tokenstore.Store, r fencing.Resource, want uint64) {
	t.Helper()
	m, ok, err := s.Load(r)
	if err != nil {
		t.Fatal(err)
	}
	if ok != (want != 0) || m.Token != fencing.Number(want) {
		t.Errorf("mark of %q: got %v, %v; want %d", r, m.Token, ok, want)
	}
}

// eventually waits for a condition that another goroutine is about to make true.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("still not so after 30 s: %s", what)
		}
	}
}

// copyDir copies a directory as a crash would leave it: what the files hold at one moment. Badger may be compacting meanwhile, so
// a copy counts only if neither the list of files nor the manifest has changed.
func copyDir(t testing.TB, from string) (to string) {
	t.Helper()
	parent := t.TempDir()
	for i := 0; ; i++ {
		to = filepath.Join(parent, strconv.Itoa(i))
		before := layout(from)
		err := copyFiles(from, to)
		if layout(from) == before {
			if err != nil {
				t.Fatal(err)
			}
			return to
		}
		if i == 100 {
			t.Fatalf("%s never holds still", from)
		}
	}
}

// layout returns the names of a store's files and the content of its manifest.
func layout(dir string) string {
	names, _ := filepath.Glob(filepath.Join(dir, "db", "*"))
	manifest, _ := os.ReadFile(filepath.Join(dir, "db", "MANIFEST"))
	return strings.Join(names, "\n") + string(manifest)
}

// copyFiles copies a directory. The copies are sparse.
func copyFiles(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.Mkdir(target, 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return errors.Join(os.WriteFile(target, bytes.TrimRight(b, "\x00"), 0o600), os.Truncate(target, int64(len(b))))
	})
}
