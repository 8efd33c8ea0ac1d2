package gate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// The token of the holder is 34 in these tests, and outsiders send higher ones, which the upstream refuses.

func TestLowerTokenWaitsForTheVerdictOnAHigherOne(t *testing.T) {
	for name, tc := range map[string]struct {
		end   func(*gate.Admission)
		stale bool
	}{
		"accepted": {func(a *gate.Admission) { a.Done(0) }, true},
		"settles":  {func(a *gate.Admission) { a.Done(time.Hour) }, true}, // told at once
		"in doubt": {func(a *gate.Admission) { a.InDoubt(time.Hour) }, true},
		"not sent": {func(a *gate.Admission) { _ = a.NotSent() }, true},
		"refused":  {func(a *gate.Admission) { _ = a.Refused() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, write("r", 50))
				if err := g.Check(write("r", 34)); err != nil {
					t.Errorf("Check(34) = %v; want nil: the body may come", err)
				}
				wantStale(t, g.Check(write("r", 33)), "r", 34)
				try(g, write("r", 33)).wantStale(t, "r", 34)
				p := try(g, write("r", 34))
				p.wantWaiting(t)
				tc.end(a)
				if tc.stale {
					p.wantStale(t, "r", 50)
				} else {
					p.wantAdmitted(t).Done(0)
					s.wantMark(t, "r", 34)
				}
				pass(2 * time.Hour)
				wantIdle(t, g)
			})
		})
	}
}

func TestTokenBetweenTheMarkAndAnUnprovenOneGetsItsOwnMark(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p := try(g, write("r", 34))
		s.wantMark(t, "r", 50)
		refused(t, a)
		p.wantAdmitted(t)
		s.wantMark(t, "r", 34)
		try(g, write("r", 10)).wantWaiting(t)
		p.a.Done(0)
		pass(0)
		wantIdle(t, g)
	})
}

func TestNobodyJoinsAFlightThatALowerWriterWaitsFor(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		b := try(g, write("r", 50)).wantAdmitted(t) // nobody waits yet
		p := try(g, write("r", 34))
		equal, higher := try(g, write("r", 50)), try(g, write("r", 60))
		equal.wantWaiting(t)
		higher.wantWaiting(t)
		refused(t, a)
		p.wantWaiting(t)
		refused(t, b)
		holder := p.wantAdmitted(t) // before those that came after it
		s.wantMark(t, "r", 34)
		equal.wantWaiting(t)
		higher.wantWaiting(t)
		holder.Done(0)
		refused(t, equal.wantAdmitted(t)) // then in order of arrival
		refused(t, higher.wantAdmitted(t))
		s.wantMark(t, "r", 34)
		wantIdle(t, g)
	})
}

// Where nobody is turned away, the order is that of the tokens.
func TestHigherTokenGoesFirstUnlessSomebodyWasTurnedAway(t *testing.T) {
	for _, turnedAway := range []bool{false, true} {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 30))
			p33 := try(g, write("r", 33))
			p34 := try(g, write("r", 34))
			p33.wantWaiting(t)
			if turnedAway {
				refused(t, a)
				p34.wantWaiting(t)
				p33.wantAdmitted(t).Done(0)
				p34.wantAdmitted(t).Done(0)
			} else {
				a.Done(0)
				p33.wantWaiting(t)
				p34.wantAdmitted(t).Done(0)
				p33.wantStale(t, "r", 34)
			}
			s.wantMark(t, "r", 34)
			wantIdle(t, g)
		})
	}
}

func TestLowerTokenThatCameLaterStaysBehind(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 32))
		p34, p33 := try(g, write("r", 34)), try(g, write("r", 33))
		refused(t, a)
		b := p34.wantAdmitted(t)
		p33.wantWaiting(t)
		b.Done(0)
		p33.wantStale(t, "r", 34)
		wantIdle(t, g)
	})
}

