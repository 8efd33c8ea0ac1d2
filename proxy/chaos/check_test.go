package chaos_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// look is what the proxy said of its marks at one moment.
type look struct {
	span
	marks   map[string]uint64
	applied map[string]uint64 // the highest tokens in the store's log before that
}

// read is what a reader saw as the value of a resource.
type read struct {
	span
	resource, id string // id is empty if there was no value
}

// evidence is all that a round left behind.
type evidence struct {
	ops     []op
	log     []applied
	looks   []look
	reads   []read
	final   map[string]uint64 // marks, exported after the end
	values  map[string][]byte // what the store holds, by resource
	crashes []span
	events  []string // what the store said
	mild    bool
	end     time.Duration
}

// violation is a broken promise. soft says that a machine which stalls may break it too, since it rests on the timing assumption.
type violation struct {
	text string
	soft bool
}

// check returns what is wrong.
func (e *evidence) check() (bad []violation) {
	say := func(soft bool, format string, args ...any) {
		bad = append(bad, violation{fmt.Sprintf(format, args...), soft})
	}
	e.checkOrder(say)
	e.checkAnswers(say)
	e.checkMarks(say)
	e.checkValues(say)
	if e.mild {
		e.checkMild(say)
	}
	return bad
}

type sayer func(soft bool, format string, args ...any)

// checkOrder: the store applied nothing with a lower token after a higher one (G1, G2). If the lower one was answered, the gate had only to
// wait for that; if not, all hangs on the hold.
func (e *evidence) checkOrder(say sayer) {
	answered := map[string]bool{}
	for _, o := range e.ops {
		answered[o.ID] = o.Outcome == isOK || o.Outcome == isFailed
	}
	highest := map[string]applied{}
	for _, a := range e.log {
		if h := highest[a.resource]; a.token < h.token {
			say(!answered[a.id], "order: on %s the store applied %s with %d after %s with %d", a.resource, a.id, a.token, h.id, h.token)
			continue
		}
		highest[a.resource] = a
	}
}

// checkAnswers: what clients were told is what happened (G7), and nothing happened twice.
func (e *evidence) checkAnswers(say sayer) {
	times := map[string]int{}
	first := map[string]applied{}
	for _, a := range e.log {
		key := a.resource + " " + a.id
		if times[key]++; times[key] == 1 {
			first[key] = a
		} else {
			say(false, "twice: %s was applied to %s %d times", a.id, a.resource, times[key])
		}
	}
	known := map[string]bool{}
	for _, o := range e.ops {
		for _, r := range o.Resources {
			key := r + " " + o.ID
			known[key] = true
			a := first[key]
			switch n := times[key]; {
			case o.Outcome == "" || strings.HasPrefix(o.Outcome, "ok for"):
				say(false, "answers: %v", o)
			case o.Outcome == isOK && n == 0:
				say(false, "lost: %s was answered with success and is not in the log\n%v", o.ID, o)
			case o.Outcome == isOK && (a.cut || a.sum != sumOf(bodyOf(o.ID, o.Size)) || a.token != o.Token):
				say(false, "altered: %s arrived as %+v\n%v", o.ID, a, o)
			case n > 0 && (o.Outcome == isStale || o.Outcome == isRefused):
				say(false, "forwarded: %s was answered as not forwarded and was applied\n%v", o.ID, o)
			case n > 0 && o.Outcome == isCut:
				say(false, "cut: the client of %s never sent its whole body, and it was applied: %+v\n%v", o.ID, a, o)
			}
		}
	}
	for key := range times {
		if !known[key] {
			say(false, "foreign: %s was applied and nobody wrote it", key)
		}
	}
}

// checkMarks: no mark fell, and none is below what was applied (G3, G6).
func (e *evidence) checkMarks(say sayer) {
	looks := append(slices.Clone(e.looks), look{span{e.end, e.end}, e.final, nil})
	last := &looks[len(looks)-1]
	last.applied = map[string]uint64{}
	for _, a := range e.log {
		last.applied[a.resource] = max(last.applied[a.resource], a.token)
	}
	seen := map[string]uint64{}
	for _, l := range looks {
		for r, t := range l.applied {
			if l.marks[r] < t {
				say(false, "mark: at %.1f ms that of %s was %d, and %d had been applied", ms(l.from), r, l.marks[r], t)
			}
		}
		for r, t := range seen {
			if l.marks[r] < t {
				say(false, "mark: at %.1f ms that of %s had fallen from %d to %d", ms(l.from), r, t, l.marks[r])
			}
		}
		maps.Copy(seen, l.marks)
	}
}

