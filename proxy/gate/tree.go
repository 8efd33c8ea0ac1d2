package gate

import (
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Tree is a subtree that a write changes as a whole: a collection that is deleted, moved or replaced.
//
// Every write to a resource beneath it must name Key in [Write.Under], whether it is a plain write or changes a smaller tree there. Key
// itself does not begin with Prefix.
type Tree struct {
	Key    fencing.Resource // carries the mark of the subtree as a whole: "dav/a?tree"
	Prefix fencing.Resource // every resource whose key begins with it lies beneath: "dav/a/"
	// Empty admits the write only if nothing lies beneath: no mark, and no write that has no outcome or waits. Otherwise the
	// error is a [*TreeError].
	Empty bool
}

// beneath is what happens under a tree's key; all of it is empty on other resources. The tree's own mark, flights and waiters, those of
// writes that change it as a whole, are in entry.
type beneath struct {
	flights []flight     // writes beneath that were forwarded and have no outcome, by token
	waiters []*Admission // writes beneath that wait, for the tree or for something else, in order of arrival
	present []presence   // tokens of writes beneath, by token
	watches []*watch     // tree writes that have joined
}

// presence is a token that was seen beneath, from that instant until its writes have left. A token that has left is on disk, or its
// writer came to nothing.
type presence struct {
	token  fencing.Token
	writes int
}

// watch is what a tree write has to know of the resources beneath: the highest token among the marks that were on disk when it looked,
// and those that left while it was here. It is kept for each tree write apart: a token that the upstream refuses is remembered by
// those that it met and by nobody after them.
type watch struct {
	by      *Admission
	prefix  fencing.Resource
	empty   bool
	highest fencing.Token
	some    bool // highest is one
	passed  bool // an observed write beneath was forwarded meanwhile, with a token that may count nowhere

	proven level                       // the highest proven mark beneath, where the token is measured by it: see jumpLocked
	doubts map[fencing.Resource]*entry // while the disk is read for that: what was unproven beneath meanwhile, held
}

func (w *watch) noteLocked(t fencing.Token) {
	if !w.some || w.highest.Less(t) {
		w.highest, w.some = t, true
	}
}

// watchLocked returns the watch of a, which must be there.
func (b *beneath) watchLocked(a *Admission) *watch {
	return b.watches[slices.IndexFunc(b.watches, func(w *watch) bool { return w.by == a })]
}

// rejectionLocked returns an error if the tree write must not be admitted because of what lies beneath its key r. An equal token beneath
// is fine, also for a write that has to be [Write.Greater]: that is between it and the tree's own mark.
func (b *beneath) rejectionLocked(a *Admission, r fencing.Resource) error {
	w := b.watchLocked(a)
	highest := *w // with what is here now
	for i := range b.present {
		highest.noteLocked(b.present[i].token)
	}
	switch {
	case w.empty && (len(b.present) > 0 || len(b.flights) > 0 || w.passed):
		return &TreeError{Resource: r, Reason: TreeWrites}
	case w.empty && w.some:
		return &TreeError{Resource: r, Reason: TreeMarks}
	case highest.some && a.token.Less(highest.highest):
		return &StaleTokenError{Resource: r, Token: a.token, Mark: highest.highest}
	}
	return nil
}

func (b *beneath) arriveLocked(t fencing.Token) {
	i := slices.IndexFunc(b.present, func(p presence) bool { return p.token == t })
	if i < 0 {
		i = len(b.present)
		b.present = append(b.present, presence{token: t})
	}
	b.present[i].writes++
}

// departLocked ends what arriveLocked began. The tree writes that are here keep the token in mind: its mark may have reached the disk
// after they looked. A token that the upstream refused is kept as well; that refuses one tree write too many at worst.
func (b *beneath) departLocked(t fencing.Token) {
	i := slices.IndexFunc(b.present, func(p presence) bool { return p.token == t })
	if b.present[i].writes--; b.present[i].writes == 0 {
		b.present = slices.Delete(b.present, i, i+1)
	}
	for _, w := range b.watches {
		w.noteLocked(t)
	}
}

// watchLocked begins the watch of a tree write that has just joined. Marks that an operator is setting beneath are noted: they may reach
// the disk after the scan.
//
// +checklocks:g.mu
func (g *Gate) watchLocked(a *Admission, e *entry, t Tree) {
	w := &watch{by: a, prefix: t.Prefix, empty: t.Empty}
	for _, m := range g.setting {
		if strings.HasPrefix(string(m.Resource), string(t.Prefix)) {
			w.noteLocked(m.Mark.Token)
		}
	}
	e.beneath.watches = append(e.beneath.watches, w)
}

// passLocked tells the tree writes above an observed write of it. Observed as stale it is present nowhere and leaves no mark, but a tree
// that had to be empty may not be so any more.
//
// +checklocks:g.mu
func (g *Gate) passLocked(a *Admission) {
	for i := range a.claims {
		if c := &a.claims[i]; c.kind == under {
			for _, w := range c.entry.beneath.watches {
				w.passed = true
			}
			g.dispatchLocked(c.entry, own)
		}
	}
}

// partLocked takes a write that leaves out of the tree of its claim.
func (c *claim) partLocked(a *Admission) {
	b := &c.entry.beneath
	switch {
	case c.present:
		c.present = false
		b.departLocked(a.token)
	case c.kind == whole:
		b.watches = slices.DeleteFunc(b.watches, func(w *watch) bool { return w.by == a })
	}
}

// maxScans bounds the scans under way: each goes through all marks beneath its tree, and whoever asks for it has shown nothing yet.
const maxScans = 2

// scan reads the marks beneath the trees of the admission. It blocks for the store, without the lock; nothing slips in meanwhile.
// A token beneath was either seen before the watch began, or after:
//
//   - seen before, and its write had left: its mark was durable by then, so the scan finds it;
//   - seen before, and its write leaves later: it is noted in the watch;
//   - seen after: it is present, or noted once it has left.
//
// For that the order is the guarantee: the watch begins (join), then the store is read (here), then the write is judged (advance). With
// the scan before the watch, a token that comes and goes between the two is in neither. On error the admission has left.
func (g *Gate) scan(a *Admission, maxJump uint64) error {
	for i := range a.claims {
		e := a.claims[i].entry
		if a.claims[i].kind != whole {
			continue
		}
		g.mu.Lock()
		w := e.beneath.watchLocked(a)
		measured := maxJump != 0 && !e.proven.ok
		if measured {
			g.doubtAllLocked(w)
		}
		g.mu.Unlock()
		found, proven, err := g.read(w, measured)
		g.mu.Lock()
		g.clearDoubtsLocked(w, proven)
		if err != nil {
			g.leaveLocked(a)
			g.mu.Unlock()
			return &StoreError{Op: "load", Err: err}
		}
		if found.ok {
			w.noteLocked(found.token)
		}
		g.mu.Unlock()
	}
	return nil
}

// read returns the highest mark beneath, and if it is asked for the highest of those that are not in doubt.
func (g *Gate) read(w *watch, measured bool) (found, proven level, err error) {
	g.scans <- struct{}{} // it gets there: a scan waits for the store alone
	defer func() { <-g.scans }()
	if found.token, found.ok, err = g.store.Beneath(w.prefix); err == nil && measured {
		proven, err = g.provenBeneath(w, found)
	}
	return found, proven, err
}

// settingLocked tells the tree writes above r that an operator gives it a mark, which they could take for a lower one while it is on its
// way to the disk, and reports whether one of them is in flight. [Gate.SetMark] names no trees, so they are looked for by their
// prefixes; those that join until the mark is durable find it in g.setting. If the mark is not set in the end, that refuses one
// tree write too many.
//
// +checklocks:g.mu
func (g *Gate) settingLocked(m fencing.ResourceMark) (inFlight bool) {
	g.setting = append(g.setting, m)
	var above []*entry
	for _, e := range g.entries {
		for _, w := range e.beneath.watches {
			if strings.HasPrefix(string(m.Resource), string(w.prefix)) {
				w.noteLocked(m.Mark.Token)
				inFlight = inFlight || w.by.forward
				above = append(above, e)
			}
		}
	}
	for _, e := range above {
		g.dispatchLocked(e, own) // a waiter may be stale now
	}
	return inFlight
}

// +checklocks:g.mu
func (g *Gate) setLocked(r fencing.Resource) {
	i := slices.IndexFunc(g.setting, func(m fencing.ResourceMark) bool { return m.Resource == r })
	g.setting = slices.Delete(g.setting, i, i+1)
}
