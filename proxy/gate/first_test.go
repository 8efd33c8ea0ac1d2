package gate_test

import (
	"errors"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestFirstIsAskedForResourcesWithoutAMarkAlone(t *testing.T) {
	s := newMemStore(mark("known", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		var asked []int
		var answer error
		with := func(w gate.Write) gate.Write {
			w.First = func(n int) error { asked = append(asked, n); return answer }
			return w
		}
		want := func(what string, ns ...int) {
			t.Helper()
			if len(asked) != len(ns) || len(ns) > 0 && asked[0] != ns[0] {
				t.Errorf("%s: asked for %v; want %v", what, asked, ns)
			}
			asked = nil
		}
		for _, token := range []uint64{33, 34} {
			enter(t, g, with(write("known", token))).Done(0)
		}
		want("a known resource")
		try(g, with(write("known", 1))).wantStale(t, "known", 34)
		want("a stale token")

		answer = errors.New("enough")
		p := try(g, with(writeAll(40, "known", "new", "newer")))
		p.wantErr(t, answer)
		want("two new ones of three", 2)
		s.wantMark(t, "known", 34) // all or none
		for _, r := range []fencing.Resource{"new", "newer"} {
			if _, ok, _ := g.Mark(r); ok {
				t.Errorf("%s has a mark", r)
			}
		}
		wantIdle(t, g)
		enter(t, g, with(write("known", 35))).Done(0) // 40 was not seen

		answer = nil
		under := write("new", 40)
		under.Under = []fencing.Resource{"tree"}
		first := enter(t, g, with(under))
		want("a tree that the write lies in gets no mark", 1)
		second := enter(t, g, with(write("new", 40)))
		want("a resource whose first write is under way")
		first.Done(0)
		second.Done(0)

		answer = errors.New("enough")
		a, err := g.Observe(with(write("observed", 1)))
		if err != nil {
			t.Fatal(err)
		}
		want("an observed write")
		a.Done(0)
	})
}

func TestRefusedFirstMarkIsAskedForAgain(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		n := 0
		w := write("new", 1)
		w.First = func(int) error { n++; return nil }
		for range 3 {
			if err := enter(t, g, w).Refused(); err != nil {
				t.Fatal(err)
			}
		}
		if n != 3 {
			t.Errorf("asked %d times; want 3: each of them made a mark", n)
		}
		wantIdle(t, g)
	})
}