// checkValues: the store holds what the last write in its log carried.
func (e *evidence) checkValues(say sayer) {
	last := map[string]applied{}
	for _, a := range e.log {
		last[a.resource] = a
	}
	for r, a := range last {
		id, body, _ := bytes.Cut(e.values[r], []byte("\n"))
		if string(id) != a.id || sumOf(body) != a.sum {
			say(false, "value: %s holds %s, %d bytes; want %+v", r, id, len(body), a)
		}
	}
}

// checkMild: where only clients misbehave, their writes are neither cut short nor in doubt on the store's side (detach, spool).
func (e *evidence) checkMild(say sayer) {
	for _, line := range e.events {
		if word, id, _ := strings.Cut(line, " "); word == "cut" || word == "gone" {
			say(false, "detach: the proxy left the store alone with %s (%s), and nothing but its client had failed", id, word)
		}
	}
	for _, o := range e.ops {
		if o.Outcome == isUnknown && !strings.Contains(o.How, "hung up") && !strings.Contains(o.How, "half-closed") { // net/http takes an end for a hang-up
			say(true, "mild: nobody hung up, and yet the client does not know\n%v", o)
		}
	}
}

// about returns the part of the evidence that a violation names.
func (e *evidence) about(resource string) string {
	var b strings.Builder
	for _, o := range e.ops {
		if slices.Contains(o.Resources, resource) {
			fmt.Fprintln(&b, o)
		}
	}
	fmt.Fprintln(&b, "applied, in this order:")
	for _, a := range e.log {
		if a.resource == resource {
			fmt.Fprintf(&b, "  %d %s cut=%v\n", a.token, a.id, a.cut)
		}
	}
	return b.String()
}

// gather reads what the store left behind.
func (e *evidence) gather(dir string) (err error) {
	if e.log, err = readLog(filepath.Join(dir, "store", "log")); err != nil {
		return err
	}
	e.values = map[string][]byte{}
	s := legacy{dir: filepath.Join(dir, "store")}
	for _, a := range e.log {
		if e.values[a.resource] == nil {
			if e.values[a.resource], err = os.ReadFile(s.value(a.resource)); err != nil {
				return err
			}
		}
	}
	return nil
}

// event is one operation of a history for porcupine.
type event struct {
	kind  string // an outcome of a write, or "maybe", "read", "crash"
	token uint64
	id    string
}

// fenceState is what a resource's gate holds: the highest token seen, and the one that is durable. A crash forgets the difference.
type fenceState struct{ seen, durable uint64 }

// The models. Each history is about one resource. A write that may or may not have come to pass leaves both states possible; where the
// store's log tells, it is asked instead.
var (
	// fenceModel: which writes are let in. A look at the marks shows the durable one only, and so is not part of it.
	fenceModel = model(fenceState{}, func(state any, e event) []any {
		s := state.(fenceState)
		raised := []any{fenceState{e.token, s.durable}, fenceState{e.token, e.token}}
		switch {
		case e.kind == "crash":
			return []any{fenceState{s.durable, s.durable}}
		case e.kind == isOK && e.token >= s.seen:
			return raised[1:]
		case e.kind == isStale && e.token < s.seen:
			return []any{s}
		case e.kind == "maybe" && e.token < s.seen:
			return []any{s}
		case e.kind == "maybe":
			return append(raised, s)
		}
		return nil
	})
	// markModel: what looks at the marks show. Crashes change nothing.
	markModel = model(uint64(0), func(state any, e event) []any {
		mark := state.(uint64)
		switch {
		case e.kind == "read" && e.token == mark, e.kind == "maybe" && e.token <= mark:
			return []any{mark}
		case e.kind == isOK && e.token >= mark:
			return []any{e.token}
		case e.kind == "maybe":
			return []any{mark, e.token}
		}
		return nil
	})
	// registerModel: the value in the store, as readers see it through the proxy.
	registerModel = model(event{}, func(state any, e event) []any {
		value := state.(event)
		switch {
		case e.kind == "read" && e.id == value.id:
			return []any{value}
		case e.kind == isOK && e.token >= value.token:
			return []any{event{token: e.token, id: e.id}}
		}
		return nil
	})
)

