package gate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// treeKey is the key that carries the mark of the collection at path.
func treeKey(path fencing.Resource) fencing.Resource { return path + "?tree" }

// above returns the keys of the collections that path lies in.
func above(path fencing.Resource) (keys []fencing.Resource) {
	for i, c := range path {
		if c == '/' {
			keys = append(keys, treeKey(path[:i]))
		}
	}
	return keys
}

// put is a write on one resource of a hierarchy.
func put(path fencing.Resource, n uint64) gate.Write {
	w := write(path, n)
	w.Under = above(path)
	return w
}

// remove is a write that changes a collection as a whole.
func remove(path fencing.Resource, n uint64) gate.Write {
	w := put(path, n)
	w.Trees = []gate.Tree{{Key: treeKey(path), Prefix: path + "/"}}
	return w
}

// move changes two collections.
func move(from, to fencing.Resource, n uint64) gate.Write {
	w := remove(from, n)
	v := remove(to, n)
	w.Resources = append(w.Resources, to)
	w.Trees = append(w.Trees, v.Trees...)
	for _, k := range v.Under {
		if !strings.Contains(fmt.Sprint(w.Under), string(k)) {
			w.Under = append(w.Under, k)
		}
	}
	return w
}

func empty(w gate.Write) gate.Write { w.Trees[0].Empty = true; return w }

func wantTree(t *testing.T, err error, want gate.TreeError) {
	t.Helper()
	if e, ok := errors.AsType[*gate.TreeError](err); !ok || *e != want {
		t.Fatalf("the error is %v; want %+v", err, want)
	}
}

// endings are the ways in which a write lets go of the gate, all of them after the same time.
var endings = map[string]func(a *gate.Admission){
	"done":     func(a *gate.Admission) { time.AfterFunc(time.Second, func() { a.Done(0) }) },
	"settle":   func(a *gate.Admission) { a.Done(time.Second) },
	"in doubt": func(a *gate.Admission) { a.InDoubt(time.Second) },
	"not sent": func(a *gate.Admission) { time.AfterFunc(time.Second, func() { _ = a.NotSent() }) },
	"refused":  func(a *gate.Admission) { time.AfterFunc(time.Second, func() { _ = a.Refused() }) },
}

func TestWritesBesideEachOtherInATree(t *testing.T) {
	for _, tc := range []struct {
		name          string
		first, second gate.Write
		waits         bool
	}{
		{"beneath, beside a neighbour", put("d/a/x", 33), put("d/a/y", 34), false},
		{"beneath, below a neighbour", put("d/a/x", 34), put("d/a/y", 33), false},
		{"beneath, alone on its resource", exclusive(put("d/a/x", 33)), exclusive(put("d/a/y", 33)), false},
		{"beneath, higher than the tree's", remove("d/a", 33), put("d/a/x", 34), true},
		{"beneath, higher than the tree's, two levels down", remove("d", 33), put("d/a/x", 34), true},
		{"beneath, equal to the tree's", remove("d/a", 33), put("d/a/x", 33), false},
		{"beneath, equal but alone", remove("d/a", 33), exclusive(put("d/a/x", 33)), true},
		{"beneath, beside a tree that is alone", exclusive(remove("d/a", 33)), put("d/a/x", 33), true},
		{"beside the tree", remove("d/a", 33), put("d/c", 1), false},
		{"beside the tree, a longer name", remove("d/a", 33), put("d/ab/x", 1), false},
		{"tree, higher than one beneath", put("d/a/x", 33), remove("d/a", 34), true},
		{"tree, higher than one two levels beneath", put("d/a/b/x", 33), remove("d/a", 34), true},
		{"tree, equal to one beneath", put("d/a/x", 33), remove("d/a", 33), false},
		{"tree, equal but alone", put("d/a/x", 33), exclusive(remove("d/a", 33)), true},
		{"tree, beside one beneath that is alone", exclusive(put("d/a/x", 33)), remove("d/a", 33), true},
		{"tree, higher than the tree's", remove("d/a", 33), remove("d/a", 34), true},
		{"tree, equal to the tree's", remove("d/a", 33), remove("d/a", 33), false},
		{"tree, alone beside the tree's", remove("d/a", 33), exclusive(remove("d/a", 33)), true},
		{"tree in a tree, higher", remove("d/a", 33), remove("d/a/b", 34), true},
		{"tree in a tree, equal", remove("d/a", 33), remove("d/a/b", 33), false},
		{"tree round a tree, higher", remove("d/a/b", 33), remove("d/a", 34), true},
		{"tree round a tree, equal", remove("d/a/b", 33), remove("d/a", 33), false},
		{"tree beside a tree", remove("d/a", 34), remove("d/b", 33), false},
		{"one of two trees", put("d/b/x", 33), move("d/a", "d/b", 34), true},
		{"beneath one of two trees", move("d/a", "d/b", 33), put("d/b/x", 34), true},
	} {
		for how, end := range endings {
			t.Run(tc.name+"/"+how, func(t *testing.T) {
				bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
					a := enter(t, g, tc.first)
					p := try(g, tc.second)
					if !tc.waits {
						p.wantAdmitted(t).Done(0)
						a.Done(0)
						wantIdle(t, g)
						return
					}
					p.wantWaiting(t)
					wantConsistent(t, g)
					began := time.Now()
					end(a)
					p.wantAdmittedAt(t, began.Add(time.Second)).Done(0)
					wantConsistent(t, g)
					synctest.Wait()
					wantIdle(t, g)
				})
			})
		}
	}
}

