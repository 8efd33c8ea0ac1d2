package gate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestNothingIsAdmittedBeforeItsMarkIsDurable(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdAdvance()
		p := try(g, final(writeAll(34, "r", "s")))
		q := try(g, write("r", 34))
		p.wantWaiting(t)
		q.wantWaiting(t)
		if st := g.Stats(); st.InFlight != 0 {
			t.Errorf("Stats = %+v; want nothing in flight", st)
		}
		try(g, write("r", 33)).wantStale(t, "r", 34) // seen already
		try(g, write("s", 33)).wantStale(t, "s", 34)
		wantStale(t, g.Check(writeAll(33, "r")), "r", 34)
		s.wantMark(t, "r", 33)
		release(nil)
		p.wantAdmitted(t).Done(0)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestHigherTokenMayBecomeDurableFirst(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		first := s.holdAdvance()
		p := try(g, write("r", 33))
		second := s.holdAdvance()
		q := try(g, final(write("r", 34)))
		second(nil)
		q.wantAdmitted(t)
		first(nil)
		p.wantStale(t, "r", 34)
		wantConsistent(t, g)
		q.a.Done(0)
		wantIdle(t, g)
		s.wantMark(t, "r", 34)
	})
}

func TestFailedAdvanceIsRolledBack(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		full := errors.New("no space")
		release := s.holdAdvance()
		p := try(g, final(writeAll(34, "r", "s")))
		try(g, write("r", 33)).wantStale(t, "r", 34)
		release(full)
		p.wantErr(t, full)
		if e, ok := errors.AsType[*gate.StoreError](p.err); !ok || e.Op != "advance" {
			t.Errorf("Enter = %#v; want a StoreError of an advance", p.err)
		}
		try(g, write("r", 33)).wantAdmitted(t).Done(0) // equal tokens of the old mark go on
		s.unhold()
		try(g, write("s", 1)).wantAdmitted(t).Done(0)
		a.Done(0)
		wantIdle(t, g)
	})
}

func TestWritersThatJoinedAFailedAdvanceTryForThemselves(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		first, second := errors.New("first"), errors.New("second")
		release := s.holdAdvance()
		p := try(g, write("r", 34))
		q := try(g, write("r", 34))
		x := try(g, write("r", 34))
		release(first)
		p.wantErr(t, first)
		release(second) // one of q and x
		synctest.Wait()
		s.unhold()
		release(nil) // the other
		synctest.Wait()
		if (q.err == nil) == (x.err == nil) {
			t.Fatalf("the joined writers got %v and %v; want one second error and one admission", q.err, x.err)
		}
		for _, p := range []*attempt{q, x} {
			if p.err == nil {
				p.wantAdmitted(t).Done(0)
			} else {
				p.wantErr(t, second)
			}
		}
		s.wantMark(t, "r", 34)
		wantIdle(t, g)
	})
}

func TestFailedAdvanceBelowADurableOne(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		first := s.holdAdvance()
		p := try(g, write("r", 33))
		second := s.holdAdvance()
		q := try(g, write("r", 34))
		second(nil)
		full := errors.New("no space")
		first(full)
		p.wantErr(t, full)
		wantConsistent(t, g)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestBrokenStoreAdmitsNothing(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, write("r", 34))
		broken := errors.New("broken")
		s.fail(broken)
		try(g, write("r", 34)).wantErr(t, broken) // although the mark is known
		try(g, write("s", 1)).wantErr(t, broken)
		if err := g.Check(writeAll(34, "r")); !errors.Is(err, broken) {
			t.Errorf("Check = %v; want the store's error", err)
		}
		if _, _, err := g.SetMark("r", mark("r", 99).Mark, false); !errors.Is(err, broken) {
			t.Errorf("SetMark = %v; want the store's error", err)
		}
		a.Done(0)
		p.wantErr(t, broken)
		wantIdle(t, g)
	})
}

func TestStoreThatBreaksWhileAnEqualTokenJoins(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		broken := errors.New("broken")
		s.onLoad = func(fencing.Resource) error { s.fail(broken); return nil } // between the first look and the admission
		try(g, writeAll(33, "r", "s")).wantErr(t, broken)
		a.Done(0)
		wantIdle(t, g)
	})
}

func TestMarkThatCannotBeReadRefuses(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		damaged := errors.New("damaged")
		s.onLoad = func(r fencing.Resource) error {
			if r == "s" {
				return damaged
			}
			return nil
		}
		p := try(g, writeAll(33, "r", "s"))
		p.wantErr(t, damaged)
		if e, ok := errors.AsType[*gate.StoreError](p.err); !ok || e.Op != "load" {
			t.Errorf("Enter = %#v; want a StoreError of a load", p.err)
		}
		if a, err := g.Observe(write("s", 33)); a != nil || !errors.Is(err, damaged) {
			t.Errorf("Observe = %v, %v; want nil and the store's error", a, err)
		}
		if err := g.Check(writeAll(33, "r", "s")); !errors.Is(err, damaged) {
			t.Errorf("Check = %v; want the store's error", err)
		}
		if _, _, err := g.SetMark("s", mark("s", 33).Mark, false); !errors.Is(err, damaged) {
			t.Errorf("SetMark = %v; want the store's error", err)
		}
		wantIdle(t, g)
		s.wantNoMark(t, "r")
		enter(t, g, write("r", 1)).Done(0)
	})
}

func TestSlowLoadDoesNotReplaceANewerMark(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		slow := make(chan struct{})
		s.after = func() { <-slow } // the mark was read
		p := try(g, write("r", 33))
		s.unhold()
		a := try(g, final(write("r", 34))).wantAdmitted(t)
		close(slow)
		p.wantStale(t, "r", 34)
		a.Done(0)
		wantIdle(t, g)
	})
}

func TestMarkRecordsHowItCameToBe(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		w := write("r", 33)
		w.Format, w.By, w.Policy = fencing.Hex, "192.0.2.1", "rides"
		a := enter(t, g, w)
		got, _ := s.mark("r")
		want := fencing.Mark{Token: token33, Format: fencing.Hex, By: "192.0.2.1", Policy: "rides", At: time.Now()}
		if got != want {
			t.Errorf("the mark is %+v; want %+v", got, want)
		}
		p := try(g, write("r", 34))
		if m, _ := s.mark("r"); !m.Draining {
			t.Errorf("the mark %+v is not Draining; want it to be, 33 is in flight", m)
		}
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		enter(t, g, write("r", 35)).InDoubt(time.Second)
		if m, _ := s.mark("r"); m.Draining {
			t.Errorf("the mark %+v is Draining; want it not to be", m)
		}
		p = try(g, write("r", 36))
		if m, _ := s.mark("r"); !m.Draining {
			t.Errorf("the mark %+v is not Draining; want it to be, 35 is in doubt", m)
		}
		pass(time.Second)
		p.wantAdmitted(t).Done(0)
	})
}
