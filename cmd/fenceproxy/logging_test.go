package main

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

type sharedBuilder struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *sharedBuilder) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}
func (s *sharedBuilder) String() string { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

func TestWarningsLeaveAtOnceAndInOrder(t *testing.T) {
	var out sharedBuilder
	log, flush := newLogger(&out, policies.Log{Level: "info", Format: "text"})
	log.Info("one")
	log.With("a", 1).WithGroup("g").Warn("two")
	if got := out.String(); !strings.Contains(got, "msg=one") || strings.Index(got, "one") > strings.Index(got, "two") {
		t.Errorf("after a warning the log holds %q; want both lines in order", got)
	}
	log.Info("three")
	flush()
	if got := out.String(); !strings.Contains(got, "msg=three") {
		t.Errorf("after the flush the log holds %q; want three", got)
	}
	log.Info("four")
	for end := time.Now().Add(10 * time.Second); !strings.Contains(out.String(), "four"); {
		if time.Now().After(end) {
			t.Fatal("a line below warning never left")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