func TestStaleInATree(t *testing.T) {
	for _, tc := range []struct {
		name  string
		marks []fencing.ResourceMark
		open  []gate.Write // admitted and in flight
		w     gate.Write
		r     fencing.Resource // "": admitted
		mark  uint64
	}{
		{"beneath, below the tree's mark", []fencing.ResourceMark{mark("d/a?tree", 34)}, nil, put("d/a/x", 33), "d/a?tree", 34},
		{"beneath, at the tree's mark", []fencing.ResourceMark{mark("d/a?tree", 33)}, nil, put("d/a/x", 33), "", 0},
		{"beneath, at the tree's mark, with a new number each", []fencing.ResourceMark{mark("d/a?tree", 33)}, nil, greater(put("d/a/x", 33)), "", 0},
		{"beneath, below a tree's mark two levels up", []fencing.ResourceMark{mark("d?tree", 34)}, nil, put("d/a/x", 33), "d?tree", 34},
		{"beneath, below a neighbour's mark", []fencing.ResourceMark{mark("d/a/y", 34)}, nil, put("d/a/x", 33), "", 0},
		{"beneath, below a tree in flight", nil, []gate.Write{remove("d/a", 34)}, put("d/a/x", 33), "d/a?tree", 34},
		{"tree, below its mark", []fencing.ResourceMark{mark("d/a?tree", 34)}, nil, remove("d/a", 33), "d/a?tree", 34},
		{"tree, at its mark", []fencing.ResourceMark{mark("d/a?tree", 33)}, nil, remove("d/a", 33), "", 0},
		{"tree, at its mark, with a new number each", []fencing.ResourceMark{mark("d/a?tree", 33)}, nil, greater(remove("d/a", 33)), "d/a?tree", 33},
		{"tree, below a mark beneath", []fencing.ResourceMark{mark("d/a/x", 34), mark("d/a/y", 9)}, nil, remove("d/a", 33), "d/a?tree", 34},
		{"tree, below a mark two levels beneath", []fencing.ResourceMark{mark("d/a/b/x", 34)}, nil, remove("d/a", 33), "d/a?tree", 34},
		{"tree, below the mark of a tree beneath", []fencing.ResourceMark{mark("d/a/b?tree", 34)}, nil, remove("d/a", 33), "d/a?tree", 34},
		{"tree, at a mark beneath", []fencing.ResourceMark{mark("d/a/x", 33)}, nil, remove("d/a", 33), "", 0},
		{"tree, at a mark beneath, with a new number each", []fencing.ResourceMark{mark("d/a/x", 33)}, nil, greater(remove("d/a", 33)), "", 0},
		{"tree, below a mark beside it", []fencing.ResourceMark{mark("d/ab/x", 34), mark("d/a!", 34)}, nil, remove("d/a", 33), "", 0},
		{"tree, below a write beneath", nil, []gate.Write{put("d/a/x", 34)}, remove("d/a", 33), "d/a?tree", 34},
		{"tree, below the mark of the tree round it", []fencing.ResourceMark{mark("d?tree", 34)}, nil, remove("d/a", 33), "d?tree", 34},
		{"the first of two trees", []fencing.ResourceMark{mark("d/a/x", 34)}, nil, move("d/a", "d/b", 33), "d/a?tree", 34},
		{"the second of two trees", []fencing.ResourceMark{mark("d/b/x", 34)}, nil, move("d/a", "d/b", 33), "d/b?tree", 34},
		{"formats that do not mix", []fencing.ResourceMark{{Resource: "d/a/x", Mark: fencing.Mark{Token: fencing.Token{Hi: 1}, Format: fencing.Pair}}},
			[]gate.Write{put("d/a/y", 7)}, func() gate.Write { w := remove("d/a", 0); w.Token = fencing.Token{Hi: 1, Lo: 1}; return w }(), "waits", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newMemStore(tc.marks...)
			before := len(s.marks)
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				var as []*gate.Admission
				for _, w := range tc.open {
					as = append(as, enter(t, g, w))
				}
				before = len(s.marks)
				p := try(g, tc.w)
				switch tc.r {
				case "":
					p.wantAdmitted(t).Done(0)
				case "waits":
					p.wantWaiting(t)
				default:
					p.wantStale(t, tc.r, tc.mark)
					if len(s.marks) != before {
						t.Errorf("the marks are %v; want that a stale write leaves none", s.marks)
					}
				}
				for _, a := range as {
					a.Done(0)
				}
				if tc.r == "waits" {
					p.wantAdmitted(t).Done(0)
				}
				wantIdle(t, g)
			})
		})
	}
}

