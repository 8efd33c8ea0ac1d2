package policies

import (
	"net/http"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Request is what a decision looks at. Nothing in it is changed.
type Request struct {
	Method     string
	Target     string // origin-form: path and query exactly as on the request line
	Host       string
	Header     http.Header // with canonical keys, as net/http gives it; never the trailers
	RemoteAddr string      // for the caller's records; no policy looks at it
}

// Action is what becomes of a request before any token is compared.
type Action uint8

const (
	Pass   Action = iota // forward it; no resource is fenced
	Fence                // let it wait for its turn on every resource
	Reject               // Err says why
)

// String is "pass", "fence" or "reject".
func (a Action) String() string { return [...]string{"pass", "fence", "reject"}[a] }

// Decision is the outcome of [Set.Decide].
type Decision struct {
	Action      Action
	Err         error   // of a Reject: one of the typed errors of this package
	Policy      *Policy // nil if none matched
	Token       fencing.Token
	TokenText   string // as the client wrote it
	TokenSource string // "header Fencing-Token"
	// NeedsBody says that a resource template reads the JSON body: take the body in and call ResolveBody.
	NeedsBody bool
	Resources []fencing.Resource // sorted, without doubles; empty while NeedsBody; of a Reject, for information
	Unfenced  string             // why a write passes unfenced; empty for reads
	// Observed says that a Reject comes from a policy that only observes, so the request is forwarded and counted. It is false
	// where another reading of an ambiguous path belongs to a policy that enforces.
	Observed bool

	known   []fencing.Resource // keys that need no body
	pending []pending
}

// evaluation is the state of one decision.
type evaluation struct {
	r     *Request
	raw   string // path as on the request line
	query string
	loose [][]string // lenient readings, made when first needed
}

// mayMatch reports whether any reading of the path belongs to p. A path too long to be read in every way might belong to any.
func (e *evaluation) mayMatch(p *Policy) bool {
	if len(e.raw) > MaxPathLen {
		return true
	}
	if e.loose == nil {
		e.loose = readings(e.raw)
	}
	return slices.ContainsFunc(e.loose, p.pattern.matchLoose)
}

// Decide says which policy covers a request, which resources it touches and which token it carries. It does no I/O, keeps no
// state and may be called by any number of goroutines.
//
// The policies are tried in file order. Each reads the path under its own identity options; where that reading is ambiguous and
// any store might take the path for one that the policy covers, the request is rejected rather than handed on to a later policy.
func (s *Set) Decide(r *Request) Decision {
	raw, query, _ := strings.Cut(r.Target, "?")
	if reason := override(r.Header, query); reason != "" {
		return Decision{Action: Reject, Err: &RefusedError{Reason: reason}}
	}
	safe := Safe(r.Method)
	if raw == "*" && r.Method == "OPTIONS" {
		return Decision{}
	}
	if raw == "" || raw[0] != '/' {
		return Decision{Action: Reject, Err: &AmbiguousError{Reason: "the target does not begin with /"}}
	}
	if safe && !s.fencesReads {
		return Decision{}
	}
	if !safe && len(r.Header["Destination"]) > 0 {
		// RFC 4918 section 10.3: COPY and MOVE write to a second path.
		return Decision{Action: Reject, Observed: !s.enforces, Err: &UnfenceableError{
			Reason: "the header Destination names a second resource, which the http dialect does not know how to read; copy and rename with a read and a write",
		}}
	}
	e := evaluation{r: r, raw: raw, query: query}
	var (
		buf    [16]string    // the segments of path; not part of e, where it would move to the heap
		id     *identity     // the one under which path and reason hold
		path   canonicalPath // how id reads raw
		reason string        // why it is ambiguous, or empty
	)
	for _, p := range s.all {
		if !p.takes(r.Method) {
			continue
		}
		met := p.meets(&e)
		if met == no {
			continue
		}
		if id != p.identity { // equal identities share a pointer, so neighbours cost nothing
			id = p.identity
			path, reason = id.target(raw, query, buf[:0])
		}
		switch {
		case reason != "":
			if e.mayMatch(p) {
				return s.ambiguous(p, &e, reason)
			}
		case !p.pattern.match(path, id.strictSlash()):
		case met == maybe:
			return s.ambiguous(p, &e, "a header or query parameter that decides about the policy is given with two values, or in a form that stores read differently")
		default:
			return p.decide(&e, path)
		}
	}
	if safe {
		return Decision{}
	}
	if _, reason := s.identity.target(raw, query, buf[:0]); reason != "" {
		return Decision{Action: Reject, Err: &AmbiguousError{Reason: reason}}
	}
	if s.unmatched == unmatchedAllow {
		return Decision{Unfenced: "unmatched_writes: allow"}
	}
	return Decision{Action: Reject, Err: &UnmatchedError{Method: r.Method, Path: raw}}
}

// decide is the part of a decision that comes after the policy is known.
func (p *Policy) decide(e *evaluation, path canonicalPath) Decision {
	d := Decision{Policy: p}
	if p.Mode == Off {
		d.Unfenced = "mode: off"
		return d
	}
	fail := func(err error) Decision {
		out := Decision{
			Action: Reject, Err: err, Policy: p, Observed: p.Mode == Observe,
			Token: d.Token, TokenText: d.TokenText, TokenSource: d.TokenSource,
		}
		named := Decision{Policy: p}
		if p.resources(e, path, &named) == nil { // for the answer: which resource the request speaks of
			out.Resources, out.NeedsBody, out.known, out.pending = named.Resources, named.NeedsBody, named.known, named.pending
		}
		return out
	}
	c, found, err := p.claim(e)
	switch {
	case err != nil:
		return fail(err)
	case !found && p.MissingToken == MissingAllow:
		d.Unfenced = "no token (missing_token: allow)"
		return d
	case !found:
		return fail(&MissingTokenError{Policy: p.Name, Places: p.TokenPlaces()})
	}
	d.Token, d.TokenText, d.TokenSource = c.token, c.text, c.place
	if err := p.resources(e, path, &d); err != nil {
		return fail(err)
	}
	d.Action = Fence
	return d
}

// ambiguous rejects a request under p.
func (s *Set) ambiguous(p *Policy, e *evaluation, reason string) Decision {
	d := Decision{Action: Reject, Policy: p, Err: &AmbiguousError{Policy: p.Name, Reason: reason}}
	d.Observed = p.Mode == Observe && s.harmless(e)
	return d
}

// harmless reports whether an ambiguous request may be forwarded because of a policy that only observes: no reading of it belongs
// to a policy that enforces, or to none in a configuration that rejects such writes.
func (s *Set) harmless(e *evaluation) bool {
	if len(e.raw) > MaxPathLen {
		return false
	}
	if e.loose == nil {
		e.loose = readings(e.raw)
	}
	for _, reading := range e.loose {
		covered := s.unmatched == unmatchedAllow || Safe(e.r.Method)
		for _, p := range s.all {
			if !p.takes(e.r.Method) || !p.pattern.matchLoose(reading) {
				continue
			}
			met := p.meets(e)
			if met != no && p.Mode == Enforce {
				return false
			}
			if met == yes {
				covered = true
				break
			}
		}
		if !covered {
			return false
		}
	}
	return true
}

// override says why a request that asks for another method than its own is refused, or "". Underscores count as dashes: a store
// behind CGI or WSGI sees no difference.
func override(h http.Header, query string) string {
	for name := range h {
		switch len(name) {
		case len("X-HTTP-Method"), len("X-Method-Override"), len("X-HTTP-Method-Override"):
			if name[0]|0x20 != 'x' {
				continue
			}
			switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
			case "x-http-method", "x-method-override", "x-http-method-override":
				return "the header " + name + " asks the store for another method than the request line does"
			}
		}
	}
	if query != "" && hasMethodParameter(query) {
		return "the query parameter _method asks the store for another method than the request line does"
	}
	return ""
}
