package fencing

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// ParseError says why a text is not a token of the format that the policy asks for.
type ParseError struct {
	Text   string // what the client sent
	Format Format
	Reason string // a clause such as "it carries a sign; tokens are unsigned"
}

// Error quotes at most 64 bytes of the text, escaped, so that it can stand in a log line and in an answer.
func (e *ParseError) Error() string {
	text := e.Text
	if len(text) > 64 {
		text = text[:64] + "..."
	}
	return fmt.Sprintf("%q is not a token of the %s format: %s", text, e.Format, e.Reason)
}

// ErrResource is wrapped by every error of [Resource.Check].
var ErrResource = errors.New("not a resource key")

// Check returns an error that wraps [ErrResource] if r cannot be a resource key.
func (r Resource) Check() error {
	switch {
	case r == "":
		return fmt.Errorf("%w: it is empty", ErrResource)
	case len(r) > MaxResourceLen:
		return fmt.Errorf("%w: it is %d bytes long; at most %d are allowed", ErrResource, len(r), MaxResourceLen)
	case !utf8.ValidString(string(r)):
		return fmt.Errorf("%w: it is not valid UTF-8", ErrResource)
	}
	for _, c := range string(r) {
		if unicode.IsControl(c) {
			return fmt.Errorf("%w: it holds the control character %q", ErrResource, c)
		}
	}
	return nil
}
