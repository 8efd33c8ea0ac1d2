package tokenstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestFullStoreTakesNoFirstMark(t *testing.T) {
	dir := t.TempDir()
	s := openStore(t, dir, tokenstore.Options{MaxMarks: 2})
	advance(t, s, one("a", 1)...)
	advance(t, s, one("b", 1)...)
	wantFull := func(ms []fencing.ResourceMark) {
		t.Helper()
		if err := s.Advance(ms); !errors.Is(err, tokenstore.ErrFull) {
			t.Errorf("Advance of %v = %v; want ErrFull", ms, err)
		}
		if err := s.Err(); err != nil {
			t.Fatalf("the store is %v", err)
		}
	}
	wantFull(one("c", 1))
	wantMark(t, s, "c", 0)
	advance(t, s, one("a", 2)...)
	wantMark(t, s, "a", 2)
	// All or none: a mark that could advance alone does not advance beside one that has no room.
	wantFull(append(one("a", 3), one("c", 3)...))
	wantMark(t, s, "a", 2)
	if err := s.SetMeta("note", "not a mark"); err != nil {
		t.Errorf("SetMeta: %v", err)
	}
	if back, err := s.Restore("b", fencing.Number(1), nil); err != nil || !back {
		t.Errorf("Restore = %v, %v", back, err)
	}
	advance(t, s, one("c", 1)...)
	wantFull(one("b", 1))
	if err := s.Set("operator", number(1)); err != nil {
		t.Errorf("Set: %v; operators are not bounded", err)
	}
	closeStore(t, s, true)

	s = openStore(t, dir, tokenstore.Options{MaxMarks: 3})
	if n := s.Marks(); n != 3 {
		t.Errorf("%d marks after a restart; want 3", n)
	}
	wantFull(one("d", 1))
	closeStore(t, s, true)

	s = openStore(t, dir, tokenstore.Options{MaxMarks: 1}) // lowered below what is there
	wantFull(one("d", 1))
	advance(t, s, one("c", 9)...)
	if got := s.Stats(); got.Marks != 3 || got.MaxMarks != 1 {
		t.Errorf("stats %+v; want 3 marks and a bound of 1", got)
	}
}

func TestFullIsExactUnderLoad(t *testing.T) {
	const most, calls = 50, 400
	s := openStore(t, t.TempDir(), tokenstore.Options{MaxMarks: most})
	var wg sync.WaitGroup
	var mu sync.Mutex
	good := map[string]bool{}
	for i := range calls {
		wg.Go(func() {
			r := fmt.Sprintf("r/%d", i)
			switch err := s.Advance(one(fencing.Resource(r), 1)); {
			case err == nil:
				mu.Lock()
				good[r] = true
				mu.Unlock()
			case !errors.Is(err, tokenstore.ErrFull):
				t.Errorf("Advance: %v", err)
			}
		})
	}
	wg.Wait()
	if len(good) != most || s.Marks() != most {
		t.Errorf("%d calls were let in, %d marks are there; want %d", len(good), s.Marks(), most)
	}
	n := 0
	if err := s.Range("r/", func(m fencing.ResourceMark) error {
		if n++; !good[string(m.Resource)] {
			t.Errorf("%s has a mark although its call failed", m.Resource)
		}
		return nil
	}); err != nil || n != most {
		t.Errorf("the store holds %d (%v); want %d", n, err, most)
	}
}

func TestImportIsNotBoundByMaxMarks(t *testing.T) {
	from := openStore(t, t.TempDir(), tokenstore.Options{})
	for _, r := range []fencing.Resource{"a", "b", "c"} {
		advance(t, from, one(r, 1)...)
	}
	var export strings.Builder
	if err := from.Export(&export); err != nil {
		t.Fatal(err)
	}
	to := openStore(t, t.TempDir(), tokenstore.Options{MaxMarks: 1})
	if _, err := to.Import(strings.NewReader(export.String())); err != nil || to.Marks() != 3 {
		t.Errorf("Import: %v, %d marks; want 3", err, to.Marks())
	}
}