// Whoever comes while one that is due waits leaves no trace before it is its turn.
func TestLaterTokensAreNotSeenBeforeOneThatIsDue(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a, b := enter(t, g, write("r", 50)), enter(t, g, write("r", 50))
		p := try(g, write("r", 34))
		refused(t, a) // from now on p is due
		advances := s.advances
		late := try(g, write("r", 60))
		late.wantWaiting(t)
		if s.advances != advances {
			t.Error("a token that stands behind one that is due was written to disk")
		}
		late.cancel()
		late.wantErr(t, context.Canceled)
		refused(t, b)
		p.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 34)
		wantIdle(t, g)
	})
}

func TestTokensTakenBackForOneThatIsDueAreRaisedAgain(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p := try(g, write("r", 34))
		late := try(g, write("r", 60)) // seen and durable
		s.wantMark(t, "r", 60)
		releaseRestore := s.holdRestore()
		c := refuse(a)
		releaseRestore(nil)
		<-c
		p.wantWaiting(t)
		s.wantMark(t, "r", 60)
		newcomer := try(g, write("r", 70)) // must not slip in while the disk is busy
		releaseRestore(nil)
		p.wantAdmitted(t)
		s.wantMark(t, "r", 34)
		late.wantWaiting(t)
		s.wantMark(t, "r", 34)
		p.a.Done(0)
		late.wantAdmitted(t)
		newcomer.wantWaiting(t)
		late.a.Done(0)
		newcomer.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 70)
		wantIdle(t, g)
	})
}

func TestTakingBackThatFailsAdmitsNobody(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		full := errors.New("no space")
		a := enter(t, g, write("r", 50))
		p := try(g, write("r", 34))
		late := try(g, write("r", 60))
		restores := 0
		s.onRestore = func(fencing.Resource, fencing.Token) error {
			if restores++; restores > 1 {
				return full
			}
			return nil
		}
		refused(t, a)
		p.wantErr(t, full)
		late.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 60)
		wantIdle(t, g)
	})
}

func TestSeveralResourcesWaitForVerdictsTogether(t *testing.T) {
	s := newMemStore(mark("r", 10), mark("s", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p := try(g, writeAll(34, "r", "s"))
		p.wantWaiting(t)
		s.wantMark(t, "s", 10)                         // all or none
		try(g, write("s", 20)).wantAdmitted(t).Done(0) // so it stands in nobody's way there
		late := try(g, writeAll(60, "r", "s"))         // seen on both
		try(g, write("s", 20)).wantWaiting(t)          // for the verdict on 60
		refused(t, a)
		pass(0)
		p.wantAdmitted(t)
		s.wantMark(t, "r", 34)
		s.wantMark(t, "s", 34)
		p.a.Done(0)
		refused(t, late.wantAdmitted(t))
		s.wantMark(t, "r", 34)
		s.wantMark(t, "s", 34)
		pass(time.Minute)
		wantIdle(t, g)
	})
}

func TestGreaterWaitsForTheVerdictOnItsOwnNumber(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, greater(write("r", 35)))
		p, q := try(g, greater(write("r", 35))), try(g, greater(write("r", 35)))
		p.wantWaiting(t)
		refused(t, a)
		b := p.wantAdmitted(t)
		q.wantWaiting(t)
		b.Done(0)
		q.wantStale(t, "r", 35)
		s.wantMark(t, "r", 35)
		wantIdle(t, g)
	})
}

func TestWaitForAVerdictIsBounded(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 50))
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyInFlight, RetryAfter: time.Second})
			refused(t, a)
			s.wantMark(t, "r", 34)
			wantIdle(t, g)
		})
	})
	t.Run("in time, nothing in flight", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			other := enter(t, g, write("s", 1))
			w := writeAll(50, "r", "s")
			w.DrainTimeout = time.Minute
			above := try(g, w)
			p := try(g, write("r", 34))
			p.wantBusyAfter(t, 30*time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyUnproven, RetryAfter: time.Second})
			other.Done(0)
			above.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("in number", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{MaxWaiters: 2}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 50))
			p, q := try(g, write("r", 34)), try(g, write("r", 50))
			over := try(g, write("r", 34))
			over.wantBusyAfter(t, 0, gate.BusyError{Resource: "r", Reason: gate.BusyWaiters, RetryAfter: time.Second})
			refused(t, a)
			p.wantAdmitted(t).Done(0)
			q.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
}

