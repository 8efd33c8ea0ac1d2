package fencing

import "time"

// Mark is the high-water mark of a resource, with how it came to be.
type Mark struct {
	Token  Token
	Format Format    // the form in which the token was presented; for printing only
	At     time.Time // wall clock of the advance; for people only, nothing is ever decided by it
	By     string    // the client's address, or who the operator said they were
	Policy string    // the policy through which it was advanced
	Reason string    // why an operator set it; empty for an advance by a write
	// Draining records that writes with lower tokens were in flight, in doubt or unknown when the mark was advanced. After an
	// unclean stop such a mark makes equal tokens wait too: the lower writes may still be on their way.
	Draining bool
	// Holder is the opaque id that holds the resource, of a policy with compare: hold; empty if nobody does. Whoever knows it can write:
	// it is never logged nor shown to clients.
	Holder string
	// TTL is how long the hold was promised to last from its claim or its last renewal; 0: until it is released.
	TTL time.Duration
}

// ResourceMark names the resource of a mark.
type ResourceMark struct {
	Resource Resource
	Mark     Mark
}