func TestTreeNeedsNoResource(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		w := gate.Write{Trees: []gate.Tree{{Key: "d?tree", Prefix: "d/"}}, Token: token33, DrainTimeout: time.Second}
		enter(t, g, w).Done(0)
		s.wantMark(t, "d?tree", 33)
		w.Trees, w.Under = nil, []fencing.Resource{"d?tree"}
		defer func() {
			if recover() == nil {
				t.Error("a write without resources and trees was taken; want a panic")
			}
		}()
		_, _ = g.Enter(t.Context(), w)
	})
}

func TestWriteBeneathLeavesTheMarkOfTheTree(t *testing.T) {
	s := newMemStore(mark("d/a?tree", 33))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		enter(t, g, put("d/a/x", 40)).Done(0)
		s.wantMark(t, "d/a?tree", 33)
		s.wantNoMark(t, "d?tree")
		enter(t, g, put("d/a/y", 33)).Done(0)
		enter(t, g, remove("d/a", 50)).Done(0)
		s.wantMark(t, "d/a?tree", 50)
		s.wantMark(t, "d/a", 50)
		s.wantMark(t, "d/a/x", 40) // as it was: the tree's mark guards it
		s.wantNoMark(t, "d?tree")
		try(g, put("d/a/x", 49)).wantStale(t, "d/a?tree", 50)
		wantIdle(t, g)
	})
}

