package fencing_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

var formats = []fencing.Format{fencing.Decimal, fencing.Hex, fencing.Znode, fencing.Pair}

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		format fencing.Format
		text   string
		want   fencing.Token
	}{
		{fencing.Decimal, "34", fencing.Number(34)},
		{fencing.Decimal, "0", fencing.Number(0)},
		{fencing.Decimal, "034", fencing.Number(34)},
		{fencing.Decimal, "0000000034", fencing.Number(34)},
		{fencing.Decimal, "9007199254740993", fencing.Number(1<<53 + 1)},
		{fencing.Decimal, "18446744073709551615", fencing.Number(math.MaxUint64)},
		{fencing.Decimal, "00000000000000000034", fencing.Number(34)},
		{fencing.Hex, "0x100000002", fencing.Number(0x100000002)},
		{fencing.Hex, "0xFFffFFffFFffFFff", fencing.Number(math.MaxUint64)},
		{fencing.Hex, "0x0", fencing.Number(0)},
		{fencing.Znode, "/locks/ride/lock-0000000034", fencing.Number(34)},
		{fencing.Znode, "_c_7a1ebc9c-1f7a-4b8a-8bb2-0c9d2a3b4c5d-lock-0000000034", fencing.Number(34)},
		{fencing.Znode, "0000000034", fencing.Number(34)},
		{fencing.Znode, "lock-2147483647", fencing.Number(math.MaxInt32)},
		{fencing.Znode, "lock0000000000", fencing.Number(0)},
		{fencing.Znode, "lock-20000000034", fencing.Number(34)}, // a name that ends in a digit itself
		{fencing.Pair, "7.1042", fencing.Token{Hi: 7, Lo: 1042}},
		{fencing.Pair, "7:1042", fencing.Token{Hi: 7, Lo: 1042}},
		{fencing.Pair, "0007:0", fencing.Token{Hi: 7}},
		{fencing.Pair, "18446744073709551615.18446744073709551615", fencing.Token{Hi: math.MaxUint64, Lo: math.MaxUint64}},
	} {
		if got, err := tc.format.Parse(tc.text); err != nil || got != tc.want {
			t.Errorf("%s %q: got %v, %v; want %v", tc.format, tc.text, got, err, tc.want)
		}
	}
}

func TestOpaqueIDs(t *testing.T) {
	for _, text := range []string{"a", "!", "~", "0", "7c9e6679-7425-40de-944b-e07fc1f90ae7", `a"b\c;d=e`, strings.Repeat("x", 256)} {
		if got, err := fencing.Opaque.Parse(text); err != nil || got != (fencing.Token{}) {
			t.Errorf("%q: got %v, %v; want no number and no error", text, got, err)
		}
	}
	for text, says := range map[string]string{
		"": "empty", "secret id": "white space", "secret,id": "comma", "secret\x7f": "visible ASCII", "secret\n": "visible ASCII", "secrét": "visible ASCII",
		strings.Repeat("secret", 50): "longer than 256",
	} {
		_, err := fencing.Opaque.Parse(text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secr") {
			t.Errorf("%.20q: got %v; want an error with %q and without the id", text, err, says)
		}
	}
	if !fencing.Opaque.SameOrder(fencing.Opaque) || fencing.Opaque.SameOrder(fencing.Decimal) || fencing.Pair.SameOrder(fencing.Opaque) {
		t.Error("holds share a mark with numbers")
	}
	if got := fencing.Opaque.Print(fencing.Number(7)); got != "7" {
		t.Errorf("the holder's number prints as %q; want 7", got)
	}
	if err := fencing.Opaque.DefaultLimits().Check(fencing.Opaque, fencing.Token{}, "x"); err != nil {
		t.Errorf("limits of numbers apply to an id: %v", err)
	}
}

