package gate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// claim is a write with which an id claims r under number n.
func claim(n uint64, id string) gate.Write {
	w := write("r", n)
	w.Format, w.Holder, w.TTL = fencing.Opaque, id, time.Minute
	return w
}

// wantHolder checks the durable mark and the one that the gate knows.
func wantHolder(t *testing.T, g *gate.Gate, s *memStore, n uint64, id string) {
	t.Helper()
	durable, _ := s.mark("r")
	known, _, err := g.Mark("r")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]fencing.Mark{"durable": durable, "known": known} {
		if m.Token != fencing.Number(n) || m.Holder != id || (m.TTL == 0) != (id == "") {
			t.Errorf("the %s mark is %v of %q for %v; want %d of %q", name, m.Token, m.Holder, m.TTL, n, id)
		}
	}
}

func clear(t *testing.T, g *gate.Gate, n uint64, want bool, wantErr error) {
	t.Helper()
	cleared, err := g.ClearHolder("r", fencing.Number(n), "op", "why")
	if cleared != want || !errors.Is(err, wantErr) {
		t.Errorf("ClearHolder(%d) = %v, %v; want %v, %v", n, cleared, err, want, wantErr)
	}
}

func TestClearHolder(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		clear(t, g, 1, false, nil) // no mark
		a := enter(t, g, claim(1, "A"))
		wantHolder(t, g, s, 1, "A")
		clear(t, g, 2, false, nil)
		clear(t, g, 1, true, nil) // while its write is in flight, and nothing proves the number
		wantHolder(t, g, s, 1, "")
		if m, _ := s.mark("r"); m.By != "op" || m.Reason != "why" || m.Format != fencing.Opaque {
			t.Errorf("the mark is %+v; want it to say who cleared it and why", m)
		}
		clear(t, g, 1, false, nil) // nobody holds it
		p := try(g, claim(2, "B"))
		p.wantWaiting(t) // for the write of A
		wantHolder(t, g, s, 2, "B")
		a.Done(0)
		b := p.wantAdmitted(t)
		b.Done(0)
		clear(t, g, 2, true, nil) // out of the table
		wantHolder(t, g, s, 2, "")
		try(g, claim(1, "A")).wantStale(t, "r", 2)
		wantIdle(t, g)
	})
}

func TestClearedHolderComesBackWithNobody(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, claim(1, "A"))
		clear(t, g, 1, true, nil)
		b := try(g, claim(2, "B"))
		b.wantWaiting(t)
		a.Done(0)
		if err := b.wantAdmitted(t).Refused(); err != nil {
			t.Fatal(err)
		}
		wantHolder(t, g, s, 1, "") // what the mark falls back to has been released
		wantIdle(t, g)
	})
}

func TestClearHolderWhileTheMarkMoves(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, claim(1, "A"))
		release := s.holdAdvance()
		p := try(g, claim(2, "B"))
		clear(t, g, 2, false, gate.ErrChanged) // on its way to the disk
		clear(t, g, 1, false, nil)             // the number is no longer the highest seen
		release(nil)
		p.wantWaiting(t)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		s.unhold()
		wantHolder(t, g, s, 2, "B")
		wantIdle(t, g)
	})
}

func TestNobodyIsAdmittedWhileAHolderIsCleared(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		enter(t, g, claim(1, "A")).Done(0)
		release := s.holdRestore()
		done := make(chan struct{})
		go func() {
			defer close(done)
			clear(t, g, 1, true, nil)
		}()
		synctest.Wait()
		p := try(g, claim(1, "A"))
		p.wantWaiting(t)
		release(nil)
		<-done
		p.wantAdmitted(t).Done(0)
		wantHolder(t, g, s, 1, "")
		wantIdle(t, g)
	})
}

func TestClearHolderThatFails(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		enter(t, g, claim(1, "A")).Done(0)
		full := errors.New("no space")
		release := s.holdRestore()
		done := make(chan struct{})
		go func() {
			defer close(done)
			clear(t, g, 1, false, full)
		}()
		synctest.Wait()
		release(full)
		<-done
		s.unhold()
		wantHolder(t, g, s, 1, "A")
		wantIdle(t, g)
	})
}

// A higher number that becomes durable while a holder is cleared stays as it is.
func TestClearHolderThatWasOvertaken(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		enter(t, g, claim(1, "A")).Done(0)
		release := s.holdRestore()
		done := make(chan struct{})
		go func() {
			defer close(done)
			clear(t, g, 1, false, nil)
		}()
		synctest.Wait()
		p := try(g, claim(2, "B"))
		p.wantWaiting(t)
		release(nil)
		<-done
		p.wantAdmitted(t).Done(0)
		wantHolder(t, g, s, 2, "B")
		wantIdle(t, g)
	})
}

func TestMarkIsTheHighestSeen(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		want := func(n uint64) {
			t.Helper()
			if m, ok, err := g.Mark("r"); m.Token != fencing.Number(n) || !ok || err != nil {
				t.Errorf("Mark = %v, %v, %v; want %d", m.Token, ok, err, n)
			}
		}
		want(33)
		release := s.holdAdvance()
		p := try(g, write("r", 34))
		want(34) // not durable yet
		release(nil)
		p.wantAdmitted(t).Done(0)
		want(34)
		if _, ok, err := g.Mark("other"); ok || err != nil {
			t.Errorf("Mark of another = %v, %v; want none", ok, err)
		}
		s.fail(errors.New("broken"))
		if _, _, err := g.Mark("other"); err == nil {
			t.Error("Mark without a disk succeeds")
		}
	})
}