func TestVerdictIsNotWaitedFor(t *testing.T) {
	hold := write("r", 34)
	hold.Holder = "id"
	for name, w := range map[string]gate.Write{
		"a hold":         hold,
		"beside a tree":  {Resources: []fencing.Resource{"r"}, Trees: []gate.Tree{{Key: "x?tree", Prefix: "x/"}}, Token: fencing.Number(34), DrainTimeout: time.Minute},
		"a tree":         {Trees: []gate.Tree{{Key: "r", Prefix: "r/"}}, Token: fencing.Number(34), DrainTimeout: time.Minute},
		"lies in a tree": {Resources: []fencing.Resource{"x"}, Under: []fencing.Resource{"r"}, Token: fencing.Number(34), DrainTimeout: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, write("r", 50))
				wantStale(t, g.Check(w), "r", 50)
				try(g, w).wantStale(t, "r", 50)
				if b, err := g.Observe(write("r", 34)); !isStale(err) {
					t.Errorf("Observe(34) = %v; want stale", err)
				} else {
					b.Done(0)
				}
				refused(t, a)
				wantIdle(t, g)
			})
		})
	}
}

func TestWriterBeneathATreeWaitsForTheVerdictOnItsResource(t *testing.T) {
	s := newMemStore(mark("d/a/y", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/y", 50))
		p := try(g, put("d/a/y", 34))
		p.wantWaiting(t)
		refused(t, a)
		b := p.wantAdmitted(t)
		try(g, remove("d/a", 20)).wantStale(t, "d/a?tree", 34)
		tree := try(g, remove("d/a", 40))
		tree.wantWaiting(t)
		b.Done(0)
		tree.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestOperatorVouchesForAnUnprovenToken(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p := try(g, write("r", 34))
		if _, _, err := g.SetMark("r", mark("r", 50).Mark, false); err != nil {
			t.Fatalf("SetMark = %v", err)
		}
		p.wantStale(t, "r", 50)
		a.Done(0)
		wantIdle(t, g)
	})
}

func TestOperatorLowersWhileAWriterWaitsForAVerdict(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p := try(g, write("r", 34))
		late := try(g, write("r", 60))
		if _, _, err := g.SetMark("r", mark("r", 20).Mark, true); err != nil {
			t.Fatalf("SetMark = %v", err)
		}
		p.wantWaiting(t) // 50 is still in flight
		a.Done(0)
		for _, q := range []*attempt{p, late} { // both have been raised again, in whatever order
			if q.returned() && q.err == nil {
				q.a.Done(0)
			}
		}
		pass(0)
		for _, q := range []*attempt{p, late} {
			if !q.returned() || q.err != nil && !isStale(q.err) {
				t.Errorf("%v returned %v: %v; want admitted or stale", q.w.Token, q.returned(), q.err)
			} else if q.err == nil {
				q.a.Done(0)
			}
		}
		s.wantMark(t, "r", 60)
		wantIdle(t, g)
	})
}

func TestCloseRefusesThoseWhoWaitForAVerdict(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p, late := try(g, write("r", 34)), try(g, write("r", 60))
		release := s.holdRestore()
		c := refuse(a)
		release(nil)
		<-c
		synctest.Wait() // p takes 60 back
		closed := make(chan bool, 1)
		go func() { closed <- g.Close(t.Context()) }() // ends when the store has answered
		synctest.Wait()
		late.wantErr(t, gate.ErrClosed)
		select {
		case <-closed:
			t.Error("Close returned while a mark was on its way to the disk")
		default:
		}
		release(nil)
		p.wantErr(t, gate.ErrClosed)
		if !<-closed {
			t.Error("Close = false; want nothing left")
		}
		wantIdle(t, g)
	})
}

