package gate_test

import (
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func draining(m fencing.ResourceMark) fencing.ResourceMark { m.Mark.Draining = true; return m }

func TestRecoveryKeepsEveryAdvanceWaiting(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{Recover: 10 * time.Second}, s, func(t *testing.T, g *gate.Gate) {
		began := time.Now()
		if d := g.Recovering(); d != 10*time.Second {
			t.Errorf("Recovering = %v; want 10s", d)
		}
		p, q := try(g, final(write("r", 34))), try(g, write("unknown", 1))
		p.wantWaiting(t)
		q.wantWaiting(t)
		if m, _ := s.mark("r"); m.Token != fencing.Number(34) || !m.Draining {
			t.Errorf("the mark is %+v; want 34, Draining", m)
		}
		if st, _ := g.Inspect("r"); st.Settled {
			t.Errorf("Inspect = %+v; want it not settled", st)
		}
		try(g, write("r", 33)).wantStale(t, "r", 34)
		p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
		q.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
		wantIdle(t, g)
		if d := g.Recovering(); d != 0 {
			t.Errorf("Recovering = %v; want 0", d)
		}
		try(g, write("r", 35)).wantAdmitted(t).Done(0)
		if m, _ := s.mark("r"); m.Draining {
			t.Errorf("the mark is %+v; want it not Draining", m)
		}
	})
}

func TestRecoveryLetsEqualTokensGoOn(t *testing.T) {
	s := newMemStore(mark("r", 33), draining(mark("d", 33)))
	bubble(t, gate.Config{Recover: 10 * time.Second}, s, func(t *testing.T, g *gate.Gate) {
		began := time.Now()
		try(g, write("r", 33)).wantAdmitted(t).Done(0)
		p := try(g, write("d", 33))
		p.wantWaiting(t)
		p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
		try(g, write("d", 33)).wantAdmitted(t).Done(0) // Draining means nothing any more
		wantIdle(t, g)
	})
}

func TestRecoveryIsRememberedWhenTheResourceGoesIdle(t *testing.T) {
	s := newMemStore(mark("r", 33))
	bubble(t, gate.Config{Recover: 10 * time.Second}, s, func(t *testing.T, g *gate.Gate) {
		began := time.Now()
		w := write("r", 34)
		w.DrainTimeout = time.Second
		p := try(g, w)
		p.wantBusyAfter(t, time.Second, gate.BusyError{Resource: "r", Reason: gate.BusyRecovering, RetryAfter: 9 * time.Second})
		wantIdle(t, g)
		q := try(g, write("r", 34))
		q.wantWaiting(t)
		q.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
	})
}

func TestMarkSetDuringRecoveryWaitsToo(t *testing.T) {
	for name, hold := range map[string]bool{"idle": false, "in use": true} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("r", 33))
			bubble(t, gate.Config{Recover: 10 * time.Second}, s, func(t *testing.T, g *gate.Gate) {
				began := time.Now()
				if hold {
					a := enter(t, g, write("r", 33))
					time.AfterFunc(time.Second, func() { a.Done(0) })
				}
				if _, _, err := g.SetMark("r", mark("r", 34).Mark, false); err != nil {
					t.Fatalf("SetMark = %v", err)
				}
				p := try(g, write("r", 34))
				p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
			})
		})
	}
}
