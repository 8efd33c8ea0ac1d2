package hold_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/hold"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// fakeMarks are marks that tests set by hand.
type fakeMarks struct {
	mu     sync.Mutex
	marks  map[fencing.Resource]fencing.Mark
	err    error
	onMark func() // called by Mark, after it has read
}

func (f *fakeMarks) Mark(r fencing.Resource) (fencing.Mark, bool, error) {
	f.mu.Lock()
	m, ok := f.marks[r]
	err, on := f.err, f.onMark
	f.mu.Unlock()
	if on != nil {
		on()
	}
	return m, ok, err
}

func (f *fakeMarks) ClearHolder(r fencing.Resource, t fencing.Token, by, reason string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, ok := f.marks[r]
	if f.err != nil || !ok || m.Token != t || m.Holder == "" {
		return false, f.err
	}
	m.Holder, m.TTL, m.By, m.Reason = "", 0, by, reason
	f.marks[r] = m
	return true, nil
}

// bench is a manager with a clock that the test turns.
type bench struct {
	*hold.Manager
	t     *testing.T
	marks *fakeMarks
	time  time.Duration
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, marks: &fakeMarks{marks: map[fencing.Resource]fencing.Mark{}}}
	b.restart()
	return b
}

// restart begins a new run on the same marks.
func (b *bench) restart() {
	b.time = 0
	b.Manager = hold.New(b.marks, func() time.Duration { return b.time })
}

// claim returns a claim of which the mark is durable, and that the gate has admitted.
func (b *bench) claim(r fencing.Resource, id string, terms hold.Terms) *hold.Claim {
	b.t.Helper()
	c := b.try(r, id, terms)
	b.admit(r, id, c)
	return c
}

func (b *bench) try(r fencing.Resource, id string, terms hold.Terms) *hold.Claim {
	b.t.Helper()
	c, err := b.Claim(r, id, terms)
	if err != nil {
		b.t.Fatalf("%v: Claim of %s = %v; want a claim", b.time, id, err)
	}
	return c
}

func (b *bench) admit(r fencing.Resource, id string, c *hold.Claim) {
	b.marks.mu.Lock()
	if m, ok := b.marks.marks[r]; !ok || m.Token.Less(c.Token()) {
		b.marks.marks[r] = fencing.Mark{Token: c.Token(), Format: fencing.Opaque, Holder: id, TTL: c.TTL()}
	}
	b.marks.mu.Unlock()
	c.Admitted()
}

func (b *bench) refused(r fencing.Resource, id string) {
	b.t.Helper()
	var other *hold.NotHolderError
	if c, err := b.Claim(r, id, hold.Terms{}); !errors.As(err, &other) || other.Resource != r {
		b.t.Fatalf("%v: Claim of %s = %v, %v; want a NotHolderError", b.time, id, c, err)
	}
	if err := b.Check(r, id); !errors.As(err, &other) {
		b.t.Fatalf("%v: Check of %s = %v; want a NotHolderError", b.time, id, err)
	}
}

var (
	forever = hold.Terms{}
	fixed   = hold.Terms{TTL: 10 * time.Second}
	renewed = hold.Terms{TTL: 10 * time.Second, Renew: true}
)

func TestHoldEndsWhenItsTimeIsOver(t *testing.T) {
	for _, tc := range []struct {
		name  string
		terms hold.Terms
		end   time.Duration // when another id may claim it: claimed at 1s, written at 5s until 7s
	}{
		{"fixed", fixed, 11 * time.Second},
		{"renewed", renewed, 17 * time.Second},
		{"forever", forever, 0},
	} {
		b := newBench(t)
		b.time = time.Second
		b.claim("r", "A", tc.terms).Accepted()
		b.time = 5 * time.Second
		c := b.claim("r", "A", tc.terms)
		b.time = 7 * time.Second
		c.Accepted()
		if tc.end == 0 {
			b.time = 100 * 365 * 24 * time.Hour
			b.refused("r", "B")
			continue
		}
		b.time = tc.end - 1
		b.refused("r", "B")
		if s, err := b.State("r"); err != nil || !s.Held || !s.Expires || s.Left != 1 {
			t.Errorf("%s: State %+v, %v; want held for one nanosecond more", tc.name, s, err)
		}
		b.time = tc.end
		if s, err := b.State("r"); err != nil || s.Held {
			t.Errorf("%s: State %+v, %v; want it free", tc.name, s, err)
		}
		if c := b.claim("r", "B", tc.terms); c.Token() != fencing.Number(2) {
			t.Errorf("%s: B has %v; want 2", tc.name, c.Token())
		}
		b.refused("r", "A")
	}
}

