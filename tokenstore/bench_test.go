package tokenstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func BenchmarkLoadCached(b *testing.B) {
	s := openStore(b, b.TempDir(), tokenstore.Options{})
	advance(b, s, one("a", 34)...)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := s.Load("a"); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// BenchmarkAdvance measures durable advances of n resources at a time, each by a caller of its own.
func BenchmarkAdvance(b *testing.B) {
	for _, n := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := openStore(b, b.TempDir(), tokenstore.Options{})
			before := s.Stats().Batches
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range n {
				wg.Go(func() {
					r := fencing.Resource(fmt.Sprint("resource/", w))
					for i := w; i < b.N; i += n {
						if err := s.Advance(one(r, uint64(i+1))); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "advances/s")
			b.ReportMetric(float64(b.N)/float64(max(1, s.Stats().Batches-before)), "advances/commit")
			closeStore(b, s, true)
		})
	}
}
