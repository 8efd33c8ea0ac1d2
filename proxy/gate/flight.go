package gate

import (
	"slices"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// flight is what is in flight with one token.
type flight struct {
	token     fencing.Token
	writes    int       // admitted and not released
	exclusive int       // of writes, those that were admitted alone
	inDoubt   int       // of writes, those whose outcome is unknown
	until     time.Time // when the last doubt ends
}

// flightsLocked returns the flights that the write of the claim is counted in.
func (c *claim) flightsLocked() *[]flight {
	if c.kind == under {
		return &c.entry.beneath.flights
	}
	return &c.entry.flights
}

// flightLocked returns the flight of token t, which must exist.
func (c *claim) flightLocked(t fencing.Token) *flight {
	fs := *c.flightsLocked()
	for i := range fs {
		if fs[i].token == t {
			return &fs[i]
		}
	}
	panic("gate: released a write that is not in flight")
}

func (c *claim) addFlightLocked(t fencing.Token, exclusive bool) {
	fs := c.flightsLocked()
	i := slices.IndexFunc(*fs, func(f flight) bool { return f.token == t })
	if i < 0 {
		i = len(*fs)
		*fs = append(*fs, flight{token: t})
	}
	f := &(*fs)[i]
	f.writes++
	if exclusive {
		f.exclusive++
	}
}

func (c *claim) dropFlightLocked(t fencing.Token, exclusive bool) {
	f := c.flightLocked(t)
	f.writes--
	if exclusive {
		f.exclusive--
	}
	if f.writes == 0 {
		fs := c.flightsLocked()
		*fs = slices.DeleteFunc(*fs, func(f flight) bool { return f.writes == 0 })
	}
}

// conflictLocked returns the flight that keeps a waiting among fs, or nil.
func conflictLocked(fs []flight, a *Admission) *flight {
	for i := range fs {
		if f := &fs[i]; f.token != a.token || f.exclusive > 0 || a.exclusive {
			return f
		}
	}
	return nil
}

// othersLocked reports whether a write with another token is in flight on one of the keys that the admission has joined: on a
// resource, on a tree above it, or in a tree that it changes.
func (a *Admission) othersLocked() bool {
	other := func(f flight) bool { return f.token != a.token }
	for i := range a.claims {
		c := &a.claims[i]
		if slices.ContainsFunc(c.entry.flights, other) || c.kind == whole && slices.ContainsFunc(c.entry.beneath.flights, other) {
			return true
		}
	}
	return false
}

// countLocked returns how many writes are in flight, and how many in doubt.
func countLocked(fs []flight) (inFlight, inDoubt int) {
	for i := range fs {
		inFlight += fs[i].writes - fs[i].inDoubt
		inDoubt += fs[i].inDoubt
	}
	return inFlight, inDoubt
}
