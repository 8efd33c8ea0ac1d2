package gate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestCancelledWaiterLeavesNothing(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, writeAll(33, "r", "s"))
		p := try(g, writeAll(34, "r", "s"))
		p.wantWaiting(t)
		p.cancel()
		p.wantErr(t, context.Canceled)
		if st := g.Stats(); st.Waiting != 0 || st.InFlight != 1 {
			t.Errorf("Stats = %+v; want nobody waiting", st)
		}
		try(g, write("s", 33)).wantStale(t, "s", 34) // the mark stays raised
		a.Done(0)
		wantIdle(t, g)
		s.wantMark(t, "r", 34)
	})
}

func TestCancelledContextOfAFreeResource(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.Enter(ctx, write("r", 34)); !errors.Is(err, context.Canceled) {
			t.Errorf("Enter = %v; want Canceled", err)
		}
		a.Done(0)
		wantIdle(t, g)
	})
}

// A writer may be admitted in the very moment in which its caller gives up: then nobody would release it.
func TestAdmissionOfAWriterThatIsGoneIsReleased(t *testing.T) {
	g := gate.New(newMemStore(), gate.Config{})
	for i := range 500 {
		a := enter(t, g, write("r", uint64(2*i+1)))
		ctx, cancel := context.WithCancel(context.Background())
		together(
			func() { a.Done(0) },
			cancel,
			func() {
				if b, err := g.Enter(ctx, write("r", uint64(2*i+2))); err == nil {
					b.Done(0)
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("Enter = %v; want admitted or Canceled", err)
				}
			},
		)
		wantIdle(t, g)
	}
}

func TestAdmissionAtTheDeadlineIsKept(t *testing.T) {
	for range 50 {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			enter(t, g, write("r", 33)).Done(30 * time.Second) // ends with the drain timeout
			p := try(g, write("r", 34))
			<-p.done
			if p.err == nil {
				p.a.Done(0)
			} else {
				wantBusy(t, p.err, gate.BusyError{Resource: "r", Reason: gate.BusyInFlight, RetryAfter: time.Second})
			}
			pass(0)
			wantIdle(t, g)
		})
	}
}

func TestWaitersOfOneResourceAreBounded(t *testing.T) {
	bubble(t, gate.Config{MaxWaiters: 2}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, writeAll(33, "r", "s"))
		p, q := try(g, write("s", 34)), try(g, write("s", 34))
		over := try(g, writeAll(34, "r", "s"))
		over.wantBusyAfter(t, 0, gate.BusyError{Resource: "s", Reason: gate.BusyWaiters, RetryAfter: time.Second})
		other := try(g, write("r", 34))
		other.wantWaiting(t)
		a.Done(0)
		for _, p := range []*attempt{p, q, other} {
			p.wantAdmitted(t).Done(0)
		}
		wantIdle(t, g)
	})
}

func TestWaitersAreBoundedInTotal(t *testing.T) {
	bubble(t, gate.Config{MaxWaitersTotal: 2}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, writeAll(33, "r", "s", "t"))
		p, q := try(g, write("r", 34)), try(g, write("s", 34))
		over := try(g, write("t", 34))
		over.wantBusyAfter(t, 0, gate.BusyError{Resource: "t", Reason: gate.BusyWaiters, RetryAfter: time.Second})
		p.cancel()
		p.wantErr(t, context.Canceled)
		next := try(g, write("t", 34))
		next.wantWaiting(t)
		a.Done(0)
		q.wantAdmitted(t).Done(0)
		next.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestExclusiveWritesRunAloneInOrderOfArrival(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, exclusive(write("r", 33)))
		var ps []*attempt
		for range 5 {
			ps = append(ps, try(g, exclusive(write("r", 33))))
		}
		a.Done(0)
		for i, p := range ps {
			admitted := p.wantAdmitted(t)
			for _, later := range ps[i+1:] {
				later.wantWaiting(t)
			}
			admitted.Done(0)
		}
		wantIdle(t, g)
	})
}

func TestExclusiveWriteHoldsNobodyOnceItIsOver(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, exclusive(write("r", 33)))
		p := try(g, write("r", 33))
		b := observe(t, g, write("r", 33))
		p.wantWaiting(t)
		a.Done(0)
		p.wantAdmitted(t).Done(0) // beside the observed one
		b.Done(0)
		wantIdle(t, g)
	})
}

func TestNobodyOvertakesAnExclusiveWrite(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		x := try(g, exclusive(write("r", 33)))
		b := try(g, write("r", 33))
		x.wantWaiting(t)
		b.wantWaiting(t)
		a.Done(0)
		x.wantAdmitted(t)
		b.wantWaiting(t)
		x.a.Done(0)
		b.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestExclusiveWaiterThatLeavesLetsTheNextIn(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("s", 33))
			x := try(g, exclusive(writeAll(33, "r", "s")))
			b := try(g, write("r", 33))
			b.wantWaiting(t)
			x.cancel()
			b.wantAdmitted(t).Done(0)
			a.Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("overtaken", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("s", 33))
			x := try(g, exclusive(writeAll(33, "r", "s")))
			b := try(g, write("r", 33))
			b.wantWaiting(t)
			p := try(g, final(write("s", 34)))
			x.wantStale(t, "s", 34)
			b.wantAdmitted(t).Done(0)
			a.Done(0)
			p.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("sent back to advance", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("s", 33))
			first := enter(t, g, write("r", 34))
			x := try(g, exclusive(writeAll(34, "r", "s")))
			b := try(g, write("r", 34))
			b.wantWaiting(t)
			release := s.holdAdvance()
			if _, _, err := g.SetMark("s", mark("s", 5).Mark, true); err != nil {
				t.Fatalf("SetMark(5) = %v", err)
			}
			b.wantWaiting(t) // x is at the disk again, and keeps its place
			release(nil)
			x.wantWaiting(t)
			first.Done(0)
			a.Done(0)
			b.wantWaiting(t)
			x.wantAdmitted(t).Done(0)
			b.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
}