func TestHoldThatRenewsItselfDoesNotEndDuringAWrite(t *testing.T) {
	for _, tc := range []struct {
		terms hold.Terms
		free  bool
	}{{fixed, true}, {renewed, false}} {
		b := newBench(t)
		b.claim("r", "A", tc.terms).Accepted()
		b.time = 9 * time.Second
		c := b.claim("r", "A", tc.terms)
		b.time = time.Hour
		if err := b.Check("r", "B"); (err == nil) != tc.free {
			t.Errorf("%+v: during a write of A: %v; want free %v", tc.terms, err, tc.free)
		}
		c.Refused() // whoever knows the id, and no password, renews nothing
		if err := b.Check("r", "B"); err != nil {
			t.Errorf("%+v: after a write that was turned away: %v; want it free", tc.terms, err)
		}
	}
}

func TestSameIDAfterItsHoldExpiredIsANewHolder(t *testing.T) {
	b := newBench(t)
	old := b.claim("r", "A", fixed)
	b.time = 10 * time.Second
	if c := b.claim("r", "A", fixed); c.Token() != fencing.Number(2) {
		t.Errorf("A has %v; want 2, so that its old write in flight is waited for", c.Token())
	}
	old.Accepted()
	b.time = 19 * time.Second
	b.refused("r", "B")
}

func TestRestartBeginsEveryHoldAnew(t *testing.T) {
	b := newBench(t)
	b.time = 3 * time.Second
	b.claim("r", "A", renewed).Accepted()
	b.claim("s", "A", forever).Accepted()
	b.time = 12 * time.Second
	b.claim("r", "A", renewed).Accepted() // until 22s: ten more
	b.restart()
	b.time = 10*time.Second - 1
	b.refused("r", "B")
	b.refused("s", "B")
	if c := b.try("r", "A", renewed); c.Token() != fencing.Number(1) {
		t.Errorf("A has %v; want 1 as before", c.Token())
	} else {
		c.Failed(false)
	}
	b.time = 10 * time.Second
	if c := b.claim("r", "B", renewed); c.Token() != fencing.Number(2) {
		t.Errorf("B has %v; want 2", c.Token())
	}
	b.refused("s", "B")
}

func TestHolderThatComesBackAfterARestartHasItsWholeTime(t *testing.T) {
	b := newBench(t)
	b.claim("r", "A", fixed).Accepted()
	b.restart()
	b.time = 9 * time.Second
	b.claim("r", "A", fixed).Accepted() // whether its first write was ever admitted, nothing says
	b.time = 19*time.Second - 1
	b.refused("r", "B")
	b.claim("r", "A", fixed).Accepted()
	b.time = 19 * time.Second
	b.claim("r", "B", fixed).Accepted()
}

