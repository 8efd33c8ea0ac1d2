package lease_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/lease"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

var errDead = errors.New("the process is dead")

// disk is what survives a crash: notes and marks.
type disk struct {
	mu    sync.Mutex // guards the fields below
	notes map[string]string
	marks map[fencing.Resource]fencing.Mark
}

func newDisk() *disk {
	return &disk{notes: map[string]string{}, marks: map[fencing.Resource]fencing.Mark{}}
}

func (d *disk) mark(r fencing.Resource) (fencing.Mark, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, ok := d.marks[r]
	return m, ok
}

// set writes a mark past the lease manager, up or down.
func (d *disk) set(r fencing.Resource, m fencing.Mark) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m.Format == 0 {
		m.Format = fencing.Decimal
	}
	d.marks[r] = m
}

func (d *disk) noteNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, name := range slices.Sorted(maps.Keys(d.notes)) {
		if strings.HasPrefix(name, "lease/") {
			names = append(names, name)
		}
	}
	return names
}

// process is one run on the disk: the way by which a manager reaches it. It implements lease.Notes and lease.Marks.
type process struct {
	d *disk

	mu     sync.Mutex // guards the fields below
	dead   bool
	crash  int           // dies at this change from now, 1 for the next; 0: never
	after  bool          // dies after the change is durable, and before it is acknowledged
	slow   time.Duration // how long each change takes
	fail   error         // what each change meets with, without effect
	notes  error         // the same, for changes of notes alone
	before func()        // called once, before the next change
	races  int           // this many times the mark moves before it is raised
}

// change carries out a change of the disk, unless something comes in between.
func (p *process) change(note bool, do func()) error {
	p.mu.Lock()
	slow, before := p.slow, p.before
	p.before = nil
	p.mu.Unlock()
	if before != nil {
		before()
	}
	if slow > 0 {
		time.Sleep(slow)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.dead:
		return errDead
	case p.fail != nil:
		return p.fail
	case note && p.notes != nil:
		return p.notes
	}
	if p.crash--; p.crash == 0 {
		p.dead = true
		if p.after {
			do()
		}
		return errDead
	}
	do()
	return nil
}

// with changes what comes in between.
func (p *process) with(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
}

func (p *process) alive() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errDead
	}
	return nil
}

func (p *process) Meta(name string) (string, bool, error) {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	text, ok := p.d.notes[name]
	return text, ok, p.alive()
}

func (p *process) MetaNames(prefix string) ([]string, error) {
	if prefix != "lease/" {
		return nil, errors.New("another prefix")
	}
	return p.d.noteNames(), p.alive()
}

func (p *process) SetMeta(name, value string) error {
	if len(name) > 1024 || len(value) > 768 {
		return errors.New("too long for the store")
	}
	return p.change(true, func() {
		p.d.mu.Lock()
		defer p.d.mu.Unlock()
		p.d.notes[name] = value
	})
}

func (p *process) DeleteMeta(name string) error {
	return p.change(true, func() {
		p.d.mu.Lock()
		defer p.d.mu.Unlock()
		delete(p.d.notes, name)
	})
}

func (p *process) Seen(r fencing.Resource) (fencing.Mark, bool, error) {
	m, ok := p.d.mark(r)
	return m, ok, p.alive()
}

func (p *process) Raise(r fencing.Resource, m fencing.Mark) error {
	var overtaken bool
	err := p.change(false, func() {
		if p.races > 0 { // a write comes in between
			p.races--
			p.d.set(r, m)
		}
		if now, ok := p.d.mark(r); ok && !now.Token.Less(m.Token) {
			overtaken = true
			return
		}
		p.d.set(r, m)
	})
	if overtaken {
		return lease.ErrOvertaken
	}
	return err
}

// start starts a manager on the disk.
func (p *process) start(t testing.TB, most int) *lease.Manager {
	t.Helper()
	m, err := lease.New(lease.Config{Notes: p, Marks: p, Max: most})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return m
}

// bubble runs a test on a manager with faked time.
func bubble(t *testing.T, do func(t *testing.T, m *lease.Manager, p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &process{d: newDisk()}
		m := p.start(t, 0)
		do(t, m, p)
		m.Close()
	})
}
