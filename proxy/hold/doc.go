// Package hold lets one opaque id at a time write to a resource, for policies with compare: hold.
//
// Call [Manager.Claim] with the id of a write. The first id claims the resource; from then on only that id passes, until its hold expires, is
// released, or for ever. A claim has a [Claim.Token], a number that grows by one from holder to holder: have
// [github.com/fenceproxy/fenceproxy/proxy/gate.Gate] admit the write with it, and tell the claim what became of it. [Manager.Check] refuses
// another id early, without leaving a trace.
//
// What a caller gets:
//
//   - One holder. At every instant at most one id is given claims on a resource.
//   - Order. The number is all that the gate sees. So a write of an earlier holder that is in flight or in doubt keeps the next
//     holder's first write waiting, and once that was admitted none of an earlier holder is.
//   - Durable. The holder and the time that it was promised are in the mark that the gate makes durable before the first write of a
//     hold is forwarded.
//   - Never shortened. A hold lasts its time from the first write that was admitted. Time is counted on the monotonic clock from when the manager was made; no clock can be set so that a hold ends
//     early. A restart begins each hold anew: its time is not written down at every renewal, so it may last longer than it had to.
//
// What it does not do: it does not tell a holder that its hold has expired, and it does not know who may use an id. Like the gate it knows
// nothing of HTTP or of the disk, and it forgets a hold that has expired, or that needs no clock, when nobody uses it: the mark says the rest.
package hold
