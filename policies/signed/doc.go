// Package signed makes and checks signed fencing tokens: a token, what it is for and when it ends, as a compact JWS (RFC 7515).
//
// A lock service signs [Claims] with [Key.Sign]. A policy keeps a [Verifier], whose algorithm and keys its configuration fixes, and asks
// [Verifier.Verify]; then [Claims.Covers] for each resource that the write changes.
//
// Nothing in a token decides how it is checked: no other algorithm, no key of its own, no extension, no encryption, no other serialisation.
// A token is taken in one spelling only, so that no changed byte passes. Keys and tokens are in no error and no log line.
//
// It does not remember tokens: whoever has one can use it until it ends.
package signed
