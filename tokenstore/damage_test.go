package tokenstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// template is a store that the rows of the damage matrix start from.
type template struct {
	dir   string
	marks map[fencing.Resource]fencing.Token // what it acknowledged
}

func (tp template) advance(t *testing.T, s *tokenstore.Store, from, to int, token uint64) {
	t.Helper()
	for i := from; i < to; i += 10 {
		var ms []fencing.ResourceMark
		for j := i; j < i+10; j++ {
			r := fencing.Resource(fmt.Sprintf("ride/%04d", j))
			ms = append(ms, one(r, token)[0])
			tp.marks[r] = fencing.Number(token)
		}
		advance(t, s, ms...)
	}
}

// templates returns a store that was closed cleanly (its marks in tables), a copy of a running one (tables and a log), and an
// earlier copy of the first.
func templates(t *testing.T) (clean, crashed, older template) {
	dir := t.TempDir()
	clean = template{dir: dir, marks: map[fencing.Resource]fencing.Token{}}
	for run := range 3 { // one table for each
		s := openStore(t, dir, tokenstore.Options{})
		clean.advance(t, s, 200*run, 200*run+300, uint64(10+run))
		closeStore(t, s, true)
		if run == 1 {
			older = template{dir: copyDir(t, dir)}
		}
	}
	clean.dir = copyDir(t, dir)

	crashed.marks = map[fencing.Resource]fencing.Token{}
	for r, tok := range clean.marks {
		crashed.marks[r] = tok
	}
	s := openStore(t, dir, tokenstore.Options{})
	crashed.advance(t, s, 100, 400, 34)
	crashed.dir = copyDir(t, dir)
	closeStore(t, s, true)
	return clean, crashed, older
}

// The edits of the damage matrix. Each takes the store's directory.
type edit func(t *testing.T, dir string)

func glob(t *testing.T, dir, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no file %s in %s (%v)", pattern, dir, err)
	}
	return names[0]
}

