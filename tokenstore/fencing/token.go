package fencing

import "cmp"

// Token is a fencing token: an unsigned 128-bit number, and the epoch in which it counts. Single numbers live in Lo, with Hi zero; a
// pair such as Raft's term.index has its first part in Hi. The zero Token is the lowest. Tokens are comparable with ==.
//
// Clients know nothing of epochs: a policy says in which one their numbers count, and says a higher one when the lock service was
// rebuilt and begins to count anew.
type Token struct {
	Epoch  uint32
	Hi, Lo uint64
}

// Number returns the token of a single number.
func Number(n uint64) Token { return Token{Lo: n} }

// In returns the same number in another epoch.
func (t Token) In(epoch uint32) Token {
	t.Epoch = epoch
	return t
}

// Next returns the lowest token above t.
func (t Token) Next() Token {
	if t.Lo++; t.Lo == 0 {
		if t.Hi++; t.Hi == 0 {
			t.Epoch++ // nothing counts that far
		}
	}
	return t
}

// Compare returns -1 if t is below u, 0 if they are equal, +1 if t is above u. The epoch comes first: any token of a higher one is
// above all of a lower one. Pairs are compared part by part.
func (t Token) Compare(u Token) int {
	if c := cmp.Compare(t.Epoch, u.Epoch); c != 0 {
		return c
	}
	if c := cmp.Compare(t.Hi, u.Hi); c != 0 {
		return c
	}
	return cmp.Compare(t.Lo, u.Lo)
}

// Less reports whether t is below u.
func (t Token) Less(u Token) bool { return t.Compare(u) < 0 }

// FarBelow reports whether t is so far below a mark in the same epoch that the two hardly come from one counter: by more than a factor of
// 1,000, and the mark is at least 100,000. A lock service that lost its state, or a second source of numbers, looks like this; a paused
// holder does not. Of pairs the first part that differs counts.
func (t Token) FarBelow(mark Token) bool {
	low, high := t.Lo, mark.Lo
	if t.Hi != mark.Hi {
		low, high = t.Hi, mark.Hi
	}
	return high >= 100_000 && low < high/1000 && t.Epoch == mark.Epoch
}

// String prints the number in decimal, or as a pair when Hi is not zero, and its epoch unless that is zero: "34", "34 (epoch 2)". Use
// [Format.Print] to print the number alone, as its client wrote it.
func (t Token) String() string {
	if t.Hi == 0 {
		return Decimal.Describe(t)
	}
	return Pair.Describe(t)
}

// Resource is what a token guards: a key that a policy derives from a request. Two requests that touch the same object in the
// store must give the same Resource. A Resource is valid UTF-8, not empty, without control characters and at most
// [MaxResourceLen] bytes long; see [Resource.Check].
type Resource string

// MaxResourceLen is the length in bytes that a Resource may have. An S3 key is at most 1,024 bytes; this leaves room for a
// bucket, a prefix and escapes.
const MaxResourceLen = 4096
