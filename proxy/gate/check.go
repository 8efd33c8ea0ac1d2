package gate

import "github.com/fenceproxy/fenceproxy/tokenstore/fencing"

// Check reports whether the token is stale by the mark of one of the write's resources and trees, or too far above it, as Enter would,
// without waiting for other writes and without leaving a trace. It lets a caller refuse a write before its body is read. What lies
// beneath its trees it does not look for. Its error is a [*StaleTokenError], a [*JumpError], a [*StoreError] or [ErrClosed].
func (g *Gate) Check(w Write) error {
	if err := g.store.Err(); err != nil {
		return &StoreError{Op: "load", Err: err}
	}
	var unmarked fencing.Resource // one of the resources that has no mark of its own
	var above level               // the highest of the trees that the write lies in
	for _, r := range w.Resources {
		proven, err := g.check(r, &w, plain)
		if err != nil {
			return err
		}
		if !proven.ok {
			unmarked = r
		}
	}
	for _, r := range w.Under {
		proven, err := g.check(r, &w, under)
		if err != nil {
			return err
		}
		above = above.highest(proven)
	}
	for _, t := range w.Trees {
		if _, err := g.check(t.Key, &w, whole); err != nil {
			return err
		}
	}
	if unmarked == "" {
		return nil
	}
	return w.jump(unmarked, above)
}

// check returns the proven mark of r, or why the write is refused by r alone.
func (g *Gate) check(r fencing.Resource, w *Write, k kind) (level, error) {
	ms, err := g.marks(r)
	if err != nil {
		return level{}, err
	}
	by := ms.seen
	if k == plain && w.patient() {
		by = ms.firm
	}
	greater := w.Greater && k != under
	if by.refuses(w.Token, greater) {
		return level{}, &StaleTokenError{Resource: r, Token: w.Token, Mark: by.mark.Token, Greater: greater}
	}
	proven := ms.proven.level()
	if k == under {
		return proven, nil
	}
	return proven, w.jump(r, proven)
}

// marks of a resource.
type marks struct {
	seen   floor // the highest
	firm   floor // the highest that no refusal takes back
	proven floor // the highest that was accepted
}

func (g *Gate) marks(r fencing.Resource) (ms marks, err error) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return ms, ErrClosed
	}
	e := g.entries[r]
	known := e != nil && e.known
	if known {
		ms = marks{e.seenLocked(), e.firmLocked(), e.proven}
	}
	g.mu.Unlock()
	if known {
		return ms, nil
	}
	m, ok, err := g.store.Load(r)
	if err != nil {
		return ms, &StoreError{Op: "load", Err: err}
	}
	return marks{floor{m, ok}, floor{m, ok}, floor{m, ok}}, nil
}

// Mark returns the highest mark seen on r, durable or not; ok is false if there is none. The error is a [*StoreError] or [ErrClosed].
func (g *Gate) Mark(r fencing.Resource) (m fencing.Mark, ok bool, err error) {
	ms, err := g.marks(r)
	return ms.seen.mark, ms.seen.ok, err
}
