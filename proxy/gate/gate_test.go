package gate_test

import (
	"context"
	"errors"
	"maps"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memStore is a Store in memory whose steps a test can hold up or break. A hook runs without the lock before its step; an error takes
// the place of the step.
type memStore struct {
	mu        sync.Mutex // guards the fields below
	marks     map[fencing.Resource]fencing.Mark
	err       error
	onLoad    func(fencing.Resource) error
	onAdvance func([]fencing.ResourceMark) error
	onRestore func(fencing.Resource, fencing.Token) error
	onBeneath func(fencing.Resource) error
	onRange   func() error
	after     func() // called before a step that took effect returns
	// afterBeneath is called before a scan returns what it has read.
	afterBeneath func()
	advances     int
	restores     int
	scans        int
	ranges       int
}

// newMemStore returns a store that holds marks for the given resource and token pairs.
func newMemStore(marks ...fencing.ResourceMark) *memStore {
	s := &memStore{marks: map[fencing.Resource]fencing.Mark{}, after: func() {}}
	for _, m := range marks {
		s.marks[m.Resource] = m.Mark
	}
	return s
}

func mark(r fencing.Resource, n uint64) fencing.ResourceMark {
	return fencing.ResourceMark{Resource: r, Mark: fencing.Mark{Token: fencing.Number(n), Format: fencing.Decimal}}
}

func (s *memStore) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *memStore) Load(r fencing.Resource) (fencing.Mark, bool, error) {
	s.mu.Lock()
	hook, after := s.onLoad, s.after
	s.mu.Unlock()
	defer after()
	if hook != nil {
		if err := hook(r); err != nil {
			return fencing.Mark{}, false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.marks[r]
	return m, ok, s.err
}

func (s *memStore) Advance(ms []fencing.ResourceMark) error {
	s.mu.Lock()
	hook, after := s.onAdvance, s.after
	s.advances++
	s.mu.Unlock()
	defer after()
	if hook != nil {
		if err := hook(ms); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	for _, m := range ms {
		if old, ok := s.marks[m.Resource]; !ok || old.Token.Less(m.Mark.Token) {
			s.marks[m.Resource] = m.Mark
		}
	}
	return nil
}

func (s *memStore) Restore(r fencing.Resource, from fencing.Token, to *fencing.Mark) (bool, error) {
	s.mu.Lock()
	hook, after := s.onRestore, s.after
	s.restores++
	s.mu.Unlock()
	defer after()
	if hook != nil {
		if err := hook(r, from); err != nil {
			return false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return false, s.err
	}
	if m, ok := s.marks[r]; !ok || m.Token != from {
		return false, nil
	}
	if to == nil {
		delete(s.marks, r)
	} else {
		s.marks[r] = *to
	}
	return true, nil
}

func (s *memStore) Beneath(prefix fencing.Resource) (highest fencing.Token, ok bool, err error) {
	s.mu.Lock()
	hook, after := s.onBeneath, s.afterBeneath
	s.scans++
	s.mu.Unlock()
	if after != nil {
		defer after()
	}
	if hook != nil {
		if err := hook(prefix); err != nil {
			return fencing.Token{}, false, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for r, m := range s.marks {
		if strings.HasPrefix(string(r), string(prefix)) && (!ok || highest.Less(m.Token)) {
			highest, ok = m.Token, true
		}
	}
	return highest, ok, s.err
}

// Range is in no particular order.
func (s *memStore) Range(prefix string, fn func(fencing.ResourceMark) error) error {
	s.mu.Lock()
	hook := s.onRange
	s.ranges++
	s.mu.Unlock()
	if hook != nil {
		if err := hook(); err != nil {
			return err
		}
	}
	s.mu.Lock()
	marks := maps.Clone(s.marks)
	s.mu.Unlock()
	for r, m := range marks {
		if strings.HasPrefix(string(r), prefix) {
			if err := fn(fencing.ResourceMark{Resource: r, Mark: m}); err != nil {
				return err
			}
		}
	}
	return nil
}

// fail makes the store report err from now on; nil heals it.
func (s *memStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// holdAdvance makes each advance wait until the returned func is called with its result.
func (s *memStore) holdAdvance() (release func(error)) {
	c := make(chan error)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAdvance = func([]fencing.ResourceMark) error { return <-c }
	return func(err error) { c <- err }
}

// holdRestore does the same for Restore.
func (s *memStore) holdRestore() (release func(error)) {
	c := make(chan error)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onRestore = func(fencing.Resource, fencing.Token) error { return <-c }
	return func(err error) { c <- err }
}

// unhold lets later steps through.
func (s *memStore) unhold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onAdvance, s.onRestore, s.onLoad, s.onBeneath, s.after, s.afterBeneath = nil, nil, nil, nil, func() {}, nil
}

func (s *memStore) mark(r fencing.Resource) (fencing.Mark, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.marks[r]
	return m, ok
}

func (s *memStore) wantMark(t *testing.T, r fencing.Resource, n uint64) {
	t.Helper()
	if m, ok := s.mark(r); !ok || m.Token != fencing.Number(n) {
		t.Errorf("the durable mark of %q is %v (present: %v); want %d", r, m.Token, ok, n)
	}
}

func (s *memStore) wantNoMark(t *testing.T, r fencing.Resource) {
	t.Helper()
	if m, ok := s.mark(r); ok {
		t.Errorf("the durable mark of %q is %v; want none", r, m.Token)
	}
}

func write(r fencing.Resource, n uint64) gate.Write { return writeAll(n, r) }

func writeAll(n uint64, rs ...fencing.Resource) gate.Write {
	return gate.Write{Resources: rs, Token: fencing.Number(n), DrainTimeout: 30 * time.Second, Format: fencing.Decimal}
}

func exclusive(w gate.Write) gate.Write { w.Exclusive = true; return w }
func greater(w gate.Write) gate.Write   { w.Greater = true; return w }

// final makes it a write of a policy under which the upstream turns nobody away: lower tokens are stale as soon as it was seen.
func final(w gate.Write) gate.Write { w.Final = true; return w }

func enter(t *testing.T, g *gate.Gate, w gate.Write) *gate.Admission {
	t.Helper()
	a, err := g.Enter(context.Background(), w)
	if err != nil {
		t.Fatalf("Enter(%v) = %v; want admitted", w.Token, err)
	}
	return a
}

func observe(t *testing.T, g *gate.Gate, w gate.Write) *gate.Admission {
	t.Helper()
	a, err := g.Observe(w)
	if err != nil {
		t.Fatalf("Observe(%v) = %v; want nil", w.Token, err)
	}
	return a
}

// attempt is an Enter that runs in its own goroutine, inside a synctest bubble. Its fields may be read once done is closed.
type attempt struct {
	w      gate.Write
	a      *gate.Admission
	err    error
	at     time.Time // when Enter returned
	cancel context.CancelFunc
	done   chan struct{} // closed when Enter has returned
}

// try starts an Enter and returns once it has returned or waits.
func try(g *gate.Gate, w gate.Write) *attempt {
	p := start(g, w)
	synctest.Wait()
	return p
}

func start(g *gate.Gate, w gate.Write) *attempt {
	ctx, cancel := context.WithCancel(context.Background())
	p := &attempt{w: w, cancel: cancel, done: make(chan struct{})}
	go func() { // ends with Enter
		defer close(p.done)
		p.a, p.err = g.Enter(ctx, w)
		p.at = time.Now()
	}()
	return p
}

func (p *attempt) returned() bool {
	synctest.Wait()
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *attempt) wantWaiting(t *testing.T) {
	t.Helper()
	if p.returned() {
		t.Fatalf("Enter(%v) returned %v; want it to wait", p.w.Token, p.err)
	}
}

func (p *attempt) wantAdmitted(t *testing.T) *gate.Admission {
	t.Helper()
	if !p.returned() {
		t.Fatalf("Enter(%v) waits; want admitted", p.w.Token)
	}
	if p.err != nil {
		t.Fatalf("Enter(%v) = %v; want admitted", p.w.Token, p.err)
	}
	return p.a
}

func (p *attempt) wantStale(t *testing.T, r fencing.Resource, mark uint64) {
	t.Helper()
	if !p.returned() {
		t.Fatalf("Enter(%v) waits; want stale", p.w.Token)
	}
	wantStale(t, p.err, r, mark)
}

func (p *attempt) wantErr(t *testing.T, target error) {
	t.Helper()
	if !p.returned() {
		t.Fatalf("Enter(%v) waits; want %v", p.w.Token, target)
	}
	if !errors.Is(p.err, target) {
		t.Fatalf("Enter(%v) = %v; want %v", p.w.Token, p.err, target)
	}
}

func wantStale(t *testing.T, err error, r fencing.Resource, mark uint64) {
	t.Helper()
	stale, ok := errors.AsType[*gate.StaleTokenError](err)
	if !ok {
		t.Fatalf("the error is %v; want a StaleTokenError", err)
	}
	if stale.Resource != r || stale.Mark != fencing.Number(mark) {
		t.Errorf("stale on %q below %v; want on %q below %d", stale.Resource, stale.Mark, r, mark)
	}
}

func wantBusy(t *testing.T, err error, want gate.BusyError) {
	t.Helper()
	busy, ok := errors.AsType[*gate.BusyError](err)
	if !ok {
		t.Fatalf("the error is %v; want a BusyError", err)
	}
	if *busy != want {
		t.Errorf("busy: %+v; want %+v", *busy, want)
	}
}

// wantIdle checks that the gate holds nothing.
func wantIdle(t *testing.T, g *gate.Gate) {
	t.Helper()
	if s := g.Stats(); s != (gate.Stats{}) {
		t.Errorf("Stats = %+v; want nothing left", s)
	}
}

func wantConsistent(t *testing.T, g *gate.Gate) {
	t.Helper()
	if err := g.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// bubble runs a test in a synctest bubble on a fresh gate.
func bubble(t *testing.T, c gate.Config, s *memStore, f func(t *testing.T, g *gate.Gate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, gate.New(s, c)) })
}

func TestImportsNeitherHTTPNorBadger(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		switch {
		case dep == "net/http", strings.Contains(dep, "badger"), strings.HasSuffix(dep, "/tokenstore"), strings.HasSuffix(dep, "/policies"):
			t.Errorf("the gate depends on %s", dep)
		}
	}
}

var token33 = fencing.Number(33)

// wantAdmittedAt lets time pass until Enter has returned.
func (p *attempt) wantAdmittedAt(t *testing.T, at time.Time) *gate.Admission {
	t.Helper()
	<-p.done
	if p.err != nil || !p.at.Equal(at) {
		t.Fatalf("Enter(%v) = %v after %v; want admitted %v later", p.w.Token, p.err, p.at, at.Sub(p.at))
	}
	return p.a
}

// wantBusyAfter lets time pass until Enter has returned.
func (p *attempt) wantBusyAfter(t *testing.T, d time.Duration, want gate.BusyError) {
	t.Helper()
	began := time.Now()
	<-p.done
	if waited := p.at.Sub(began); waited != d {
		t.Errorf("Enter(%v) gave up after %v; want %v", p.w.Token, waited, d)
	}
	wantBusy(t, p.err, want)
}

// together runs funcs at the same time and waits for them.
func together(fs ...func()) {
	var wg sync.WaitGroup
	for _, f := range fs {
		wg.Go(f)
	}
	wg.Wait()
}

// pass lets fake time pass, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
