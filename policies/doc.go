// Package policies reads the configuration file and decides, for one request, which policy covers it, which resources it touches
// and which fencing token it carries.
//
// Call [Load] once per file: it reports every mistake at once, as [Errors] with file, line and path, or returns a [Config] whose
// [Set] never changes. Then call [Set.Decide] for each request and, where [Decision.NeedsBody] says so, [Decision.ResolveBody]
// with the body.
//
// The guarantee is about names: two requests that a store of the policy's identity options would apply to one object get the same
// [fencing.Resource], or one of them is rejected. Where a spelling can be read in two ways the request is merged with the other
// reading or refused, never given a key of its own, since a fence with two keys for one object has a hole.
//
// The package does no I/O: it reads no file, opens no connection, keeps no state between two requests. It does not order tokens,
// and it forwards nothing; what is forwarded stays byte for byte as the client sent it.
package policies
