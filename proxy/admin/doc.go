// Package admin is the operator's listener: health, metrics, the marks and what became of the last writes.
//
// Make its handler with [New] and serve it on an address that only operators reach; it is not part of the listener for clients. Reading
// needs no credentials. Changing anything needs the bearer token of [Config], and without one nothing can be changed; each change
// leaves a line in the log that says who and why.
package admin
