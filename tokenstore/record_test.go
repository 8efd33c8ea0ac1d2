package tokenstore_test

import (
	"bytes"
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
			Token:    fencing.Token{Epoch: rapid.Uint32().Draw(t, "epoch"), Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
			Format:   fencing.Format(rapid.Uint8().Draw(t, "format")),
			At:       time.UnixMilli(rapid.Int64().Draw(t, "at")),
			By:       rapid.String().Draw(t, "by"),
			Policy:   rapid.String().Draw(t, "policy"),
			Reason:   string(rapid.SliceOf(rapid.Byte()).Draw(t, "reason")),
			Draining: rapid.Bool().Draw(t, "draining"),
			Holder:   rapid.StringMatching(`([!-~]{1,256})?`).Draw(t, "holder"),
			TTL:      time.Duration(rapid.Int64Min(0).Draw(t, "ttl")),
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

// An epoch stands where programs before it wanted zeros, so that they refuse a mark that has one instead of misreading it, and marks
// without one are the same bytes as ever.
func TestRecordKeepsTheEpochWhereItWasReserved(t *testing.T) {
	m := number(34)
	plain := tokenstore.EncodeMark("r/a", m)
	m.Token = m.Token.In(0x01020304)
	raw := tokenstore.EncodeMark("r/a", m)
	if len(raw) != len(plain) {
		t.Fatalf("got %d bytes; want %d", len(raw), len(plain))
	}
	for i := range raw[:len(raw)-4] { // the rest is the checksum
		want := plain[i]
		if i >= 4 && i < 8 {
			if want != 0 {
				t.Errorf("byte %d of a mark without an epoch is %d; want 0", i, want)
			}
			want = byte(i - 3)
		}
		if raw[i] != want {
			t.Errorf("byte %d is %d; want %d", i, raw[i], want)
		}
	}
}

// What releases before there were holds wrote is read as it was, and what this one writes without a hold is the same.
func TestRecordsOfEarlierReleasesAreRead(t *testing.T) {
	old := []byte{
		1, 1, 1, 0, 0, 0, 0, 0, // version, decimal, draining
		0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 34,
		0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0x7b, // 2023-11-14T22:13:20.123Z
		0, 1, 'b', 0, 1, 'p', 0, 1, 'r',
	}
	want := fencing.Mark{
		Token: fencing.Number(34), Format: fencing.Decimal, At: time.UnixMilli(1_700_000_000_123).UTC(), By: "b", Policy: "p", Reason: "r", Draining: true,
	}
	raw := tokenstore.Seal("r/a", old)
	got, err := tokenstore.DecodeMark("r/a", raw)
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("%v; (-want +got):\n%s", err, d)
	}
	if now := tokenstore.EncodeMark("r/a", want); !bytes.Equal(now, raw) {
		t.Errorf("got % x; want the same bytes, % x", now, raw)
	}
}

func TestLongestHoldStaysInTheTables(t *testing.T) {
	long := strings.Repeat("x", 600)
	m := tokenstore.Normalise(fencing.Mark{By: long, Policy: long, Reason: long, Holder: long[:fencing.MaxOpaqueLen], TTL: time.Hour})
	if n := len(tokenstore.EncodeMark("r/a", m)); n >= 1024 || m.Holder != long[:256] || m.TTL != time.Hour {
		t.Errorf("the record has %d bytes, the holder %d; want less than 1024 with the whole id", n, len(m.Holder))
	}
	if m := tokenstore.Normalise(fencing.Mark{TTL: time.Hour}); m.TTL != 0 {
		t.Errorf("a mark without a holder keeps a ttl of %v", m.TTL)
	}
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
		"flag":          func(b []byte) []byte { b[2] |= 4; return b },
		"hold, nothing": func(b []byte) []byte { b[2] |= 2; return b },
		"hold, no id":   func(b []byte) []byte { b[2] |= 2; return append(b, make([]byte, 10)...) },
		"hold, cut":     func(b []byte) []byte { b[2] |= 2; return append(b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 'A') },
		"hold, no flag": func(b []byte) []byte { return append(b, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'A') },
		"hold, ttl":     func(b []byte) []byte { b[2] |= 2; return append(b, 0x80, 0, 0, 0, 0, 0, 0, 1, 0, 1, 'A') },
		"reserved":      func(b []byte) []byte { b[3] = 1; return b },
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
