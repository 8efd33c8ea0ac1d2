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

func refused(t *testing.T, a *gate.Admission) {
	t.Helper()
	if err := a.Refused(); err != nil {
		t.Errorf("Refused = %v; want nil", err)
	}
}

// refuse calls Refused in its own goroutine and returns a channel for its result.
func refuse(a *gate.Admission) <-chan error {
	c := make(chan error, 1)
	go func() { c <- a.Refused() }() // ends with Refused
	synctest.Wait()
	return c
}

func TestRefusedTokenIsTakenBackDurably(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		s.wantMark(t, "r", 50)
		release := s.holdRestore()
		c := refuse(a)
		select {
		case err := <-c:
			t.Fatalf("Refused = %v before the store has answered", err)
		default:
		}
		release(nil)
		if err := <-c; err != nil {
			t.Errorf("Refused = %v; want nil", err)
		}
		s.wantMark(t, "r", 10)
		wantIdle(t, g)
		try(g, write("r", 9)).wantStale(t, "r", 10)
		try(g, write("r", 10)).wantAdmitted(t).Done(0)
	})
}

func TestNobodyIsAdmittedWhileATokenIsTakenBack(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		release := s.holdRestore()
		c := refuse(a)
		q := try(g, write("r", 10))
		p := try(g, write("r", 60))
		q.wantWaiting(t)
		p.wantWaiting(t)
		release(nil)
		<-c
		p.wantAdmitted(t).Done(0)
		q.wantStale(t, "r", 60)
		s.wantMark(t, "r", 60)
		wantIdle(t, g)
	})
}

func TestRefusedTokenOfAnUnknownResourceIsDeleted(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		refused(t, enter(t, g, writeAll(50, "r", "s")))
		s.wantNoMark(t, "r")
		s.wantNoMark(t, "s")
		enter(t, g, write("r", 1)).Done(0)
		wantIdle(t, g)
	})
}

func TestRefusedTokenThatIsTheMarkStays(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		refused(t, enter(t, g, write("r", 10)))
		s.wantMark(t, "r", 10)
		if s.restores != 0 {
			t.Errorf("%d restores; want none", s.restores)
		}
		wantIdle(t, g)
	})
}

func TestRefusedTokenStaysIfAnotherWriteVouchesForIt(t *testing.T) {
	t.Run("accepted before", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, write("r", 50)), enter(t, g, write("r", 50))
			b.Done(0)
			refused(t, a)
			s.wantMark(t, "r", 50)
			wantIdle(t, g)
		})
	})
	t.Run("accepted afterwards", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, write("r", 50)), enter(t, g, write("r", 50))
			refused(t, a)
			s.wantMark(t, "r", 50)
			p := try(g, write("r", 10))
			p.wantWaiting(t)
			b.Done(0)
			p.wantStale(t, "r", 50)
			s.wantMark(t, "r", 50)
			wantIdle(t, g)
		})
	})
	t.Run("in doubt", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, write("r", 50)), enter(t, g, write("r", 50))
			b.InDoubt(time.Second)
			refused(t, a)
			pass(time.Second)
			s.wantMark(t, "r", 50)
			wantIdle(t, g)
		})
	})
	t.Run("refused as well", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, write("r", 50)), enter(t, g, write("r", 50))
			refused(t, a)
			s.wantMark(t, "r", 50)
			refused(t, b)
			s.wantMark(t, "r", 10)
			wantIdle(t, g)
		})
	})
	t.Run("waits", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 50))
			p := try(g, exclusive(write("r", 50)))
			p.wantWaiting(t)
			refused(t, a)
			s.wantMark(t, "r", 50)
			p.wantAdmitted(t).Done(0)
			s.wantMark(t, "r", 50)
			wantIdle(t, g)
		})
	})
	t.Run("a higher one was accepted", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b := observe(t, g, write("r", 50)), observe(t, g, write("r", 60))
			pass(0)
			b.Done(0)
			refused(t, a)
			s.wantMark(t, "r", 60)
			wantIdle(t, g)
		})
	})
	t.Run("set by the operator", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 50))
			if _, _, err := g.SetMark("r", mark("r", 50).Mark, false); err != nil {
				t.Fatalf("SetMark = %v", err)
			}
			refused(t, a)
			s.wantMark(t, "r", 50)
			wantIdle(t, g)
		})
	})
}

func TestChainOfRefusedTokens(t *testing.T) {
	// Only observed writes can be in flight together.
	for name, order := range map[string][]int{"higher first": {1, 0}, "lower first": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("r", 10))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				as := []*gate.Admission{observe(t, g, write("r", 50)), observe(t, g, write("r", 60))}
				pass(0)
				s.wantMark(t, "r", 60)
				refused(t, as[order[0]])
				s.wantMark(t, "r", []uint64{60, 50}[order[0]])
				refused(t, as[order[1]])
				s.wantMark(t, "r", 10)
				wantIdle(t, g)
			})
		})
		t.Run(name+", at once", func(t *testing.T) {
			s := newMemStore(mark("r", 10))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				as := []*gate.Admission{observe(t, g, write("r", 50)), observe(t, g, write("r", 60))}
				pass(0)
				release := s.holdRestore()
				refuse(as[order[0]])
				refuse(as[order[1]])
				release(nil)
				release(nil)
				pass(0)
				s.wantMark(t, "r", 10)
				wantConsistent(t, g)
				wantIdle(t, g)
			})
		})
	}
	t.Run("never onto another refused one", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b, c := observe(t, g, write("r", 50)), observe(t, g, write("r", 60)), observe(t, g, write("r", 70))
			pass(0)
			release := s.holdRestore()
			refuse(c)
			refuse(a)
			refuse(b)
			release(nil)
			pass(0)
			s.wantMark(t, "r", 60) // which was good when the first restore began
			release(nil)
			pass(0)
			s.wantMark(t, "r", 10)
			release(nil)
			pass(0)
			s.wantMark(t, "r", 10)
			wantIdle(t, g)
		})
	})
	t.Run("50 is refused while 60 waits for it", func(t *testing.T) {
		s := newMemStore(mark("r", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 50))
			p := try(g, write("r", 60))
			refused(t, a)
			s.wantMark(t, "r", 60)
			refused(t, p.wantAdmitted(t))
			s.wantMark(t, "r", 10)
			wantIdle(t, g)
		})
	})
}

