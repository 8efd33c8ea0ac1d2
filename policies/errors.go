package policies

import (
	"fmt"
	"strings"
)

// MissingTokenError is the refusal of a request that carries no fencing token, under a policy that needs one.
type MissingTokenError struct {
	Policy string
	Places []string // where the policy looks, in order: "header Fencing-Token"
}

// Error names the places in which a token may be sent.
func (e *MissingTokenError) Error() string {
	return fmt.Sprintf("policy %s needs a fencing token and the request carries none: send the token that came with the lease as %s",
		e.Policy, strings.Join(e.Places, " or "))
}

// TokenError is the refusal of a token that is malformed, doubled or outside the policy's limits. Err, if set, is a
// [*fencing.ParseError].
type TokenError struct {
	Policy string
	Place  string // where it was found: "header Fencing-Token"
	Reason string // a clause, when Err is nil
	Err    error
}

// Error says what is wrong with the token.
func (e *TokenError) Error() string {
	reason := e.Reason
	if e.Err != nil {
		reason = e.Err.Error()
	}
	return fmt.Sprintf("the fencing token in %s cannot be used: %s; send exactly one token, as policy %s expects it", e.Place, reason, e.Policy)
}

// Unwrap returns the parse error.
func (e *TokenError) Unwrap() error { return e.Err }

// AmbiguousError is the refusal of a request that stores read in different ways, so that the resource it touches is not certain.
type AmbiguousError struct {
	Policy string // empty if no policy covers any reading
	Reason string // a clause: "the path holds an encoded slash (%2F)"
}

// Error says what makes the request ambiguous.
func (e *AmbiguousError) Error() string {
	if e.Policy == "" {
		return "the request is ambiguous: " + e.Reason + "; send the plain spelling"
	}
	return fmt.Sprintf("the request is ambiguous: %s; send the plain spelling, or tell policy %s how the store reads it (identity)", e.Reason, e.Policy)
}

// UnmatchedError is the refusal of a write that no policy covers.
type UnmatchedError struct {
	Method, Path string
}

// Error names the setting that decides about such writes.
func (e *UnmatchedError) Error() string {
	return fmt.Sprintf("no policy covers %s %q: add a policy for the path, or set unmatched_writes", e.Method, clip(e.Path))
}

// RefusedError is the refusal of a request that asks the store to do something else than its method says.
type RefusedError struct {
	Reason string // a clause
}

// Error says what to do instead.
func (e *RefusedError) Error() string {
	return "the request is refused: " + e.Reason + "; send the method itself"
}

// UnfenceableError is the refusal of a write whose reach cannot be told, or cannot be fenced by the policies as they are.
type UnfenceableError struct {
	Policy string // empty if no policy covers it
	Reason string // a clause
}

// Error says what to do instead.
func (e *UnfenceableError) Error() string {
	return "the write cannot be fenced: " + e.Reason
}

// BatchError is the refusal of a write that names more resources than the policy takes in one write.
type BatchError struct {
	Policy string
	Reason string // a clause: "it names 2000 resources, and max_batch allows 1000"
}

// Error says what to do instead.
func (e *BatchError) Error() string {
	return fmt.Sprintf("the write is too large for policy %s: %s; send it in parts", e.Policy, e.Reason)
}

// KeyError is the refusal of a request from which a resource template cannot be filled.
type KeyError struct {
	Policy      string
	Placeholder string // as in the template: "{query.id}"; empty if the key as a whole is the trouble
	Reason      string // a clause
}

// Error names the placeholder.
func (e *KeyError) Error() string {
	if e.Placeholder == "" {
		return fmt.Sprintf("policy %s cannot name the resource: %s", e.Policy, e.Reason)
	}
	return fmt.Sprintf("policy %s cannot name the resource: %s %s", e.Policy, e.Placeholder, e.Reason)
}

// BodyError is the refusal of a request whose JSON body does not hold what a resource template reads from it.
type BodyError struct {
	Policy string
	Field  string // "body.order.id"; empty if the body as a whole is the trouble
	Reason string // a clause
}

// Error names the field.
func (e *BodyError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("policy %s names its resources by the body, but %s", e.Policy, e.Reason)
	}
	return fmt.Sprintf("policy %s names the resource by %s of the JSON body, but %s", e.Policy, e.Field, e.Reason)
}

// clip shortens client text for a message; callers quote it with %q, so that it cannot forge a log line.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}