// content lets change replace a file's bytes.
func content(pattern string, change func(b []byte) []byte) edit {
	return func(t *testing.T, dir string) {
		path := glob(t, dir, pattern)
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, change(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// flip inverts the bits of one byte: at is a fraction of what was written, up to the last byte that is not zero.
func flip(pattern string, at float64) edit {
	return content(pattern, func(b []byte) []byte {
		used := len(bytes.TrimRight(b, "\x00"))
		b[min(int(at*float64(used)), used-1)] ^= 0xFF
		return b
	})
}

// cut keeps the first n bytes, or all but -n if n is negative.
func cut(pattern string, n int) edit {
	return content(pattern, func(b []byte) []byte {
		if n < 0 {
			return b[:len(b)+n]
		}
		return b[:n]
	})
}

func remove(pattern string) edit {
	return func(t *testing.T, dir string) {
		if err := os.RemoveAll(glob(t, dir, pattern)); err != nil {
			t.Fatal(err)
		}
	}
}

func create(name, text string) edit {
	return func(t *testing.T, dir string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// replace puts another store's file or folder in the place of the own.
func replace(name, from string) edit {
	return func(t *testing.T, dir string) {
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, name)), os.Rename(filepath.Join(copyDir(t, from), name), filepath.Join(dir, name))); err != nil {
			t.Fatal(err)
		}
	}
}

// withBadger edits the database behind the store's back.
func withBadger(fn func(txn *badger.Txn) error) edit {
	return func(t *testing.T, dir string) {
		db, err := badger.Open(badger.DefaultOptions(filepath.Join(dir, "db")).WithLogger(nil).WithExternalMagic(0xFE01))
		if err == nil {
			err = errors.Join(db.Update(fn), db.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func setRecord(key string, value []byte) edit {
	return withBadger(func(txn *badger.Txn) error { return txn.Set([]byte(key), value) })
}

func TestDamageIsHarmlessOrRefused(t *testing.T) {
	clean, crashed, older := templates(t)
	other := t.TempDir()
	closeStore(t, openStore(t, other, tokenstore.Options{}), true)

	const opens, refuses = true, false
	const key = "r/ride/0001"
	lower := tokenstore.EncodeMark(key, tokenstore.Normalise(number(1)))
	future := tokenstore.EncodeMark(key, tokenstore.Normalise(number(99)))
	future[0] = 2
	future = tokenstore.Seal(key, future[:len(future)-4])

	for _, row := range []struct {
		name string
		from template
		do   edit
		want bool // that it opens, with nothing lost
		says string
	}{
		{"nothing, closed", clean, func(*testing.T, string) {}, opens, "unclean false"},
		{"nothing, crashed", crashed, func(*testing.T, string) {}, opens, "unclean true"},

		{"log: flipped in the middle", crashed, flip("db/*.mem", 0.5), refuses, "lost acknowledged marks"},
		{"log: flipped in the first record", crashed, flip("db/*.mem", 0.01), refuses, "lost acknowledged marks"},
		{"log: flipped in the last record", crashed, flip("db/*.mem", 1), refuses, "lost acknowledged marks"},
		{"log: cut to 10 bytes", crashed, cut("db/*.mem", 10), refuses, ""},
		{"log: cut to 0 bytes", crashed, cut("db/*.mem", 0), refuses, "lost acknowledged marks"},
		{"log: deleted", crashed, remove("db/*.mem"), refuses, "lost acknowledged marks"},
		{"log: an empty one beside it", crashed, create("db/00099.mem", ""), opens, ""},

		{"manifest: cut by 1 byte", clean, cut("db/MANIFEST", -1), refuses, ""}, // what is cut off depends on Badger's compactions,
		{"manifest: cut by 1 byte, newer marks in the log", crashed, cut("db/MANIFEST", -1), refuses, ""},
		{"manifest: deleted", clean, remove("db/MANIFEST"), refuses, "is the volume mounted?"},
		{"manifest: deleted, crashed", crashed, remove("db/MANIFEST"), refuses, "is the volume mounted?"},
		{"manifest: empty", clean, cut("db/MANIFEST", 0), refuses, "is the volume mounted?"},
		{"manifest: flipped", clean, flip("db/MANIFEST", 0.5), refuses, "badger cannot open"},

		{"table: flipped data", clean, flip("db/*.sst", 0.2), refuses, "badger cannot open"},
		{"table: flipped index", clean, flip("db/*.sst", 0.95), refuses, ""},
		{"table: flipped footer", clean, flip("db/*.sst", 1), refuses, ""},
		{"table: cut by 1 byte", clean, cut("db/*.sst", -1), refuses, ""},
		{"table: empty", clean, cut("db/*.sst", 0), refuses, ""},
		{"table: deleted", clean, remove("db/*.sst"), refuses, "badger cannot open"},

		{"key registry: deleted", clean, remove("db/KEYREGISTRY"), opens, ""},
		{"key registry: empty", clean, cut("db/KEYREGISTRY", 0), refuses, "badger cannot open"},
		{"value log: empty", crashed, cut("db/*.vlog", 0), opens, ""},
		{"value log: deleted", crashed, remove("db/*.vlog"), opens, ""},

		{"database: deleted", clean, remove("db"), refuses, "is the volume mounted?"},
		{"database: an older copy", clean, replace("db", older.dir), refuses, "older copy"},
		{"database: of another store", clean, replace("db", other), refuses, "another store"},
		{"record: deleted", clean, withBadger(func(txn *badger.Txn) error { return txn.Delete([]byte(key)) }), refuses, "does not hold what batch"},
		{"record: put back to an older one", clean, setRecord(key, lower), refuses, "does not hold what batch"},
		{"record: of a newer release", clean, setRecord(key, future), refuses, "does not hold what batch"},
		{"counter: deleted", clean, withBadger(func(txn *badger.Txn) error { return txn.Delete([]byte("m/seq")) }), refuses, "does not even know its own id"},
		{"counter: altered", clean, setRecord("m/seq", make([]byte, 29)), refuses, "wrong checksum"},

		{"IDENTITY: deleted", clean, remove("IDENTITY"), refuses, "no IDENTITY"},
		{"IDENTITY: flipped", clean, flip("IDENTITY", 0.1), refuses, "IDENTITY"},
		{"IDENTITY: empty", clean, cut("IDENTITY", 0), refuses, "cannot be read"},
		{"IDENTITY: of another store", clean, replace("IDENTITY", other), refuses, "another store"},
		{"IDENTITY and database deleted", clean, func(t *testing.T, dir string) { remove("IDENTITY")(t, dir); remove("db")(t, dir) }, refuses, "no IDENTITY"},
		{"IDENTITY: back to init", clean, content("IDENTITY", func(b []byte) []byte { return bytes.Replace(b, []byte("ready"), []byte("init"), 1) }), refuses, "never initialised"},
		{"SEQ: deleted", clean, remove("SEQ"), refuses, "SEQ is missing"},
		{"SEQ: flipped", clean, flip("SEQ", 0.6), refuses, "SEQ cannot be read"},
		{"SEQ: empty", clean, cut("SEQ", 0), refuses, "SEQ cannot be read"},
		{"SEQ: of another store", clean, replace("SEQ", other), refuses, "SEQ cannot be read"},
		{"SEQ: older", clean, replace("SEQ", older.dir), opens, ""},
		{"CLEAN: deleted", clean, remove("CLEAN"), opens, "unclean true"},
		{"CLEAN: garbage", clean, create("CLEAN", "?"), opens, "unclean true"},
		{"CLEAN: older", clean, replace("CLEAN", older.dir), opens, "unclean true"},
		{"SEQ and database older, CLEAN not", clean, func(t *testing.T, dir string) { replace("db", older.dir)(t, dir); replace("SEQ", older.dir)(t, dir) }, refuses, "older copy"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel() // most of the time goes into waiting for the disk
			dir := copyDir(t, row.from.dir)
			row.do(t, dir)
			if row.want == opens {
				wantOpens(t, dir, row.from.marks, row.says)
				return
			}
			for range 2 { // the first refusal must not make the second open pass
				wantRefused(t, dir, row.says)
			}
		})
	}
}

// TestAnyDamageIsHarmlessOrRefused damages every file of a store in every simple way. Which of the two it has to be is for the rows above to
// say; a store that opens and has forgotten or altered a mark is wrong whatever was done to it, and so is one that opens the second time.
func TestAnyDamageIsHarmlessOrRefused(t *testing.T) {
	clean, crashed, _ := templates(t)
	flipByte := func(at float64) func(b []byte) []byte {
		return func(b []byte) []byte {
			if used := len(bytes.TrimRight(b, "\x00")); used > 0 {
				b[min(int(at*float64(used)), used-1)] ^= 1
			}
			return b
		}
	}
	edits := []struct {
		name string
		do   func(b []byte) []byte // nil: delete the file
	}{
		{"cut by 1 byte", func(b []byte) []byte { return b[:max(0, len(b)-1)] }},
		{"cut by the last byte written", func(b []byte) []byte { return b[:max(0, len(bytes.TrimRight(b, "\x00"))-1)] }},
		{"cut in half", func(b []byte) []byte { return b[:len(bytes.TrimRight(b, "\x00"))/2] }},
		{"1 byte longer", func(b []byte) []byte { return append(b, 'x') }},
		{"first byte flipped", flipByte(0)}, {"flipped at a third", flipByte(0.33)}, {"flipped at two thirds", flipByte(0.67)}, {"last byte flipped", flipByte(1)},
		{"zeroes", func(b []byte) []byte { return make([]byte, len(b)) }},
		{"emptied", func([]byte) []byte { return nil }},
		{"deleted", nil},
	}
	// All rows take minutes with the race detector. FENCEPROXY_NO_SKIP=1 runs them all; otherwise each file and each way still has its turn.
	one := 4
	switch {
	case testing.Short():
		one = 12
	case os.Getenv("FENCEPROXY_NO_SKIP") == "1":
		one = 1
	}
	row := 0
	for i, from := range []template{clean, crashed} {
		name := [...]string{"closed", "crashed"}[i]
		for _, file := range filesOf(t, from.dir) {
			for _, e := range edits {
				if row++; row%one != 0 {
					continue
				}
				t.Run(name+" "+file+" "+e.name, func(t *testing.T) {
					t.Parallel()
					dir := copyDir(t, from.dir)
					if e.do == nil {
						remove(file)(t, dir)
					} else {
						content(file, e.do)(t, dir)
					}
					if out, _, err := run(t, dir); err == nil {
						wantSame(t, out, from.marks)
						wantOpens(t, dir, from.marks, "unclean false")
						return
					}
					wantRefused(t, dir, "")
				})
			}
		}
	}
}

// filesOf returns the paths of a store's files, without the one that only names a process.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "LOCK" {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		files = append(files, rel)
		return err
	})
	if err != nil || len(files) < 6 {
		t.Fatalf("the files of %s: %v, %v", dir, files, err)
	}
	return files
}

// wantOpens opens dir in a child process and checks that nothing was lost.
func wantOpens(t *testing.T, dir string, marks map[fencing.Resource]fencing.Token, says string) {
	t.Helper()
	out, errText, err := run(t, dir)
	if err != nil {
		t.Fatalf("it does not open: %v\n%s", err, errText)
	}
	if !strings.Contains(out, says) {
		t.Errorf("no %q in the output", says)
	}
	wantSame(t, out, marks)
}

// wantSame compares what dump printed with the marks that the store acknowledged.
func wantSame(t *testing.T, out string, marks map[fencing.Resource]fencing.Token) {
	t.Helper()
	got := scanMarks(t, strings.NewReader(out))
	for r, want := range marks {
		if got[r] != want {
			t.Errorf("mark of %q: got %v; want %v", r, got[r], want)
		}
	}
	if len(got) != len(marks) {
		t.Errorf("got %d marks; want %d", len(got), len(marks))
	}
}

// wantRefused opens dir in a child process, which must fail with a message. Badger panics on some damage; then it is the message.
func wantRefused(t *testing.T, dir, says string) {
	t.Helper()
	out, errText, err := run(t, dir)
	if err == nil {
		t.Fatalf("it opens, with %d marks", len(scanMarks(t, strings.NewReader(out))))
	}
	if strings.Contains(out, "mark") {
		t.Errorf("it served marks: %s", out)
	}
	if says != "" && !(strings.Contains(errText, "refused:") && strings.Contains(errText, says)) || strings.TrimSpace(errText) == "" {
		t.Errorf("%v; message:\n%s\nwant: refused, with %q", err, errText, says)
	}
}

func run(t *testing.T, dir string) (out, errText string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := child(t, "dump", dir)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

func TestCrashDuringCreationIsRedone(t *testing.T) {
	whole := t.TempDir()
	closeStore(t, openStore(t, whole, tokenstore.Options{}), false)
	for name, left := range map[string][]string{
		"identity only": {"IDENTITY"}, "with a database": {"IDENTITY", "db"}, "with everything": {"IDENTITY", "db", "SEQ"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, from := t.TempDir(), copyDir(t, whole)
			for _, f := range left {
				if err := os.Rename(filepath.Join(from, f), filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
			content("IDENTITY", func(b []byte) []byte { return bytes.Replace(b, []byte("ready"), []byte("init"), 1) })(t, dir)
			s := openStore(t, dir, tokenstore.Options{})
			advance(t, s, one("a", 34)...)
			closeStore(t, s, true)
			wantMark(t, openStore(t, dir, tokenstore.Options{MustExist: true}), "a", 34)
		})
	}
}

func TestDamageWhileRunningEndsTheStore(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{})
	for i := range 300 {
		advance(t, s, one(fencing.Resource(fmt.Sprintf("ride/%04d", i)), 34)...)
	}
	closeStore(t, s, true) // moves the marks to a table

	var o tokenstore.Options
	o.SetVerifyEvery(1)
	s = openStore(t, dir, o)
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	path := glob(t, dir, "db/*.sst")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("damage"), 1000); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store has failed", func() bool { return errors.Is(s.Err(), tokenstore.ErrFailed) })
	if err := s.Close(true); !errors.Is(err, tokenstore.ErrFailed) {
		t.Errorf("close: got %v; want ErrFailed", err)
	}
}

func TestUnreadableRecordStopsItsResourceOnly(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	raw := tokenstore.EncodeMark("r/bad", number(34))
	raw[0] = 2
	if err := s.PutRaw("bad", tokenstore.Seal("r/bad", raw[:len(raw)-4])); err != nil {
		t.Fatal(err)
	}
	_, _, loadErr := s.Load("bad")
	_, restoreErr := s.Restore("bad", fencing.Number(34), nil)
	for i, err := range []error{
		loadErr, restoreErr, s.Advance([]fencing.ResourceMark{one("good", 35)[0], one("bad", 35)[0]}),
		s.Range("", func(fencing.ResourceMark) error { return nil }), s.Export(&bytes.Buffer{}),
	} {
		if !errors.Is(err, tokenstore.ErrDamaged) {
			t.Errorf("call %d: got %v; want ErrDamaged", i, err)
		}
	}
	wantMark(t, s, "good", 0)
	advance(t, s, one("good", 34)...)
	if err := s.Err(); err != nil {
		t.Errorf("the store is not usable: %v", err)
	}
	if err := s.Set("bad", number(40)); err != nil {
		t.Fatal(err)
	}
	wantMark(t, s, "bad", 40)
	if !strings.Contains(log.String(), "resource=bad token=40 mark=unreadable") {
		t.Errorf("no line about the replaced record in the log:\n%s", log.String())
	}
	closeStore(t, s, true)
	wantMark(t, openStore(t, dir, tokenstore.Options{}), "bad", 40)
}

func TestBadgerOptionsThatTheGuaranteeRestsOn(t *testing.T) {
	o := tokenstore.BadgerOptions()
	if !o.SyncWrites || o.InMemory || o.BypassLockGuard {
		t.Error("commits are not durable, or the directory is not locked")
	}
	if o.ChecksumVerificationMode != options.OnTableRead {
		t.Error("a damaged block would be served as not found")
	}
	if o.MemTableSize < 8<<20 {
		t.Error("a memtable that is smaller than an earlier release's kills the process when it meets its log")
	}
}
