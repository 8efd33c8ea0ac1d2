package gate_test

import (
	"context"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// noStore takes no time and remembers nothing.
type noStore struct{}

func (noStore) Load(fencing.Resource) (fencing.Mark, bool, error) { return fencing.Mark{}, false, nil }
func (noStore) Advance([]fencing.ResourceMark) error              { return nil }
func (noStore) Err() error                                        { return nil }
func (noStore) Beneath(fencing.Resource) (fencing.Token, bool, error) {
	return fencing.Token{}, false, nil
}
func (noStore) Restore(fencing.Resource, fencing.Token, *fencing.Mark) (bool, error) {
	return true, nil
}

func enterAndDone(b *testing.B, g *gate.Gate, w gate.Write) {
	a, err := g.Enter(context.Background(), w)
	if err != nil {
		b.Error(err)
		return
	}
	a.Done(0)
}

func BenchmarkEnterEqual(b *testing.B) {
	g := gate.New(noStore{}, gate.Config{})
	w := write("r", 34)
	enterOnce(b, g, w) // keeps the resource in use
	b.ReportAllocs()
	for b.Loop() {
		enterAndDone(b, g, w)
	}
}

func BenchmarkEnterEqualParallel(b *testing.B) {
	g := gate.New(noStore{}, gate.Config{})
	w := write("r", 34)
	enterOnce(b, g, w)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			enterAndDone(b, g, w)
		}
	})
}

func BenchmarkEnterIdle(b *testing.B) {
	g := gate.New(newMemStore(mark("r", 34)), gate.Config{})
	w := write("r", 34)
	b.ReportAllocs()
	for b.Loop() {
		enterAndDone(b, g, w)
	}
}

func BenchmarkEnterAdvance(b *testing.B) {
	g := gate.New(noStore{}, gate.Config{})
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		enterAndDone(b, g, write("r", n))
	}
}

func BenchmarkEnterTwoResources(b *testing.B) {
	g := gate.New(noStore{}, gate.Config{})
	w := writeAll(34, "r", "s")
	enterOnce(b, g, w)
	b.ReportAllocs()
	for b.Loop() {
		enterAndDone(b, g, w)
	}
}

func enterOnce(b *testing.B, g *gate.Gate, w gate.Write) {
	if _, err := g.Enter(context.Background(), w); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkEnterBeneath is a write in a hierarchy of three collections.
func BenchmarkEnterBeneath(b *testing.B) {
	g := gate.New(noStore{}, gate.Config{})
	w := put("d/a/b/x", 34)
	enterOnce(b, g, w)
	b.ReportAllocs()
	for b.Loop() {
		enterAndDone(b, g, w)
	}
}

// BenchmarkEnterTree is a write on a whole collection, without the scan.
func BenchmarkEnterTree(b *testing.B) {
	g := gate.New(noStore{}, gate.Config{})
	w := remove("d/a", 34)
	enterOnce(b, g, w)
	b.ReportAllocs()
	for b.Loop() {
		enterAndDone(b, g, w)
	}
}
