package gate_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestMarkRecordsLowerWritesOnEveryKeyThatTheWriteHasJoined(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second gate.Write
		r             fencing.Resource // whose mark second advances
		draining      bool
	}{
		{"tree, over one beneath", put("d/a/x", 33), remove("d/a", 34), "d/a?tree", true},
		{"tree, over one beneath: its resource", put("d/a/x", 33), remove("d/a", 34), "d/a", true},
		{"tree, over a tree beneath", remove("d/a/b", 33), remove("d/a", 34), "d/a?tree", true},
		{"tree, over the tree", remove("d/a", 33), remove("d/a", 34), "d/a?tree", true},
		{"tree, in a tree", remove("d/a", 33), remove("d/a/b", 34), "d/a/b?tree", true},
		{"beneath, in a tree", remove("d/a", 33), put("d/a/x", 34), "d/a/x", true},
		{"beneath, in a tree two levels up", remove("d", 33), put("d/a/x", 34), "d/a/x", true},
		{"beneath, in an equal tree", remove("d/a", 33), put("d/a/x", 33), "d/a/x", false},
		{"beneath, beside a neighbour", put("d/a/x", 33), put("d/a/y", 34), "d/a/y", false},
		{"tree, over an equal one beneath", put("d/a/x", 33), remove("d/a", 33), "d/a?tree", false},
		{"tree, beside a tree", remove("d/b", 33), remove("d/a", 34), "d/a?tree", false},
	} {
		for how, hold := range map[string]bool{"in flight": false, "in doubt": true} {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				s := newMemStore()
				bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
					a := enter(t, g, tc.first)
					if hold {
						a.InDoubt(time.Second)
					} else {
						time.AfterFunc(time.Second, func() { a.Done(0) })
					}
					p := try(g, tc.second)
					if m, ok := s.mark(tc.r); !ok || m.Token != tc.second.Token || m.Draining != tc.draining {
						t.Errorf("the mark of %q is %+v; want %v, Draining %v", tc.r, m, tc.second.Token, tc.draining)
					}
					pass(time.Second)
					p.wantAdmitted(t).Done(0)
					wantIdle(t, g)
				})
			})
		}
	}
}

func TestRecoveryOfATree(t *testing.T) {
	for _, tc := range []struct {
		name  string
		marks []fencing.ResourceMark
		w     gate.Write
		waits bool
	}{
		{"an equal token", []fencing.ResourceMark{mark("d/a?tree", 33), mark("d/a", 33)}, remove("d/a", 33), false},
		{"an equal token over lower writes", []fencing.ResourceMark{draining(mark("d/a?tree", 33)), mark("d/a", 33)}, remove("d/a", 33), true},
		{"an advance", []fencing.ResourceMark{mark("d/a?tree", 33), mark("d/a", 34)}, remove("d/a", 34), true},
		{"a tree without a mark", nil, remove("d/a", 1), true},
		{"beneath, an equal token", []fencing.ResourceMark{mark("d/a?tree", 33), mark("d/a/x", 33)}, put("d/a/x", 33), false},
		{"beneath, under no mark", []fencing.ResourceMark{mark("d/a/x", 33)}, put("d/a/x", 33), false},
		{"beneath, an advance", []fencing.ResourceMark{mark("d/a?tree", 33), mark("d/a/x", 33)}, put("d/a/x", 34), true},
		{"beneath, an equal token in a tree over lower writes", []fencing.ResourceMark{draining(mark("d/a?tree", 33)), mark("d/a/x", 33)}, put("d/a/x", 33), true},
		{"beneath, two levels down", []fencing.ResourceMark{draining(mark("d?tree", 33)), mark("d/a/x", 33)}, put("d/a/x", 33), true},
		{"beneath, over lower writes", []fencing.ResourceMark{draining(mark("d/a/x", 33))}, put("d/a/x", 33), true},
		{"a tree in a tree over lower writes", []fencing.ResourceMark{draining(mark("d?tree", 33)), mark("d/a", 33), mark("d/a?tree", 33)}, remove("d/a", 33), true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, gate.Config{Recover: 10 * time.Second}, newMemStore(tc.marks...), func(t *testing.T, g *gate.Gate) {
				began := time.Now()
				p := try(g, tc.w)
				if tc.waits {
					p.wantWaiting(t)
					p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
				} else {
					p.wantAdmitted(t).Done(0)
				}
				wantIdle(t, g)
				pass(time.Minute)
			})
		})
	}
	t.Run("beneath a tree that waits", func(t *testing.T) {
		s := newMemStore(mark("d/a/x", 33))
		bubble(t, gate.Config{Recover: 10 * time.Second}, s, func(t *testing.T, g *gate.Gate) {
			began := time.Now()
			p, q := try(g, remove("d/a", 33)), try(g, put("d/a/x", 33))
			p.wantWaiting(t)
			q.wantWaiting(t)
			if st, _ := g.Inspect("d/a?tree"); st.Settled {
				t.Errorf("Inspect = %+v; want it not settled", st)
			}
			if m, _ := s.mark("d/a?tree"); !m.Draining {
				t.Errorf("the mark of the tree is %+v; want it Draining", m)
			}
			p.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
			q.wantAdmittedAt(t, began.Add(10*time.Second)).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("a stale tree need not wait", func(t *testing.T) {
		bubble(t, gate.Config{Recover: 10 * time.Second}, newMemStore(mark("d/a/x", 34)), func(t *testing.T, g *gate.Gate) {
			try(g, remove("d/a", 33)).wantStale(t, "d/a?tree", 34)
			pass(time.Minute)
		})
	})
}

func TestCloseInATree(t *testing.T) {
	t.Run("waiters and newcomers", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a", 33))
			p := try(g, put("d/a/x", 34))
			q := try(g, remove("d/a", 34))
			scanned := make(chan struct{})
			s.mu.Lock()
			s.afterBeneath = func() { <-scanned }
			s.mu.Unlock()
			r := try(g, remove("d/b", 1))
			c := closeGate(t.Context(), g)
			p.wantErr(t, gate.ErrClosed)
			q.wantErr(t, gate.ErrClosed)
			try(g, remove("d/a", 34)).wantErr(t, gate.ErrClosed)
			if err := g.Check(remove("d/a", 34)); !errors.Is(err, gate.ErrClosed) {
				t.Errorf("Check = %v; want ErrClosed", err)
			}
			close(scanned)
			r.wantErr(t, gate.ErrClosed)
			s.wantNoMark(t, "d/b?tree")
			wantOpen(t, c)
			a.Done(0)
			if !<-c {
				t.Error("Close = false; want true")
			}
			wantIdle(t, g)
		})
	})
	t.Run("in doubt", func(t *testing.T) {
		for name, w := range map[string]gate.Write{"beneath": put("d/a/x", 33), "tree": remove("d/a", 33)} {
			t.Run(name, func(t *testing.T) {
				bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
					enter(t, g, w).InDoubt(time.Minute)
					if g.Close(t.Context()) {
						t.Error("Close = true; want false, a write is in doubt")
					}
					pass(time.Minute)
					if !g.Close(t.Context()) {
						t.Error("Close = false; want true, the doubt is over")
					}
					wantIdle(t, g)
				})
			})
		}
	})
}

