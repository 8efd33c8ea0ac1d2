package tokenstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestAdvanceKeepsTheHigherTokenAcrossReopen(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{})
	wantMark(t, s, "a", 0)
	for _, n := range []uint64{33, 34, 9, 33} {
		advance(t, s, one("a", n)...)
	}
	wantMark(t, s, "a", 34)
	closeStore(t, s, true)

	s = openStore(t, dir, tokenstore.Options{MustExist: true})
	wantMark(t, s, "a", 34)
	advance(t, s, one("a", 33)...)
	wantMark(t, s, "a", 34)
}

func TestAdvanceKeepsEveryFieldOfTheMark(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{})
	want := fencing.Mark{
		Token: fencing.Token{Hi: 7, Lo: 1042}, Format: fencing.Pair, At: time.UnixMilli(1_700_000_000_123).UTC(),
		By: "192.0.2.7:4711", Policy: "rides", Reason: "because", Draining: true,
	}
	advance(t, s, fencing.ResourceMark{Resource: "rides/ü", Mark: want})
	for range 2 {
		got, ok, err := s.Load("rides/ü")
		if err != nil || !ok {
			t.Fatalf("got %v, %v; want a mark", ok, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("mark (-want +got):\n%s", d)
		}
		closeStore(t, s, true)
		s = openStore(t, dir, tokenstore.Options{})
	}
}

func TestAdvanceOfEqualTokenKeepsTheRecordAndAddsDraining(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	first := number(34)
	first.By = "first"
	advance(t, s, fencing.ResourceMark{Resource: "a", Mark: first})
	before := s.Stats().Seq
	second := number(34)
	second.By = "second"
	advance(t, s, fencing.ResourceMark{Resource: "a", Mark: second})
	if got := s.Stats().Seq; got != before {
		t.Errorf("an equal token took a commit: seq %d; want %d", got, before)
	}
	second.Draining = true
	advance(t, s, fencing.ResourceMark{Resource: "a", Mark: second})
	got, _, err := s.Load("a")
	if err != nil || got.By != "first" || !got.Draining {
		t.Errorf("got %+v, %v; want the first mark, draining", got, err)
	}
}

func TestAdvanceOfSeveralResourcesIsOneTransaction(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("b", 50)...)
	before := s.Stats().Batches
	advance(t, s, one("a", 34)[0], one("b", 34)[0], one("c", 34)[0], one("c", 36)[0], one("c", 35)[0])
	if got := s.Stats().Batches - before; got != 1 {
		t.Errorf("got %d commits; want 1", got)
	}
	wantMark(t, s, "a", 34)
	wantMark(t, s, "b", 50)
	wantMark(t, s, "c", 36)

	bad := []fencing.ResourceMark{one("d", 1)[0], one("", 1)[0]}
	if err := s.Advance(bad); !errors.Is(err, fencing.ErrResource) {
		t.Errorf("got %v; want ErrResource", err)
	}
	wantMark(t, s, "d", 0)
}