func TestClaimThatTheGateRefused(t *testing.T) {
	b := newBench(t)
	// Nothing is durable: there is no claim.
	c := b.try("r", "A", fixed)
	b.refused("r", "B")
	c.Failed(false)
	if err := b.Check("r", "B"); err != nil {
		t.Errorf("after a claim that left no mark: %v; want it free", err)
	}
	// The mark is durable and the write gave up: the claim stands, from now on.
	b.time = time.Minute
	c = b.try("r", "A", fixed)
	b.marks.marks["r"] = fencing.Mark{Token: c.Token(), Holder: "A", TTL: fixed.TTL}
	c.Failed(false)
	b.time = time.Minute + fixed.TTL - 1
	b.refused("r", "B")
	b.time = time.Minute + fixed.TTL
	if err := b.Check("r", "B"); err != nil {
		t.Errorf("after its time: %v; want it free", err)
	}
	// A higher mark, from elsewhere, is taken note of.
	c = b.try("r", "B", fixed)
	b.marks.marks["r"] = fencing.Mark{Token: fencing.Number(900), Format: fencing.Decimal}
	c.Failed(true)
	if c := b.try("r", "C", fixed); c.Token() != fencing.Number(901) {
		t.Errorf("C has %v; want one above the mark", c.Token())
	}
}

// Who holds a resource hangs on its mark: one that was raised past the holder, by whatever, ends the hold.
func TestHolderThatTheMarkHasPassed(t *testing.T) {
	b := newBench(t)
	b.claim("r", "A", renewed).Accepted()
	c := b.try("r", "A", renewed)
	b.marks.marks["r"] = fencing.Mark{Token: fencing.Number(900), Format: fencing.Decimal}
	c.Failed(true)
	if c := b.try("r", "B", renewed); c.Token() != fencing.Number(901) {
		t.Errorf("B has %v; want 901, above the mark", c.Token())
	}
}

// A mark falls back when its claim was refused, but a write of that claim may still be on its way to the gate.
func TestNumberOfAClaimIsNeverGivenToAnotherID(t *testing.T) {
	b := newBench(t)
	b.claim("r", "A", fixed).Accepted() // 1
	b.time = time.Minute
	first := b.claim("r", "B", fixed) // 2
	second := b.try("r", "B", fixed)  // 2, not at the gate yet
	b.time = 2 * time.Minute          // B's hold is over
	third := b.try("r", "C", fixed)   // 3, of which the mark will never know
	b.marks.marks["r"] = fencing.Mark{Token: fencing.Number(1), Holder: "A", TTL: fixed.TTL}
	first.Refused()
	third.Failed(false)
	c := b.try("r", "D", fixed)
	if !second.Token().Less(c.Token()) || !third.Token().Less(c.Token()) {
		t.Errorf("D has %v; want a number that neither B (%v) nor C (%v) carries", c.Token(), second.Token(), third.Token())
	}
}

func TestReleasedHold(t *testing.T) {
	b := newBench(t)
	if err := b.Release("r", "op", "why"); !errors.Is(err, hold.ErrNotHeld) {
		t.Errorf("Release of a free resource = %v; want ErrNotHeld", err)
	}
	c := b.claim("r", "A", forever)
	if err := b.Release("r", "op", "why"); err != nil {
		t.Fatal(err)
	}
	if m := b.marks.marks["r"]; m.Holder != "" || m.Token != fencing.Number(1) || m.By != "op" || m.Reason != "why" {
		t.Errorf("mark %+v; want number 1, without a holder, released by op", m)
	}
	d := b.claim("r", "B", forever)
	if d.Token() != fencing.Number(2) {
		t.Errorf("B has %v; want 2", d.Token())
	}
	if err := c.Release("A", "done"); err != nil || b.marks.marks["r"].Holder != "B" {
		t.Errorf("a late release by A = %v, and the holder is %q; want that of B untouched", err, b.marks.marks["r"].Holder)
	}
	c.Accepted()
	b.refused("r", "A")
	if err := d.Release("B", "done"); err != nil || b.marks.marks["r"].Holder != "" {
		t.Errorf("Release by B = %v, mark %+v; want it released", err, b.marks.marks["r"])
	}
	d.Accepted()
	b.claim("r", "A", forever).Accepted()
	b.marks.err = errors.New("broken")
	if err := b.Release("r", "op", "why"); err == nil {
		t.Error("Release without a disk succeeds")
	}
	e, err := b.Claim("s", "A", forever)
	if e != nil || err == nil {
		t.Errorf("Claim without a disk = %v, %v; want an error", e, err)
	}
	b.marks.err = nil
	b.refused("r", "B")
}

