package fencing

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Format is the textual form of a token. A policy names one; two forms are never mixed, since the same digits mean different
// numbers in each. The numeric values are written to disk by tokenstore and never change.
type Format uint8

const (
	// Decimal is 1 to 20 ASCII digits; leading zeros are fine: "34", "0000000034". The source of an etcd revision, a Raft
	// term, a Postgres sequence, a Redis INCR, a Consul LockIndex.
	Decimal Format = 1
	// Hex is "0x" and 1 to 16 hexadecimal digits: "0x100000002". The form in which ZooKeeper prints a zxid. The prefix is
	// required, since a bare "100000022" could be either base.
	Hex Format = 2
	// Znode is the name of a sequential znode, of which the last 10 digits count: "/locks/ride/lock-0000000034". The counter
	// is a signed 32-bit number (ZOOKEEPER-2944), so a negative suffix means that it overflowed.
	Znode Format = 3
	// Pair is two decimal numbers of 64 bits each, joined by a dot or a colon and compared part by part: "7.1042". The source
	// of a Raft term and index, or an epoch and a sequence.
	Pair Format = 4
	// Opaque is an id without an order, 1 to 256 visible ASCII characters without a comma: a hold's id, a lock's GUID. It only says who
	// speaks: whoever holds the resource has a number that grows from holder to holder, and that is the [Token].
	Opaque Format = 5
)

// MaxOpaqueLen is the length in bytes that an opaque id may have.
const MaxOpaqueLen = 256

// DefaultMax is the highest number that a token may carry unless a policy says otherwise: 2^63-1. No lock service reaches it, and
// a client that sends 2^64-1 by accident would lock every other one out. For Znode it is 2^31-1, where its counter overflows.
func (f Format) DefaultMax() uint64 {
	if f == Znode {
		return math.MaxInt32
	}
	return math.MaxInt64
}

var formatNames = [...]string{Decimal: "decimal", Hex: "hex", Znode: "znode", Pair: "pair", Opaque: "opaque"}

// FormatNames lists the names that [ParseFormat] knows, in the order of the reference.
func FormatNames() []string { return append([]string(nil), formatNames[1:]...) }

// ParseFormat returns the format with the given name.
func ParseFormat(name string) (Format, error) {
	for f, n := range formatNames {
		if n == name && n != "" {
			return Format(f), nil
		}
	}
	return 0, fmt.Errorf("token format %q is not known: use one of %s", name, strings.Join(FormatNames(), ", "))
}

// Valid reports whether f is one of the formats above.
func (f Format) Valid() bool { return f >= Decimal && f <= Opaque }

// String returns the name that a policy uses for the format.
func (f Format) String() string {
	if !f.Valid() {
		return "format(" + strconv.Itoa(int(f)) + ")"
	}
	return formatNames[f]
}

// SameOrder reports whether tokens of f and g may guard one resource: single numbers with single numbers, pairs with pairs, holds with
// holds.
func (f Format) SameOrder(g Format) bool {
	return (f == Pair) == (g == Pair) && (f == Opaque) == (g == Opaque)
}

// Parse reads text as a token of format f. The error is a [*ParseError]. It accepts every number that the format can hold;
// limits of a policy (its max, and whether 0 counts) are checked by [Limits.Check]. An opaque id gives the zero token, and an error
// about it does not quote it: who knows a hold's id can write.
func (f Format) Parse(text string) (Token, error) {
	bad := func(reason string) (Token, error) {
		if cause := f.cause(text); cause != "" && reason != znodeOverflow {
			reason = cause
		}
		return Token{}, &ParseError{Text: text, Format: f, Reason: reason}
	}
	if text == "" {
		return bad("it is empty")
	}
	switch f {
	case Opaque:
		if reason := checkOpaque(text); reason != "" {
			if formOf(text) == jws {
				reason += "; it looks like a signed token (JWS): send the id in it"
			}
			return Token{}, &ParseError{Text: "(not shown)", Format: f, Reason: reason}
		}
		return Token{}, nil
	case Decimal:
		n, reason := parseDigits(text)
		if reason != "" {
			return bad(reason)
		}
		return Number(n), nil
	case Hex:
		digits, ok := strings.CutPrefix(text, "0x")
		switch {
		case !ok:
			return bad("the hex format needs the prefix 0x")
		case digits == "" || len(digits) > 16:
			return bad("the hex format takes 1 to 16 digits after 0x")
		case strings.IndexFunc(digits, notHex) >= 0:
			return bad("it holds a character that is not a hexadecimal digit")
		}
		n, err := strconv.ParseUint(digits, 16, 64)
		if err != nil {
			return bad("it does not fit in 64 bits")
		}
		return Number(n), nil
	case Znode:
		n, reason := parseZnode(text)
		if reason != "" {
			return bad(reason)
		}
		return Number(n), nil
	case Pair:
		i := strings.IndexAny(text, ".:")
		if i < 0 {
			return bad("a pair needs two numbers joined by a dot or a colon, such as 7.1042")
		}
		hi, reason := parseDigits(text[:i])
		if reason != "" {
			return bad("first part: " + reason)
		}
		lo, reason := parseDigits(text[i+1:])
		if reason != "" {
			return bad("second part: " + reason)
		}
		return Token{Hi: hi, Lo: lo}, nil
	}
	return bad("the format is not known")
}

