package fencing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// TestTokenOfAnotherFormatIsNamed sends each form that lock services and client libraries print to a policy of each format. "ok" is a token
// of the format, or an id that only compare: hold takes.
func TestTokenOfAnotherFormatIsNamed(t *testing.T) {
	all := []fencing.Format{fencing.Decimal, fencing.Hex, fencing.Znode, fencing.Pair, fencing.Opaque}
	const (
		zxid, bare, path, pair = "looks like a ZooKeeper zxid", "looks like a zxid without its 0x", "looks like the path of a znode", "looks like a pair"
		uuid, clock, jws       = "looks like a UUID, which has no order", "looks like a time", "looks like a signed token (JWS)"
		sign, quotes, unset    = "carries a sign", "stands in quotes", "looks like a variable that was never filled in"
		float, upper           = "looks like a floating-point number", "write its prefix as 0x"
	)
	jwt := "eyJhbGciOiJFUzI1NiJ9.eyJ0b2tlbiI6MzR9." + strings.Repeat("c2ln", 80)
	for _, tc := range []struct {
		sent string
		says [5]string // by decimal, hex, znode, pair and opaque policies
	}{
		{"34", [5]string{"ok", "as client libraries print a czxid", "ends in 10 digits, and this is a number alone", "two numbers", "ok"}},
		{"0000000034", [5]string{"ok", "as client libraries print a czxid", "ok", "two numbers", "ok"}},
		{"4294967298", [5]string{"ok", "as client libraries print a czxid", "above 2147483647", "two numbers", "ok"}},
		{"1764467803123", [5]string{"ok", "as client libraries print a czxid", "more than 10 digits is no znode's name", "two numbers", "ok"}},
		{"0x100000002", [5]string{zxid + ", which is hexadecimal: set format: hex, or send a decimal number", "ok", zxid, zxid, "ok"}},
		{"0x1000000002", [5]string{zxid, "ok", zxid, zxid, "ok"}}, // ten digits at its end
		{"0X100000002", [5]string{zxid, upper, zxid, zxid, "ok"}},
		{"100000002a", [5]string{bare, "needs the prefix 0x", bare, bare, "ok"}},
		{"1000000e12", [5]string{bare, "needs the prefix 0x", bare, bare, "ok"}},
		{"/locks/ride/lock-0000000034", [5]string{path + ": set format: znode, or send a decimal number", path, "ok", path, "ok"}},
		{"_c_7a1ebc9c-1f7a-4b8a-8bb2-0c9d2a3b4c5d-lock-0000000034", [5]string{path, path, "ok", path, "ok"}},
		{"/locks/ride", [5]string{path, path, "ends in 10 digits", path, "ok"}},
		{"/locks/ride/lock--2147483648", [5]string{path, path, "overflowed", path, "ok"}},
		{"7.1042", [5]string{pair, pair, pair, "ok", "ok"}},
		{"7:1042", [5]string{pair, pair, pair, "ok", "ok"}},
		{"7.0000001042", [5]string{pair, pair, pair, "ok", "ok"}},
		{"7c9e6679-7425-40de-944b-e07fc1f90ae7", [5]string{uuid, uuid, uuid, uuid, "ok"}},
		{"7c9e6679-7425-40de-944b-440000000012", [5]string{uuid, uuid, uuid, uuid, "ok"}},
		{"urn:uuid:7c9e6679-7425-40de-944b-e07fc1f90ae7", [5]string{uuid, uuid, uuid, uuid, "ok"}},
		{"1764467803.123456", [5]string{clock, clock, clock, "ok", "ok"}}, // two numbers and a dot: a pair cannot tell
		{"2025-11-30T01:56:43Z", [5]string{clock, clock, clock, clock, "ok"}},
		{"2025-11-30", [5]string{clock, clock, clock, clock, "ok"}},
		{"20251130T015643Z", [5]string{clock, clock, clock, clock, "ok"}},
		{"1.7e+18", [5]string{float, float, float, float, "ok"}},
		{"1e3", [5]string{float, float, float, float, "ok"}},
		{"-34", [5]string{sign, sign, "overflowed", sign, "ok"}},
		{"-5", [5]string{sign, sign, "overflowed", sign, "ok"}},
		{"+34", [5]string{sign, sign, sign, sign, "ok"}},
		{`"34"`, [5]string{quotes, quotes, quotes, quotes, "ok"}},
		{`'0x22'`, [5]string{quotes, quotes, quotes, quotes, "ok"}},
		{`W/"34"`, [5]string{quotes, quotes, quotes, quotes, "ok"}},
		{jwt, [5]string{jws, jws, jws, jws, "longer than 256 characters; it " + jws}},
		{"${FENCING_TOKEN}", [5]string{unset, unset, unset, unset, "ok"}},
		{"$FENCING_TOKEN", [5]string{unset, unset, unset, unset, "ok"}},
		{"{{token}}", [5]string{unset, unset, unset, unset, "ok"}},
		{"undefined", [5]string{unset, unset, unset, unset, "ok"}},
		{"null", [5]string{unset, unset, unset, unset, "ok"}},
	} {
		for i, f := range all {
			tok, err := f.Parse(tc.sent)
			switch want := tc.says[i]; {
			case want == "ok" && err != nil:
				t.Errorf("%s %.40q: %v; want it to be taken", f, tc.sent, err)
			case want == "ok":
			case err == nil:
				t.Errorf("%s %.40q: taken as %v; want an error with %q", f, tc.sent, tok, want)
			case !strings.Contains(err.Error(), want):
				t.Errorf("%s %.40q: %v; want it to say %q", f, tc.sent, err, want)
			case strings.HasPrefix(want, "looks like") && f != fencing.Opaque && !strings.Contains(err.Error(), f.String()+" format"):
				t.Errorf("%s %.40q: %v; want it to name the format", f, tc.sent, err)
			}
		}
	}
}