func TestNextIsTheLowestTokenAbove(t *testing.T) {
	for _, tc := range [][2]fencing.Token{
		{{}, {Lo: 1}}, {{Epoch: 2, Hi: 3, Lo: 4}, {Epoch: 2, Hi: 3, Lo: 5}}, {{Lo: math.MaxUint64}, {Hi: 1}},
		{{Hi: math.MaxUint64, Lo: math.MaxUint64}, {Epoch: 1}},
	} {
		if got := tc[0].Next(); got != tc[1] || !tc[0].Less(got) {
			t.Errorf("after %v comes %v; want %v", tc[0], got, tc[1])
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct {
		format fencing.Format
		text   string
		says   string
	}{
		{fencing.Decimal, "", "empty"},
		{fencing.Decimal, "+34", "sign"},
		{fencing.Decimal, "-34", "sign"},
		{fencing.Decimal, "-0", "sign"},
		{fencing.Decimal, " 34", "white space"},
		{fencing.Decimal, "34 ", "white space"},
		{fencing.Decimal, "3 4", "white space"},
		{fencing.Decimal, "34\n", "white space"},
		{fencing.Decimal, "34\r\n", "white space"},
		{fencing.Decimal, "\t34", "white space"},
		{fencing.Decimal, "34\u00a0", "white space"},
		{fencing.Decimal, "3_4", "underscore"},
		{fencing.Decimal, "0x22", "hexadecimal"},
		{fencing.Decimal, "0X22", "hexadecimal"},
		{fencing.Decimal, "0b11", "not a digit"},
		{fencing.Decimal, "0o42", "not a digit"},
		{fencing.Decimal, "1e3", "whole number"},
		{fencing.Decimal, "1E3", "whole number"},
		{fencing.Decimal, "34.0", "whole number"},
		{fencing.Decimal, ".5", "whole number"},
		{fencing.Decimal, "３４", "another script"},
		{fencing.Decimal, "٣٤", "another script"},
		{fencing.Decimal, "३४", "another script"},
		{fencing.Decimal, "34abc", "not a digit"},
		{fencing.Decimal, "NaN", "not a digit"},
		{fencing.Decimal, "Infinity", "not a digit"},
		{fencing.Decimal, "34,99", "list"},
		{fencing.Decimal, "34, 99", "list"},
		{fencing.Decimal, ",34", "list"},
		{fencing.Decimal, "34,", "list"},
		{fencing.Decimal, `"34"`, "quotes"},
		{fencing.Decimal, "34\x00", "not a digit"},
		{fencing.Decimal, "3\u200b4", "not a digit"},
		{fencing.Decimal, "\xff34", "not a digit"},
		{fencing.Decimal, "18446744073709551616", "64 bits"},
		{fencing.Decimal, "99999999999999999999", "64 bits"},
		{fencing.Decimal, "000000000000000000034", "20 digits"},
		{fencing.Decimal, strings.Repeat("9", 1<<20), "20 digits"},

		{fencing.Hex, "", "empty"},
		{fencing.Hex, "100000002", "0x"},
		{fencing.Hex, "0X100000002", "0x"},
		{fencing.Hex, "-0x1", "0x"},
		{fencing.Hex, " 0x1", "0x"},
		{fencing.Hex, "0x", "1 to 16"},
		{fencing.Hex, "0x10000000000000000", "1 to 16"},
		{fencing.Hex, "0x00000000000000001", "1 to 16"},
		{fencing.Hex, "0x-1", "hexadecimal digit"},
		{fencing.Hex, "0x+1", "hexadecimal digit"},
		{fencing.Hex, "0x1_0", "hexadecimal digit"},
		{fencing.Hex, "0x0x1", "hexadecimal digit"},
		{fencing.Hex, "0x1g", "hexadecimal digit"},
		{fencing.Hex, "0x1 ", "hexadecimal digit"},
		{fencing.Hex, "0x1,0x2", "hexadecimal digit"},
		{fencing.Hex, "0x３", "hexadecimal digit"},

		{fencing.Znode, "", "empty"},
		{fencing.Znode, "lock-", "10 digits"},
		{fencing.Znode, "lock-34", "10 digits"},
		{fencing.Znode, "lock-000000034", "overflow"}, // 9 digits behind a minus sign
		{fencing.Znode, "lock-000000034x", "10 digits"},
		{fencing.Znode, "lock--2147483648", "overflow"},
		{fencing.Znode, "lock-2147483648", "overflow"},
		{fencing.Znode, "lock--000000001", "overflow"},
		{fencing.Znode, "-2147483648", "overflow"},
		{fencing.Znode, "-000000001", "overflow"},
		{fencing.Znode, "lock2147483648", "above 2147483647"},
		{fencing.Znode, "lock-0000000034 ", "white space"},
		{fencing.Znode, "lock-0000000034,lock-0000000035", "comma"},
		{fencing.Znode, "lock-0000000034\n", "control"},
		{fencing.Znode, "lock-\x000000000034", "control"},
		{fencing.Znode, "\xfflock-0000000034", "control"},
		{fencing.Znode, "lock-００００００００３４", "10 digits"},
		{fencing.Znode, strings.Repeat("x", 2000) + "-0000000034", "1024"},

		{fencing.Pair, "", "empty"},
		{fencing.Pair, "7", "two numbers"},
		{fencing.Pair, "7.", "second part: it is empty"},
		{fencing.Pair, ".7", "first part: it is empty"},
		{fencing.Pair, ".", "first part"},
		{fencing.Pair, "7.1.2", "second part"},
		{fencing.Pair, "7:1:2", "second part"},
		{fencing.Pair, "7.1:2", "second part"},
		{fencing.Pair, "7,1042", "two numbers"},
		{fencing.Pair, "7.1042,7.1043", "second part: it is a list"},
		{fencing.Pair, "-7.1", "first part: it carries a sign"},
		{fencing.Pair, "7.-1", "second part: it carries a sign"},
		{fencing.Pair, "7. 1", "second part: it holds white space"},
		{fencing.Pair, "7.18446744073709551616", "second part: it does not fit"},
		{fencing.Pair, "0x7.1", "first part: it looks hexadecimal"},

		{fencing.Format(0), "34", "not known"},
		{fencing.Format(9), "34", "not known"},
	} {
		got, err := tc.format.Parse(tc.text)
		pe, isParse := errors.AsType[*fencing.ParseError](err)
		if !isParse || got != (fencing.Token{}) {
			t.Errorf("%s %.40q: got %v, %v; want a ParseError and no token", tc.format, tc.text, got, err)
			continue
		}
		if !strings.Contains(pe.Reason, tc.says) || pe.Text != tc.text || pe.Format != tc.format {
			t.Errorf("%s %.40q: got %q; want a reason with %q", tc.format, tc.text, pe.Reason, tc.says)
		}
		if len(err.Error()) > 700 {
			t.Errorf("%s %.40q: the message has %d bytes", tc.format, tc.text, len(err.Error()))
		}
	}
}

func TestPrint(t *testing.T) {
	for _, tc := range []struct {
		format fencing.Format
		token  fencing.Token
		want   string
	}{
		{fencing.Decimal, fencing.Number(34), "34"},
		{fencing.Hex, fencing.Number(0x100000002), "0x100000002"},
		{fencing.Znode, fencing.Number(34), "0000000034"},
		{fencing.Pair, fencing.Token{Hi: 7, Lo: 1042}, "7.1042"},
		{fencing.Pair, fencing.Number(34), "0.34"},
		{fencing.Decimal, fencing.Token{Hi: 7, Lo: 1042}, "7.1042"}, // never a number that it is not
		{fencing.Hex, fencing.Token{Hi: 7, Lo: 1042}, "7.1042"},
		{fencing.Format(0), fencing.Number(34), "34"},
	} {
		if got := tc.format.Print(tc.token); got != tc.want {
			t.Errorf("%s: got %q; want %q", tc.format, got, tc.want)
		}
	}
	if got := fencing.Number(math.MaxUint64).String(); got != "18446744073709551615" {
		t.Errorf("got %s", got)
	}
	if got := (fencing.Token{Hi: 1}).String(); got != "1.0" {
		t.Errorf("got %s; want 1.0", got)
	}
}

func TestFormatNames(t *testing.T) {
	for _, f := range append([]fencing.Format{fencing.Opaque}, formats...) {
		got, err := fencing.ParseFormat(f.String())
		if err != nil || got != f || !f.Valid() {
			t.Errorf("%v: got %v, %v", f, got, err)
		}
	}
	if n := len(fencing.FormatNames()); n != len(formats)+1 { // opaque, which has no numbers
		t.Errorf("got %d names; want %d", n, len(formats)+1)
	}
	for _, name := range []string{"", "Decimal", "hex ", "format(0)"} {
		if f, err := fencing.ParseFormat(name); err == nil || !strings.Contains(err.Error(), "decimal, hex") {
			t.Errorf("%q: got %v, %v; want an error that lists the names", name, f, err)
		}
	}
	if !fencing.Hex.SameOrder(fencing.Decimal) || fencing.Hex.SameOrder(fencing.Pair) || !fencing.Pair.SameOrder(fencing.Pair) {
		t.Error("numbers share an order with numbers, pairs with pairs")
	}
}

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		format fencing.Format
		limits fencing.Limits
		token  fencing.Token
		ok     bool
	}{
		{"highest by default", fencing.Decimal, fencing.Decimal.DefaultLimits(), fencing.Number(math.MaxInt64), true},
		{"above it", fencing.Decimal, fencing.Decimal.DefaultLimits(), fencing.Number(math.MaxInt64 + 1), false},
		{"a zero", fencing.Decimal, fencing.Decimal.DefaultLimits(), fencing.Number(0), false},
		{"a zero that counts", fencing.Decimal, fencing.Limits{Max: 10, AllowZero: true}, fencing.Number(0), true},
		{"the first znode", fencing.Znode, fencing.Znode.DefaultLimits(), fencing.Number(0), true},
		{"the last znode", fencing.Znode, fencing.Znode.DefaultLimits(), fencing.Number(math.MaxInt32), true},
		{"the highest part of a pair", fencing.Pair, fencing.Pair.DefaultLimits(), fencing.Token{Hi: math.MaxInt64, Lo: math.MaxInt64}, true},
		{"a first part above it", fencing.Pair, fencing.Pair.DefaultLimits(), fencing.Token{Hi: math.MaxInt64 + 1}, false},
		{"a second part above it", fencing.Pair, fencing.Pair.DefaultLimits(), fencing.Token{Hi: 1, Lo: math.MaxInt64 + 1}, false},
		{"a pair with one zero", fencing.Pair, fencing.Pair.DefaultLimits(), fencing.Token{Hi: 1}, true},
		{"a pair of zeros", fencing.Pair, fencing.Pair.DefaultLimits(), fencing.Token{}, false},
	} {
		err := tc.limits.Check(tc.format, tc.token, "the text")
		_, isParse := errors.AsType[*fencing.ParseError](err)
		if (err == nil) != tc.ok || isParse == tc.ok {
			t.Errorf("%s: got %v; want ok %v", tc.name, err, tc.ok)
		}
	}
}

func TestPrintAndParseRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := rapid.SampledFrom(formats).Draw(t, "format")
		tok := fencing.Number(rapid.Uint64().Draw(t, "lo"))
		switch f {
		case fencing.Znode:
			tok.Lo &= math.MaxInt32
		case fencing.Pair:
			tok.Hi = rapid.Uint64().Draw(t, "hi")
		}
		text := f.Print(tok)
		got, err := f.Parse(text)
		if err != nil || got != tok {
			t.Fatalf("%s %q: got %v, %v; want %v", f, text, got, err, tok)
		}
	})
}
