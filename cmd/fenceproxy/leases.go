package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// openLeases makes the manager of the leases, if they are on.
func (s *sidecar) openLeases(metrics *proxy.Metrics) (err error) {
	if s.cfg.Leases.Listen.Address == "" {
		return nil
	}
	s.leases, err = lease.New(lease.Config{Notes: leaseNotes{s.store}, Marks: leaseMarks{s}, Useless: s.uselessLease, Max: s.cfg.Leases.Max, Logger: s.log})
	if err == nil {
		err = metrics.Registry.Register(s.leases)
	}
	return err
}

// uselessLease says why the token of a lease on r could never be used under the policies as they are now, or "".
func (s *sidecar) uselessLease(r fencing.Resource) string {
	p := s.proxy.Policies().TakesNoLease(r)
	switch {
	case p == nil:
		return ""
	case p.Compare == policies.Hold:
		return fmt.Sprintf("the policy %s has compare: hold: the first id that writes claims the resource, and the number of a lease is no id; write without a lease", p.Name)
	}
	return fmt.Sprintf("the policy %s has format: %s, and a lease hands out single numbers alone", p.Name, p.Format)
}

// leaseNotes keeps notes in the token store.
type leaseNotes struct{ *tokenstore.Store }

func (n leaseNotes) SetMeta(name, value string) error {
	return leaseError(n.Store.SetMeta(name, value))
}

func (n leaseNotes) DeleteMeta(name string) error { return leaseError(n.Store.DeleteMeta(name)) }

// leaseError tells a full disk from other troubles.
func leaseError(err error) error {
	if errors.Is(err, tokenstore.ErrNoSpace) {
		return fmt.Errorf("%w: %w", lease.ErrNoSpace, err)
	}
	return err
}

// leaseMarks are the marks as the gate knows them.
type leaseMarks struct{ s *sidecar }

// Seen returns the highest mark that was seen, in the present epoch of the policy through which it was advanced. What is below that epoch
// is below every token in it. Of a mark that no policy advanced the policy is unknown: the lowest epoch that any policy has is sure not to
// be above that of its own.
func (m leaseMarks) Seen(r fencing.Resource) (fencing.Mark, bool, error) {
	mark, ok, err := fencing.Mark{}, false, error(nil)
	if state, busy := m.s.gate.Inspect(r); busy {
		mark, ok = state.Seen, state.HasSeen
	} else if mark, ok, err = m.s.store.Load(r); err != nil {
		return fencing.Mark{}, false, err
	}
	epochs := m.s.proxy.Policies().Epochs()
	epoch, known := epochs[mark.Policy]
	if !known && len(epochs) > 0 {
		epoch = slices.Min(slices.Collect(maps.Values(epochs)))
	}
	if mark.Token.Epoch < epoch {
		mark.Token, ok = fencing.Token{Epoch: epoch}, true
	}
	if !mark.Format.Valid() {
		mark.Format = fencing.Decimal
	}
	return mark, ok, nil
}

// Raise makes m the mark of r by way of the gate, which must not be overtaken by a mark that it has not seen.
func (m leaseMarks) Raise(r fencing.Resource, mark fencing.Mark) error {
	old, had, err := m.s.gate.SetMark(r, mark, false)
	switch {
	case errors.Is(err, gate.ErrWouldLower), errors.Is(err, gate.ErrChanged):
		return lease.ErrOvertaken
	case err == nil && had && !old.Token.Less(mark.Token): // somebody else's token, at the same height
		return lease.ErrOvertaken
	}
	return leaseError(err)
}
