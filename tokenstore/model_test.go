package tokenstore_test

import (
	"bytes"
	"context"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// model is the store as a plain map, and the actions of the state machine.
type model struct {
	dir     string
	s       *tokenstore.Store
	marks   map[fencing.Resource]fencing.Mark
	saved   []byte // an export
	savedAs map[fencing.Resource]fencing.Mark
}

var (
	genResource = rapid.SampledFrom([]fencing.Resource{"a", "a/b", "b", "ü", "zzz"})
	genMark     = rapid.Custom(func(t *rapid.T) fencing.Mark {
		return fencing.Mark{
			Token:    fencing.Token{Hi: rapid.Uint64Range(0, 1).Draw(t, "hi"), Lo: rapid.Uint64Range(0, 8).Draw(t, "lo")},
			Format:   fencing.Pair,
			By:       rapid.SampledFrom([]string{"", "client"}).Draw(t, "by"),
			Draining: rapid.Bool().Draw(t, "draining"),
		}
	})
	genMarks = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fencing.ResourceMark {
		return fencing.ResourceMark{Resource: genResource.Draw(t, "resource"), Mark: genMark.Draw(t, "mark")}
	}), 0, 4)
)

func (m *model) raise(r fencing.Resource, mark fencing.Mark) {
	cur, ok := m.marks[r]
	switch {
	case !ok || cur.Token.Less(mark.Token):
		m.marks[r] = mark
	case cur.Token == mark.Token && mark.Draining:
		cur.Draining = true
		m.marks[r] = cur
	}
}

func (m *model) Advance(t *rapid.T) {
	ms := genMarks.Draw(t, "marks")
	if err := m.s.Advance(ms); err != nil {
		t.Fatal(err)
	}
	for _, rm := range ms {
		m.raise(rm.Resource, rm.Mark)
	}
}

func (m *model) Set(t *rapid.T) {
	r, mark := genResource.Draw(t, "resource"), genMark.Draw(t, "mark")
	if err := m.s.Set(r, mark); err != nil {
		t.Fatal(err)
	}
	mark.Draining = mark.Draining || m.s.UncleanStop()
	m.marks[r] = mark
}

func (m *model) Restore(t *rapid.T) {
	r := genResource.Draw(t, "resource")
	to := rapid.Ptr(genMark, true).Draw(t, "to")
	cur, had := m.marks[r]
	from := cur.Token
	if rapid.Bool().Draw(t, "another token") {
		from = genMark.Draw(t, "from").Token
	}
	got, err := m.s.Restore(r, from, to)
	want := had && cur.Token == from
	if err != nil || got != want {
		t.Fatalf("restore: got %v, %v; want %v", got, err, want)
	}
	switch {
	case want && to == nil:
		delete(m.marks, r)
	case want:
		m.marks[r] = *to
	}
}

func (m *model) Load(t *rapid.T) {
	r := genResource.Draw(t, "resource")
	got, ok, err := m.s.Load(r)
	want, wantOK := m.marks[r]
	if d := cmp.Diff(want, got); err != nil || ok != wantOK || d != "" {
		t.Fatalf("load: %v, %v; want %v (-want +got):\n%s", err, ok, wantOK, d)
	}
}

func (m *model) Reopen(t *rapid.T) {
	clean, used := rapid.Bool().Draw(t, "clean"), m.s.Stats().Seq > 1
	if err := m.s.Close(clean); err != nil {
		t.Fatal(err)
	}
	m.open(t)
	if got, want := m.s.UncleanStop(), used && !clean; got != want {
		t.Fatalf("unclean stop: got %v; want %v", got, want)
	}
}

func (m *model) Export(t *rapid.T) {
	var b bytes.Buffer
	if err := m.s.Export(&b); err != nil {
		t.Fatal(err)
	}
	m.saved, m.savedAs = b.Bytes(), map[fencing.Resource]fencing.Mark{}
	for r, mark := range m.marks {
		m.savedAs[r] = mark
	}
}

func (m *model) Import(t *rapid.T) {
	if m.saved == nil {
		t.Skip("nothing exported yet")
	}
	if _, err := m.s.Import(bytes.NewReader(m.saved)); err != nil {
		t.Fatal(err)
	}
	for r, mark := range m.savedAs {
		mark.Draining = mark.Draining || m.s.UncleanStop()
		m.raise(r, mark)
	}
}

// Check compares everything after each action.
func (m *model) Check(t *rapid.T) {
	got := map[fencing.Resource]fencing.Mark{}
	if err := m.s.Range("", func(rm fencing.ResourceMark) error { got[rm.Resource] = rm.Mark; return nil }); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(m.marks, got); d != "" {
		t.Fatalf("marks (-want +got):\n%s", d)
	}
	if n := m.s.Stats().Marks; n != uint64(len(m.marks)) {
		t.Fatalf("stats: got %d marks; want %d", n, len(m.marks))
	}
	if err := m.s.Verify(); err != nil {
		t.Fatal(err)
	}
}

func (m *model) open(t *rapid.T) {
	var o tokenstore.Options
	o.SetCacheGeneration(600) // two resources, so that look-ups miss
	s, err := tokenstore.Open(context.Background(), m.dir, o)
	if err != nil {
		t.Fatal(err)
	}
	m.s = s
}

func TestStoreBehavesLikeAMap(t *testing.T) {
	parent := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp(parent, "store")
		if err != nil {
			t.Fatal(err)
		}
		m := &model{dir: dir, marks: map[fencing.Resource]fencing.Mark{}}
		m.open(t)
		defer func() { _ = m.s.Close(true) }()
		t.Repeat(map[string]func(*rapid.T){
			"": m.Check, "advance": m.Advance, "set": m.Set, "restore": m.Restore, "load": m.Load,
			"reopen": m.Reopen, "export": m.Export, "import": m.Import,
		})
	})
}
