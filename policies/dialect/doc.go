// Package dialect says what a request does in the language of a kind of store: what it only reads, which objects it changes besides that
// of its path, and where it names them.
//
// Call [Name.Effect] with a request whose path has been brought into its canonical form; where [Effect.Body] is set, call that with the
// body. Package policies turns the targets that come back into resources.
//
// The guarantee is that nothing is left out: a request that may change an object which it does not name in a way that the dialect knows
// comes back as [Anything] or with a [Refusal], never as a write to its own path alone. Methods that a dialect does not know are writes.
//
// The package does no I/O and keeps no state. It knows nothing of tokens, policies or answers.
package dialect