// While a write that goes first is under way the mark on disk is its own, and not that of one which waits behind it. After a crash the token of
// the mark is let in at once, so it must not be that one.
func TestMarkOfAWriteThatGoesFirstIsItsOwn(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p, late := try(g, write("r", 34)), try(g, write("r", 60))
		refused(t, a)
		p.wantAdmitted(t).InDoubt(time.Second)
		newer := try(g, write("r", 70))
		s.wantMark(t, "r", 34)
		pass(time.Second)
		late.wantAdmitted(t)
		newer.wantWaiting(t)
		s.wantMark(t, "r", 60)
		late.a.Done(0)
		newer.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestRevertUnsent(t *testing.T) {
	revert := func(w gate.Write) gate.Write { w.RevertUnsent = true; return w }
	for name, tc := range map[string]struct {
		w    func(gate.Write) gate.Write
		want uint64
	}{
		"off": {func(w gate.Write) gate.Write { return w }, 50},
		"on":  {revert, 34},
	} {
		t.Run(name+", hangs up while it waits", func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, write("r", 34))
				p := try(g, tc.w(write("r", 50)))
				p.cancel()
				p.wantErr(t, context.Canceled)
				a.Done(0)
				pass(0)
				s.wantMark(t, "r", tc.want)
				wantIdle(t, g)
			})
		})
		t.Run(name+", waits in vain", func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, write("r", 34))
				w := tc.w(write("r", 50))
				w.DrainTimeout = time.Second / 2
				p := try(g, w)
				low := try(g, write("r", 34)) // for the verdict on 50
				p.wantBusyAfter(t, time.Second/2, gate.BusyError{Resource: "r", Reason: gate.BusyInFlight, RetryAfter: time.Second})
				if tc.want == 34 {
					low.wantAdmitted(t).Done(0)
				} else {
					low.wantStale(t, "r", 50)
				}
				a.Done(0)
				s.wantMark(t, "r", tc.want)
				wantIdle(t, g)
			})
		})
		t.Run(name+", the upstream is down", func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				if err := enter(t, g, tc.w(write("r", 50))).NotSent(); err != nil {
					t.Errorf("NotSent = %v; want nil", err)
				}
				s.wantMark(t, "r", tc.want)
				wantIdle(t, g)
			})
		})
		t.Run(name+", admitted as it hangs up", func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				for range 50 {
					a := enter(t, g, write("r", 34))
					p := start(g, tc.w(write("r", 34)))
					q := start(g, tc.w(write("r", 50)))
					synctest.Wait()
					go a.Done(0)
					go q.cancel()
					<-p.done
					<-q.done
					if p.err == nil {
						p.a.Done(0)
					}
					if q.err == nil {
						_ = q.a.NotSent()
					}
					pass(0)
					s.wantMark(t, "r", tc.want)
					if tc.want == 50 {
						return
					}
				}
			})
		})
		t.Run(name+", another one was sent", func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a, b := enter(t, g, tc.w(write("r", 50))), enter(t, g, tc.w(write("r", 50)))
				p := try(g, tc.w(exclusive(write("r", 50))))
				b.Done(0)
				_ = a.NotSent()
				p.wantAdmitted(t)
				_ = p.a.NotSent()
				s.wantMark(t, "r", 50)
				wantIdle(t, g)
			})
		})
		t.Run(name+", another one waits", func(t *testing.T) {
			s := newMemStore(mark("r", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, write("r", 34))
				p, q := try(g, tc.w(write("r", 50))), try(g, tc.w(write("r", 50)))
				p.cancel()
				p.wantErr(t, context.Canceled)
				s.wantMark(t, "r", 50)
				a.Done(0)
				q.wantAdmitted(t).Done(0)
				s.wantMark(t, "r", 50)
				wantIdle(t, g)
			})
		})
	}
}

