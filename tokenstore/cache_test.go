package tokenstore_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// TestLoadNeverGoesBack lets readers and writers race with a cache that forgets all the time.
func TestLoadNeverGoesBack(t *testing.T) {
	var o tokenstore.Options
	o.SetCacheGeneration(600) // two resources
	s := openStore(t, t.TempDir(), o)
	const resources, raises, readers = 6, 60, 4
	name := func(i int) fencing.Resource { return fencing.Resource(fmt.Sprint("r", i)) }
	var writers, others sync.WaitGroup
	stop := make(chan struct{})
	for i := range resources {
		writers.Go(func() {
			for n := uint64(1); n <= raises; n++ {
				if err := s.Advance(one(name(i), n)); err != nil {
					t.Error(err)
					return
				}
				if m, _, err := s.Load(name(i)); err != nil || m.Token != fencing.Number(n) {
					t.Errorf("after the advance to %d: got %v, %v", n, m.Token, err)
				}
			}
		})
	}
	for range readers {
		others.Go(func() {
			var last [resources]fencing.Token
			for i := 0; ; i = (i + 1) % resources {
				select {
				case <-stop:
					return
				default:
				}
				m, _, err := s.Load(name(i))
				if err != nil || m.Token.Less(last[i]) {
					t.Errorf("mark of %s: got %v, %v after %v", name(i), m.Token, err, last[i])
					return
				}
				last[i] = m.Token
			}
		})
	}
	writers.Wait()
	close(stop)
	others.Wait()
}

func TestCacheIsBounded(t *testing.T) {
	var o tokenstore.Options
	o.SetCacheGeneration(100 * 300)
	s := openStore(t, t.TempDir(), o)
	advance(t, s, one("kept", 34)...)
	for i := range 2000 {
		wantMark(t, s, fencing.Resource(fmt.Sprintf("nobody/%d", i)), 0)
		if i%50 == 0 {
			wantMark(t, s, "kept", 34)
		}
	}
	if got := s.Cached(); got > 250 {
		t.Errorf("%d answers are cached; want at most 250", got)
	}
}

func TestLoadOfACachedMarkDoesNotAllocate(t *testing.T) {
	s := openStore(t, t.TempDir(), tokenstore.Options{})
	advance(t, s, one("known", 34)...)
	wantMark(t, s, "nobody", 0)
	for _, r := range []fencing.Resource{"known", "nobody"} {
		if n := testing.AllocsPerRun(100, func() { _, _, _ = s.Load(r) }); n != 0 {
			t.Errorf("load of %q: %v allocations; want 0", r, n)
		}
	}
}
