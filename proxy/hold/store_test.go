package hold_test

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

var errDisk = errors.New("the disk is gone")

// memStore is a durable store: what it has acknowledged survives a crash, of which it knows nothing.
type memStore struct {
	mu    sync.Mutex
	marks map[fencing.Resource]fencing.Mark
	delay time.Duration // of each change
	fail  int           // changes that fail from now on
}

func newMemStore() *memStore { return &memStore{marks: map[fencing.Resource]fencing.Mark{}} }

var _ gate.Store = (*memStore)(nil)

// change waits for the disk and returns an error if it fails this time.
func (s *memStore) change() error {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	time.Sleep(delay) // in a bubble
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 {
		s.fail--
		return errDisk
	}
	return nil
}

func (s *memStore) Load(r fencing.Resource) (fencing.Mark, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.marks[r]
	return m, ok, nil
}

func (s *memStore) Advance(ms []fencing.ResourceMark) error {
	if err := s.change(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range ms {
		if cur, ok := s.marks[m.Resource]; !ok || cur.Token.Less(m.Mark.Token) {
			s.marks[m.Resource] = m.Mark
		}
	}
	return nil
}

func (s *memStore) Restore(r fencing.Resource, from fencing.Token, to *fencing.Mark) (bool, error) {
	if err := s.change(); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cur, ok := s.marks[r]; !ok || cur.Token != from {
		return false, nil
	}
	if to == nil {
		delete(s.marks, r)
	} else {
		s.marks[r] = *to
	}
	return true, nil
}

func (s *memStore) Beneath(prefix fencing.Resource) (top fencing.Token, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, m := range s.marks {
		if strings.HasPrefix(string(r), string(prefix)) && (!ok || top.Less(m.Token)) {
			top, ok = m.Token, true
		}
	}
	return top, ok, nil
}

func (s *memStore) Err() error { return nil }
