package main

import (
	"fmt"
	"strconv"
)

// workload is a kind of request, sent to every peer that it says something about.
type workload struct {
	id    string
	title string
	spec  loadSpec
	large bool // measured in bytes: two connections
	wants func(*peer) bool
	ref   []string // the ratios are to the first of these that was measured
	// refused says that the fence has to refuse every request.
	refused bool
}

const (
	sameToken  = 100
	staleToken = 5
	kilobyte   = 1 << 10
)

// sizes are what --smoke makes smaller.
type sizes struct {
	resources int
	large     int // bytes
	conns     int
	rate      float64
}

func sizesOf(o *options) sizes {
	s := sizes{resources: o.resources, large: 64 << 20, conns: o.conns, rate: o.rate}
	if o.smoke {
		s.large = 8 << 20
	}
	return s
}

func allWorkloads(s sizes) []*workload {
	put := func(path string, resources, token int) loadSpec {
		return loadSpec{Method: "PUT", Path: path, Resources: resources, Token: token, Size: kilobyte, Conns: s.conns}
	}
	raise := put("/raise/", s.resources, firstToken)
	raise.Raise = true
	expect := put("/stale/", 100, staleToken)
	expect.Size, expect.Expect = 10<<20, true
	largePut := loadSpec{Method: "PUT", Path: "/large/", Resources: 2, Token: sameToken, Size: s.large, Conns: 2}
	rate := put("/same/", s.resources, sameToken)
	rate.Rate, rate.Conns = s.rate, min(16, s.conns)

	most := func(p *peer) bool { return !p.few }
	through := func(p *peer) bool { return !p.few && p.commands != nil }
	// Without a fence a raise is a PUT like any other, and no peer would differ from what "same" says of it.
	fencesAndRef := func(p *peer) bool { return p.fence || p.name == nameNginx || p.name == namePlain }
	every := func(*peer) bool { return true }
	fences := func(p *peer) bool { return p.fence }
	nginx := []string{nameNginx, namePlain, nameDirect}
	return []*workload{
		{id: "same", title: fmt.Sprintf("PUT 1 KiB, the token of the last one, %d resources", s.resources), spec: put("/same/", s.resources, sameToken), wants: every, ref: nginx},
		{id: "raise", title: "PUT 1 KiB, a higher token each time", spec: raise, wants: fencesAndRef, ref: nginx},
		{id: "hot", title: "PUT 1 KiB, one resource, one token", spec: put("/hot", 0, sameToken), wants: through, ref: nginx},
		{id: "stale", title: "PUT 1 KiB, stale", spec: put("/stale/", 100, staleToken), wants: fences, ref: []string{nameRedis, nameStick, nameOurs}, refused: true},
		{id: "stale-expect", title: "PUT 10 MiB, stale, Expect: 100-continue", spec: expect, wants: fences, ref: []string{nameRedis, nameStick, nameOurs}, refused: true},
		{id: "get", title: "GET 1 KiB", spec: loadSpec{Method: "GET", Path: "/same/", Resources: s.resources, Conns: s.conns}, wants: most, ref: nginx},
		{id: "large-put", title: fmt.Sprintf("PUT %d MiB, 2 connections", s.large>>20), spec: largePut, large: true, wants: every, ref: nginx},
		{id: "large-get", title: fmt.Sprintf("GET %d MiB, 2 connections", s.large>>20), large: true, wants: most, ref: nginx,
			spec: loadSpec{Method: "GET", Path: blobPath + strconv.Itoa(s.large), Conns: 2}},
		{id: "rate", title: fmt.Sprintf("PUT 1 KiB, the token of the last one, %g a second", s.rate), spec: rate, wants: most, ref: nginx},
	}
}

func workloadIDs() []string {
	var ids []string
	for _, w := range allWorkloads(sizes{}) {
		ids = append(ids, w.id)
	}
	return ids
}

// primers bring a peer to the state in which the workloads find it: every mark is there, and every object.
func primers(s sizes) []loadSpec {
	prime := func(path string, resources int) loadSpec {
		return loadSpec{Method: "PUT", Path: path, Resources: resources, Token: sameToken, Size: kilobyte, Conns: s.conns, Count: max(resources, 1)}
	}
	return []loadSpec{prime("/same/", s.resources), prime("/hot", 0), prime("/stale/", 100), prime("/large/", 2)}
}

// expected counts the answers that the workload is about.
func (w *workload) expected(p *peer, r loadResult) int {
	n := 0
	for status, count := range r.Statuses {
		code, _ := strconv.Atoi(status)
		switch {
		case w.refused && p.fence && (code == 409 || code == 412),
			!w.refused && code >= 200 && code < 300:
			n += count
		}
	}
	return n
}

// bytes is how much one request of a large workload moves.
func (w *workload) bytes() int {
	if w.spec.Method == "GET" {
		n, _ := strconv.Atoi(w.spec.Path[len(blobPath):])
		return n
	}
	return w.spec.Size
}
