package gate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestObserveNeverWaits(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{Recover: time.Minute}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdAdvance()
		a := observe(t, g, write("r", 33)) // neither for the disk nor for recovery
		b := observe(t, g, write("r", 34)) // nor for lower writes
		c := observe(t, g, exclusive(write("r", 34)))
		if st, _ := g.Inspect("r"); st.InFlight != 3 || st.Seen.Token != fencing.Number(34) {
			t.Errorf("Inspect = %+v; want 3 in flight, 34 seen", st)
		}
		s.wantNoMark(t, "r")
		release(nil)
		release(nil)
		pass(0)
		s.wantMark(t, "r", 34)
		for _, a := range []*gate.Admission{a, b, c} {
			a.Done(0)
		}
		wantIdle(t, g)
		pass(time.Minute)
	})
}

func TestObserveSaysWhatEnterWouldHaveRefused(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a, err := g.Observe(writeAll(33, "r", "s"))
		wantStale(t, err, "r", 34)
		a.Done(0)
		b, err := g.Observe(greater(write("r", 34)))
		wantStale(t, err, "r", 34)
		b.Done(0)
		wantIdle(t, g)
		s.wantNoMark(t, "s")

		broken := errors.New("broken")
		s.fail(broken)
		if a, err := g.Observe(write("r", 34)); a != nil || !errors.Is(err, broken) {
			t.Errorf("Observe on a broken store = %v, %v; want nil and its error", a, err)
		}
	})
}

func TestEnterWaitsForObservedWrites(t *testing.T) {
	for name, token := range map[string]uint64{"lower": 32, "higher": 35} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("r", 33))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a, _ := g.Observe(final(write("r", token)))
				if token > 33 {
					try(g, write("r", 34)).wantStale(t, "r", token)
				}
				p := try(g, write("r", 36))
				p.wantWaiting(t)
				a.Done(0)
				p.wantAdmitted(t).Done(0)
				wantIdle(t, g)
			})
		})
	}
}

func TestEnterWaitsForTheMarkOfAnObservedToken(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdAdvance()
		a := observe(t, g, write("r", 33))
		p := try(g, write("r", 33))
		p.wantWaiting(t)
		release(nil)
		p.wantAdmitted(t).Done(0)
		a.Done(0)
		wantIdle(t, g)
	})
}

func TestObservedTokenThatTheDiskDidNotTakeIsForgotten(t *testing.T) {
	s := newMemStore(mark("r", 32))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdAdvance()
		a := observe(t, g, write("r", 33))
		p := try(g, write("r", 33))
		a.Done(0)
		s.unhold()
		release(errors.New("no space"))
		p.wantAdmitted(t).Done(0) // made the mark itself
		s.wantMark(t, "r", 33)

		release = s.holdAdvance()
		b := observe(t, g, write("r", 34))
		release(errors.New("no space"))
		pass(0)
		s.unhold()
		q := try(g, write("r", 33))
		q.wantWaiting(t) // for b only
		b.Done(0)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestObservedWritesOnAWedgedStoreAreBounded(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		wedged := make(chan struct{})
		s.onAdvance = func([]fencing.ResourceMark) error { <-wedged; return nil }
		var as []*gate.Admission
		for n := range uint64(1000) {
			as = append(as, observe(t, g, write("r", n+1)))
		}
		pass(0)
		if s.advances > 256 {
			t.Errorf("%d advances are under way; want at most 256", s.advances)
		}
		close(wedged)
		pass(0)
		for _, a := range as {
			a.Done(0)
		}
		wantIdle(t, g)
	})
}
