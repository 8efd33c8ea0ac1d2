// Package lease hands out leases on resources, each with a fencing token.
//
// Make a [Manager] with [New] on the durable notes and the marks of one proxy, and serve its [Handler] on a listener of its own. A client
// calls [Manager.Acquire], [Manager.Renew] while it works, and [Manager.Release]; the name of a lease is the key of the resource that it
// is about.
//
// What a caller gets:
//
//   - Rising tokens. The token of a grant is above the mark of the resource and above every earlier grant of it, whatever happens to the
//     process in between, and although an operator lowered the mark.
//   - Durable. The grant is on stable storage before it is answered.
//   - Fenced. The mark of the resource is at the token before the grant is answered: from then on no write of an earlier holder is
//     forwarded, even if the new one has not written yet.
//   - One holder. A lease is granted anew only after it was released or its time ran out on the monotonic clock.
//
// What it does not do: it is one process on one disk, without consensus, so while it is away nobody gets a lease. A holder that pauses
// does not know that its lease is over. The fence gives the safety; the lease only spares wasted work. And it does not wait for writes of
// an earlier holder that were forwarded already: a write of the new one does, at the gate, a read does not.
//
// After a restart each lease that was held runs its whole time once more, so none is cut short. That is why a renewal, which never changes
// the time of a lease, writes nothing. The notes of leases that nobody holds are kept; when there are too many, the one with the lowest
// token goes, and its token becomes a floor for names of which nothing is known.
//
// The idea: Gray and Cheriton, "Leases", 1989; the sequencer of Burrows, "The Chubby lock service", 2006.
package lease
