package gate_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// within lets the token of a write be at most 10 above the mark.
func within(w gate.Write) gate.Write { w.MaxJump = 10; return w }

func wantJump(t *testing.T, err error, r fencing.Resource, n, mark uint64) {
	t.Helper()
	want := gate.JumpError{Resource: r, Token: fencing.Number(n), Mark: fencing.Number(mark), Max: 10}
	if e, ok := errors.AsType[*gate.JumpError](err); !ok || *e != want {
		t.Errorf("the error is %v; want %v", err, &want)
	}
}

func TestWhatAJumpInATreeIsMeasuredBy(t *testing.T) {
	type marks map[fencing.Resource]uint64
	below := func(w gate.Write) gate.Write { w.Resources = nil; return w } // the tree key alone
	for _, tc := range []struct {
		name  string
		marks marks
		write func(n uint64) gate.Write
		by    fencing.Resource // with 45 the error names it
		early bool             // Check knows it
	}{
		{"tree, by a mark beneath", marks{"d/a/x": 34}, func(n uint64) gate.Write { return remove("d/a", n) }, "d/a?tree", false},
		{"tree, by the highest beneath", marks{"d/a/x": 3, "d/a/b/y": 34}, func(n uint64) gate.Write { return remove("d/a", n) }, "d/a?tree", false},
		{"tree, by a tree beneath", marks{"d/a/b?tree": 34}, func(n uint64) gate.Write { return remove("d/a", n) }, "d/a?tree", false},
		{"tree, by its own mark first", marks{"d/a?tree": 34, "d/a/x": 40}, func(n uint64) gate.Write { return below(remove("d/a", n)) }, "d/a?tree", true},
		{"tree, by what is beneath before what is above", marks{"d?tree": 40, "d/a/x": 34}, func(n uint64) gate.Write { return below(remove("d/a", n)) }, "d/a?tree", false},
		{"tree, by the tree that it lies in", marks{"d?tree": 34}, func(n uint64) gate.Write { return below(remove("d/a", n)) }, "d/a?tree", false},
		{"the second of two trees", marks{"d/b/x": 34}, func(n uint64) gate.Write { return below(move("d/a", "d/b", n)) }, "d/b?tree", false},
		{"a new resource, by its tree", marks{"d/a?tree": 34}, func(n uint64) gate.Write { return put("d/a/x", n) }, "d/a/x", true},
		{"a new resource, by the highest of its trees", marks{"d/a?tree": 5, "d?tree": 34}, func(n uint64) gate.Write { return put("d/a/x", n) }, "d/a/x", true},
		{"a resource, by its own mark, far above its tree's", marks{"d/a/x": 34, "d/a?tree": 3}, func(n uint64) gate.Write { return put("d/a/x", n) }, "d/a/x", true},
		{"a resource, by its own mark first", marks{"d/a/x": 34, "d/a?tree": 40}, func(n uint64) gate.Write { return put("d/a/x", n) }, "d/a/x", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newMemStore()
			for r, n := range tc.marks {
				s.marks[r] = mark(r, n).Mark
			}
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				w := within(tc.write(45))
				wantJump(t, try(g, w).err, tc.by, 45, 34)
				a, err := g.Observe(w)
				wantJump(t, err, tc.by, 45, 34)
				a.Done(0)
				if err := g.Check(w); tc.early {
					wantJump(t, err, tc.by, 45, 34)
				} else if err != nil {
					t.Errorf("Check = %v; want nil", err)
				}
				for _, r := range keysOf(w) {
					if _, ok := tc.marks[r]; !ok {
						s.wantNoMark(t, r)
					}
				}
				w = within(tc.write(44))
				if err := g.Check(w); err != nil {
					t.Errorf("Check(44) = %v; want nil", err)
				}
				enter(t, g, w).Done(0)
				wantIdle(t, g)
			})
		})
	}
}

func TestAnyTokenMayComeToATreeWithoutMarks(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(mark("d/c", 34)), func(t *testing.T, g *gate.Gate) {
		enter(t, g, within(remove("d/a", 9000))).Done(0)
		wantJump(t, try(g, within(put("d/a/x", 9011))).err, "d/a/x", 9011, 9000)
		wantIdle(t, g)
	})
}