func TestReleaseThatFailsLeavesTheHold(t *testing.T) {
	b := newBench(t)
	c := b.claim("r", "A", forever)
	b.marks.err = errors.New("broken")
	if err := c.Release("A", "done"); err == nil {
		t.Error("Release without a disk succeeds")
	}
	b.marks.err = nil
	c.Accepted()
	b.refused("r", "B")
}

// An answer about the mark that is older than what happened meanwhile is not used.
func TestLookUpThatWasOvertaken(t *testing.T) {
	b := newBench(t)
	b.claim("r", "A", forever).Accepted()
	if known, _ := b.Known(); known != 0 {
		t.Fatalf("%d resources are known; want none, the mark says it all", known)
	}
	if err := b.Release("r", "op", "why"); err != nil { // free at 1
		t.Fatal(err)
	}
	n := 0
	b.marks.onMark = func() {
		if n++; n == 1 { // between the reading and its use, B claims, writes and is done
			b.claim("r", "B", forever).Accepted()
		}
	}
	b.refused("r", "C")
}

func TestMarkThatAnOperatorChanged(t *testing.T) {
	b := newBench(t)
	b.time = time.Hour
	b.claim("r", "A", fixed).Accepted()
	b.marks.marks["r"] = fencing.Mark{Token: fencing.Number(8), Holder: "B", TTL: time.Minute}
	if err := b.Changed("r"); err != nil {
		t.Fatal(err)
	}
	b.refused("r", "A")
	b.time += time.Minute - 1
	b.refused("r", "A")
	if c := b.try("r", "B", fixed); c.Token() != fencing.Number(8) {
		t.Errorf("B has %v; want 8", c.Token())
	} else {
		c.Failed(false)
	}
	b.time++
	if c := b.claim("r", "A", fixed); c.Token() != fencing.Number(9) {
		t.Errorf("A has %v; want 9", c.Token())
	}
}

func TestOnlyHoldsThatRunAreKept(t *testing.T) {
	b := newBench(t)
	const n = 1000
	name := func(i int) fencing.Resource { return fencing.Resource(fmt.Sprint("r", i)) }
	for i := range n {
		b.claim(name(i), "A", renewed).Accepted()
		b.claim("forever/"+name(i), "A", forever).Accepted()
		c := b.claim("released/"+name(i), "A", renewed)
		if err := c.Release("A", "done"); err != nil {
			t.Fatal(err)
		}
		c.Accepted()
		if err := b.Check("free/"+name(i), "A"); err != nil {
			t.Fatal(err)
		}
	}
	if known, due := b.Known(); known != n || due != n {
		t.Errorf("%d resources are known and %d due; want the %d whose time runs", known, due, n)
	}
	b.time = 9 * time.Second
	b.claim(name(0), "A", renewed).Accepted()
	b.time = 10 * time.Second
	for i := range n {
		b.claim("forever/"+name(i), "A", forever).Accepted()
	}
	if known, due := b.Known(); known != 1 || due != 1 {
		t.Errorf("%d resources are known and %d due; want the one that was renewed", known, due)
	}
	b.refused(name(0), "B")
}

func TestNoErrorNamesAnID(t *testing.T) {
	b := newBench(t)
	b.claim("r", "secret", forever).Accepted()
	_, err := b.Claim("r", "other", forever)
	if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, "secret") || strings.Contains(text, "other\"") {
		t.Errorf("the error holds an id: %s", text)
	}
	if _, err := b.Claim("", "A", forever); !errors.Is(err, fencing.ErrResource) {
		t.Errorf("Claim of no resource = %v; want ErrResource", err)
	}
}

func TestImportsNeitherHTTPNorBadger(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		switch {
		case dep == "net/http", strings.Contains(dep, "badger"), strings.HasSuffix(dep, "/tokenstore"), strings.HasSuffix(dep, "/policies"), strings.HasSuffix(dep, "/gate"):
			t.Errorf("the holds depend on %s", dep)
		}
	}
}
