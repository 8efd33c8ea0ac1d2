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

// closeGate calls Close in its own goroutine.
func closeGate(ctx context.Context, g *gate.Gate) <-chan bool {
	c := make(chan bool, 1)
	go func() { c <- g.Close(ctx) }() // ends with Close
	synctest.Wait()
	return c
}

func wantOpen(t *testing.T, c <-chan bool) {
	t.Helper()
	synctest.Wait()
	select {
	case clean := <-c:
		t.Fatalf("Close = %v already; want it to wait", clean)
	default:
	}
}

func TestCloseRefusesWaitersAndNewcomers(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, write("r", 33))
		p := try(g, write("r", 34))
		c := closeGate(t.Context(), g)
		p.wantErr(t, gate.ErrClosed)
		try(g, write("r", 34)).wantErr(t, gate.ErrClosed)
		try(g, write("s", 34)).wantErr(t, gate.ErrClosed)
		if b, err := g.Observe(write("r", 34)); b != nil || !errors.Is(err, gate.ErrClosed) {
			t.Errorf("Observe = %v, %v; want nil and ErrClosed", b, err)
		}
		if err := g.Check(writeAll(33, "r")); !errors.Is(err, gate.ErrClosed) {
			t.Errorf("Check = %v; want ErrClosed", err)
		}
		setMark(t, g, 99, false, 0, gate.ErrClosed)
		wantOpen(t, c)
		a.Done(5 * time.Second)
		wantOpen(t, c)
		began := time.Now()
		if clean := <-c; !clean || time.Since(began) != 5*time.Second {
			t.Errorf("Close = %v after %v; want true after 5s", clean, time.Since(began))
		}
		wantIdle(t, g)
		if !g.Close(t.Context()) {
			t.Error("Close again = false; want true")
		}
	})
}

func TestCloseSaysThatWritesAreLeft(t *testing.T) {
	t.Run("in doubt", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 33))
			c := closeGate(t.Context(), g)
			a.InDoubt(time.Minute)
			synctest.Wait()
			if len(c) == 0 {
				t.Fatal("Close waits for a write in doubt")
			}
			if <-c {
				t.Error("Close = true; want false, a write is in doubt")
			}
			pass(time.Minute)
			if !g.Close(t.Context()) {
				t.Error("Close = false; want true, the doubt is over")
			}
		})
	})
	t.Run("in flight", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 33))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if g.Close(ctx) {
				t.Error("Close = true; want false, a write is in flight")
			}
			a.Done(0)
		})
	})
	t.Run("recovering", func(t *testing.T) {
		bubble(t, gate.Config{Recover: time.Minute}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			if g.Close(t.Context()) {
				t.Error("Close = true; want false, writes of the run before may be on their way")
			}
		})
	})
}

func TestCloseWhileAMarkIsOnItsWayToTheDisk(t *testing.T) {
	t.Run("of a write", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			release := s.holdAdvance()
			p := try(g, write("r", 33))
			c := closeGate(t.Context(), g)
			release(nil)
			p.wantErr(t, gate.ErrClosed)
			if !<-c {
				t.Error("Close = false; want true, nothing was forwarded")
			}
			wantIdle(t, g)
		})
	})
	t.Run("of an observed write", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			release := s.holdAdvance()
			observe(t, g, write("r", 33)).Done(0)
			c := closeGate(t.Context(), g)
			wantOpen(t, c)
			release(nil)
			if !<-c {
				t.Error("Close = false; want true")
			}
			s.wantMark(t, "r", 33)
			wantIdle(t, g)
		})
	})
	t.Run("back from a refused one", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, write("r", 33))
			release := s.holdRestore()
			refuse(a)
			c := closeGate(t.Context(), g)
			wantOpen(t, c)
			release(nil)
			if !<-c {
				t.Error("Close = false; want true")
			}
			s.wantNoMark(t, "r")
			wantIdle(t, g)
		})
	})
}

func TestObserveAdmitsNothingOnceClosed(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		slow := make(chan struct{})
		s.onLoad = func(fencing.Resource) error { <-slow; return nil }
		done := make(chan struct{})
		go func() { // ends with Observe
			defer close(done)
			if a, err := g.Observe(write("r", 33)); a != nil || !errors.Is(err, gate.ErrClosed) {
				t.Errorf("Observe = %v, %v; want nil and ErrClosed: Close has said that nothing is in flight", a, err)
			}
		}()
		synctest.Wait()
		if !g.Close(t.Context()) {
			t.Error("Close = false; want true")
		}
		close(slow)
		<-done
		wantIdle(t, g)
	})
}
