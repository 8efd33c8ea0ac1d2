package fencing

import (
	"cmp"
	"strconv"
)

// Token is a fencing token: an unsigned 128-bit number. Single numbers live in Lo, with Hi zero; a pair such as Raft's
// term.index has its first part in Hi. The zero Token is the lowest. Tokens are comparable with ==.
type Token struct {
	Hi, Lo uint64
}

// Number returns the token of a single number.
func Number(n uint64) Token { return Token{Lo: n} }

// Compare returns -1 if t is below u, 0 if they are equal, +1 if t is above u. Pairs are compared part by part.
func (t Token) Compare(u Token) int {
	if c := cmp.Compare(t.Hi, u.Hi); c != 0 {
		return c
	}
	return cmp.Compare(t.Lo, u.Lo)
}

// Less reports whether t is below u.
func (t Token) Less(u Token) bool { return t.Compare(u) < 0 }

// String prints the token in the decimal format, or as a pair when Hi is not zero. Use [Format.Print] to print it as its client
// wrote it.
func (t Token) String() string {
	if t.Hi == 0 {
		return strconv.FormatUint(t.Lo, 10)
	}
	return Pair.Print(t)
}

// Resource is what a token guards: a key that a policy derives from a request. Two requests that touch the same object in the
// store must give the same Resource. A Resource is valid UTF-8, not empty, without control characters and at most
// [MaxResourceLen] bytes long; see [Resource.Check].
type Resource string

// MaxResourceLen is the length in bytes that a Resource may have. An S3 key is at most 1,024 bytes; this leaves room for a
// bucket, a prefix and escapes.
const MaxResourceLen = 4096