// An error quotes the token in one place, where it is cut and can be hidden; what is said of its form holds nothing of it.
func TestCauseHoldsNothingOfTheToken(t *testing.T) {
	for _, text := range []string{
		"0x5ec4e7a1", "5ec4e7a15ec4", "/5ec4e7a1/lock-0000000034", "54474.54474", "5ec4e7a1-7425-40de-944b-e07fc1f90ae7", `"5ec4e7a1"`, "-54474", "$5ec4e7a1",
		"eyJ5ec4e7a1.5ec4e7a1.5ec4e7a1",
	} {
		for _, f := range formats {
			_, err := f.Parse(text)
			pe, ok := errors.AsType[*fencing.ParseError](err)
			if err == nil {
				continue
			}
			if !ok || strings.Contains(pe.Reason, "5ec4e7a1") || strings.Contains(pe.Reason, "54474") {
				t.Errorf("%s %q: the reason is %q", f, text, pe.Reason)
			}
			if len(pe.Reason) > 240 {
				t.Errorf("%s %q: the reason has %d bytes", f, text, len(pe.Reason))
			}
		}
	}
}

func TestFarBelow(t *testing.T) {
	n := fencing.Number
	for _, tc := range []struct {
		name    string
		t, mark fencing.Token
		want    bool
	}{
		{"rebuilt", n(12), n(48_211_937), true},
		{"one behind", n(33), n(34), false},
		{"a small mark", n(1), n(99_999), false},
		{"at the edge", n(100), n(100_000), false},
		{"beyond the edge", n(99), n(100_000), true},
		{"equal", n(1 << 40), n(1 << 40), false},
		{"above", n(48_211_937), n(12), false},
		{"another epoch", n(12), n(48_211_937).In(1), false},
		{"the same later epoch", n(12).In(1), n(48_211_937).In(1), true},
		{"the next term of a pair", fencing.Token{Hi: 7, Lo: 1_000_000}, fencing.Token{Hi: 8, Lo: 1}, false},
		{"a pair within a term", fencing.Token{Hi: 7, Lo: 1}, fencing.Token{Hi: 7, Lo: 1_000_000}, true},
		{"a pair whose first part is a time", fencing.Token{Hi: 7, Lo: 1}, fencing.Token{Hi: 1_764_467_803, Lo: 1}, true},
	} {
		if got := tc.t.FarBelow(tc.mark); got != tc.want {
			t.Errorf("%s: %v far below %v: got %v; want %v", tc.name, tc.t, tc.mark, got, tc.want)
		}
	}
}
