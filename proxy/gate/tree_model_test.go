package gate_test

import (
	"slices"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
	"pgregory.net/rapid"
)

// hierarchy is what the tests of trees write to: three collections in each other, with something in each.
var hierarchy = []fencing.Resource{"d/a", "d/a/b/x", "d/a/y", "d", "d/a/b", "d/a/b/z", "d/c"}

func isCollection(path fencing.Resource) bool {
	return slices.Contains([]fencing.Resource{"d", "d/a", "d/a/b"}, path)
}

// treeKeys are the keys of the hierarchy: those of its paths, and of its collections as a whole.
func treeKeys() (keys []fencing.Resource) {
	keys = slices.Clone(hierarchy)
	for _, p := range hierarchy {
		if isCollection(p) {
			keys = append(keys, treeKey(p))
		}
	}
	return keys
}

// inHierarchy makes a write of a step: on the whole of each collection that it names if st.tree is set. A key is named once; where the
// write changes a tree as a whole, it does not name it as one that it lies in. What is to be empty is named alone.
func inHierarchy(st step) gate.Write {
	w := writeAll(0, st.resources...)
	if st.tree {
		for _, p := range st.resources {
			if isCollection(p) {
				w.Trees = append(w.Trees, gate.Tree{Key: treeKey(p), Prefix: p + "/", Empty: st.empty && len(st.resources) == 1})
			}
		}
	}
	own := keysOf(w)
	for _, p := range st.resources {
		for _, k := range above(p) {
			if !slices.Contains(own, k) && !slices.Contains(w.Under, k) {
				w.Under = append(w.Under, k)
			}
		}
	}
	return w
}

func TestGateFollowsTheRuleInATree(t *testing.T) {
	keys := treeKeys()
	for name, most := range map[string]int{"one path": 1, "two paths": 2} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				recovery := rapid.SampledFrom([]time.Duration{0, 0, 9700 * time.Millisecond}).Draw(rt, "recover")
				steps := drawSteps(rt, hierarchy, most)
				some := rapid.IntRange(1, len(keys)).Draw(rt, "marks") // the others have none yet
				if err := runTreeSteps(t, keys, some, recovery, drawMaxJump(rt), steps); err != nil {
					rt.Fatal(err)
				}
			})
		})
	}
}

// runTreeSteps begins with marks on some of the keys.
func runTreeSteps(t *testing.T, keys []fencing.Resource, some int, recovery time.Duration, maxJump uint64, steps []step) error {
	return runSteps(t, keys, some, inHierarchy, recovery, maxJump, steps)
}

var fuzzKinds = []string{"enter", "enter", "enter", "done", "settle", "in doubt", "refused", "not sent", "cancel", "observe", "set mark", "pass"}

// decodeSteps reads four bytes a step: kind and flags, path, token, a number.
func decodeSteps(data []byte) (steps []step) {
	for len(data) >= 4 && len(steps) < 80 {
		b := data[:4]
		data = data[4:]
		steps = append(steps, step{
			kind:      fuzzKinds[int(b[0]&15)%len(fuzzKinds)],
			tree:      b[0]&16 != 0,
			exclusive: b[0]&32 != 0,
			greater:   b[0]&64 != 0,
			empty:     b[0]&128 != 0,
			resources: hierarchy[int(b[1])%len(hierarchy):][:1],
			delta:     int(b[2])%5 - 2,
			index:     int(b[3]),
			seconds:   int(b[3]) % 13,
		})
	}
	return steps
}

// seed encodes steps for decodeSteps: kind, flags, path, delta, number.
func seed(recovery byte, steps ...[4]byte) []byte {
	data := []byte{recovery}
	for _, s := range steps {
		data = append(data, s[:]...)
	}
	return data
}

// FuzzTree plays calls on the hierarchy against the model.
func FuzzTree(f *testing.F) {
	const enter, done, inDoubt, refused, cancel, observe, setMark, pass = 0, 3, 5, 6, 8, 9, 10, 11
	const tree, alone, fresh, vacant = 16, 32, 64, 128
	const a, abx, ay, d, ab = 0, 1, 2, 3, 4 // of hierarchy
	const lower, equal, higher = 1, 2, 3
	f.Add(seed(0, [4]byte{enter, abx, higher, 5}, [4]byte{enter | tree, a, higher, 9}, [4]byte{enter, ay, lower, 3}, [4]byte{done, 0, 0, 0}, [4]byte{pass, 0, 0, 12}))
	f.Add(seed(0, [4]byte{enter | tree, d, higher, 5}, [4]byte{enter, abx, higher, 9}, [4]byte{enter | tree, ab, equal, 9}, [4]byte{inDoubt, 0, 0, 3}, [4]byte{pass, 0, 0, 12}))
	f.Add(seed(1, [4]byte{enter | tree, a, equal, 12}, [4]byte{enter, abx, equal, 12}, [4]byte{pass, 0, 0, 12}, [4]byte{done, 0, 0, 0}))
	f.Add(seed(0, [4]byte{enter | tree | alone, a, higher, 12}, [4]byte{enter, abx, equal, 12}, [4]byte{enter | alone, ay, equal, 12}, [4]byte{cancel, 0, 0, 0}, [4]byte{done, 0, 0, 0}))
	f.Add(seed(0, [4]byte{enter | tree | vacant, ab, higher, 9}, [4]byte{enter, abx, higher, 9}, [4]byte{refused, 0, 0, 0}, [4]byte{enter | tree | vacant, ab, higher, 9}))
	f.Add(seed(0, [4]byte{observe, abx, higher, 9}, [4]byte{observe | tree, a, lower, 9}, [4]byte{enter | tree | fresh, a, higher, 9}, [4]byte{refused, 0, 0, 1}, [4]byte{refused, 0, 0, 0}))
	f.Add(seed(0, [4]byte{enter | tree, a, higher, 9}, [4]byte{setMark, abx, higher + 1, 0}, [4]byte{enter, abx, lower, 9}, [4]byte{setMark | tree | alone, a, lower, 0}, [4]byte{done, 0, 0, 0}))
	keys := treeKeys()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		recovery := time.Duration(data[0]&1) * 9700 * time.Millisecond
		if err := runTreeSteps(t, keys, 1+int(data[0]/2)%len(keys), recovery, uint64(data[0]>>6), decodeSteps(data[1:])); err != nil {
			t.Fatal(err)
		}
	})
}
