// Package gate admits writes to a resource in token order.
//
// Call [Gate.Enter] before forwarding a write, and exactly one of [Admission.Done], [Admission.InDoubt], [Admission.NotSent] and
// [Admission.Refused] once its outcome is known. [Gate.Check] refuses a stale token early, without admitting anything.
//
// What a caller gets:
//
//   - Order. A write is admitted only when no write with another token is in flight or in doubt on any of its resources.
//   - Monotonic. From the moment a token is seen on a resource, no lower one is admitted there, even while the token itself waits.
//     A writer is judged again after every wait. A token whose writer the upstream turns away ([Admission.Refused]) counts as not seen.
//   - No lock-out. A token is proven once the upstream has taken a write with it. One below a proven token is stale at once. One that is
//     only below unproven tokens waits for the verdict on them (for a second, while an older write keeps the unproven one from going out:
//     then it is stale, unless its token is the last one accepted), and nobody joins a flight that it waits for. Once somebody was turned
//     away, all who wait go in order of arrival, until nobody waits: who came later is not seen before it is its turn. So a flood of
//     refused tokens passes a writer once at most, besides those that were there before it.
//   - Durable. A mark is on stable storage, by way of [Store.Advance], before the write that advanced it is admitted.
//   - All or nothing. A write that names several resources is admitted on all of them at one instant or on none, and holds none while
//     it waits, so it cannot deadlock.
//   - Trees. A write that changes a whole subtree ([Write.Trees]) is judged by its own mark and by every mark beneath, and excludes
//     writes with other tokens on all of it, as if it named each resource. Writes beneath ([Write.Under]) cost each other nothing.
//   - Fail closed. When the store reports an error, nothing is admitted.
//
// Without a wait as before, a token is stale below an unproven one too: of a write that changes a tree and on the trees that a write lies in
// (what lies beneath has no single mark to go back to), of a hold (a lower number is an earlier holder's), for Observe (which waits for
// nothing), and below a token that is [Write.Final]. A crash leaves an unproven token as the mark, since nobody knows the verdict.
//
// What it does not do: it does not order two writes with the same token (see [Write.Exclusive]), and it knows nothing of HTTP or of the
// disk. It forgets a resource as soon as nobody uses it; the mark lives in the store.
//
// After an unclean stop, writes of the previous run may still be on their way to the upstream. [Config.Recover] keeps every advance,
// and every mark that was advanced while lower writes were under way, waiting for that long.
//
// The rule is that of a fencing token, checked at the resource: Kleppmann, "How to do distributed locking", 2016. Draining before
// admitting a higher token is what BookKeeper does when a ledger is fenced and Raft when a term begins. A tree and what lies in it
// exclude each other like a lock and the intention locks beneath it: Gray et al., "Granularity of locks", 1975.
package gate