func TestTreeCountsAsSeenWhileItWaits(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/x", 33))
		lower := try(g, exclusive(put("d/a/x", 33))) // waits beneath
		p := try(g, remove("d/a", 34))
		p.wantWaiting(t)
		lower.wantStale(t, "d/a?tree", 34)
		s.wantMark(t, "d/a?tree", 34)
		try(g, put("d/a/y", 33)).wantStale(t, "d/a?tree", 34)
		try(g, put("d/a/y", 34)).wantAdmitted(t).Done(0)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestTreeIsStaleOnceAHigherTokenComesByBeneath(t *testing.T) {
	for name, tc := range map[string]func(t *testing.T, g *gate.Gate){
		"and stays": func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/y", 35))
			time.AfterFunc(time.Second, func() { a.Done(0) })
		},
		"and waits": func(t *testing.T, g *gate.Gate) {
			p := try(g, put("d/a/x", 35)) // behind the one that is in flight
			p.wantWaiting(t)
			go func() { // ends with Enter
				<-p.done
				p.a.Done(0)
			}()
		},
		"and is observed": func(_ *testing.T, g *gate.Gate) {
			a, _ := g.Observe(put("d/a/y", 35))
			time.AfterFunc(time.Second, func() { a.Done(0) })
		},
		"in a tree beneath": func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a/b", 35))
			time.AfterFunc(time.Second, func() { a.Done(0) })
		},
		"from an operator": func(t *testing.T, g *gate.Gate) {
			if _, _, err := g.SetMark("d/a/y", mark("", 35).Mark, false); err != nil {
				t.Errorf("SetMark = %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newMemStore()
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				a := enter(t, g, put("d/a/x", 33))
				p := try(g, remove("d/a", 34))
				p.wantWaiting(t)
				tc(t, g)
				p.wantStale(t, "d/a?tree", 35) // at once
				a.Done(0)
				pass(time.Minute)
				if m, ok := s.mark("d/a?tree"); ok {
					t.Errorf("the durable mark of d/a?tree is %v; want none: it was turned away, and has shown nothing", m.Token)
				}
				wantIdle(t, g)
			})
		})
	}
}

