// Package probe finds out what a store takes for one object, by trying it.
//
// Call [New] with the store's URL, then [Probe.Run]. It writes objects under a scratch prefix with a random name, each time the plain
// spelling with one content and another spelling with a second one, and looks which of the two the plain spelling then holds. It also
// tries conditional writes, uploads that break off, method overrides, COPY and LOCK, and whether a write shows at once. The [Report]
// has one [Row] a spelling, one [Check] a behaviour, warnings in sentences and the lines to paste into a configuration.
// [Report.Compare] holds a configuration that is in use against it.
//
// Request targets are sent byte for byte, each on a connection of its own, with a timeout and up to a fixed number of requests. Every
// request that could write names a path below the scratch prefix, under every reading of it. What was written is removed on every way
// out, also when the context ends; [Report.Left] says what could not be.
//
// What it cannot see: a cache or a load balancer that reads some paths in another way than this one, a store that decides by user, a
// write that is applied later than the probe waited. In a versioned bucket the old versions stay, as after any DELETE.
package probe
