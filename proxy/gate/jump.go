package gate

import (
	"errors"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// or returns l, or if that is none m.
func (l level) or(m level) level {
	if l.ok {
		return l
	}
	return m
}

// highest returns the higher one of the two.
func (l level) highest(m level) level {
	if !l.ok || m.ok && l.token.Less(m.token) {
		return m
	}
	return l
}

// jumpLocked returns a [*JumpError] if the token is too far above what one of the keys is measured by: its own mark; without one, that of a
// tree by the highest beneath, which the write would shut out as well; without that, by the highest of the trees that it lies in. Only proven
// marks count: with others a chain of refused tokens could climb as high as it likes.
func (a *Admission) jumpLocked(w *Write) error {
	if w.MaxJump == 0 {
		return nil
	}
	var above level
	for i := range a.claims {
		if c := &a.claims[i]; c.kind == under {
			above = above.highest(c.entry.proven.level())
		}
	}
	for i := range a.claims {
		c := &a.claims[i]
		if c.kind == under {
			continue
		}
		from := c.entry.proven.level()
		if c.kind == whole {
			from = from.or(c.entry.beneath.watchLocked(a).proven)
		}
		if err := w.jump(c.entry.resource, from.or(above)); err != nil {
			return err
		}
	}
	return nil
}

// jump returns a [*JumpError] if the token is too far above the mark. Of a pair the first part counts.
func (w *Write) jump(r fencing.Resource, from level) error {
	t, m := w.Token, from.token
	high, low := t.Lo, m.Lo
	if w.Format == fencing.Pair {
		high, low = t.Hi, m.Hi
	}
	if w.MaxJump == 0 || !from.ok || t.Epoch != m.Epoch || high <= low || high-low <= w.MaxJump {
		return nil
	}
	return &JumpError{Resource: r, Token: t, Mark: m, Max: w.MaxJump}
}

// ranger is a [Store] that goes through the marks one by one. [github.com/fenceproxy/fenceproxy/tokenstore.Store] is one.
type ranger interface {
	// Range calls fn for each mark whose resource begins with prefix, as they were at one moment during the call, and stops at its
	// first error.
	Range(prefix string, fn func(fencing.ResourceMark) error) error
}

var errNoRange = errors.New("the store cannot tell which of its marks are proven")

// doubtAllLocked begins to hold the resources beneath on which a token is unproven. What a scan that begins now finds on the disk is proven
// unless its resource is in doubt until the scan ends: those on which a token is raised meanwhile are added by doubtLocked.
//
// +checklocks:g.mu
func (g *Gate) doubtAllLocked(w *watch) {
	w.doubts = make(map[fencing.Resource]*entry)
	for _, e := range g.entries {
		if len(e.unproven) > 0 {
			w.doubtLocked(e)
		}
	}
}

// doubtLocked tells the scans under way that a token is raised on e.
func (b *beneath) doubtLocked(e *entry) {
	for _, w := range b.watches {
		w.doubtLocked(e)
	}
}

func (w *watch) doubtLocked(e *entry) {
	if w.doubts != nil && w.doubts[e.resource] == nil && strings.HasPrefix(string(e.resource), string(w.prefix)) {
		w.doubts[e.resource] = e
		e.refs++ // it stays known
	}
}

// clearDoubtsLocked ends what doubtAllLocked began, and adds what is proven of the resources in doubt. In use they are known for what they
// are.
//
// +checklocks:g.mu
func (g *Gate) clearDoubtsLocked(w *watch, onDisk level) {
	w.proven = onDisk
	for _, e := range w.doubts {
		w.proven = w.proven.highest(e.proven.level())
		g.unrefLocked(e)
	}
	w.doubts = nil
}

// provenBeneath returns the highest mark on disk beneath the watch that is not in doubt. found is the highest of all. If none is in doubt, or
// one in doubt has it as its proven mark, that is the answer; otherwise the marks are read once more.
func (g *Gate) provenBeneath(w *watch, found level) (proven level, err error) {
	g.mu.Lock()
	clear := len(w.doubts) == 0
	for _, e := range w.doubts {
		clear = clear || e.proven.ok && !e.proven.mark.Token.Less(found.token)
	}
	g.mu.Unlock()
	if clear || !found.ok {
		return found, nil
	}
	s, ok := g.store.(ranger)
	if !ok {
		return level{}, errNoRange
	}
	err = s.Range(string(w.prefix), func(m fencing.ResourceMark) error {
		if here := (level{m.Mark.Token, true}); proven.highest(here) != proven && !g.inDoubt(w, m.Resource) {
			proven = here
		}
		return nil
	})
	return proven, err
}

func (g *Gate) inDoubt(w *watch, r fencing.Resource) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return w.doubts[r] != nil
}