// The scan takes its time. What it has read may be out of date when it comes back.
func TestNothingSlipsInWhileTheStoreIsScanned(t *testing.T) {
	for _, tc := range []struct {
		name     string
		begin    func(t *testing.T, g *gate.Gate, s *memStore) func()
		during   func(t *testing.T, g *gate.Gate, s *memStore) func()
		mark     uint64 // 0: admitted
		emptyToo gate.TreeReason
	}{
		{name: "nothing"},
		{name: "a higher one comes and stays", emptyToo: gate.TreeWrites, mark: 35,
			during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				a := enter(t, g, put("d/a/x", 35))
				return func() { a.Done(0) }
			}},
		{name: "a higher one comes and goes", emptyToo: gate.TreeMarks, mark: 35,
			during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				enter(t, g, put("d/a/x", 35)).Done(0)
				return func() {}
			}},
		{name: "a higher one comes, goes, and a lower one after it", emptyToo: gate.TreeMarks, mark: 35,
			during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				enter(t, g, put("d/a/x", 35)).Done(0)
				enter(t, g, put("d/a/y", 2)).Done(0)
				return func() {}
			}},
		{name: "a higher one goes that was there before", emptyToo: gate.TreeMarks, mark: 35,
			begin: func(t *testing.T, g *gate.Gate, s *memStore) func() {
				release := s.holdAdvance()
				p := try(g, put("d/a/x", 35))
				return func() {
					release(nil)
					p.wantAdmitted(t).Done(0)
				}
			}},
		{name: "a higher one gives up", emptyToo: gate.TreeMarks, mark: 35,
			begin: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				a := enter(t, g, put("d/a/x", 1))
				return func() {
					p := try(g, put("d/a/x", 35))
					p.cancel()
					p.wantErr(t, context.Canceled)
					a.Done(0)
				}
			}},
		{name: "an observed one leaves before its mark is durable", emptyToo: gate.TreeWrites, mark: 35,
			begin: func(t *testing.T, g *gate.Gate, s *memStore) func() {
				slow := make(chan struct{})
				s.onAdvance = func([]fencing.ResourceMark) error { <-slow; return nil }
				observe(t, g, put("d/a/x", 35)).Done(0)
				time.AfterFunc(time.Minute, func() { close(slow) })
				return func() {}
			}},
		{name: "a stale one is observed", begin: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
			enter(t, g, put("d/a", 9)).Done(0)
			return func() {}
		}, during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
			w := put("d/a/x", 1)
			w.Resources = append(w.Resources, "e") // beside the tree
			if _, _, err := g.SetMark("e", mark("e", 2).Mark, false); err != nil {
				t.Errorf("SetMark = %v", err)
			}
			a, err := g.Observe(w)
			wantStale(t, err, "e", 2)
			a.Done(0)
			return func() {}
		}, emptyToo: gate.TreeWrites},
		{name: "an equal one comes and goes", emptyToo: gate.TreeMarks,
			during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				enter(t, g, put("d/a/x", 34)).Done(0)
				return func() {}
			}},
		{name: "a higher one comes and goes beside it",
			during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				enter(t, g, put("d/c/x", 35)).Done(0)
				return func() {}
			}},
		{name: "an operator sets a mark", emptyToo: gate.TreeMarks, mark: 35,
			during: func(t *testing.T, g *gate.Gate, _ *memStore) func() {
				if _, _, err := g.SetMark("d/a/x", mark("", 35).Mark, false); err != nil {
					t.Errorf("SetMark = %v", err)
				}
				return func() {}
			}},
		{name: "a mark that an operator set before becomes durable", emptyToo: gate.TreeMarks, mark: 35,
			begin: func(t *testing.T, g *gate.Gate, s *memStore) func() {
				release := s.holdAdvance()
				go func() { _, _, _ = g.SetMark("d/a/x", mark("", 35).Mark, false) }() // ends with the test
				synctest.Wait()
				return func() { release(nil); synctest.Wait() }
			}},
	} {
		for name, w := range map[string]gate.Write{"any": remove("d/a", 34), "empty": empty(remove("d/a", 34))} {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				s := newMemStore()
				bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
					then := func() {}
					if tc.begin != nil {
						then = tc.begin(t, g, s)
					}
					scanned := make(chan struct{})
					s.mu.Lock()
					s.afterBeneath = func() { <-scanned } // what was there is read by now
					s.mu.Unlock()
					p := try(g, w)
					p.wantWaiting(t)
					then()
					later := func() {}
					if tc.during != nil {
						later = tc.during(t, g, s)
					}
					wantConsistent(t, g)
					close(scanned)
					switch {
					case name == "empty" && tc.emptyToo != "":
						p.wantErrAs(t)
						wantTree(t, p.err, gate.TreeError{Resource: "d/a?tree", Reason: tc.emptyToo})
					case tc.mark > 0:
						p.wantStale(t, "d/a?tree", tc.mark)
					default:
						p.wantAdmitted(t).Done(0)
					}
					later()
					pass(time.Hour)
					wantIdle(t, g)
				})
			})
		}
	}
}

// wantErrAs wants Enter to have returned.
func (p *attempt) wantErrAs(t *testing.T) {
	t.Helper()
	if !p.returned() {
		t.Fatalf("Enter(%v) waits; want an error", p.w.Token)
	}
}

func TestTokenThatWasRefusedBeneathIsNotKept(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		refused(t, enter(t, g, put("d/a/x", 50)))
		try(g, remove("d/a", 34)).wantAdmitted(t).Done(0) // joined afterwards
		wantIdle(t, g)
	})
}