func model(initial any, step func(state any, e event) []any) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{initial} },
		Step: func(state, input, _ any) []any { return step(state, input.(event)) },
	}
	return m.ToModel()
}

// histories returns those of one resource, by model.
func (e *evidence) histories(resource string) (fence, mark, register []porcupine.Operation) {
	add := func(to *[]porcupine.Operation, at span, ev event) {
		*to = append(*to, porcupine.Operation{ClientId: len(*to), Input: ev, Call: int64(at.from), Return: int64(at.to)})
	}
	landed := map[string]bool{}
	for _, a := range e.log {
		landed[a.id] = landed[a.id] || a.resource == resource
	}
	for _, o := range e.ops {
		if !slices.Contains(o.Resources, resource) {
			continue
		}
		at := span{o.Call, o.Return}
		ev := event{o.Outcome, o.Token, o.ID}
		switch {
		case strings.Contains(o.How, "token"): // none, or a bad one
			continue
		case o.Outcome == isStale:
			// It may have been refused at once, or its mark was raised and a higher token came while it waited.
			if o.Stale == resource {
				add(&fence, at, ev)
			}
			ev.kind = "maybe"
		case o.Outcome == isOK:
		case landed[o.ID]: // it may land until the round has settled
			at.to, ev.kind = e.end, isOK
		case o.Outcome == isRefused:
			ev.kind = "maybe"
		default: // the proxy may still have been at it when its client had gone
			at.to, ev.kind = min(e.end, at.to+drainTimeout+upTimeout), "maybe"
		}
		add(&fence, at, ev)
		add(&mark, at, ev)
		if ev.kind == isOK {
			add(&register, at, ev)
		}
	}
	for _, c := range e.crashes {
		add(&fence, c, event{kind: "crash"})
	}
	for _, l := range e.looks {
		add(&mark, l.span, event{kind: "read", token: l.marks[resource]})
	}
	for _, r := range e.reads {
		if r.resource == resource {
			add(&register, r.span, event{kind: "read", id: r.id})
		}
	}
	return fence, mark, register
}

// linearize asks porcupine about every resource. It returns the histories that have no linearization, and how many were too hard.
func (e *evidence) linearize(resources []string, limit time.Duration) (bad []violation, open int) {
	for _, r := range resources {
		fence, mark, register := e.histories(r)
		for _, h := range []struct {
			name string
			m    porcupine.Model
			ops  []porcupine.Operation
		}{{"fence", fenceModel, fence}, {"mark", markModel, mark}, {"register", registerModel, register}} {
			switch porcupine.CheckOperationsTimeout(h.m, h.ops, limit) {
			case porcupine.Illegal:
				bad = append(bad, violation{fmt.Sprintf("history: that of the %s of %s has no linearization:%s", h.name, r, shrink(h.m, h.ops)), h.name == "register"})
			case porcupine.Unknown:
				open++
			}
		}
	}
	return bad, open
}

// shrink leaves out what was seen, but nothing that was done, as long as what is left has no linearization either, and prints the rest.
func shrink(m porcupine.Model, ops []porcupine.Operation) string {
	for i := len(ops) - 1; i >= 0; i-- {
		if kind := ops[i].Input.(event).kind; kind != "read" && kind != isStale {
			continue
		}
		without := slices.Delete(slices.Clone(ops), i, i+1)
		if porcupine.CheckOperationsTimeout(m, without, time.Second) == porcupine.Illegal {
			ops = without
		}
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var b strings.Builder
	for _, o := range ops {
		e := o.Input.(event)
		fmt.Fprintf(&b, "\n  %9.1f..%-9.1f %s %d %s", ms(time.Duration(o.Call)), ms(time.Duration(o.Return)), e.kind, e.token, e.id)
	}
	return b.String()
}
