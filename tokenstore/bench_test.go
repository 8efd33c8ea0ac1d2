package tokenstore_test

import (
	"bytes"
	"crypto/sha256"
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

// BenchmarkImport measures an import into an empty store. Each operation is one mark.
func BenchmarkImport(b *testing.B) {
	from, err := exportOf(b.N)
	if err != nil {
		b.Fatal(err)
	}
	s := openStore(b, b.TempDir(), tokenstore.Options{})
	b.ResetTimer()
	res, err := s.Import(from)
	b.StopTimer()
	if err != nil || res.Raised != b.N {
		b.Fatalf("got %+v, %v; want %d marks raised", res, err, b.N)
	}
	closeStore(b, s, true)
}

// exportOf returns an export of n marks, as another store would write it.
func exportOf(n int) (*bytes.Buffer, error) {
	var out bytes.Buffer
	for i := range n {
		fmt.Fprintf(&out, `{"resource":"bucket/object/%09d","token":"34","format":"decimal","at":"2026-05-04T10:00:00.123Z","by":"192.0.2.7","policy":"(unmatched)"}`+"\n", i)
	}
	_, err := fmt.Fprintf(&out, `{"trailer":1,"store":"x","marks":%d,"seq":1,"sha256":"%x"}`+"\n", n, sha256.Sum256(out.Bytes()))
	return &out, err
}
