package tokenstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func tablesFrom(keys ...string) (tables []badger.TableInfo) {
	for _, k := range keys {
		tables = append(tables, badger.TableInfo{Left: y.KeyWithTs([]byte(k), 7)})
	}
	return tables
}

func TestSpansHoldEachRecordOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tables []badger.TableInfo
	}{
		{"no table", nil},
		{"tables without marks", tablesFrom(keyID, "p/x")},
		{"one table", tablesFrom(keyID)},
		{"the first mark begins a table", tablesFrom("r/", "r/a")},
		{"tables of several levels, out of order and equal", tablesFrom("r/m", keyID, "r/b", "r/m", "r/y", "r/a\xff", "r/c", "r/d", "r/e", "r/f")},
	} {
		for _, n := range []int{1, 2, 3, 8, 100} {
			spans := spansOf(tt.tables, n)
			if marks := len(spans) - 1; marks > n {
				t.Errorf("%s: got %d spans of marks; want at most %d", tt.name, marks, n)
			}
			for _, key := range []string{"p/", "p/x", "r/", "r/a", "r/a\xff", "r/b", "r/bb", "r/m", "r/m\x00", "r/y", "r/z", "r/\xff\xff"} {
				held := 0
				for _, sp := range spans {
					if strings.HasPrefix(key, sp.kind) && key >= sp.from && (sp.to == "" || key < sp.to) {
						held++
					}
				}
				if held != 1 {
					t.Errorf("%s, %d spans: %q is in %d of %+v; want 1", tt.name, n, key, held, spans)
				}
			}
		}
	}
}

// TestVerifyAddsUpManyTables has a store whose marks are in several tables and a log, and overwritten in some of them.
func TestVerifyAddsUpManyTables(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mark := fencing.Mark{By: strings.Repeat("x", maxBy), Policy: strings.Repeat("y", maxPolicy), Reason: strings.Repeat("z", maxReason)}
	for i := range 30 {
		var ms []fencing.ResourceMark
		for j := range MaxAdvance {
			mark.Token = fencing.Number(uint64(i + 1))
			ms = append(ms, fencing.ResourceMark{Resource: fencing.Resource(fmt.Sprint("r", (i*MaxAdvance+j)%20_000)), Mark: mark})
		}
		if err := s.Advance(ms); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.SetMeta("name", "value"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(true); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), dir, Options{MustExist: true}); err != nil {
		t.Fatal(err)
	}
	defer s.Close(true)
	if spans := spansOf(s.db.Tables(), 8); len(spans) < 3 {
		t.Errorf("got %d spans of %d tables; want some: write more marks", len(spans), len(s.db.Tables()))
	}
	for _, cores := range []int{1, 2, 7} {
		if err := s.verify(cores, nil); err != nil {
			t.Errorf("%d cores: %v", cores, err)
		}
	}
}
