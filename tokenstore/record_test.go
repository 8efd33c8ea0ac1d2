package tokenstore_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestRecordRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := tokenstore.Normalise(fencing.Mark{
			Token:    fencing.Token{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
			Format:   fencing.Format(rapid.Uint8().Draw(t, "format")),
			At:       time.UnixMilli(rapid.Int64().Draw(t, "at")),
			By:       rapid.String().Draw(t, "by"),
			Policy:   rapid.String().Draw(t, "policy"),
			Reason:   string(rapid.SliceOf(rapid.Byte()).Draw(t, "reason")),
			Draining: rapid.Bool().Draw(t, "draining"),
		})
		raw := tokenstore.EncodeMark("r/a", m)
		got, err := tokenstore.DecodeMark("r/a", raw)
		if d := cmp.Diff(m, got); err != nil || d != "" {
			t.Fatalf("%v; (-want +got):\n%s", err, d)
		}
		i := rapid.IntRange(0, len(raw)-1).Draw(t, "flip")
		raw[i] ^= byte(rapid.IntRange(1, 255).Draw(t, "by what"))
		if _, err := tokenstore.DecodeMark("r/a", raw); !errors.Is(err, tokenstore.ErrDamaged) {
			t.Fatalf("byte %d was altered: got %v; want ErrDamaged", i, err)
		}
	})
}

func TestLongTextsAreCutAtARune(t *testing.T) {
	long := strings.Repeat("x", 127) + "ü" + strings.Repeat("y", 600)
	got := tokenstore.Normalise(fencing.Mark{By: long, Policy: long, Reason: long})
	if want := strings.Repeat("x", 127); got.By != want || got.Policy != want {
		t.Errorf("got %q and %q; want %q", got.By, got.Policy, want)
	}
	if len(got.Reason) != 512 || !strings.HasPrefix(long, got.Reason) {
		t.Errorf("got a reason of %d bytes; want 512", len(got.Reason))
	}
	if n := len(tokenstore.EncodeMark("r/a", got)); n >= 1024 {
		t.Errorf("the record has %d bytes and would leave the tables", n)
	}
}

func TestUnknownRecordsAreRefused(t *testing.T) {
	const key = "r/a"
	for name, change := range map[string]func(b []byte) []byte{
		"version":       func(b []byte) []byte { b[0] = 2; return b },
		"flag":          func(b []byte) []byte { b[2] |= 2; return b },
		"reserved":      func(b []byte) []byte { b[3] = 1; return b },
		"epoch":         func(b []byte) []byte { b[7] = 1; return b },
		"time":          func(b []byte) []byte { b[24] = 0xFF; return b },
		"longer":        func(b []byte) []byte { return append(b, 0) },
		"shorter":       func(b []byte) []byte { return b[:len(b)-1] },
		"text too long": func(b []byte) []byte { binary.BigEndian.PutUint16(b[32:], 9999); return b },
		"fixed part":    func(b []byte) []byte { return b[:20] },
		"one byte":      func(b []byte) []byte { return b[:1] },
	} {
		raw := tokenstore.EncodeMark(key, number(34))
		raw = tokenstore.Seal(key, change(raw[:len(raw)-4]))
		if m, err := tokenstore.DecodeMark(key, raw); !errors.Is(err, tokenstore.ErrDamaged) {
			t.Errorf("%s: got %+v, %v; want ErrDamaged", name, m, err)
		}
	}
	if _, err := tokenstore.DecodeMark("r/b", tokenstore.EncodeMark(key, number(34))); !errors.Is(err, tokenstore.ErrDamaged) {
		t.Errorf("the record of another resource: got %v; want ErrDamaged", err)
	}
}

func FuzzDecodeMark(f *testing.F) {
	f.Add(tokenstore.EncodeMark("r/a", number(34)), false)
	f.Add([]byte{1}, true)
	f.Fuzz(func(t *testing.T, raw []byte, seal bool) {
		if seal {
			raw = tokenstore.Seal("r/a", raw)
		}
		m, err := tokenstore.DecodeMark("r/a", raw)
		if err != nil {
			if !errors.Is(err, tokenstore.ErrDamaged) {
				t.Errorf("got %v; want ErrDamaged", err)
			}
			return
		}
		if m.Format != fencing.Format(raw[1]) || m.Token.Lo != binary.BigEndian.Uint64(raw[16:]) {
			t.Errorf("got %+v from % x", m, raw)
		}
	})
}
