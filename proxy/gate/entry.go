package gate

import (
	"slices"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// floor is a mark that may be absent.
type floor struct {
	mark fencing.Mark
	ok   bool // false: no token was ever seen
}

// refuses reports whether token t is stale against the floor.
func (f *floor) refuses(t fencing.Token, greater bool) bool {
	return f.level().refuses(t, greater)
}

// below reports whether the floor is below t.
func (f *floor) below(t fencing.Token) bool { return !f.ok || f.mark.Token.Less(t) }

// level is the token of a floor. A mark is five times as long, and every write asks for it several times on each of its keys.
type level struct {
	token fencing.Token
	ok    bool
}

func (f *floor) level() level { return level{f.mark.Token, f.ok} }

func (l level) refuses(t fencing.Token, greater bool) bool {
	if !l.ok {
		return false
	}
	c := t.Compare(l.token)
	return c < 0 || greater && c == 0
}

// entry is the state of one resource that somebody uses. Every field is guarded by Gate.mu.
//
// The invariant: among the flights that were admitted by Enter all tokens are equal, and no higher than the durable mark unless an
// operator lowers it meanwhile. So a lower write can never follow a higher one to the upstream, and after a crash no forwarded
// token is above the mark on disk. While a tree has such flights, those beneath it have the same token.
type entry struct {
	resource fencing.Resource
	refs     int  // users of the entry: a joined admission, or an advance for Observe. At zero it leaves the table
	known    bool // the mark was loaded

	durable floor // highest mark that is on stable storage
	proven  floor // highest mark that counts for good; what a refused token falls back to
	// unproven are the tokens above proven that were seen in this process and that hang on writes without an outcome, in ascending
	// order. The last one, or else proven, is the highest token seen.
	unproven []*unproven

	flights   []flight     // writes forwarded and without outcome, by token; one element unless Observe let others by
	waiters   []*Admission // in order of arrival, those that are due first
	low       int          // of the waiters, those that are low here: see claim.low
	beneath   beneath      // of a tree's key: the writes beneath, which are in neither of the two above
	restoring bool         // a refused token is being taken back, or an operator sets the mark: nobody is admitted until that is durable
	unsettled bool         // lower writes of the previous run may still be under way: wait for the end of recovery
	dirty     lines        // of its waiters, those that dispatchLocked has still to look at; if any, it is in Gate.dirty
}

// unproven is a token that was seen and that no outcome vouches for yet.
type unproven struct {
	mark    fencing.Mark
	backers int  // writes that came with this token, less those that were refused
	storing bool // its Store.Advance has not returned
	counts  bool // it stays seen even if all others are refused; it is proven once it is durable
	final   bool // a write with it can be turned away by nobody: see Write.Final
	back    bool // it is being taken back for a write that goes first: see takeBackLocked
	gone    bool // no longer in entry.unproven
	revoked bool // it is gone and was never to be seen: not durable, refused by the upstream, or lowered by an operator
}

// seenLocked returns the highest mark seen, durable or not.
func (e *entry) seenLocked() floor {
	if n := len(e.unproven); n > 0 {
		return floor{e.unproven[n-1].mark, true}
	}
	return e.proven
}

// topLocked returns the token of seenLocked.
func (e *entry) topLocked() level {
	if n := len(e.unproven); n > 0 {
		return level{e.unproven[n-1].mark.Token, true}
	}
	return e.proven.level()
}

// firmLocked returns the highest mark seen that no refusal takes back. Only below this one a token is stale for good.
func (e *entry) firmLocked() floor {
	for _, u := range slices.Backward(e.unproven) {
		if u.counts || u.final {
			return floor{u.mark, true}
		}
	}
	return e.proven
}

// dueLocked returns the first of the waiters that are due, or nil: nobody else is admitted here before it.
func (e *entry) dueLocked() *Admission {
	if len(e.waiters) > 0 && e.waiters[0].due {
		return e.waiters[0]
	}
	return nil
}

// findLocked returns the unproven token t, or nil.
func (e *entry) findLocked(t fencing.Token) *unproven {
	for _, u := range e.unproven {
		if u.mark.Token == t {
			return u
		}
	}
	return nil
}

// refusedLocked returns the highest unproven token that everybody who sent it was refused with, or nil. While it is nil because the
// store is busy with the token, or a restore is under way, whoever waits for that asks again afterwards.
func (e *entry) refusedLocked() *unproven {
	if e.restoring {
		return nil
	}
	for _, u := range slices.Backward(e.unproven) {
		if u.backers == 0 && !u.storing {
			return u
		}
	}
	return nil
}

// belowLocked returns what the mark goes back to when u is taken back: the highest token below it that was not refused as well.
func (e *entry) belowLocked(u *unproven) floor {
	below := e.proven
	for _, v := range e.unproven {
		if v.mark.Token.Less(u.mark.Token) && v.backers > 0 {
			below = floor{v.mark, true}
		}
	}
	return below
}

// proveLocked records that u counts for good.
func (e *entry) proveLocked(u *unproven) {
	if !u.gone && !u.back {
		u.counts = true
		e.settleLocked()
	}
}

// settleLocked turns the highest unproven token that counts and is durable into the proven mark; the ones below it are then of no more
// interest. While restoring it waits: what is durable now may not be in a moment.
func (e *entry) settleLocked() {
	if e.restoring {
		return
	}
	for _, u := range slices.Backward(e.unproven) {
		if u.counts && !e.durable.below(u.mark.Token) {
			e.proven = floor{u.mark, true}
			for !u.gone {
				e.forgetLocked(e.unproven[0])
			}
			return
		}
	}
}

// forgetLocked takes u out of the unproven tokens.
func (e *entry) forgetLocked(u *unproven) {
	u.gone = true
	e.unproven = slices.DeleteFunc(e.unproven, func(v *unproven) bool { return v == u })
	if len(e.unproven) == 0 {
		e.unproven = nil
	}
}

// revokeLocked makes the token as if it had never been seen.
func (e *entry) revokeLocked(u *unproven) {
	u.revoked = true
	e.forgetLocked(u)
}

// refLocked returns the entry of r with one more user. Finding and counting are one step under the lock: an entry that is about to
// leave the table cannot be counted in.
//
// +checklocks:g.mu
func (g *Gate) refLocked(r fencing.Resource) *entry {
	e := g.entries[r]
	if e == nil {
		if n := len(g.free); n > 0 {
			e, g.free = g.free[n-1], g.free[:n-1]
		} else {
			e = new(entry)
		}
		e.resource = r
		g.entries[r] = e
	}
	e.refs++
	return e
}

// maxFree bounds the entries kept for reuse.
const maxFree = 256

// unrefLocked gives up one use of the entry. What the gate knew of an idle resource is on disk or worth nothing.
//
// +checklocks:g.mu
func (g *Gate) unrefLocked(e *entry) {
	if e.refs--; e.refs > 0 {
		return
	}
	b := &e.beneath
	if len(e.flights) > 0 || len(e.waiters) > 0 || len(e.unproven) > 0 || len(b.flights)+len(b.waiters)+len(b.present)+len(b.watches) > 0 {
		panic("gate: a resource in use left the table")
	}
	delete(g.entries, e.resource)
	if len(g.free) < maxFree && e.dirty == 0 {
		*e = entry{flights: e.flights[:0], waiters: e.waiters[:0], beneath: beneath{
			flights: b.flights[:0], waiters: b.waiters[:0], present: b.present[:0], watches: b.watches[:0],
		}}
		g.free = append(g.free, e)
	}
}