func TestTokenThatJumpsTooFar(t *testing.T) {
	jump := func(n uint64) gate.Write {
		w := write("r", n)
		w.MaxJump = 10
		return w
	}
	wantJump := func(t *testing.T, g *gate.Gate, w gate.Write, mark fencing.Token) {
		t.Helper()
		want := gate.JumpError{Resource: "r", Token: w.Token, Mark: mark, Max: w.MaxJump}
		a, observed := g.Observe(w)
		if a != nil {
			a.Done(0)
		}
		for name, err := range map[string]error{"Check": g.Check(w), "Enter": try(g, w).err, "Observe": observed} {
			if e, ok := errors.AsType[*gate.JumpError](err); !ok || *e != want {
				t.Errorf("%s = %v; want %v", name, err, &want)
			}
		}
	}
	t.Run("the proven mark counts", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			wantJump(t, g, jump(45), fencing.Number(34))
			s.wantMark(t, "r", 34)
			a := enter(t, g, jump(44))
			wantJump(t, g, jump(45), fencing.Number(34)) // 44 is no step to climb on before it was accepted
			refused(t, a)
			s.wantMark(t, "r", 34)
			enter(t, g, jump(44)).Done(0)
			if err := g.Check(jump(54)); err != nil {
				t.Errorf("Check(54) = %v; want nil", err)
			}
			enter(t, g, jump(54)).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("where there is no mark any token may come", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			if err := g.Check(jump(1 << 62)); err != nil {
				t.Errorf("Check = %v; want nil", err)
			}
			enter(t, g, jump(1<<62)).Done(0)
		})
	})
	t.Run("an epoch is no jump", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			w := jump(1000)
			w.Token = w.Token.In(1)
			enter(t, g, w).Done(0)
			wantJump(t, g, gate.Write{Resources: w.Resources, Token: fencing.Number(2000).In(1), MaxJump: 10}, w.Token)
		})
	})
	t.Run("of a pair the first part counts", func(t *testing.T) {
		m := mark("r", 0)
		m.Mark.Token, m.Mark.Format = fencing.Token{Hi: 7, Lo: 3}, fencing.Pair
		s := newMemStore(m)
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			w := jump(0)
			w.Format = fencing.Pair
			w.Token = fencing.Token{Hi: 17, Lo: 1 << 40}
			if err := g.Check(w); err != nil {
				t.Errorf("Check(%v) = %v; want nil", w.Token, err)
			}
			w.Token = fencing.Token{Hi: 18}
			wantJump(t, g, w, m.Mark.Token)
		})
	})
	t.Run("one of several resources", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			w := jump(45)
			w.Resources = []fencing.Resource{"a", "r"}
			wantJump(t, g, w, fencing.Number(34))
			s.wantNoMark(t, "a")
			wantIdle(t, g)
		})
	})
}

// Of two equal tokens that were taken back and raised again, each counts for itself.
func TestEqualTokensRaisedAgainVouchForThemselves(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p, x, y := try(g, write("r", 34)), try(g, write("r", 50)), try(g, write("r", 50))
		refused(t, a)
		p.wantAdmitted(t).Done(0)
		b, c := x.wantAdmitted(t), y.wantAdmitted(t)
		refused(t, b)
		s.wantMark(t, "r", 50)
		c.Done(0)
		s.wantMark(t, "r", 50)
		wantIdle(t, g)
	})
}

// Whoever gives up while its token is taken back for another must not make it good.
func TestTokenThatIsTakenBackForAnotherIsNotProvenByGivingUp(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		p, late, later := try(g, write("r", 34)), try(g, write("r", 60)), try(g, write("r", 70))
		release := s.holdRestore()
		c := refuse(a)
		release(nil)
		<-c
		synctest.Wait() // 70 is being taken back for p, then 60
		late.cancel()
		later.cancel()
		late.wantErr(t, context.Canceled)
		later.wantErr(t, context.Canceled)
		release(nil)
		synctest.Wait()
		release(nil)
		p.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 34)
		wantIdle(t, g)
	})
}