func TestObserveInATree(t *testing.T) {
	s := newMemStore(mark("d/b?tree", 40), mark("d/c/x", 40))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := observe(t, g, put("d/a/x", 33))
		b := observe(t, g, remove("d/a", 34)) // waits for nothing
		c := observe(t, g, put("d/a/y", 35))
		pass(0)
		s.wantMark(t, "d/a?tree", 34)
		p := try(g, put("d/a/z", 36)) // for the tree
		q := try(g, put("d/e/z", 1))
		q.wantAdmitted(t).Done(0)
		p.wantWaiting(t)
		b.Done(0)
		p.wantAdmitted(t).Done(0)
		r := try(g, remove("d/a", 36)) // for those beneath
		r.wantWaiting(t)
		a.Done(0)
		r.wantWaiting(t)
		c.Done(0)
		r.wantAdmitted(t).Done(0)

		for _, tc := range []struct {
			w gate.Write
			r fencing.Resource
		}{{put("d/b/x", 33), "d/b?tree"}, {remove("d/b", 33), "d/b?tree"}, {remove("d/c", 33), "d/c?tree"}} {
			a, err := g.Observe(tc.w)
			wantStale(t, err, tc.r, 40)
			a.Done(0)
		}
		e, err := g.Observe(empty(remove("d/c", 41)))
		wantTree(t, err, gate.TreeError{Resource: "d/c?tree", Reason: gate.TreeMarks})
		pass(0)
		s.wantNoMark(t, "d/c?tree")
		u := try(g, put("d/c/x", 41)) // it is in flight all the same, and equal
		u.wantAdmitted(t).Done(0)
		v := try(g, put("d/c/x", 42))
		v.wantWaiting(t)
		e.Done(0)
		v.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestObservedStaleWriteBeneathHoldsTheTree(t *testing.T) {
	s := newMemStore(mark("d/a/x", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a, err := g.Observe(put("d/a/x", 33))
		wantStale(t, err, "d/a/x", 34)
		p := try(g, remove("d/a", 34))
		p.wantWaiting(t)
		_, err = g.Observe(empty(remove("d/a", 34)))
		wantTree(t, err, gate.TreeError{Resource: "d/a?tree", Reason: gate.TreeWrites})
		a.Done(0)
		p.wantAdmitted(t).Done(0)
	})
}

func TestRefusedTree(t *testing.T) {
	t.Run("the mark goes back", func(t *testing.T) {
		s := newMemStore(mark("d/a?tree", 10))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a", 50))
			try(g, put("d/a/x", 49)).wantStale(t, "d/a?tree", 50)
			release := s.holdRestore()
			c := refuse(a)
			p := try(g, put("d/a/x", 60))
			p.wantWaiting(t) // the mark is neither here nor there
			release(nil)     // of d/a
			synctest.Wait()
			release(nil)
			if err := <-c; err != nil {
				t.Errorf("Refused = %v", err)
			}
			s.wantMark(t, "d/a?tree", 10)
			s.wantNoMark(t, "d/a")
			p.wantAdmitted(t).Done(0)
			try(g, put("d/a/y", 9)).wantStale(t, "d/a?tree", 10)
			try(g, put("d/a/y", 10)).wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("one beneath does not vouch for it", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a, b := enter(t, g, remove("d/a", 50)), enter(t, g, put("d/a/x", 50))
			b.Done(0)
			refused(t, a)
			s.wantNoMark(t, "d/a?tree")
			s.wantMark(t, "d/a/x", 50)
			wantIdle(t, g)
		})
	})
}

