package fencing_test

import (
	"errors"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

var genToken = rapid.Custom(func(t *rapid.T) fencing.Token {
	part := rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3))
	epoch := rapid.OneOf(rapid.Uint32(), rapid.Uint32Range(0, 2))
	return fencing.Token{Epoch: epoch.Draw(t, "epoch"), Hi: part.Draw(t, "hi"), Lo: part.Draw(t, "lo")}
})

func value(t fencing.Token) *big.Int {
	n := new(big.Int).SetUint64(uint64(t.Epoch))
	n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(t.Hi))
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(t.Lo))
}

func TestEpochIsShownToPeopleAndNotToClients(t *testing.T) {
	for _, tc := range []struct {
		format           fencing.Format
		token            fencing.Token
		print, describe  string
		sameWithoutEpoch string
	}{
		{fencing.Decimal, fencing.Number(34), "34", "34", "34"},
		{fencing.Decimal, fencing.Number(34).In(2), "34", "34 (epoch 2)", "34"},
		{fencing.Hex, fencing.Number(34).In(65535), "0x22", "0x22 (epoch 65535)", "34"},
		{fencing.Znode, fencing.Number(34).In(1), "0000000034", "0000000034 (epoch 1)", "34"},
		{fencing.Pair, fencing.Token{Hi: 7, Lo: 3}.In(2), "7.3", "7.3 (epoch 2)", "7.3"},
		{fencing.Pair, fencing.Token{Hi: 1 << 63, Lo: 3}.In(2), "9223372036854775808.3", "9223372036854775808.3 (epoch 2)", "9223372036854775808.3"},
	} {
		if got := tc.format.Print(tc.token); got != tc.print {
			t.Errorf("%v prints as %q; want %q", tc.token, got, tc.print)
		}
		if got := tc.format.Describe(tc.token); got != tc.describe {
			t.Errorf("%v is described as %q; want %q", tc.token, got, tc.describe)
		}
		if got := tc.token.In(0).String(); got != tc.sameWithoutEpoch {
			t.Errorf("%v without its epoch is %q; want %q", tc.token, got, tc.sameWithoutEpoch)
		}
	}
	if got, want := fencing.Number(34).In(2).String(), "34 (epoch 2)"; got != want {
		t.Errorf("String %q; want %q", got, want)
	}
}

func TestLimitsAreThoseOfTheNumberWhateverItsEpoch(t *testing.T) {
	l := fencing.Decimal.DefaultLimits()
	if err := l.Check(fencing.Decimal, fencing.Number(0).In(3), "0"); err == nil {
		t.Error("a zero of epoch 3 passes; want it refused like any zero")
	}
	if err := l.Check(fencing.Decimal, fencing.Number(1).In(3), "1"); err != nil {
		t.Error(err)
	}
}

func TestCompareOrdersAsNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := genToken.Draw(t, "a"), genToken.Draw(t, "b"), genToken.Draw(t, "c")
		if got, want := a.Compare(b), value(a).Cmp(value(b)); got != want {
			t.Fatalf("%v to %v: got %d; want %d", a, b, got, want)
		}
		if a.Compare(b) != -b.Compare(a) || (a.Compare(b) == 0) != (a == b) || a.Less(b) != (a.Compare(b) < 0) {
			t.Fatalf("%v and %v: not a total order", a, b)
		}
		if a.Less(b) && b.Less(c) && !a.Less(c) {
			t.Fatalf("%v, %v, %v: not transitive", a, b, c)
		}
		if (fencing.Token{}).Compare(a) > 0 {
			t.Fatalf("%v is below the zero token", a)
		}
	})
}

func TestTokensAreComparedAsNumbersNotAsText(t *testing.T) {
	for _, pair := range [][2]string{{"9", "10"}, {"0000000034", "35"}, {"99", "100"}} {
		a, _ := fencing.Decimal.Parse(pair[0])
		b, _ := fencing.Decimal.Parse(pair[1])
		if !a.Less(b) {
			t.Errorf("%s is not below %s", pair[0], pair[1])
		}
	}
}

func TestResourceCheck(t *testing.T) {
	for _, r := range []fencing.Resource{"a", "rides/7", "ü", " ", `a\b`, fencing.Resource(strings.Repeat("x", fencing.MaxResourceLen))} {
		if err := r.Check(); err != nil {
			t.Errorf("%.20q: got %v", r, err)
		}
	}
	for r, says := range map[fencing.Resource]string{
		"":         "empty",
		"\xff":     "UTF-8",
		"a\x00b":   "control",
		"a\nb":     "control",
		"a\u0085b": "control",
		"a\x7f":    "control",
		fencing.Resource(strings.Repeat("x", fencing.MaxResourceLen+1)): "4097 bytes",
	} {
		if err := r.Check(); !errors.Is(err, fencing.ErrResource) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: got %v; want ErrResource with %q", r, err, says)
		}
	}
}
