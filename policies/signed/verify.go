package signed

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// MaxLen is the length in bytes that a signed token may have. Servers and proxies on the way bound headers near it.
const MaxLen = 8 << 10

// Kind says what is wrong with a token, in a word for programs.
type Kind string

const (
	Unsigned      Kind = "unsigned"       // a bare token
	Invalid       Kind = "invalid"        // no key that is known has signed it, or it says nothing usable
	Expired       Kind = "expired"        // it was good
	OtherResource Kind = "other-resource" // it is good, for something else
)

// Error is why a token is refused. It holds nothing of the token but claims whose signature is good, and the name of an algorithm.
type Error struct {
	Kind   Kind
	Reason string // a clause
}

// Error returns the reason.
func (e *Error) Error() string { return e.Reason }

func invalid(format string, args ...any) error { return &Error{Invalid, fmt.Sprintf(format, args...)} }

// Verifier checks tokens with one algorithm and its keys. It never changes and may be used by any number of goroutines.
type Verifier struct {
	algorithm Algorithm
	keys      []Key
}

// NewVerifier returns one that takes what any of the keys has signed. Without a key it takes nothing.
func NewVerifier(a Algorithm, keys ...Key) (*Verifier, error) {
	for _, k := range keys {
		if k.algorithm != a {
			return nil, fmt.Errorf("it holds a key for %s, and the algorithm is %s", k.algorithm, a)
		}
	}
	return &Verifier{a, keys}, nil
}

// Format implements [fmt.Formatter]: no verb shows a key.
func (v *Verifier) Format(s fmt.State, _ rune) {
	fmt.Fprintf(s, "%s, %d keys", v.algorithm, len(v.keys))
}

// Algorithm is the only one that is taken.
func (v *Verifier) Algorithm() Algorithm { return v.algorithm }

// Keys is how many keys there are.
func (v *Verifier) Keys() int { return len(v.keys) }

// Verify returns what a compact JWS claims. An error is an [*Error]; where it is about the time alone, the claims are returned with it.
func (v *Verifier) Verify(text string, now time.Time) (*Claims, error) {
	if err := shape(text); err != nil {
		return nil, err
	}
	data, err := v.open(text)
	if err != nil {
		return nil, err
	}
	c, err := parseClaims(data)
	if err != nil {
		return nil, invalid("%v", err)
	}
	switch {
	case !now.Before(c.Expires):
		return c, &Error{Expired, fmt.Sprintf("it expired at %s, and it is %s by the proxy's clock; get a fresh one, if the lease still runs", stamp(c.Expires), stamp(now))}
	case now.Before(c.NotBefore):
		return c, invalid("it is not valid before %s, and it is %s by the proxy's clock", stamp(c.NotBefore), stamp(now))
	}
	return c, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// shape refuses what is no compact JWS, before any of it is parsed.
func shape(text string) error {
	dots, object := strings.Count(text, "."), strings.HasPrefix(text, "ey") || strings.HasPrefix(text, "ew") // {" or { and a line end, in base64url
	switch {
	case len(text) > MaxLen:
		return invalid("it is longer than %d bytes", MaxLen)
	case strings.HasPrefix(strings.TrimLeft(text, " \t"), "{"):
		return invalid("it is a JWS in the JSON serialisation; send the compact one")
	case object && strings.Contains(text, ","):
		return invalid("it is a list; send one token")
	case dots == 4 && object:
		return invalid("it is encrypted (JWE); send a signed token (JWS)")
	case dots != 2 || !object:
		return &Error{Unsigned, "it is not signed"}
	}
	for part := range strings.SplitSeq(text, ".") {
		// The library ignores the line ends and the spare bits that base64 has room for. Strict has one spelling for each token.
		if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil || part == "" || strings.ContainsAny(part, "\r\n") {
			return invalid("its parts are not base64url text as RFC 7515 writes it")
		}
	}
	return nil
}

// open returns the payload if one of the keys has signed it.
func (v *Verifier) open(text string) ([]byte, error) {
	if err := v.header(text); err != nil {
		return nil, err
	}
	jws, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.SignatureAlgorithm(v.algorithm)})
	if other, ok := errors.AsType[*jose.ErrUnexpectedSignatureAlgorithm](err); ok {
		return nil, invalid("its algorithm is %.20q, and only %s is taken", string(other.Got), v.algorithm)
	}
	if err != nil || len(jws.Signatures) != 1 {
		return nil, invalid("its header cannot be read")
	}
	for _, k := range v.keys {
		if data, err := jws.Verify(k.checks()); err == nil {
			return data, nil
		}
	}
	return nil, invalid("its signature is not that of a key that is known here, or it was changed on its way")
}

// header refuses what the header may ask for and nobody here does: the library would follow some of it.
func (v *Verifier) header(text string) error {
	part, _, _ := strings.Cut(text, ".")
	data, err := base64.RawURLEncoding.DecodeString(part)
	var h map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(data, &h)
	}
	if err != nil {
		return invalid("its header cannot be read")
	}
	for _, name := range [...]string{"crit", "b64", "jwk", "jku", "x5c", "x5u", "enc", "zip"} {
		if _, ok := h[name]; ok {
			return invalid("its header has %q, which is not taken", name)
		}
	}
	if _, ok := h["cty"]; ok {
		return invalid("it is nested (its header has \"cty\"); sign the claims themselves")
	}
	return nil
}