func TestOperatorSetsAMarkInATree(t *testing.T) {
	set := func(t *testing.T, g *gate.Gate, r fencing.Resource, n uint64, lower bool) {
		t.Helper()
		if _, _, err := g.SetMark(r, mark(r, n).Mark, lower); err != nil {
			t.Errorf("SetMark = %v", err)
		}
	}
	t.Run("of the tree", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/x", 33))
			p := try(g, exclusive(put("d/a/x", 33)))
			set(t, g, "d/a?tree", 40, false)
			p.wantStale(t, "d/a?tree", 40)
			if m, _ := s.mark("d/a?tree"); !m.Draining {
				t.Errorf("the mark is %+v; want it Draining, 33 is in flight beneath", m)
			}
			try(g, put("d/a/y", 39)).wantStale(t, "d/a?tree", 40)
			a.Done(0)
			set(t, g, "d/a?tree", 2, true)
			try(g, put("d/a/y", 2)).wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("of the tree, while it is stored", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			other := enter(t, g, put("d/a/y", 33))
			release := s.holdAdvance()
			go func() { _, _, _ = g.SetMark("d/a?tree", mark("", 34).Mark, false) }() // ends with the store
			synctest.Wait()
			p := try(g, put("d/a/y", 33)) // whether it is in flight is stored by now
			p.wantWaiting(t)
			release(nil)
			p.wantStale(t, "d/a?tree", 34)
			other.Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("beneath a tree in flight", func(t *testing.T) {
		for r, draining := range map[fencing.Resource]bool{"d/a/x": true, "d/a/b?tree": true, "d/c": false} {
			s := newMemStore()
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, remove("d/a", 33))
				a.InDoubt(time.Second)
				set(t, g, r, 40, false)
				if m, _ := s.mark(r); m.Draining != draining {
					t.Errorf("the mark of %q is %+v; want Draining %v", r, m, draining)
				}
				pass(time.Second)
				wantIdle(t, g)
			})
		}
	})
	t.Run("which fails", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			s.onAdvance = func([]fencing.ResourceMark) error { return errors.New("no space") }
			if _, _, err := g.SetMark("d/a/x", mark("", 40).Mark, false); err == nil {
				t.Error("SetMark = nil; want an error")
			}
			s.unhold()
			try(g, remove("d/a", 33)).wantAdmitted(t).Done(0) // nothing is kept of it
			wantConsistent(t, g)
			wantIdle(t, g)
		})
	})
}

func TestFailedAdvanceInATree(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		full := errors.New("no space")
		s.onAdvance = func([]fencing.ResourceMark) error { return full }
		try(g, put("d/a/x", 50)).wantErr(t, full)
		try(g, remove("d/a", 50)).wantErr(t, full)
		s.unhold()
		wantIdle(t, g)
		try(g, put("d/a/y", 1)).wantAdmitted(t).Done(0) // neither was seen
		try(g, remove("d/a", 1)).wantAdmitted(t).Done(0)

		release := s.holdAdvance()
		p := try(g, remove("d/b", 50))
		q := try(g, put("d/b/x", 49))
		q.wantStale(t, "d/b?tree", 50)
		release(full)
		p.wantErr(t, full)
		s.unhold()
		try(g, put("d/b/x", 49)).wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestNothingIsAdmittedBeforeTheMarkOfItsTreeIsDurable(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		release := s.holdAdvance()
		p, q := try(g, remove("d/a", 33)), try(g, remove("d/a", 33))
		p.wantWaiting(t)
		q.wantWaiting(t)
		s.wantNoMark(t, "d/a?tree")
		release(nil)
		p.wantAdmitted(t).Done(0)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}