func TestRefusedWhileAHigherTokenIsOnItsWayToTheDisk(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		releaseAdvance, releaseRestore := s.holdAdvance(), s.holdRestore()
		p := try(g, write("r", 60))
		c := refuse(a)
		releaseAdvance(nil)
		synctest.Wait()
		s.wantMark(t, "r", 60)
		p.wantWaiting(t)
		releaseRestore(nil) // finds 60, and leaves it
		if err := <-c; err != nil {
			t.Errorf("Refused = %v; want nil", err)
		}
		s.wantMark(t, "r", 60)
		wantConsistent(t, g)
		p.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestEqualTokenThatArrivesWhileItIsTakenBackAdvancesAgain(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		releaseRestore := s.holdRestore()
		c := refuse(a)
		p, q := try(g, write("r", 50)), try(g, write("r", 50))
		p.wantWaiting(t)
		releaseAdvance := s.holdAdvance()
		releaseRestore(nil)
		<-c
		s.wantMark(t, "r", 10)
		p.wantWaiting(t) // one for the disk, the other for it
		q.wantWaiting(t)
		releaseAdvance(nil)
		p.wantAdmitted(t).Done(0)
		q.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 50)
		wantIdle(t, g)
	})
}

// The one that gives up must not make a token good that is no longer on the disk.
func TestEqualTokenThatGivesUpWhileItIsTakenBack(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 50))
		release := s.holdRestore()
		c := refuse(a)
		other := try(g, write("r", 50)) // keeps the resource in use
		p := try(g, write("r", 50))
		p.cancel()
		p.wantErr(t, context.Canceled)
		wantConsistent(t, g)
		release(nil)
		<-c
		wantConsistent(t, g)
		other.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 50)
		wantIdle(t, g)
	})
}

func TestTokenStaysIfTheStoreCannotTakeItBack(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		full := errors.New("no space")
		s.onRestore = func(fencing.Resource, fencing.Token) error { return full }
		a := enter(t, g, write("r", 50))
		keep, _ := g.Observe(write("r", 1)) // keeps the resource in use
		err := a.Refused()
		if e, ok := errors.AsType[*gate.StoreError](err); !ok || !errors.Is(err, full) || e.Op != "restore" {
			t.Errorf("Refused = %v; want a StoreError of a restore that wraps the store's", err)
		}
		s.wantMark(t, "r", 50)
		try(g, write("r", 10)).wantStale(t, "r", 50)
		keep.Done(0)
		try(g, write("r", 50)).wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

// The error of a restore must not make a token good that never was on the disk.
func TestTokenThatWasNeverDurableDoesNotStay(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		full := errors.New("no space")
		release50 := s.holdAdvance()
		a := observe(t, g, write("r", 50))
		pass(0)
		s.unhold()
		b, c := observe(t, g, write("r", 60)), observe(t, g, write("r", 70))
		pass(0)
		release50(full)
		release := s.holdRestore()
		refuse(c)
		refuse(a)
		refuse(b)
		for _, err := range []error{nil, nil, full} { // of 70, 60 and 50
			release(err)
			pass(0)
		}
		s.wantMark(t, "r", 10)
		wantIdle(t, g)
		try(g, write("r", 10)).wantAdmitted(t).Done(0)
	})
}

func TestObservedTokenThatIsRefusedBeforeItIsDurableIsTakenBack(t *testing.T) {
	s := newMemStore(mark("r", 10))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdAdvance()
		a := observe(t, g, write("r", 50))
		refused(t, a)
		release(nil)
		pass(0)
		s.wantMark(t, "r", 10)
		wantIdle(t, g)

		b := observe(t, g, write("r", 50))
		refused(t, b)
		release(errors.New("no space"))
		pass(0)
		s.wantMark(t, "r", 10)
		wantIdle(t, g)
	})
}

func TestRefusedWhileTheOperatorSetsTheMark(t *testing.T) {
	for name, tc := range map[string]struct {
		set  uint64
		err  error // of the store
		want uint64
	}{
		"raised":          {set: 60, want: 60},
		"lowered":         {set: 5, want: 5},
		"not raised":      {set: 60, err: errors.New("no space"), want: 10},
		"lowered in vain": {set: 5, err: errors.New("no space"), want: 10},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("r", 10))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, write("r", 50))
				releaseAdvance, releaseRestore := s.holdAdvance(), s.holdRestore()
				done := make(chan struct{})
				go func() { // ends with SetMark
					defer close(done)
					if _, _, err := g.SetMark("r", mark("r", tc.set).Mark, true); !errors.Is(err, tc.err) {
						t.Errorf("SetMark = %v; want %v", err, tc.err)
					}
				}()
				synctest.Wait()
				refused(t, a)
				s.unhold()
				if tc.set > 50 {
					releaseAdvance(tc.err)
				} else {
					releaseRestore(tc.err)
				}
				<-done
				s.wantMark(t, "r", tc.want)
				wantIdle(t, g)
			})
		})
	}
}
