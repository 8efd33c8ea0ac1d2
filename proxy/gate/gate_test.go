package gate_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// memStore is a Store in memory whose steps a test can hold up or break.
type memStore struct {
	mu      sync.Mutex
	marks   map[fencing.Resource]fencing.Mark
	err     error
	advance func() error // called before an advance takes effect
}

func newMemStore() *memStore { return &memStore{marks: map[fencing.Resource]fencing.Mark{}} }

func (s *memStore) Err() error { s.mu.Lock(); defer s.mu.Unlock(); return s.err }

func (s *memStore) Load(r fencing.Resource) (fencing.Mark, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.marks[r]
	return m, ok, s.err
}

func (s *memStore) Advance(ms []fencing.ResourceMark) error {
	if s.advance != nil {
		if err := s.advance(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		if old, ok := s.marks[m.Resource]; !ok || old.Token.Less(m.Mark.Token) {
			s.marks[m.Resource] = m.Mark
		}
	}
	return s.err
}

func (s *memStore) Restore(r fencing.Resource, from fencing.Token, to *fencing.Mark) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.marks[r].Token != from {
		return false, s.err
	}
	if to == nil {
		delete(s.marks, r)
	} else {
		s.marks[r] = *to
	}
	return true, s.err
}

func write(r fencing.Resource, n uint64) gate.Write {
	return gate.Write{Resources: []fencing.Resource{r}, Token: fencing.Number(n), DrainTimeout: 30 * time.Second}
}

func enter(t *testing.T, g *gate.Gate, w gate.Write) *gate.Admission {
	t.Helper()
	a, err := g.Enter(context.Background(), w)
	if err != nil {
		t.Fatalf("Enter(%v) = %v; want admitted", w.Token, err)
	}
	return a
}

func TestEnterWaitsForLowerInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(newMemStore(), gate.Config{})
		a := enter(t, g, write("r", 33))
		time.AfterFunc(5*time.Second, func() { a.Done(0) })
		start := time.Now()
		b := enter(t, g, write("r", 34))
		if waited := time.Since(start); waited != 5*time.Second {
			t.Errorf("34 was admitted after %v; want 5s, when 33 had its outcome", waited)
		}
		var stale *gate.StaleTokenError
		if _, err := g.Enter(context.Background(), write("r", 33)); !errors.As(err, &stale) {
			t.Errorf("Enter(33) after 34 = %v; want StaleTokenError", err)
		}
		b.Done(0)
		if s := g.Stats(); s != (gate.Stats{}) {
			t.Errorf("Stats = %+v; want nothing left", s)
		}
	})
}

func TestLowerIsRefusedWhileHigherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gate.New(newMemStore(), gate.Config{})
		a := enter(t, g, write("r", 33))
		go func() { enter(t, g, write("r", 34)).Done(0) }()
		synctest.Wait()
		var stale *gate.StaleTokenError
		if _, err := g.Enter(context.Background(), write("r", 33)); !errors.As(err, &stale) {
			t.Errorf("Enter(33) while 34 waits = %v; want StaleTokenError", err)
		}
		a.Done(0)
		synctest.Wait()
	})
}

func BenchmarkEnterEqual(b *testing.B) {
	g := gate.New(newMemStore(), gate.Config{})
	w := write("r", 34)
	b.ReportAllocs()
	for b.Loop() {
		a, err := g.Enter(context.Background(), w)
		if err != nil {
			b.Fatal(err)
		}
		a.Done(0)
	}
}