func TestEmptyTree(t *testing.T) {
	for _, tc := range []struct {
		name   string
		marks  []fencing.ResourceMark
		open   gate.Write
		reason gate.TreeReason // "": admitted
	}{
		{"nothing", nil, gate.Write{}, ""},
		{"a lower mark beneath", []fencing.ResourceMark{mark("d/a/x", 1)}, gate.Write{}, gate.TreeMarks},
		{"a higher mark beneath", []fencing.ResourceMark{mark("d/a/x", 99)}, gate.Write{}, gate.TreeMarks},
		{"the mark of a tree beneath", []fencing.ResourceMark{mark("d/a/b?tree", 1)}, gate.Write{}, gate.TreeMarks},
		{"its own mark", []fencing.ResourceMark{mark("d/a?tree", 34), mark("d/a", 34)}, gate.Write{}, ""},
		{"a mark beside it", []fencing.ResourceMark{mark("d/ab/x", 1)}, gate.Write{}, ""},
		{"a lower write beneath", nil, put("d/a/x", 1), gate.TreeWrites},
		{"an equal write beneath", nil, put("d/a/x", 34), gate.TreeWrites},
		{"an equal write on the tree", nil, remove("d/a", 34), ""},
		{"a write beside it", nil, put("d/c/x", 34), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newMemStore(tc.marks...)
			bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
				var a *gate.Admission
				if tc.open.Resources != nil {
					a = enter(t, g, tc.open)
				}
				p := try(g, empty(remove("d/a", 34)))
				if tc.reason == "" {
					p.wantAdmitted(t).Done(0)
				} else {
					p.wantErrAs(t)
					wantTree(t, p.err, gate.TreeError{Resource: "d/a?tree", Reason: tc.reason})
					if _, ok := s.mark("d/a?tree"); ok {
						t.Error("the refused write left a mark")
					}
				}
				if a != nil {
					a.Done(0)
				}
				wantIdle(t, g)
			})
		})
	}
	t.Run("until it is admitted", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a", 33))
			p := try(g, empty(remove("d/a", 34)))
			p.wantWaiting(t)
			b := try(g, put("d/a/x", 34)) // waits for 33 as well
			p.wantErrAs(t)
			wantTree(t, p.err, gate.TreeError{Resource: "d/a?tree", Reason: gate.TreeWrites})
			a.Done(0)
			b.wantAdmitted(t).Done(0)
			wantIdle(t, g)
		})
	})
	t.Run("stale comes first", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(mark("d/a?tree", 35), mark("d/a/x", 1)), func(t *testing.T, g *gate.Gate) {
			try(g, empty(remove("d/a", 34))).wantStale(t, "d/a?tree", 35)
		})
	})
	for reason, says := range map[gate.TreeReason]string{gate.TreeMarks: "have marks", gate.TreeWrites: "under way"} {
		if text := (&gate.TreeError{Resource: "d/a?tree", Reason: reason}).Error(); !strings.Contains(text, says) || !strings.Contains(text, `"d/a?tree"`) {
			t.Errorf("the text is %q; want it to name the tree and to say %q", text, says)
		}
	}
}

func TestCheckLooksAtTrees(t *testing.T) {
	s := newMemStore(mark("d/a?tree", 34), mark("d/b/x", 99))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		wantStale(t, g.Check(put("d/a/x", 33)), "d/a?tree", 34)
		wantStale(t, g.Check(remove("d/a", 33)), "d/a?tree", 34)
		wantStale(t, g.Check(greater(remove("d/a", 34))), "d/a?tree", 34)
		for name, w := range map[string]gate.Write{
			"equal beneath": put("d/a/x", 34), "with a new number each": greater(put("d/a/x", 34)), "equal on the tree": remove("d/a", 34),
			"a mark beneath is not looked for": remove("d/b", 33),
		} {
			if err := g.Check(w); err != nil {
				t.Errorf("%s: Check = %v; want nil", name, err)
			}
		}
		a := enter(t, g, put("d/c/x", 1))
		p := try(g, remove("d/c", 5)) // in memory only, as far as Check can tell
		wantStale(t, g.Check(put("d/c/y", 4)), "d/c?tree", 5)
		a.Done(0)
		p.wantAdmitted(t).Done(0)
		if s.scans != 1 {
			t.Errorf("%d scans; want one, by Enter", s.scans)
		}
		s.onLoad = func(r fencing.Resource) error {
			if strings.HasSuffix(string(r), "?tree") {
				return errors.New("damaged")
			}
			return nil
		}
		for _, w := range []gate.Write{put("d/a/x", 99), remove("d/a", 99)} {
			if _, ok := errors.AsType[*gate.StoreError](g.Check(w)); !ok {
				t.Errorf("Check = %v; want a StoreError", g.Check(w))
			}
		}
	})
}