func TestSeveralResourcesAreAllOrNothing(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a, b := enter(t, g, write("r", 33)), enter(t, g, write("s", 33))
		p := try(g, writeAll(34, "s", "r", "s"))
		a.Done(0)
		p.wantWaiting(t)
		if st, _ := g.Inspect("r"); st.InFlight != 0 || st.Waiting != 1 {
			t.Errorf("Inspect(r) = %+v; want one waiting, and nothing held by it", st)
		}
		b.Done(0)
		p.wantAdmitted(t)
		for _, r := range []fencing.Resource{"r", "s"} {
			if st, _ := g.Inspect(r); st.InFlight != 1 || st.Waiting != 0 {
				t.Errorf("Inspect(%s) = %+v; want one in flight", r, st)
			}
		}
		p.a.Done(0)
		wantIdle(t, g)
	})
}

func TestStaleOnOneResourceRaisesNone(t *testing.T) {
	s := newMemStore(mark("s", 40))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		try(g, writeAll(35, "r", "s", "t")).wantStale(t, "s", 40)
		s.wantNoMark(t, "r")
		s.wantNoMark(t, "t")
		try(g, write("r", 1)).wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestEqualOnOneAndHigherOnTheOther(t *testing.T) {
	s := newMemStore(mark("r", 35), mark("s", 30))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("s", 30))
		p := try(g, writeAll(35, "r", "s"))
		p.wantWaiting(t)
		b := try(g, write("r", 35)).wantAdmitted(t) // nothing is held while p waits
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		b.Done(0)
		s.wantMark(t, "s", 35)
		wantIdle(t, g)
	})
}

func TestOppositeOrdersDoNotDeadlock(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		for n := uint64(1); n < 50; n++ {
			p, q := start(g, exclusive(writeAll(n, "r", "s"))), start(g, exclusive(writeAll(n, "s", "r")))
			select {
			case <-p.done:
			case <-q.done:
				p, q = q, p
			}
			p.wantAdmitted(t).Done(0)
			q.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		}
	})
}

// A write that goes stale on one resource can free another one that the newcomer also names: the newcomer's token must have been seen on
// all of its resources by then.
func TestRaisingIsOneInstantOnAllResources(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		x := try(g, exclusive(writeAll(33, "r", "s")))
		b := try(g, write("s", 33)) // behind x
		b.wantWaiting(t)
		p := try(g, final(writeAll(34, "r", "s")))
		x.wantStale(t, "r", 34)
		b.wantStale(t, "s", 34)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestGreaterWantsEveryMarkBelow(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, final(greater(write("r", 33))))
		p := try(g, greater(write("r", 33)))
		p.wantStale(t, "r", 33)
		if stale, ok := errors.AsType[*gate.StaleTokenError](p.err); !ok || !stale.Greater {
			t.Errorf("the error is %+v; want Greater set", p.err)
		}
		wantStale(t, g.Check(greater(writeAll(33, p.w.Resources...))), "r", 33)
		if err := g.Check(writeAll(33, p.w.Resources...)); err != nil {
			t.Errorf("Check(33) = %v; want nil", err)
		}
		q := try(g, final(greater(write("r", 34)))) // waits, and is the mark itself then
		q.wantWaiting(t)
		try(g, greater(write("r", 34))).wantStale(t, "r", 34)
		a.Done(0)
		q.wantAdmitted(t).Done(0)
		try(g, write("r", 34)).wantAdmitted(t).Done(0) // others may be equal
		try(g, greater(writeAll(34, "r", "s"))).wantStale(t, "r", 34)
		wantIdle(t, g)
	})
}

func TestGreaterIsRefusedWhenOvertaken(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, greater(write("r", 33)))
		p := try(g, greater(write("r", 34)))
		q := try(g, final(greater(write("r", 35))))
		p.wantStale(t, "r", 35)
		a.Done(0)
		q.wantAdmitted(t).Done(0)
	})
}

func TestIdleResourcesAreDropped(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		for i := range 1000 {
			r := fencing.Resource([]byte{'r', byte('0' + i%10), byte('0' + i/10%10), byte('0' + i/100)})
			a, b := enter(t, g, write(r, 1)), enter(t, g, write(r, 1))
			a.Done(0)
			if st := g.Stats(); st.Resources != 1 {
				t.Fatalf("Stats = %+v; want one resource", st)
			}
			b.Done(0)
			wantIdle(t, g)
		}
		wantConsistent(t, g)
	})
}

func TestWriteWithoutResourcesPanicsBeforeItLocks(t *testing.T) {
	g := gate.New(newMemStore(), gate.Config{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("Enter without resources did not panic; want it never to be admitted")
			}
		}()
		_, _ = g.Enter(t.Context(), writeAll(33))
	}()
	enter(t, g, write("r", 33)).Done(0)
	wantIdle(t, g)
}
