package gate_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// call is an operation of a recorded history.
type call struct {
	kind string // "write" or "read"
	n    uint64
}

// markModel is the mark as writers see it where the upstream turns nobody away. A write is seen, and is the mark then, whether it is admitted in the end or overtaken while it
// waits; or it is refused by a higher mark at once. A read tells the mark.
var markModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		mark, in, out := state.(uint64), input.(call), output.(call)
		switch {
		case in.kind == "read":
			return out.n == mark, mark
		case in.n >= mark:
			return out.kind == "admitted" || out.n > in.n, in.n
		default:
			return out.kind == "stale" && out.n == mark, mark
		}
	},
}

// registerModel is the object in the upstream: a fenced register never goes back to a lower token.
var registerModel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		value, in := state.(uint64), input.(call)
		if in.kind == "read" {
			return output.(call).n == value, value
		}
		return in.n >= value, in.n
	},
}

// history records operations of concurrent clients.
type history struct {
	began time.Time
	mu    sync.Mutex // guards ops
	ops   []porcupine.Operation
}

func (h *history) record(client int, in call, f func() (out call, keep bool)) {
	from := time.Since(h.began)
	out, keep := f()
	to := time.Since(h.began)
	if !keep {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(from), Return: int64(to)})
}

func TestHistoriesAreLinearizable(t *testing.T) {
	end := time.Now().Add(1500 * time.Millisecond)
	rounds := 0
	for ; time.Now().Before(end); rounds++ {
		firm := rounds%2 == 0 // every other time lower writers wait for the verdict on higher ones
		s := newMemStore()
		s.onAdvance = func([]fencing.ResourceMark) error { return jitter(100) }
		g := gate.New(s, gate.Config{})
		marks, register := history{began: time.Now()}, history{began: time.Now()}
		var tokens, value atomic.Uint64
		var clients sync.WaitGroup
		for id := range 6 {
			clients.Go(func() {
				for range 12 {
					switch rand.IntN(4) {
					case 0:
						marks.record(id, call{kind: "read"}, func() (call, bool) { return call{n: readMark(g)}, true })
						register.record(id, call{kind: "read"}, func() (call, bool) { return call{n: value.Load()}, true })
					default:
						n := tokens.Load()
						if rand.IntN(2) == 0 {
							n = tokens.Add(1)
						}
						writeRegister(t, g, max(1, n), firm, id, &value, &marks, &register)
					}
				}
			})
		}
		clients.Wait()
		for name, check := range map[string]struct {
			m   porcupine.Model
			ops []porcupine.Operation
		}{"mark": {markModel, marks.ops}, "register": {registerModel, register.ops}} {
			if name == "mark" && !firm {
				continue // a read of the mark tells of those that were accepted
			}
			if got := porcupine.CheckOperationsTimeout(check.m, check.ops, 5*time.Second); got == porcupine.Illegal {
				t.Fatalf("round %d: the history of the %s is not linearizable:\n%v", rounds, name, check.ops)
			}
		}
	}
	t.Logf("%d histories", rounds)
}

// readMark asks the gate for the mark of r.
func readMark(g *gate.Gate) uint64 {
	stale, ok := errors.AsType[*gate.StaleTokenError](g.Check(gate.Write{Resources: []fencing.Resource{"r"}, Token: fencing.Token{}}))
	if !ok {
		return 0
	}
	return stale.Mark.Lo
}

// writeRegister sends one write through the gate to a slow register. Some writes are in doubt and land before their hold is over.
func writeRegister(t *testing.T, g *gate.Gate, n uint64, firm bool, client int, value *atomic.Uint64, marks, register *history) {
	var a *gate.Admission
	marks.record(client, call{"write", n}, func() (call, bool) {
		var err error
		w := write("r", n)
		w.Final = firm
		a, err = g.Enter(context.Background(), w)
		if stale, ok := errors.AsType[*gate.StaleTokenError](err); ok {
			return call{"stale", stale.Mark.Lo}, true
		}
		if err != nil {
			t.Errorf("Enter(%d) = %v", n, err)
		}
		return call{"admitted", n}, err == nil
	})
	if a == nil {
		return
	}
	doubtful := rand.IntN(5) == 0
	register.record(client, call{"write", n}, func() (call, bool) {
		_ = jitter(200)
		value.Store(n)
		return call{}, true
	})
	if doubtful {
		a.InDoubt(time.Duration(rand.IntN(500)) * time.Microsecond)
	} else {
		a.Done(0)
	}
}

// jitter takes up to so many microseconds of real time.
func jitter(most int) error {
	time.Sleep(time.Duration(rand.IntN(most)) * time.Microsecond)
	return nil
}

// TestManyWritersBeforeASlowUpstream lets writes take effect late, some of them only when their connection has long been lost.
func TestManyWritersBeforeASlowUpstream(t *testing.T) {
	for _, resources := range []int{1, 50} {
		t.Run(fmt.Sprintf("%d resources", resources), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newMemStore()
				s.onAdvance = func([]fencing.ResourceMark) error { return jitter(3000) }
				g := gate.New(s, gate.Config{})
				u := newUpstream()
				var admitted, stale atomic.Int64
				var writers sync.WaitGroup
				for i := range 200 {
					r := fencing.Resource(fmt.Sprintf("r%d", i%resources))
					writers.Go(func() {
						for range 5 {
							_ = jitter(20_000)
							w := write(r, rand.Uint64N(1000)+1)
							switch a, err := g.Enter(context.Background(), w); {
							case err == nil:
								admitted.Add(1)
								sendSlowly(a, u, w)
							case isStale(err):
								stale.Add(1)
							default:
								t.Errorf("Enter(%v) = %v; want admitted or stale", w.Token, err)
							}
						}
					})
				}
				writers.Wait()
				pass(time.Minute)
				applied := int64(0)
				for r, ns := range u.applied {
					applied += int64(len(ns))
					if !slices.IsSorted(ns) {
						t.Errorf("the upstream of %q applied %v; want ascending tokens", r, ns)
					}
					s.wantMark(t, r, ns[len(ns)-1])
				}
				if applied != admitted.Load() || admitted.Load()+stale.Load() != 1000 || stale.Load() == 0 {
					t.Errorf("%d admitted, %d applied, %d stale; want all admitted ones applied, 1000 in all", admitted.Load(), applied, stale.Load())
				}
				if err := errors.Join(u.errs...); err != nil {
					t.Error(err)
				}
				wantIdle(t, g)
			})
		})
	}
}

func isStale(err error) bool {
	_, ok := errors.AsType[*gate.StaleTokenError](err)
	return ok
}

// sendSlowly forwards a write whose answer comes late, or never while the write lands all the same.
func sendSlowly(a *gate.Admission, u *upstream, w gate.Write) {
	u.arrive(w, false)
	if rand.IntN(10) == 0 {
		time.AfterFunc(99*time.Millisecond, func() {
			u.apply(w)
			u.leave(w, false)
		})
		a.InDoubt(100 * time.Millisecond)
		return
	}
	_ = jitter(5000)
	u.apply(w)
	u.leave(w, false)
	a.Done(0)
}
