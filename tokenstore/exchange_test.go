package tokenstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func all(t testing.TB, s *tokenstore.Store) map[fencing.Resource]fencing.Mark {
	t.Helper()
	got := map[fencing.Resource]fencing.Mark{}
	if err := s.Range("", func(m fencing.ResourceMark) error { got[m.Resource] = m.Mark; return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func export(t testing.TB, s *tokenstore.Store) string {
	t.Helper()
	var b bytes.Buffer
	if err := s.Export(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func exampleMarks() []fencing.ResourceMark {
	return []fencing.ResourceMark{
		{Resource: "a", Mark: fencing.Mark{Token: fencing.Number(1<<64 - 1), Format: fencing.Decimal}},
		{Resource: `b/<&>"\ü` + "\u2028", Mark: fencing.Mark{
			Token: fencing.Token{Hi: 7, Lo: 1042}, Format: fencing.Pair, At: time.UnixMilli(1_700_000_000_123).UTC(),
			By: "192.0.2.7:1", Policy: "rides", Reason: "a \"reason\"\n", Draining: true,
		}},
		{Resource: "c", Mark: fencing.Mark{Token: fencing.Token{Epoch: 2, Hi: 1 << 63, Lo: 5}, Format: fencing.Pair}},
		{Resource: "d", Mark: fencing.Mark{Token: fencing.Number(0x100000002), Format: fencing.Hex}},
		{Resource: "e", Mark: fencing.Mark{Token: fencing.Number(34), Format: fencing.Znode}},
		{Resource: "f", Mark: fencing.Mark{Token: fencing.Number(0)}},
	}
}

func TestExportAndImportRoundTrip(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, exampleMarks()...)
	text := export(t, s)
	to := openStore(t, t.TempDir(), tokenstore.Options{})
	res, err := to.Import(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if res.Marks != 6 || res.Raised != 6 || res.Kept != 0 || res.Seq != s.Stats().Seq || res.Store == "" {
		t.Errorf("got %+v", res)
	}
	if d := cmp.Diff(all(t, s), all(t, to)); d != "" {
		t.Errorf("marks (-want +got):\n%s", d)
	}
	if lines := strings.Count(text, "\n"); lines != 7 {
		t.Errorf("got %d lines; want 7:\n%s", lines, text)
	}
	if res, err = to.Import(strings.NewReader(text)); err != nil || res.Raised != 0 || res.Kept != 6 {
		t.Errorf("again: got %+v, %v", res, err)
	}
}

func TestExportAndImportOfHolds(t *testing.T) {
	from, to := openStore(t, t.TempDir(), tokenstore.Options{}), openStore(t, t.TempDir(), tokenstore.Options{})
	m := fencing.Mark{Token: fencing.Number(3), Format: fencing.Opaque, Holder: "secret", TTL: 90 * time.Second}
	free, forever := m, m
	free.Holder, free.TTL, forever.TTL = "", 0, 0
	advance(t, from, fencing.ResourceMark{Resource: "a", Mark: free})
	var b bytes.Buffer
	if err := from.ExportWithoutHolders(&b); err != nil || !strings.Contains(b.String(), "trailer") {
		t.Errorf("without holders = %v, %s; want a whole export", err, &b)
	}
	advance(t, from, fencing.ResourceMark{Resource: "b", Mark: m}, fencing.ResourceMark{Resource: "c", Mark: forever})
	b.Reset()
	if err := from.ExportWithoutHolders(&b); !errors.Is(err, tokenstore.ErrHolders) || strings.Contains(b.String(), "secret") {
		t.Errorf("without holders = %v, %s; want ErrHolders and no id", err, &b)
	}
	if _, err := to.Import(strings.NewReader(export(t, from))); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(all(t, from), all(t, to)); d != "" {
		t.Errorf("marks (-want +got):\n%s", d)
	}
	for _, bad := range []string{`"holder":"a b"`, `"holder":"a","ttl":"soon"`, `"holder":"a","ttl":"-1s"`, `"ttl":"1s"`} {
		line := `{"resource":"x","token":"3",` + bad + "}\n"
		if _, err := to.Import(strings.NewReader(line)); !errors.Is(err, tokenstore.ErrImport) || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: got %v; want ErrImport of line 1", bad, err)
		}
	}
}

func TestReleaseByHandLeavesALine(t *testing.T) {
	var logs bytes.Buffer
	s := openStore(t, t.TempDir(), tokenstore.Options{Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	m := fencing.Mark{Token: fencing.Number(3), Format: fencing.Opaque, Holder: "secret"}
	advance(t, s, fencing.ResourceMark{Resource: "a", Mark: m})
	m.Holder, m.By, m.Reason = "", "ann", "gone"
	if err := s.Set("a", m); err != nil {
		t.Fatal(err)
	}
	if text := logs.String(); strings.Count(text, "hold released by an operator") != 1 || strings.Contains(text, "secret") || strings.Contains(text, "lowered") {
		t.Errorf("the log is %q; want one line about the release, without the id", text)
	}
}

func TestImportComparesEpochsFirst(t *testing.T) {
	from := openStore(t, t.TempDir(), tokenstore.Options{})
	to := openStore(t, t.TempDir(), tokenstore.Options{})
	at := func(r fencing.Resource, epoch uint32, n uint64) fencing.ResourceMark {
		return fencing.ResourceMark{Resource: r, Mark: fencing.Mark{Token: fencing.Number(n).In(epoch), Format: fencing.Decimal}}
	}
	advance(t, from, at("a", 1, 3), at("b", 0, 900))
	advance(t, to, at("a", 0, 900), at("b", 1, 3))
	if res, err := to.Import(strings.NewReader(export(t, from))); err != nil || res.Raised != 1 || res.Kept != 1 {
		t.Errorf("got %+v, %v; want one raised and one kept", res, err)
	}
	for r, m := range all(t, to) {
		if m.Token != fencing.Number(3).In(1) {
			t.Errorf("%s: mark %v; want 3 of epoch 1", r, m.Token)
		}
	}
}

func TestImportKeepsTheHigherMark(t *testing.T) {
	from := openStore(t, t.TempDir(), tokenstore.Options{})
	var want = map[fencing.Resource]uint64{}
	const marks = 6000 // more than a chunk
	var ms []fencing.ResourceMark
	for i := range marks {
		r := fencing.Resource(fmt.Sprintf("r/%04d", i))
		ms = append(ms, one(r, 40)...)
		want[r] = 40
	}
	for part := range slices.Chunk(ms, tokenstore.MaxAdvance) {
		advance(t, from, part...)
	}
	to := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, to, one("r/0000", 41)[0], one("r/0001", 39)[0], one("r/0002", 40)[0], one("own", 7)[0])
	want["r/0000"], want["own"] = 41, 7
	res, err := to.Import(strings.NewReader(export(t, from)))
	if err != nil || res.Marks != marks || res.Raised != marks-2 || res.Kept != 2 {
		t.Errorf("got %+v, %v", res, err)
	}
	got := all(t, to)
	for r, n := range want {
		if got[r].Token != fencing.Number(n) {
			t.Errorf("mark of %q: got %v; want %d", r, got[r].Token, n)
		}
	}
}

func TestImportRefusesWhatIsNotAWholeExport(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, exampleMarks()...)
	text := export(t, s)
	lines := strings.SplitAfter(text, "\n")
	to := openStore(t, t.TempDir(), tokenstore.Options{})
	before := to.Stats().Seq
	for _, tc := range []struct{ name, text, says string }{
		{"empty", "", "line 1: the export ends here"},
		{"without the last line", strings.Join(lines[:6], ""), "line 7: the export ends here"},
		{"cut in a line", text[:len(lines[0])+10], "line 2: the export ends here"},
		{"cut by the last newline", strings.TrimSuffix(text, "\n"), "line 7: the export ends here"},
		{"a line is missing", strings.Join(lines[1:], ""), "line 6: it speaks of 6 marks and there are 5"},
		{"a line is doubled", lines[0] + text, "line 8: it speaks of 6 marks and there are 7"},
		{"a token was altered", strings.Replace(text, `"34"`, `"33"`, 1), "line 7: the checksum is wrong"},
		{"two lines changed places", lines[1] + lines[0] + strings.Join(lines[2:], ""), "line 7: the checksum is wrong"},
		{"something follows", text + lines[0], "line 8: there is something after the last line"},
		{"a token that is none", strings.Replace(text, `"34"`, `"-34"`, 1), "line 5: "},
		{"a resource that is none", strings.Replace(text, `"resource":"e"`, `"resource":""`, 1), "line 5: "},
		{"an unknown key", strings.Replace(text, `"resource":"e"`, `"resource":"e","ttl":1`, 1), "line 5: it is not a mark"},
		{"two values in a line", strings.Replace(text, lines[4], strings.TrimSpace(lines[4])+strings.TrimSpace(lines[4])+"\n", 1), "line 5: it is not a mark"},
		{"a newer version", strings.Replace(text, `{"trailer":1`, `{"trailer":2`, 1), "version 2"},
		{"another file", "resource,token\na,34\n", "line 1: it is not a mark"},
		{"a very long line", strings.Repeat("x", 1<<20), "line 1: it is longer than"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := to.Import(strings.NewReader(tc.text))
			if !errors.Is(err, tokenstore.ErrImport) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v; want ErrImport with %q", err, tc.says)
			}
			if got := to.Stats(); got.Marks != 0 || got.Seq != before {
				t.Errorf("something was changed: %+v", got)
			}
		})
	}
}

func TestImportRefusesToFillTheVolume(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("a", 1)...)
	text := export(t, s)
	var o tokenstore.Options
	free := uint64(40 << 20)
	o.SetFreeSpace(func() (uint64, error) { return free, nil })
	if _, err := openStore(t, t.TempDir(), o).Import(strings.NewReader(text)); err == nil {
		t.Error("import went on without room")
	}
}

// TestImportIsDurableWhenItReturns has three chunks, each of which is read while the one before it is committed.
func TestImportIsDurableWhenItReturns(t *testing.T) {
	export, err := exportOf(11_000)
	if err != nil {
		t.Fatal(err)
	}
	var o tokenstore.Options
	commits := 0
	o.SetBeforeCommit(func() error { commits++; return nil }) // called by the writer, whose calls Import waits for
	s := openStore(t, t.TempDir(), o)
	res, err := s.Import(export)
	if err != nil || res.Marks != 11_000 || res.Raised != 11_000 {
		t.Fatalf("got %+v, %v; want 11,000 marks raised", res, err)
	}
	if got := s.Stats().Marks; got != 11_000 || commits != 3 {
		t.Errorf("got %d durable marks in %d commits; want 11,000 in 3", got, commits)
	}
}

func TestImportEndsWithTheFirstChunkThatFails(t *testing.T) {
	export, err := exportOf(16_000)
	if err != nil {
		t.Fatal(err)
	}
	var o tokenstore.Options
	commits := 0
	o.SetBeforeCommit(func() error {
		if commits++; commits == 2 {
			return errors.New("disk is gone")
		}
		return nil
	})
	s := openStore(t, t.TempDir(), o)
	res, err := s.Import(export)
	if !errors.Is(err, tokenstore.ErrFailed) || res.Raised != 5000 || commits != 2 {
		t.Errorf("got %+v, %v after %d commits; want ErrFailed after the second, and the marks of the first", res, err, commits)
	}
}
