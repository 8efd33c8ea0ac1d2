package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// crashed kills the fence between the two writes.
func crashed(ctx context.Context, a *attempt) verdict {
	newer := a.put(ctx, a.path, 34, kilobyte)
	if err := a.i.crash(ctx); err != nil {
		return verdict{Failed: err.Error()}
	}
	return a.judge(ctx, a.path, a.put(ctx, a.path, 33, kilobyte), newer, 33)
}

// evicted writes to many other resources between the two writes. It looks at several, since eviction may spare one.
func evicted(ctx context.Context, a *attempt) verdict {
	const several, others = 10, 20_000
	newer := make([]int, several)
	for n := range several {
		newer[n] = a.put(ctx, fmt.Sprintf("%s-%d", a.path, n), 34, kilobyte)
	}
	r, err := a.i.lab.runLoad(ctx, loadSpec{Address: a.i.address, Conns: 32, Count: others, Method: "PUT",
		Path: fmt.Sprintf("%s-others-%s/", a.path, strings.Repeat("x", 80)), Resources: others, Token: sameToken, Size: 16})
	if err != nil {
		return verdict{Failed: err.Error()}
	}
	if r.Statuses["204"] < others/2 { // a full Redis may refuse some
		return verdict{Failed: fmt.Sprintf("the other writes were answered with %v %s", r.Statuses, r.FirstError)}
	}
	var v verdict
	for n := range several {
		path := fmt.Sprintf("%s-%d", a.path, n)
		if v = a.judge(ctx, path, a.put(ctx, path, 33, kilobyte), newer[n], 33); v.Landed || v.Failed != "" {
			break
		}
	}
	return v
}

// experiments runs all of them, each on all peers at the same time; disruptive ones on instances of their own.
func (l *lab) experiments(ctx context.Context, progress io.Writer) ([]verdict, error) {
	var (
		verdicts []verdict
		mu       sync.Mutex // guards verdicts
		wg       sync.WaitGroup
	)
	add := func(e *experiment, i *instance, v verdict) {
		v.Experiment, v.Peer = e.name, i.peer.name
		mu.Lock()
		defer mu.Unlock()
		verdicts = append(verdicts, v)
		fmt.Fprintf(progress, "%-15s %-15s stale write landed last: %-3s (stale %d, newer %d) %s\n", e.name, i.peer.name, v.answer(), v.Stale, v.Newer, v.Failed)
	}
	for _, e := range allExperiments() {
		for _, i := range l.instances {
			if !e.disruptive {
				wg.Go(func() { add(e, i, e.run(ctx, i.attempt())) })
			}
		}
		wg.Wait()
	}
	running := slices.Clone(l.instances)
	for _, e := range allExperiments() {
		if !e.disruptive {
			continue
		}
		var fresh []*instance
		for _, i := range running {
			if !i.peer.fence {
				continue
			}
			f, err := l.another(ctx, i.peer, e.small)
			if err != nil {
				return verdicts, err
			}
			fresh = append(fresh, f)
		}
		for _, i := range fresh {
			wg.Go(func() {
				add(e, i, e.run(ctx, i.attempt()))
				i.stop()
			})
		}
		wg.Wait()
	}
	slices.SortFunc(verdicts, func(a, b verdict) int { // they came in the order in which they ended
		return cmp.Or(cmp.Compare(experimentRank(a.Experiment), experimentRank(b.Experiment)), cmp.Compare(a.Peer, b.Peer))
	})
	return verdicts, ctx.Err()
}

func experimentRank(name string) int {
	return slices.IndexFunc(allExperiments(), func(e *experiment) bool { return e.name == name })
}

// another starts a second instance of a peer, with fresh state, and with room for few marks if asked to.
func (l *lab) another(ctx context.Context, p *peer, small bool) (*instance, error) {
	i, err := l.newInstance(p)
	if err != nil {
		return nil, err
	}
	i.small = small
	l.instances = append(l.instances, i) // so that close ends it
	return i, i.start(ctx)
}

func (v verdict) answer() string {
	switch {
	case v.Failed != "":
		return "?"
	case v.Landed:
		return "yes"
	}
	return "no"
}
