// Package tokenstore keeps the high-water mark of each resource on disk, in Badger.
//
// Call [Open], then [Store.Load] for the mark of a resource and [Store.Advance] to raise it. Advance returns once the mark is on
// stable storage; only then may the write that carries the token be forwarded. Concurrent calls share one sync of the disk.
//
// The guarantee: a mark that was acknowledged is never lower afterwards, whatever happens to the process or the power, except
// through [Store.Set] and [Store.Restore], which leave a line in the log. Marks do not expire. When the store cannot tell what it
// holds it says so and stays shut: every error of Load means "reject", never "no mark". After a failed commit nothing is accepted
// until the process is started again ([Store.Err]), since Badger may show what the disk does not have.
//
// It does not decide what is admitted, does not order writes in flight, and cannot notice that the whole directory was put back
// to an earlier state: see README.md for what to do then. One process uses a directory at a time.
package tokenstore
