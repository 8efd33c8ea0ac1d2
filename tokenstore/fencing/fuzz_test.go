package fencing_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// fuzzParse checks what holds for every format: no panic; an error is a ParseError with a printable message and no token; a token
// that was accepted prints to a text that gives an equal one.
func fuzzParse(f *testing.F, format fencing.Format, accepted func(t *testing.T, text string, tok fencing.Token), seeds ...string) {
	for _, s := range append(seeds, "", "34", "-1", "+34", "3_4", "0x22", "34,99", "３４", "7.1042", "18446744073709551616", "lock-0000000034") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tok, err := format.Parse(text)
		if err != nil {
			if _, ok := errors.AsType[*fencing.ParseError](err); !ok || tok != (fencing.Token{}) {
				t.Fatalf("got %v, %v; want a ParseError and no token", tok, err)
			}
			if msg := err.Error(); !utf8.ValidString(msg) || strings.ContainsAny(msg, "\x00\r\n") {
				t.Fatalf("the message %q cannot stand in a header or a log line", msg)
			}
			return
		}
		again, err := format.Parse(format.Print(tok))
		if err != nil || again != tok {
			t.Fatalf("%q is %v, prints as %q, which is %v, %v", text, tok, format.Print(tok), again, err)
		}
		accepted(t, text, tok)
	})
}

func onlyOf(t *testing.T, text, set string) {
	t.Helper()
	if strings.Trim(text, set) != "" {
		t.Fatalf("accepted %q; want only characters of %q", text, set)
	}
}

func FuzzParseDecimal(f *testing.F) {
	fuzzParse(f, fencing.Decimal, func(t *testing.T, text string, tok fencing.Token) {
		onlyOf(t, text, "0123456789")
		if want := strings.TrimLeft(text, "0"); want != "" && tok.String() != want || tok.Hi != 0 {
			t.Fatalf("%q is %v", text, tok)
		}
	}, "0000000034", "18446744073709551615")
}

func FuzzParseHex(f *testing.F) {
	fuzzParse(f, fencing.Hex, func(t *testing.T, text string, tok fencing.Token) {
		digits, ok := strings.CutPrefix(text, "0x")
		if !ok || tok.Hi != 0 {
			t.Fatalf("accepted %q as %v", text, tok)
		}
		onlyOf(t, digits, "0123456789abcdefABCDEF")
	}, "0x100000002", "0xffffffffffffffff", "0x", "0x0x1")
}

func FuzzParseZnode(f *testing.F) {
	fuzzParse(f, fencing.Znode, func(t *testing.T, text string, tok fencing.Token) {
		if tok.Hi != 0 || tok.Lo > 1<<31-1 || !strings.HasSuffix(text, fencing.Znode.Print(tok)) {
			t.Fatalf("%q is %v", text, tok)
		}
	}, "/locks/ride/lock-0000000034", "lock--2147483648", "lock-2147483648", "-000000001")
}

func FuzzParsePair(f *testing.F) {
	fuzzParse(f, fencing.Pair, func(t *testing.T, text string, _ fencing.Token) {
		if strings.Count(text, ".")+strings.Count(text, ":") != 1 {
			t.Fatalf("accepted %q", text)
		}
		onlyOf(t, text, "0123456789.:")
	}, "7:1042", "7.", ".7", "7.1.2", "7.1:2")
}