// Somebody is turned away on s. That makes a write on both resources due, and with it the one ahead of it on r, which can go at once.
func TestBeingDueReachesOtherLines(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a, b := enter(t, g, write("s", 2)), enter(t, g, write("r", 1))
		p := try(g, write("r", 2))
		both := try(g, writeAll(3, "r", "s"))
		b.Done(0)
		p.wantWaiting(t)
		refused(t, a)
		p.wantAdmitted(t).Done(0)
		both.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

// An exclusive write that begins to wait for a verdict on one resource keeps nobody waiting on another.
func TestExclusiveWriteThatIsLowLetsOthersIn(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, exclusive(writeAll(33, "r", "s")))
		q := try(g, write("s", 33))
		q.wantWaiting(t)
		higher := try(g, write("r", 34))
		q.wantAdmitted(t).Done(0)
		a.Done(0)
		higher.wantAdmitted(t).Done(0)
		p.wantStale(t, "r", 34)
		wantIdle(t, g)
	})
}

// A newer token that waits for an older write is most likely the holder's: the older writer is told soon, not when all is over.
func TestStaleBelowATokenThatWaits(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		b := try(g, write("r", 34))
		began := time.Now()
		again := try(g, write("r", 33))
		pass(2 * time.Second)
		again.wantStale(t, "r", 34)
		if took := again.at.Sub(began); took != time.Second {
			t.Errorf("it was told after %v; want a second", took)
		}
		a.Done(0)
		out := b.wantAdmitted(t)
		low := try(g, write("r", 33)) // 34 is out: its verdict is worth waiting for
		pass(10 * time.Second)
		low.wantWaiting(t)
		out.Done(0)
		low.wantStale(t, "r", 34)
		wantIdle(t, g)
	})
}

// Outsiders whom the upstream would refuse crowd each other out. What the gate turns away for that has shown nothing: the mark is the holder's.
func TestCrowdedOutsidersLeaveNoMark(t *testing.T) {
	holderGoesOn := func(t *testing.T, g *gate.Gate, s *memStore) {
		t.Helper()
		s.wantMark(t, "r", 34)
		enter(t, g, write("r", 34)).Done(0)
		pass(time.Hour)
		wantIdle(t, g)
	}
	t.Run("outrun", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			slow := enter(t, g, write("r", 34))
			lower, higher := try(g, write("r", 998)), try(g, write("r", 999))
			pass(2 * time.Second)
			lower.wantStale(t, "r", 999)
			slow.Done(0)
			refused(t, higher.wantAdmitted(t))
			holderGoesOn(t, g, s)
		})
	})
	t.Run("the line is full", func(t *testing.T) {
		s := newMemStore(mark("r", 34))
		bubble(t, gate.Config{MaxWaiters: 2}, s, func(t *testing.T, g *gate.Gate) {
			slow := enter(t, g, write("r", 34))
			a, b := try(g, write("r", 997)), try(g, write("r", 998))
			c := try(g, write("r", 999))
			c.wantBusyAfter(t, 0, gate.BusyError{Resource: "r", Reason: gate.BusyWaiters, RetryAfter: time.Second})
			slow.Done(0)
			refused(t, b.wantAdmitted(t))
			refused(t, a.wantAdmitted(t))
			holderGoesOn(t, g, s)
		})
	})
	t.Run("on a tree", func(t *testing.T) {
		s := newMemStore(mark("d/a/x", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b, c := try(g, remove("d/a", 100)), try(g, remove("d/a", 101)), try(g, remove("d/a", 102))
			b.wantStale(t, "d/a", 102)
			refused(t, a.wantAdmitted(t))
			refused(t, c.wantAdmitted(t))
			for _, r := range []fencing.Resource{"d/a", "d/a?tree"} {
				if m, ok := s.mark(r); ok {
					t.Errorf("the durable mark of %s is %v; want none", r, m.Token)
				}
			}
			enter(t, g, put("d/a/x", 34)).Done(0)
			pass(time.Hour)
			wantIdle(t, g)
		})
	})
}

// The holder's token is the last that was accepted: a newer one that waits behind the holder's own write may be anybody's.
func TestHolderWaitsBehindItsOwnSlowWrite(t *testing.T) {
	s := newMemStore(mark("r", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		slow := enter(t, g, write("r", 34))
		outsider := try(g, write("r", 999))
		second := try(g, write("r", 34))
		pass(3 * time.Second)
		second.wantWaiting(t)
		slow.Done(0)
		refused(t, outsider.wantAdmitted(t))
		second.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}
