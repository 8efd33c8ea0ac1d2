package gate_test

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
)

func TestEnterWaitsForLowerInFlight(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		time.AfterFunc(5*time.Second, func() { a.Done(0) })
		began := time.Now()
		b := enter(t, g, final(write("r", 34)))
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("34 was admitted after %v; want 5s, when 33 had its outcome", waited)
		}
		try(g, write("r", 33)).wantStale(t, "r", 34)
		b.Done(0)
		wantIdle(t, g)
		s.wantMark(t, "r", 34)
	})
}

func TestEnterWaitsForEveryLowerWrite(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a, b := enter(t, g, write("r", 33)), enter(t, g, write("r", 33))
		p := try(g, write("r", 34))
		a.Done(0)
		p.wantWaiting(t)
		b.Done(0)
		p.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestLowerIsRefusedWhileHigherWaits(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, final(write("r", 34)))
		try(g, write("r", 33)).wantStale(t, "r", 34)
		wantStale(t, g.Check(writeAll(33, p.w.Resources...)), "r", 34)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
	})
}

func TestWaiterIsRefusedAtOnceWhenOvertaken(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p34, q34 := try(g, write("r", 34)), try(g, write("r", 34))
		release := s.holdAdvance()
		p35 := try(g, final(write("r", 35)))
		p34.wantStale(t, "r", 35) // before 35 is durable even
		q34.wantStale(t, "r", 35)
		release(nil)
		p35.wantWaiting(t)
		a.Done(0)
		p35.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestEqualTokensRunTogether(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		b := try(g, write("r", 33)).wantAdmitted(t)
		if st := g.Stats(); st.InFlight != 2 || st.Resources != 1 {
			t.Errorf("Stats = %+v; want 2 in flight on 1 resource", st)
		}
		a.Done(0)
		b.Done(0)
		wantIdle(t, g)
		if s.advances != 1 {
			t.Errorf("the store advanced %d times; want once", s.advances)
		}
	})
}

func TestEqualTokensDrainTogether(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p, q := try(g, write("r", 34)), try(g, write("r", 34))
		p.wantWaiting(t)
		q.wantWaiting(t)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestResourcesDoNotWaitForEachOther(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		try(g, write("s", 34)).wantAdmitted(t).Done(0)
		try(g, write("s", 33)).wantStale(t, "s", 34)
		a.Done(0)
	})
}

func TestMarkSurvivesTheResourceGoingIdle(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		enter(t, g, write("r", 34)).Done(0)
		wantIdle(t, g)
		if _, ok := g.Inspect("r"); ok {
			t.Error("Inspect finds an idle resource")
		}
		try(g, write("r", 33)).wantStale(t, "r", 34)
		wantStale(t, g.Check(write("r", 33)), "r", 34)
		wantIdle(t, g)
	})
}

func TestSettleHoldsTheGate(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		began := time.Now()
		enter(t, g, write("r", 33)).Done(3 * time.Second)
		try(g, write("r", 33)).wantAdmitted(t).Done(0)
		if st := g.Stats(); st.InFlight != 1 {
			t.Errorf("Stats = %+v; want the settling write in flight", st)
		}
		enter(t, g, write("r", 34)).Done(0)
		if waited := time.Since(began); waited != 3*time.Second {
			t.Errorf("34 was admitted after %v; want 3s, when 33 had settled", waited)
		}
		wantIdle(t, g)
	})
}

func TestInDoubtHoldsTheGateAgainstHigherTokens(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		began := time.Now()
		enter(t, g, write("r", 33)).InDoubt(10 * time.Second)
		if st := g.Stats(); st.InFlight != 0 || st.InDoubt != 1 {
			t.Errorf("Stats = %+v; want 1 in doubt and none in flight", st)
		}
		if st, _ := g.Inspect("r"); st.InFlight != 0 || st.InDoubt != 1 {
			t.Errorf("Inspect = %+v; want 1 in doubt and none in flight", st)
		}
		try(g, write("r", 33)).wantAdmitted(t).Done(0)
		p := try(g, final(write("r", 34)))
		p.wantWaiting(t)
		try(g, write("r", 33)).wantStale(t, "r", 34)
		p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
		wantIdle(t, g)
	})
}

func TestExclusiveRetryOfADoubtfulTokenWaits(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		began := time.Now()
		enter(t, g, exclusive(write("r", 33))).InDoubt(10 * time.Second)
		p := try(g, exclusive(write("r", 33)))
		p.wantWaiting(t)
		p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
		wantIdle(t, g)
	})
}