// Print writes the token as a client of format f would: without its epoch, of which clients know nothing. Of an opaque format it is the
// number that the holder has.
func (f Format) Print(t Token) string {
	switch {
	case f == Pair:
		return strconv.FormatUint(t.Hi, 10) + "." + strconv.FormatUint(t.Lo, 10)
	case t.Hi != 0:
		return Pair.Print(t)
	case f == Hex:
		return "0x" + strconv.FormatUint(t.Lo, 16)
	case f == Znode:
		return fmt.Sprintf("%010d", t.Lo)
	}
	return strconv.FormatUint(t.Lo, 10)
}

// Describe is Print for people, who have to see the epoch: "34 (epoch 2)". Epoch zero is not shown.
func (f Format) Describe(t Token) string {
	if t.Epoch == 0 {
		return f.Print(t)
	}
	return f.Print(t) + " (epoch " + strconv.FormatUint(uint64(t.Epoch), 10) + ")"
}

// Limits are what a policy allows beyond what its format can hold.
type Limits struct {
	Max       uint64 // highest value, of each part for a pair
	AllowZero bool   // a zero is what an unset variable sends; off unless the lock service really starts there
}

// DefaultLimits returns the limits for policies that set none. A znode's counter starts at 0, so there a zero counts.
func (f Format) DefaultLimits() Limits {
	return Limits{Max: f.DefaultMax(), AllowZero: f == Znode}
}

// Check returns a [*ParseError] if the number of t is outside the limits, whatever its epoch. text is what the client sent.
func (l Limits) Check(f Format, t Token, text string) error {
	switch {
	case t.Lo > l.Max || t.Hi > l.Max:
		return &ParseError{Text: text, Format: f, Reason: fmt.Sprintf("it is above the highest token that the policy takes (%d)", l.Max)}
	case f == Opaque: // it has no number
	case t.Hi == 0 && t.Lo == 0 && !l.AllowZero:
		return &ParseError{Text: text, Format: f, Reason: "it is zero, which is what an unset variable sends; set allow_zero if the lock service starts at 0"}
	}
	return nil
}

// parseDigits reads 1 to 20 ASCII digits. strconv.ParseUint with base 10 is the only parser of the standard library that takes no
// sign, no underscore, no prefix and no other script's digits; the loop before it only makes the reason a sentence.
func parseDigits(s string) (n uint64, reason string) {
	switch {
	case s == "":
		return 0, "it is empty"
	case strings.ContainsRune(s, ','):
		return 0, "it is a list"
	case s[0] == '+' || s[0] == '-':
		return 0, "it carries a sign; tokens are unsigned"
	}
	for _, r := range s {
		if r < '0' || r > '9' {
			return 0, notADigit(r)
		}
	}
	if len(s) > 20 {
		return 0, "it is longer than 20 digits"
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, "it does not fit in 64 bits"
	}
	return n, ""
}

func notADigit(r rune) string {
	switch {
	case r == '.' || r == 'e' || r == 'E':
		return "it is not a whole number"
	case r == '_':
		return "it holds an underscore"
	case r == 'x' || r == 'X':
		return "it looks hexadecimal; the policy's format is decimal"
	case unicode.IsDigit(r):
		return "it holds a digit of another script; use 0 to 9"
	case unicode.IsSpace(r):
		return "it holds white space"
	}
	return "it holds a character that is not a digit"
}

func notHex(r rune) bool {
	return (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F')
}

func checkOpaque(s string) (reason string) {
	if len(s) > MaxOpaqueLen {
		return fmt.Sprintf("it is longer than %d characters", MaxOpaqueLen)
	}
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == ',':
			return "it holds a comma, with which two header lines are joined"
		case b == ' ' || b == '\t':
			return "it holds white space"
		case b <= ' ' || b >= 0x7f:
			return "it holds a character that is not visible ASCII"
		}
	}
	return ""
}

const (
	maxZnodeLen   = 1024
	znodeOverflow = "its counter is negative: ZooKeeper's 32-bit sequence has overflowed; take the czxid with the hex format, or make a new parent znode, which counts from 0, and raise the epoch of the policy"
)

// parseZnode reads the counter at the end of a sequential znode's name, which ZooKeeper prints with %010d: 10 digits, or a minus
// sign and the rest once the 32-bit counter has overflowed.
func parseZnode(s string) (n uint64, reason string) {
	if len(s) > maxZnodeLen {
		return 0, fmt.Sprintf("it is longer than %d bytes", maxZnodeLen)
	}
	if !utf8.ValidString(s) || strings.IndexFunc(s, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == ',' }) >= 0 {
		return 0, "it holds white space, a comma or a control character"
	}
	if misread(s) {
		return 0, "it is no znode's name"
	}
	digits := len(s) - len(strings.TrimRight(s, "0123456789"))
	head := s[:len(s)-digits]
	if strings.HasSuffix(head, "--") || head == "-" || (digits == 9 && strings.HasSuffix(head, "-")) {
		return 0, znodeOverflow
	}
	if digits < 10 {
		return 0, "a sequential znode's name ends in 10 digits"
	}
	n, err := strconv.ParseUint(s[len(s)-10:], 10, 64)
	if err != nil {
		return 0, "it does not fit in 64 bits"
	}
	if n > math.MaxInt32 {
		if digits == 10 && strings.HasSuffix(head, "-") {
			return 0, znodeOverflow
		}
		return 0, "its last 10 digits are above 2147483647, the highest that ZooKeeper's counter reaches"
	}
	return n, ""
}