func TestUnprovenTokenBeneathIsNoStepToClimbOn(t *testing.T) {
	refusedTree := func(t *testing.T, g *gate.Gate) {
		t.Helper()
		wantJump(t, try(g, within(remove("d/a", 50))).err, "d/a?tree", 50, 34)
	}
	t.Run("in flight", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(mark("d/a/x", 34)), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/y", 50))
			refusedTree(t, g)
			a.Done(0)
			enter(t, g, within(remove("d/a", 50))).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("in flight on the resource with the mark", func(t *testing.T) {
		s := newMemStore(mark("d/a/x", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/x", 50))
			refusedTree(t, g)
			a.Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("on a tree beneath", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(mark("d/a/x", 34)), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a/b", 50))
			refusedTree(t, g)
			a.Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("on a tree above", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(mark("d?tree", 34)), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a", 50))
			p := try(g, within(put("d/a/x", 50)))
			wantJump(t, p.err, "d/a/x", 50, 34)
			a.Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("being taken back", func(t *testing.T) {
		s := newMemStore(mark("d/a/x", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/y", 50))
			release := s.holdRestore()
			back := refuse(a)
			refusedTree(t, g)
			release(nil)
			<-back
			wantIdle(t, g)
		})
	})
	t.Run("taken back after the scan has read it", func(t *testing.T) {
		s := newMemStore(mark("d/a/x", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/y", 50))
			s.afterBeneath = func() { refused(t, a) }
			refusedTree(t, g)
			wantIdle(t, g)
		})
	})
	for name, tree := range map[string]func(fencing.Resource, uint64) gate.Write{"a resource": put, "a tree": remove} {
		t.Run("raised on "+name+" and taken back while the scan reads", func(t *testing.T) {
			s := newMemStore(mark("d/a/x", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				var a *gate.Admission
				s.onBeneath = func(prefix fencing.Resource) error {
					if prefix == "d/a/" {
						a = enter(t, g, tree("d/a/b", 50))
					}
					return nil
				}
				s.afterBeneath = func() {
					if a != nil {
						refused(t, a)
					}
				}
				refusedTree(t, g)
				wantIdle(t, g)
			})
		})
	}
	t.Run("raised between the two readings", func(t *testing.T) {
		s := newMemStore(mark("d/a/x", 34))
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/y", 40))
			var b *gate.Admission
			s.onRange = func() error { b = enter(t, g, put("d/a/z", 50)); return nil }
			refusedTree(t, g)
			if b == nil {
				t.Fatal("the marks were read once; want it twice")
			}
			a.Done(0)
			b.Done(0)
			wantIdle(t, g)
		})
	})
}

// What is proven while the marks are read may count, and so do the marks beside a token in doubt.
func TestProvenMarkBesideATokenInDoubtCounts(t *testing.T) {
	s := newMemStore(mark("d/a/x", 34), mark("d/a/y", 3))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/y", 44))
		b := enter(t, g, within(remove("d/a", 44)))
		if s.ranges != 1 {
			t.Errorf("the marks were read %d times more; want once", s.ranges)
		}
		a.Done(0)
		b.Done(0)
		wantIdle(t, g)
	})
	s = newMemStore(mark("d/a/x", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/y", 50))
		s.onBeneath = func(fencing.Resource) error { a.Done(0); return nil }
		enter(t, g, within(remove("d/a", 60))).Done(0)
		if s.ranges != 0 {
			t.Errorf("the marks were read %d times more; want none: what was read is proven by now", s.ranges)
		}
		wantIdle(t, g)
	})
	s = newMemStore(mark("d/a/x", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/y", 50))
		s.onRange = func() error { a.Done(0); return nil }
		enter(t, g, within(remove("d/a", 60))).Done(0)
		wantIdle(t, g)
	})
}

// The marks are read once more only if that can change the answer.
func TestMarksBeneathAreReadTwiceOnlyInDoubt(t *testing.T) {
	for name, tc := range map[string]struct {
		setUp func(*testing.T, *gate.Gate)
		max   uint64
	}{
		"nothing is in flight":    {func(*testing.T, *gate.Gate) {}, 10},
		"in flight with the mark": {func(t *testing.T, g *gate.Gate) { enter(t, g, put("d/a/x", 34)) }, 10},
		"in flight elsewhere":     {func(t *testing.T, g *gate.Gate) { enter(t, g, put("d/c", 35)) }, 10},
		"the tree has a mark": {func(t *testing.T, g *gate.Gate) {
			enter(t, g, remove("d/a", 34)).Done(0)
			enter(t, g, put("d/a/y", 34))
		}, 10},
		"any distance": {func(t *testing.T, g *gate.Gate) { enter(t, g, put("d/a/y", 34)) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore(mark("d/a/x", 34))
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				tc.setUp(t, g)
				w := remove("d/a", 34)
				w.MaxJump = tc.max
				enter(t, g, w).Done(0)
				if s.ranges != 0 {
					t.Errorf("the marks were read %d times more; want none", s.ranges)
				}
				wantConsistent(t, g)
			})
		})
	}
}

// A store that cannot say what is proven refuses (G5).
func TestDoubtThatCannotBeResolvedRefuses(t *testing.T) {
	damaged := errors.New("damaged")
	s := newMemStore(mark("d/a/x", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/y", 35))
		s.onRange = func() error { return damaged }
		try(g, within(remove("d/a", 35))).wantErr(t, damaged)
		a.Done(0)
		wantIdle(t, g)
	})
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(struct{ gate.Store }{newMemStore(mark("d/a/x", 34))}, gate.Config{})
		a := enter(t, g, put("d/a/y", 35))
		p := try(g, within(remove("d/a", 35)))
		if e, ok := errors.AsType[*gate.StoreError](p.err); !ok || e.Op != "load" {
			t.Errorf("Enter = %v; want a StoreError of a load", p.err)
		}
		a.Done(0)
		wantIdle(t, g)
	})
}