func TestInDoubtWithoutHoldReleasesAtOnce(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		enter(t, g, write("r", 33)).InDoubt(0)
		try(g, write("r", 34)).wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestNotSentReleasesAndKeepsTheMark(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, write("r", 34))
		a.NotSent()
		p.wantAdmitted(t).NotSent()
		s.wantMark(t, "r", 34)
		wantIdle(t, g)
	})
}

func TestDrainTimeoutSaysWhy(t *testing.T) {
	t.Run("in flight", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 33))
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyInFlight, RetryAfter: time.Second})
			s.wantMark(t, "r", 34)
			try(g, write("r", 33)).wantStale(t, "r", 34) // the mark stays raised
			a.Done(0)
			try(g, write("r", 34)).wantAdmitted(t).Done(0) // and the same token may be sent again
			wantIdle(t, g)
		})
	})
	t.Run("in doubt", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			enter(t, g, write("r", 33)).InDoubt(50 * time.Second)
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyInDoubt, RetryAfter: 20 * time.Second})
			pass(time.Minute)
		})
	})
	t.Run("the later of two doubts", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, write("r", 33)), enter(t, g, write("r", 33))
			a.InDoubt(50 * time.Second)
			b.InDoubt(40 * time.Second)
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyInDoubt, RetryAfter: 20 * time.Second})
			pass(time.Minute)
			wantIdle(t, g)
		})
	})
	t.Run("one in doubt, one in flight", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, write("r", 33)), enter(t, g, write("r", 33))
			a.InDoubt(50 * time.Second)
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyInFlight, RetryAfter: time.Second})
			b.Done(0)
			pass(time.Minute)
		})
	})
	t.Run("nearly over", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			enter(t, g, write("r", 33)).InDoubt(30*time.Second + time.Millisecond)
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyInDoubt, RetryAfter: time.Second})
			pass(time.Minute)
		})
	})
	t.Run("the resource that is busy", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("s", 33))
			p := try(g, writeAll(34, "r", "s"))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "s", Reason: gate.BusyInFlight, RetryAfter: time.Second})
			a.Done(0)
			wantIdle(t, g)
		})
	})
}

func TestZeroDrainTimeoutDoesNotWait(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		w := write("r", 34)
		w.DrainTimeout = 0
		p := try(g, w)
		p.wantBusyAfter(t, 0, gate.BusyError{Resource: "r", Reason: gate.BusyInFlight, RetryAfter: time.Second})
		a.Done(0)
		try(g, w).wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestSlowDiskIsNotCountedAsDraining(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		release := s.holdAdvance()
		p := try(g, write("r", 34))
		pass(time.Minute)
		release(nil)
		p.wantWaiting(t)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
	})
}

func TestOnlyTheFirstOutcomeCounts(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a, b := enter(t, g, write("r", 33)), enter(t, g, write("r", 33))
		a.Done(0)
		a.Done(0)
		a.InDoubt(time.Hour)
		a.NotSent()
		if err := a.Refused(); err != nil {
			t.Errorf("a second outcome, Refused, = %v; want nil", err)
		}
		if st := g.Stats(); st.InFlight != 1 || st.InDoubt != 0 {
			t.Errorf("Stats = %+v; want one write in flight", st)
		}
		try(g, write("r", 33)).wantAdmitted(t).Done(0)
		b.Done(time.Second)
		b.Done(0) // does not cut the settling short
		if st := g.Stats(); st.InFlight != 1 {
			t.Errorf("Stats = %+v; want the settling write", st)
		}
		pass(time.Second)
		wantIdle(t, g)
	})
}

func TestOutcomeCountsOnceAmongConcurrentCallers(t *testing.T) {
	g := gate.New(newMemStore(), gate.Config{})
	for range 200 {
		a := enter(t, g, write("r", 33))
		keep := enter(t, g, write("r", 33)) // panics on release if a was released twice
		together(
			func() { a.Done(0) },
			func() { a.NotSent() },
			func() { a.InDoubt(0) },
			func() { _ = a.Refused() },
			func() { a.Done(0) },
		)
		if st := g.Stats(); st.InFlight != 1 {
			t.Fatalf("Stats = %+v; want one write in flight", st)
		}
		keep.Done(0)
	}
	wantIdle(t, g)
}