func TestScanThatFailsRejects(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		damaged := errors.New("damaged")
		s.onBeneath = func(r fencing.Resource) error {
			if r == "d/b/" {
				return damaged
			}
			return nil
		}
		p := try(g, move("d/a", "d/b", 33))
		p.wantErr(t, damaged)
		if e, ok := errors.AsType[*gate.StoreError](p.err); !ok || e.Op != "load" {
			t.Errorf("Enter = %#v; want a StoreError of a load", p.err)
		}
		if a, err := g.Observe(remove("d/b", 33)); a != nil || !errors.Is(err, damaged) {
			t.Errorf("Observe = %v, %v; want nil and the store's error", a, err)
		}
		if len(s.marks) > 0 {
			t.Errorf("the marks are %v; want none", s.marks)
		}
		wantConsistent(t, g)
		wantIdle(t, g)
		try(g, remove("d/a", 1)).wantAdmitted(t).Done(0)
		s.onLoad = func(r fencing.Resource) error {
			if r == "d?tree" {
				return damaged
			}
			return nil
		}
		try(g, put("d/c", 33)).wantErr(t, damaged)
		s.unhold()
		s.fail(damaged)
		try(g, remove("d/a", 33)).wantErr(t, damaged)
		wantIdle(t, g)
	})
}

func TestGivingUpInATree(t *testing.T) {
	t.Run("beneath", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, remove("d/a", 33))
			w := put("d/a/x", 34)
			w.DrainTimeout = 5 * time.Second
			p, q := try(g, w), try(g, put("d/a/y", 35))
			q.cancel()
			q.wantErr(t, context.Canceled)
			p.wantBusyAfter(t, 5*time.Second, gate.BusyError{Resource: "d/a?tree", Reason: gate.BusyInFlight, RetryAfter: time.Second})
			a.Done(0)
			wantIdle(t, g)
			try(g, remove("d/a", 34)).wantStale(t, "d/a?tree", 35) // what was seen stays seen
			try(g, remove("d/a", 35)).wantAdmitted(t).Done(0)
		})
	})
	t.Run("on the tree", func(t *testing.T) {
		s := newMemStore()
		bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/x", 33))
			a.InDoubt(time.Minute)
			w := remove("d/a", 34)
			w.DrainTimeout = 5 * time.Second
			p, q := try(g, w), try(g, remove("d/a", 35))
			p.wantStale(t, "d/a", 35)
			q.cancel()
			q.wantErr(t, context.Canceled)
			s.wantMark(t, "d/a?tree", 35)
			try(g, put("d/a/y", 34)).wantStale(t, "d/a?tree", 35)
			w = remove("d/a", 35)
			w.DrainTimeout = 5 * time.Second
			try(g, w).wantBusyAfter(t, 5*time.Second, gate.BusyError{Resource: "d/a?tree", Reason: gate.BusyInDoubt, RetryAfter: 55 * time.Second})
			pass(time.Minute)
			wantIdle(t, g)
		})
	})
	t.Run("the one that waited to be alone", func(t *testing.T) {
		bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
			a := enter(t, g, put("d/a/x", 33))
			p := try(g, exclusive(remove("d/a", 33)))
			q := try(g, put("d/a/y", 33))
			q.wantWaiting(t)
			p.cancel()
			q.wantAdmitted(t).Done(0)
			r := try(g, exclusive(put("d/a/x", 33)))
			u := try(g, remove("d/a", 33))
			u.wantWaiting(t)
			r.cancel()
			u.wantAdmitted(t).Done(0)
			a.Done(0)
			wantIdle(t, g)
		})
	})
}

