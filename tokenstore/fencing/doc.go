// Package fencing holds the two values that every other package speaks of: the fencing [Token] that a client got with its lease,
// and the [Resource] that the token guards.
//
// Call [Format.Parse] on the text a client sent and [Token.Compare] to order two tokens. Parsing is exact: the text is a whole
// number in the one form that the policy names, or it is an error. Nothing is rounded, cut, trimmed or guessed, since a token
// that is read as another number is a fence with a hole.
//
// Tokens are compared as unsigned numbers of 128 bits, never as text. The package does no I/O and imports the standard library
// only.
//
// The idea of a fencing token: Martin Kleppmann, "How to do distributed locking", 2016; Burrows, "The Chubby lock service",
// OSDI 2006, section 2.4 (sequencers).
package fencing
