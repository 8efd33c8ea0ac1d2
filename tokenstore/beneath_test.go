package tokenstore_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestBeneathFindsTheHighestMark(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{})
	advance(t, s, one("dav/a", 90)[0], one("dav/a!", 91)[0], one("dav/a0", 92)[0], one("dav/a?tree", 93)[0]) // beside it in the order of bytes
	advance(t, s, one("dav/a/x", 30)[0], one("dav/a/b/y", 50)[0], one("dav/a/b?tree", 40)[0], one("dav/ü/x", 9)[0])
	advance(t, s, one("dav/a/b/y", 20)...) // lower than what is there
	pair := fencing.Mark{Token: fencing.Token{Hi: 1, Lo: 2}, Format: fencing.Pair}
	advance(t, s, one("mixed/decimal", 1<<62)[0], fencing.ResourceMark{Resource: "mixed/pair", Mark: pair})
	for range 2 {
		for _, tc := range []struct {
			name, prefix string
			want         fencing.Token
			ok           bool
		}{
			{"several levels", "dav/a/", fencing.Number(50), true},
			{"one level", "dav/a/b/", fencing.Number(50), true},
			{"a whole key", "dav/a/x", fencing.Number(30), true},
			{"beyond ASCII", "dav/ü/", fencing.Number(9), true},
			{"nothing", "dav/b/", fencing.Token{}, false},
			{"longer than any key", "dav/a/x/", fencing.Token{}, false},
			{"two formats, compared as tokens", "mixed/", pair.Token, true},
			{"the whole store", "", pair.Token, true},
		} {
			if got, ok, err := s.Beneath(fencing.Resource(tc.prefix)); got != tc.want || ok != tc.ok || err != nil {
				t.Errorf("%s: Beneath(%q) = %v, %v, %v; want %v, %v", tc.name, tc.prefix, got, ok, err, tc.want, tc.ok)
			}
		}
		closeStore(t, s, true)
		s = openStore(t, dir, tokenstore.Options{})
	}
}

func TestBeneathFollowsRestore(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("a/x", 50)...)
	if _, err := s.Restore("a/x", fencing.Number(50), nil); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := s.Beneath("a/"); ok || err != nil {
		t.Errorf("got %v, %v, %v; want no mark", got, ok, err)
	}
}

// A mark that Badger shows before it is acknowledged would be one whose sync may yet fail.
func TestBeneathWaitsForACommitThatItMightSee(t *testing.T) {
	var o tokenstore.Options
	entered, release := make(chan struct{}), make(chan struct{})
	o.SetAfterCommit(func() { entered <- struct{}{}; <-release })
	s := openStore(t, t.TempDir(), o)
	go func() { _ = s.Advance(one("a/x", 34)) }() // ends with the store
	<-entered
	found := make(chan fencing.Token, 1)
	go func() { // ends with Beneath
		got, _, _ := s.Beneath("a/")
		found <- got
	}()
	select {
	case got := <-found:
		close(release)
		t.Fatalf("Beneath returned %v between commit and publication", got)
	case <-time.After(20 * time.Millisecond): // cannot fail by being short
	}
	close(release)
	if got := <-found; got != fencing.Number(34) {
		t.Errorf("got %v; want 34", got)
	}
}

func TestBeneathOfABrokenStoreIsAnError(t *testing.T) {
	t.Run("failed", func(t *testing.T) {
		var o tokenstore.Options
		var fails atomic.Bool
		o.SetBeforeCommit(func() error {
			if fails.Load() {
				return errors.New("input/output error")
			}
			return nil
		})
		s := openStore(t, t.TempDir(), o)
		fails.Store(true)
		_ = s.Advance(one("a/x", 34))
		if _, ok, err := s.Beneath("b/"); ok || !errors.Is(err, tokenstore.ErrFailed) {
			t.Errorf("got %v, %v; want ErrFailed", ok, err)
		}
		_ = s.Close(true)
	})
	t.Run("closed", func(t *testing.T) {
		s := openStore(t, t.TempDir(), tokenstore.Options{})
		closeStore(t, s, true)
		if _, _, err := s.Beneath(""); !errors.Is(err, tokenstore.ErrClosed) {
			t.Errorf("got %v; want ErrClosed", err)
		}
	})
	t.Run("a record that cannot be read", func(t *testing.T) {
		s := openStore(t, t.TempDir(), tokenstore.Options{})
		advance(t, s, one("a/z", 50)...)
		raw := tokenstore.EncodeMark("r/a/bad", number(34))
		raw[0] = 2
		if err := s.PutRaw("a/bad", tokenstore.Seal("r/a/bad", raw[:len(raw)-4])); err != nil {
			t.Fatal(err)
		}
		got, ok, err := s.Beneath("a/")
		if got != (fencing.Token{}) || ok || !errors.Is(err, tokenstore.ErrDamaged) {
			t.Errorf("got %v, %v, %v; want ErrDamaged and no token", got, ok, err)
		}
		if err != nil && !strings.Contains(err.Error(), `"a/"`) {
			t.Errorf("the error %q does not name the prefix", err)
		}
		if got, _, err := s.Beneath("a/z"); err != nil || got != fencing.Number(50) {
			t.Errorf("beside it: got %v, %v; want 50", got, err)
		}
	})
}

func TestBeneathIsTheMaximumOfTheMarks(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	marks := map[fencing.Resource]fencing.Token{}
	rapid.Check(t, func(t *rapid.T) {
		r := fencing.Resource(rapid.StringMatching(`[ab]{1,2}(/[ab]{1,2}){0,2}`).Draw(t, "resource"))
		m := genMark.Draw(t, "mark")
		if err := s.Advance([]fencing.ResourceMark{{Resource: r, Mark: m}}); err != nil {
			t.Fatal(err)
		}
		if old, ok := marks[r]; !ok || old.Less(m.Token) {
			marks[r] = m.Token
		}
		prefix := rapid.StringMatching(`[ab]{0,2}/?[ab]?`).Draw(t, "prefix")
		var want fencing.Token
		some := false
		for r, tok := range marks {
			if strings.HasPrefix(string(r), prefix) {
				some = true
				if want.Less(tok) {
					want = tok
				}
			}
		}
		if got, ok, err := s.Beneath(fencing.Resource(prefix)); got != want || ok != some || err != nil {
			t.Fatalf("Beneath(%q) = %v, %v, %v; want %v, %v", prefix, got, ok, err, want, some)
		}
	})
}