func TestAdvanceRefusesMoreThanOneTransactionTakes(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	var many, long []fencing.ResourceMark
	for i := range tokenstore.MaxAdvance {
		many = append(many, one(fencing.Resource(fmt.Sprintf("many/%d", i)), 1)[0])
		long = append(long, one(fencing.Resource(fmt.Sprintf("%04d", i)+strings.Repeat("x", fencing.MaxResourceLen-4)), 1)[0])
	}
	advance(t, s, many...)
	if err := s.Advance(append(many, one("one more", 1)[0])); !errors.Is(err, tokenstore.ErrTooLarge) {
		t.Errorf("too many: got %v; want ErrTooLarge", err)
	}
	if err := s.Advance(long); !errors.Is(err, tokenstore.ErrTooLarge) {
		t.Errorf("too long: got %v; want ErrTooLarge", err)
	}
	// What fits is not refused by Badger either, alone or with others in a batch.
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := s.Advance(long[i*240 : (i+1)*240]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := s.Stats().Marks; got != 1000+4*240 {
		t.Errorf("got %d marks; want %d", got, 1000+4*240)
	}
}

func TestAdvanceReturnsAfterTheCommit(t *testing.T) {
	var o tokenstore.Options
	entered, release := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	o.SetBeforeCommit(func() error {
		if armed.Load() {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	dir := t.TempDir()
	s := openStore(t, dir, o)
	advance(t, s, one("a", 33)...)
	armed.Store(true)
	returned := make(chan error, 1)
	go func() { returned <- s.Advance(one("a", 34)) }()
	<-entered
	select {
	case err := <-returned:
		t.Errorf("advance returned (%v) before the commit began", err)
	case <-time.After(20 * time.Millisecond): // cannot fail by being short
	}
	wantMark(t, s, "a", 33) // nobody may act on 34 yet
	armed.Store(false)
	close(release)
	if err := <-returned; err != nil {
		t.Fatal(err)
	}
	wantMark(t, s, "a", 34)

	crashed := openStore(t, copyDir(t, dir), tokenstore.Options{})
	wantMark(t, crashed, "a", 34)
}

// TestLoadWaitsForACommitThatItMightSee covers the moment in which Badger shows a batch that is not acknowledged yet.
func TestLoadWaitsForACommitThatItMightSee(t *testing.T) {
	var o tokenstore.Options
	entered, release := make(chan struct{}), make(chan struct{})
	o.SetAfterCommit(func() { entered <- struct{}{}; <-release })
	s := openStore(t, t.TempDir(), o)
	go func() { _ = s.Advance(one("a", 34)) }()
	<-entered
	loaded := make(chan fencing.Mark, 1)
	go func() {
		m, _, _ := s.Load("a")
		loaded <- m
	}()
	select {
	case m := <-loaded:
		close(release)
		t.Fatalf("load returned %v between commit and publication", m.Token)
	case <-time.After(20 * time.Millisecond): // cannot fail by being short
	}
	close(release)
	if m := <-loaded; m.Token != fencing.Number(34) {
		t.Errorf("got %v; want 34", m.Token)
	}
}

func TestWaitingAdvancesShareOneCommit(t *testing.T) {
	var o tokenstore.Options
	entered, release := make(chan struct{}), make(chan struct{})
	var armed atomic.Bool
	o.SetBeforeCommit(func() error {
		if armed.CompareAndSwap(true, false) {
			close(entered)
			<-release
		}
		return nil
	})
	s := openStore(t, t.TempDir(), o)
	before := s.Stats().Batches
	armed.Store(true)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Advance(one("first", 1)) })
	<-entered
	const n = 300
	for i := range n {
		wg.Go(func() {
			if err := s.Advance(one(fencing.Resource(fmt.Sprint("r", i)), 34)); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all calls wait", func() bool { return s.Queued() == n })
	close(release)
	wg.Wait()
	st := s.Stats()
	if got := st.Batches - before; got != 2 || st.LastBatch != n || st.Marks != n+1 {
		t.Errorf("got %d commits, the last of %d calls, %d marks; want 2, %d, %d", got, st.LastBatch, st.Marks, n, n+1)
	}
}

func TestRestoreTakesItsTurnWithAdvance(t *testing.T) {
	old := number(33)
	for _, tc := range []struct {
		name         string
		advanceFirst bool
		to           *fencing.Mark
		restored     bool
		want         uint64
	}{
		{"a higher advance first: it stays", true, &old, false, 35},
		{"a higher advance later: it wins", false, &old, true, 35},
		{"a higher advance first, no mark before", true, nil, false, 35},
		{"a higher advance later, no mark before", false, nil, true, 35},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var o tokenstore.Options
			entered, release := make(chan struct{}), make(chan struct{})
			var armed atomic.Bool
			o.SetBeforeCommit(func() error {
				if armed.CompareAndSwap(true, false) {
					close(entered)
					<-release
				}
				return nil
			})
			dir := t.TempDir()
			s := openStore(t, dir, o)
			advance(t, s, one("a", 34)...)
			armed.Store(true)
			var wg sync.WaitGroup
			wg.Go(func() { _ = s.Advance(one("other", 1)) })
			<-entered
			var restored bool
			calls := []func(){
				func() { restored, _ = s.Restore("a", fencing.Number(34), tc.to) },
				func() { _ = s.Advance(one("a", 35)) },
			}
			if tc.advanceFirst {
				calls[0], calls[1] = calls[1], calls[0]
			}
			for i, call := range calls {
				wg.Go(call)
				eventually(t, "the call waits", func() bool { return s.Queued() == i+1 })
			}
			close(release)
			wg.Wait()
			if restored != tc.restored {
				t.Errorf("got restored %v; want %v", restored, tc.restored)
			}
			wantMark(t, s, "a", tc.want)
			closeStore(t, s, true)
			wantMark(t, openStore(t, dir, tokenstore.Options{}), "a", tc.want)
		})
	}
}

func TestRestoreAndSetLowerDurablyAndLeaveALine(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	advance(t, s, one("a", 99)[0], one("b", 99)[0], one("c", 99)[0])
	old := number(33)
	for _, restore := range []struct {
		r    fencing.Resource
		from uint64
		to   *fencing.Mark
		want bool
	}{{"a", 98, &old, false}, {"a", 99, &old, true}, {"b", 99, nil, true}, {"nobody", 0, nil, false}} {
		got, err := s.Restore(restore.r, fencing.Number(restore.from), restore.to)
		if err != nil || got != restore.want {
			t.Errorf("restore %v: got %v, %v; want %v", restore.r, got, err, restore.want)
		}
	}
	lower := number(5)
	lower.By, lower.Reason = "ops@example.test", "lock service was rebuilt"
	if err := s.Set("c", lower); err != nil {
		t.Fatal(err)
	}
	check := func(s *tokenstore.Store) {
		wantMark(t, s, "a", 33)
		wantMark(t, s, "b", 0)
		wantMark(t, s, "c", 5)
		if got := s.Stats().Marks; got != 2 {
			t.Errorf("got %d marks; want 2", got)
		}
	}
	check(s)
	closeStore(t, s, true)
	check(openStore(t, dir, tokenstore.Options{}))
	for _, want := range []string{
		`msg="mark restored" resource=a token=99 mark=33`,
		`msg="mark restored" resource=b token=99 mark=none`,
		`msg="mark lowered by an operator" resource=c token=5 mark=99 by=ops@example.test reason="lock service was rebuilt"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no line with %s in the log:\n%s", want, log.String())
		}
	}
}

func TestFailedCommitEndsTheStore(t *testing.T) {
	var o tokenstore.Options
	var fails atomic.Bool
	cause := errors.New("input/output error")
	o.SetBeforeCommit(func() error {
		if fails.Load() {
			return cause
		}
		return nil
	})
	dir := t.TempDir()
	s := openStore(t, dir, o)
	advance(t, s, one("a", 33)...)
	fails.Store(true)
	if err := s.Advance(one("a", 34)); !errors.Is(err, tokenstore.ErrFailed) || !errors.Is(err, cause) {
		t.Errorf("got %v; want ErrFailed with its cause", err)
	}
	fails.Store(false)
	_, _, loadErr := s.Load("a")
	_, restoreErr := s.Restore("a", fencing.Number(33), nil)
	_, _, metaErr := s.Meta("x")
	_, importErr := s.Import(strings.NewReader(""))
	for i, err := range []error{
		s.Err(), s.Advance(one("a", 35)), loadErr, restoreErr, metaErr, importErr, s.Set("a", number(1)), s.SetMeta("x", "y"),
		s.Range("", func(fencing.ResourceMark) error { return nil }), s.Export(&bytes.Buffer{}), s.Close(true),
	} {
		if !errors.Is(err, tokenstore.ErrFailed) {
			t.Errorf("call %d: got %v; want ErrFailed", i, err)
		}
	}
	s = openStore(t, dir, tokenstore.Options{})
	if !s.UncleanStop() {
		t.Error("a failed store was closed cleanly")
	}
	wantMark(t, s, "a", 33)
}

func TestShortOfSpaceRefusesAdvancesAndRecovers(t *testing.T) {
	var o tokenstore.Options
	var free atomic.Uint64
	free.Store(1 << 30)
	o.SetFreeSpace(func() (uint64, error) { return free.Load(), nil })
	o.MinFree = 256 << 20
	dir := t.TempDir()
	s := openStore(t, dir, o)
	advance(t, s, one("a", 33)...)
	free.Store(200 << 20)
	_, restoreErr := s.Restore("a", fencing.Number(33), nil)
	for i, err := range []error{s.Advance([]fencing.ResourceMark{one("b", 1)[0], one("a", 34)[0]}), s.Set("a", number(1)), s.SetMeta("x", "y"), restoreErr} {
		if !errors.Is(err, tokenstore.ErrNoSpace) {
			t.Errorf("call %d: got %v; want ErrNoSpace", i, err)
		}
	}
	if err := s.Err(); err != nil {
		t.Errorf("the store is not usable: %v", err)
	}
	wantMark(t, s, "a", 33)
	wantMark(t, s, "b", 0)
	if err := s.Advance(one("a", 33)); err != nil {
		t.Errorf("an equal token needs no room: %v", err)
	}
	free.Store(0)
	if st := s.Stats(); st.FreeBytes == 0 || st.FreeBytes >= st.Reserve {
		t.Errorf("stats on a full volume: %d bytes free; want a known number below the reserve of %d", st.FreeBytes, st.Reserve)
	}
	free.Store(300 << 20)
	advance(t, s, one("a", 34)...)
	wantMark(t, s, "a", 34)
	closeStore(t, s, true)

	free.Store(10 << 20)
	if _, err := tokenstore.Open(t.Context(), dir, o); !errors.Is(err, tokenstore.ErrNoSpace) {
		t.Errorf("open with 10 MiB free: got %v; want ErrNoSpace", err)
	}
	o.SetFreeSpace(func() (uint64, error) { return 0, errors.New("statfs broke") })
	if _, err := tokenstore.Open(t.Context(), dir, o); !errors.Is(err, tokenstore.ErrNoSpace) {
		t.Errorf("open with unknown space: got %v; want ErrNoSpace", err)
	}
}

func TestUncleanStop(t *testing.T) {
	dir := t.TempDir()
	for i, step := range []struct {
		write, clean, want bool
	}{
		{false, false, false}, // new
		{true, true, false},   // never used so far
		{false, false, false},
		{false, true, true}, // not cleanly closed before, though nothing was written
		{true, false, false},
		{false, true, true},
		{false, true, false},
	} {
		s := openStore(t, dir, tokenstore.Options{})
		if got := s.UncleanStop(); got != step.want {
			t.Errorf("start %d: got %v; want %v", i, got, step.want)
		}
		if step.write {
			advance(t, s, one("a", uint64(i+1))...)
		}
		closeStore(t, s, step.clean)
		closeStore(t, s, !step.clean) // has no effect
	}
}

func TestMustExistRefusesWhatIsNotThere(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"missing": func(dir string) error { return os.Remove(dir) },
		"empty":   func(string) error { return nil },
		"fresh file system": func(dir string) error {
			return os.Mkdir(filepath.Join(dir, "lost+found"), 0o700)
		},
		"never initialised to the end": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "IDENTITY"),
				[]byte(`{"format":"fenceproxy token store","schema":1,"id":"00112233445566778899aabbccddeeff","state":"init"}`), 0o600)
		},
		"wiped": func(dir string) error {
			s, err := tokenstore.Open(context.Background(), dir, tokenstore.Options{})
			if err == nil {
				err = s.Close(true)
			}
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			if err := errors.Join(os.Mkdir(dir, 0o700), prepare(dir)); err != nil {
				t.Fatal(err)
			}
			if _, err := tokenstore.Open(t.Context(), dir, tokenstore.Options{MustExist: true}); !errors.Is(err, tokenstore.ErrMissing) {
				t.Errorf("got %v; want ErrMissing", err)
			}
			if _, err := os.Stat(filepath.Join(dir, "db")); err == nil {
				t.Error("db was created")
			}
			s := openStore(t, dir, tokenstore.Options{}) // is allowed to create one
			wantMark(t, s, "a", 0)
		})
	}
}

func TestSecondOpenerIsRefused(t *testing.T) {
	dir := t.TempDir()
	holder := child(t, "hold", dir)
	in, _ := holder.StdinPipe()
	out, _ := holder.StdoutPipe()
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	_, err := tokenstore.Open(t.Context(), dir, tokenstore.Options{LockWait: 10 * time.Millisecond})
	if !errors.Is(err, tokenstore.ErrLocked) || !strings.Contains(fmt.Sprint(err), fmt.Sprintf("process %d ", holder.Process.Pid)) {
		t.Errorf("got %v; want ErrLocked with process %d", err, holder.Process.Pid)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := tokenstore.Open(ctx, dir, tokenstore.Options{LockWait: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v; want context.Canceled", err)
	}
	// A rolling restart: the old process leaves while the new one waits.
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, dir, tokenstore.Options{LockWait: time.Minute})
	if s.UncleanStop() {
		t.Error("the second opener disturbed the first")
	}
	if err := holder.Wait(); err != nil {
		t.Error(err)
	}
}

func TestRangeIsSortedAndASnapshot(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("b/2", 2)[0], one("b/10", 10)[0], one("a", 1)[0], one("c", 3)[0])
	var got []string
	err := s.Range("b/", func(m fencing.ResourceMark) error {
		got = append(got, fmt.Sprint(m.Resource, "=", m.Mark.Token))
		return s.Advance([]fencing.ResourceMark{one("b/2", 99)[0], one("b/3", 99)[0]})
	})
	if d := cmp.Diff([]string{"b/10=10", "b/2=2"}, got); err != nil || d != "" {
		t.Errorf("%v; (-want +got):\n%s", err, d)
	}
	stop := errors.New("stop")
	if err := s.Range("", func(fencing.ResourceMark) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v; want the error of fn", err)
	}
}

func TestMetaIsDurable(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{})
	for _, kv := range [][2]string{{"policy/b", "1"}, {"policy/a", "old"}, {"policy/a", "new"}, {"other", ""}} {
		if err := s.SetMeta(kv[0], kv[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetMeta("x", strings.Repeat("x", 1000)); !errors.Is(err, tokenstore.ErrTooLarge) {
		t.Errorf("got %v; want ErrTooLarge", err)
	}
	closeStore(t, s, true)
	s = openStore(t, dir, tokenstore.Options{})
	names, err := s.MetaNames("policy/")
	if d := cmp.Diff([]string{"policy/a", "policy/b"}, names); err != nil || d != "" {
		t.Errorf("%v; (-want +got):\n%s", err, d)
	}
	if v, ok, err := s.Meta("policy/a"); v != "new" || !ok || err != nil {
		t.Errorf("got %q, %v, %v; want new", v, ok, err)
	}
	if v, ok, err := s.Meta("other"); v != "" || !ok || err != nil {
		t.Errorf("got %q, %v, %v; want an empty value", v, ok, err)
	}
	if _, ok, err := s.Meta("nobody"); ok || err != nil {
		t.Errorf("got %v, %v; want no value", ok, err)
	}
	if got := s.Stats().Marks; got != 0 {
		t.Errorf("meta counts as marks: %d", got)
	}
	for range 2 { // the second has nothing to remove
		if err := s.DeleteMeta("policy/a"); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s, true)
	s = openStore(t, dir, tokenstore.Options{}) // the sum over all records is checked
	if _, ok, err := s.Meta("policy/a"); ok || err != nil {
		t.Errorf("got %v, %v; want no value after DeleteMeta", ok, err)
	}
}

func TestClosedStoreRefusesEverything(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("a", 1)...)
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Stats() })
	for i := range 50 { // calls that race Close are either done or refused
		wg.Go(func() {
			if err := s.Advance(one("a", uint64(i+2))); err != nil && !errors.Is(err, tokenstore.ErrClosed) {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, _, err := s.Load(fencing.Resource(fmt.Sprint("r", i))); err != nil && !errors.Is(err, tokenstore.ErrClosed) {
				t.Error(err)
			}
		})
	}
	closeStore(t, s, true)
	wg.Wait()
	_, _, loadErr := s.Load("a")
	for i, err := range []error{s.Err(), s.Advance(one("a", 99)), loadErr, s.Range("", nil), s.SetMeta("x", "y")} {
		if !errors.Is(err, tokenstore.ErrClosed) {
			t.Errorf("call %d: got %v; want ErrClosed", i, err)
		}
	}
}

func TestFilesAreForTheOwnerOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "store")
	s := openStore(t, dir, tokenstore.Options{})
	advance(t, s, one("a", 1)...)
	closeStore(t, s, true)
	for name, want := range map[string]os.FileMode{
		".": 0o700 | os.ModeDir, "db": 0o700 | os.ModeDir, "IDENTITY": 0o600, "SEQ": 0o600, "CLEAN": 0o600,
	} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err != nil || fi.Mode() != want {
			t.Errorf("%s: got %v, %v; want %v", name, fi.Mode(), err, want)
		}
	}
}

func TestCloseWaitsForThoseWhoRead(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("a", 1)[0], one("b", 2)[0])
	inside, goOn := make(chan struct{}), make(chan struct{})
	ranged, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		var once sync.Once
		ranged <- s.Range("", func(fencing.ResourceMark) error {
			once.Do(func() { close(inside); <-goOn })
			return nil
		})
	}()
	<-inside
	go func() { closed <- s.Close(true) }()
	select {
	case err := <-closed:
		close(goOn)
		t.Fatalf("close returned (%v) while marks were read", err)
	case <-time.After(20 * time.Millisecond): // cannot fail by being short
	}
	close(goOn)
	if err := <-ranged; err != nil {
		t.Errorf("range: got %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("close: got %v", err)
	}
}