func TestWhoeverWaitsToBeAloneInATreeIsNotOvertaken(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/x", 33))
		p := try(g, exclusive(remove("d/a", 33)))
		q := try(g, put("d/a/y", 33))
		r := try(g, exclusive(put("d/a/z", 33)))
		u := try(g, remove("d/a", 33))
		a.Done(0)
		pa := p.wantAdmitted(t)
		q.wantWaiting(t)
		r.wantWaiting(t)
		u.wantWaiting(t)
		pa.Done(0)
		qa, ra := q.wantAdmitted(t), r.wantAdmitted(t)
		u.wantWaiting(t)
		qa.Done(0)
		u.wantWaiting(t)
		ra.Done(0)
		u.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestWaitersBeneathAreNotCountedAtTheTree(t *testing.T) {
	bubble(t, gate.Config{MaxWaiters: 2}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, remove("d/a", 33))
		var ps []*attempt
		for i := range 5 {
			ps = append(ps, try(g, put(fencing.Resource(fmt.Sprint("d/a/", i)), 34)))
		}
		for _, p := range ps {
			p.wantWaiting(t)
		}
		a.Done(0)
		for _, p := range ps {
			p.wantAdmitted(t).Done(0)
		}
		wantIdle(t, g)
	})
}

func TestInspectAndStatsOfATree(t *testing.T) {
	bubble(t, gate.Config{}, newMemStore(), func(t *testing.T, g *gate.Gate) {
		a, b := enter(t, g, put("d/a/x", 33)), enter(t, g, put("d/a/y", 33))
		b.InDoubt(time.Second)
		c := enter(t, g, remove("d/a", 33))
		p := try(g, remove("d/a", 34))
		s, ok := g.Inspect("d/a?tree")
		want := gate.State{Seen: s.Seen, HasSeen: true, InFlight: 1, Beneath: 2, Waiting: 1, Settled: true}
		if !ok || s != want || s.Seen.Token != fencing.Number(34) {
			t.Errorf("Inspect = %+v; want %+v with 34 seen", s, want)
		}
		if st := g.Stats(); st != (gate.Stats{InFlight: 2, InDoubt: 1, Waiting: 1, Resources: 5}) {
			t.Errorf("Stats = %+v; want 2 in flight, 1 in doubt, 1 waiting, 5 keys", st)
		}
		pass(time.Second)
		a.Done(0)
		p.wantWaiting(t)
		c.Done(0)
		p.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}

func TestNothingSlipsInWhileTheMarkOfATreeIsStored(t *testing.T) {
	s := newMemStore()
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		stored := make(chan struct{})
		s.onAdvance = func(ms []fencing.ResourceMark) error {
			if len(ms) > 1 { // the tree's and its resource's
				<-stored
			}
			return nil
		}
		p := try(g, remove("d/a", 34))
		try(g, put("d/a/x", 33)).wantStale(t, "d/a?tree", 34)
		try(g, put("d/a/x", 35)).wantAdmitted(t).Done(0)
		close(stored)
		p.wantStale(t, "d/a?tree", 35)
		wantIdle(t, g)
	})
}

func TestStaleTreeIsSeenOnNoKey(t *testing.T) {
	s := newMemStore(mark("d/b/x", 34))
	bubble(t, gate.Config{}, s, func(t *testing.T, g *gate.Gate) {
		a := enter(t, g, put("d/a/x", 30))
		p := try(g, exclusive(put("d/a/x", 30)))
		try(g, move("d/a", "d/b", 33)).wantStale(t, "d/b?tree", 34)
		p.wantWaiting(t)
		try(g, put("d/a/y", 30)).wantAdmitted(t).Done(0)
		w := put("d/a/y", 33)
		w.Resources = append(w.Resources, "d/b/x")
		q := try(g, remove("d/a", 31))
		try(g, w).wantStale(t, "d/b/x", 34) // nor is one beneath
		q.wantWaiting(t)
		p.wantStale(t, "d/a?tree", 31)
		a.Done(0)
		q.wantAdmitted(t).Done(0)
		wantIdle(t, g)
	})
}
