package gate_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func setMark(t *testing.T, g *gate.Gate, n uint64, lower bool, wantOld uint64, want error) {
	t.Helper()
	old, ok, err := g.SetMark("r", mark("r", n).Mark, lower)
	if !errors.Is(err, want) {
		t.Errorf("SetMark(%d) = %v; want %v", n, err, want)
	}
	if old.Token != fencing.Number(wantOld) || ok != (wantOld != 0) {
		t.Errorf("SetMark(%d) finds %v, %v; want %d", n, old.Token, ok, wantOld)
	}
}

func TestSetMark(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		setMark(t, g, 33, false, 0, nil)
		s.wantMark(t, "r", 33)
		setMark(t, g, 34, false, 33, nil)
		setMark(t, g, 34, false, 34, nil)
		setMark(t, g, 33, false, 34, gate.ErrWouldLower)
		s.wantMark(t, "r", 34)
		try(g, write("r", 33)).wantStale(t, "r", 34)
		setMark(t, g, 5, true, 34, nil)
		s.wantMark(t, "r", 5)
		try(g, write("r", 4)).wantStale(t, "r", 5)
		try(g, write("r", 6)).wantAdmitted(t).Done(0)
		wantIdle(t, g)
		if _, _, err := g.SetMark("", mark("", 1).Mark, false); !errors.Is(err, fencing.ErrResource) {
			t.Errorf("SetMark of an empty resource = %v; want ErrResource", err)
		}
	})
}

func TestRaisedMarkRefusesWaitersBelowIt(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, write("r", 34))
		setMark(t, g, 60, false, 34, nil)
		if m, _ := s.mark("r"); !m.Draining {
			t.Errorf("the mark is %+v; want it Draining, 33 is in flight", m)
		}
		p.wantStale(t, "r", 60)
		q := try(g, write("r", 60))
		q.wantWaiting(t) // for 33
		a.Done(0)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
		s.wantMark(t, "r", 60)
	})
}

func TestWaitersAdvanceAgainWhenTheMarkIsLowered(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, write("r", 34))
		setMark(t, g, 5, true, 34, nil)
		p.wantWaiting(t)
		s.wantMark(t, "r", 34)
		setMark(t, g, 5, true, 34, nil)
		p.cancel()
		<-p.done
		s.wantMark(t, "r", 34)
		setMark(t, g, 5, true, 34, nil)
		q := try(g, write("r", 6))
		q.wantWaiting(t) // 33 is in flight all the same
		a.Done(0)
		q.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 6)
		wantIdle(t, g)
	})
}

func TestNobodyIsAdmittedWhileTheMarkIsSet(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdRestore()
		done := make(chan struct{})
		go func() { defer close(done); setMark(t, g, 5, true, 33, nil) }()
		synctest.Wait()
		p := try(g, write("r", 33))
		p.wantWaiting(t)
		setMark(t, g, 7, true, 33, gate.ErrChanged)
		release(nil)
		<-done
		p.wantAdmitted(t).Done(0)
		s.wantMark(t, "r", 33) // it advanced again
		wantIdle(t, g)
	})
}

func TestSetMarkBesideAnAdvance(t *testing.T) {
	t.Run("under way", func(t *testing.T) {
		s := newMemStore(mark("r", 33))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			release := s.holdAdvance()
			p := try(g, write("r", 34))
			setMark(t, g, 60, false, 34, gate.ErrChanged)
			release(nil)
			p.wantAdmitted(t).Done(0)
			s.wantMark(t, "r", 34)
		})
	})
	t.Run("lower one comes and is first", func(t *testing.T) {
		s := newMemStore(mark("r", 33))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			release := s.holdAdvance()
			done := make(chan struct{})
			go func() { defer close(done); setMark(t, g, 60, false, 33, nil) }()
			synctest.Wait()
			s.unhold()
			keep := try(g, exclusive(write("r", 50)))
			keep.wantWaiting(t)
			s.wantMark(t, "r", 50)
			release(nil)
			<-done
			keep.wantStale(t, "r", 60)
			s.wantMark(t, "r", 60)
			wantIdle(t, g)
		})
	})
	t.Run("lower one comes, is first, and the resource stays in use", func(t *testing.T) {
		s := newMemStore(mark("r", 33))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 33))
			release := s.holdAdvance()
			done := make(chan struct{})
			go func() { defer close(done); setMark(t, g, 60, false, 33, nil) }()
			synctest.Wait()
			s.unhold()
			try(g, write("r", 50)).wantWaiting(t)
			release(nil)
			<-done
			wantConsistent(t, g)
			p := try(g, write("r", 60))
			a.Done(0)
			p.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("higher one comes and is first", func(t *testing.T) {
		s := newMemStore(mark("r", 33))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			release := s.holdRestore()
			done := make(chan struct{})
			go func() { defer close(done); setMark(t, g, 5, true, 33, gate.ErrChanged) }()
			synctest.Wait()
			p := try(g, write("r", 34))
			p.wantWaiting(t)
			release(nil)
			<-done
			p.wantAdmitted(t).Done(0)
			s.wantMark(t, "r", 34)
			wantIdle(t, g)
		})
	})
}

func TestSetMarkThatFailsChangesNothing(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		full := errors.New("no space")
		s.onAdvance = func([]fencing.ResourceMark) error { return full }
		s.onRestore = func(fencing.Resource, fencing.Token) error { return full }
		a := enter(t, g, write("r", 33))
		setMark(t, g, 60, false, 33, full)
		setMark(t, g, 5, true, 33, full)
		try(g, write("r", 33)).wantAdmitted(t).Done(0)
		try(g, write("r", 32)).wantStale(t, "r", 33)
		a.Done(0)
		wantIdle(t, g)
	})
}
