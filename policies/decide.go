package policies

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Request is what a decision looks at. Nothing in it is changed.
type Request struct {
	Method     string
	Target     string   // origin-form: path and query exactly as on the request line
	Authority  string   // begins the keys of the store that it is for: see [Store] and [Upstream]; may be empty
	Reserved   []string // what no key may begin with: see [Set.Reserved]
	Host       string
	Header     http.Header // with canonical keys, as net/http gives it; never the trailers
	RemoteAddr string      // for the caller's records; no policy looks at it
	Client     []string    // the names in the client's certificate, if that was verified
	Time       time.Time   // when it came, for tokens that expire; zero: now
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
	TokenText   string // as the client wrote it; the one that a signed token holds
	TokenSource string // "header Fencing-Token"
	// Signature is what a signed token says; nil where tokens are bare, or it is not signed by a key of the policy.
	Signature *Signature
	// NeedsBody says that resources are named in the body: take the body in and call ResolveBody.
	NeedsBody bool
	Resources []fencing.Resource // sorted, without doubles; empty while NeedsBody; of a Reject, for information
	// Under are the tree keys of the collections that the write lies in, Trees the collections that it changes with everything beneath.
	Under []fencing.Resource
	Trees []Tree
	// Upload is the step of a multipart upload that the request is, or nil.
	Upload *Upload
	// Releases says that the write ends its sender's hold, if the store accepts it.
	Releases bool
	Unfenced string // why a write passes unfenced; empty for reads
	// Observed says that a Reject comes from a policy that only observes, so the request is forwarded and counted. It is false
	// where another reading of an ambiguous path belongs to a policy that enforces.
	Observed bool
	// Forward is what is sent in the place of the request's own target and user name: see [Forward].
	Forward *Forward

	known     []fencing.Resource // keys that need no body
	pending   []pending
	targets   func(body []byte) ([]fencing.Resource, error) // what the dialect reads from the body
	jsonPatch bool
	encoded   bool // the body has a Content-Encoding, which is not undone
}

// evaluation is the state of one decision about one path.
type evaluation struct {
	r      *Request
	method string
	raw    string // path as on the request line
	query  string
	second bool       // the path is not that of the request line: a bucket in the host does not belong to it
	runs   bool       // a safe method that may write all the same
	loose  [][]string // lenient readings, made when first needed
}

// takes reports whether p is about such requests.
func (e *evaluation) takes(p *Policy) bool {
	if e.runs {
		return p.writes()
	}
	return p.takes(e.method)
}

// mayMatch reports whether any reading of the path belongs to p. A path too long to be read in every way might belong to any.
func (e *evaluation) mayMatch(p *Policy) bool {
	if len(e.raw) > MaxPathLen {
		return true
	}
	if e.loose == nil {
		e.loose = readings(e.raw)
	}
	if slices.ContainsFunc(e.loose, p.pattern.matchLoose) {
		return true
	}
	if bucket, _ := p.identity.bucket(hostName(e.r.Host)); bucket != "" && !e.second {
		return slices.ContainsFunc(readings("/"+bucket+e.raw), p.pattern.matchLoose)
	}
	return false
}

// Decide says which policy covers a request, which resources it touches and which token it carries. It does no I/O, keeps no
// state and may be called by any number of goroutines.
//
// The policies are tried in file order. Each reads the path under its own identity options; where that reading is ambiguous and
// any store might take the path for one that the policy covers, the request is rejected rather than handed on to a later policy.
// The dialect of the policy then says what else the request changes; each further target goes through the policies in the same way.
func (s *Set) Decide(r *Request) Decision {
	raw, query, _ := strings.Cut(r.Target, "?")
	asked, reason := override(r.Header, query)
	if reason != "" && (!s.honours || asked == "") {
		return Decision{Action: Reject, Err: &RefusedError{Reason: reason}}
	}
	safe := Safe(r.Method) && (asked == "" || Safe(asked))
	if raw == "*" && r.Method == "OPTIONS" {
		return Decision{}
	}
	if raw == "" || raw[0] != '/' {
		return Decision{Action: Reject, Err: &AmbiguousError{Reason: "the target does not begin with /"}}
	}
	if safe && s.Speaks(dialect.CouchDB) && dialect.CouchDB.RunsFunction(raw) {
		if d := s.runs(evaluation{r: r, method: r.Method, raw: raw, query: query, runs: true}); d != nil {
			return *d
		}
	}
	if safe && !s.fencesReads && !s.strips {
		return Decision{}
	}
	if !safe && len(r.Header["Destination"]) > 0 && !s.Speaks(dialect.WebDAV) && !s.Speaks(dialect.CouchDB) {
		// RFC 4918 section 10.3: COPY and MOVE write to a second path.
		return Decision{Action: Reject, Observed: !s.enforces, Err: unfenceable("", dialect.UnreadDestination(s.dialect))}
	}
	e := evaluation{r: r, method: r.Method, raw: raw, query: query}
	var buf [16]string // the segments of path; not part of e, where it would move to the heap
	p, path, d := s.find(&e, buf[:0])
	if d != nil {
		return *d
	}
	if asked != "" {
		if p, path, d = s.overridden(&e, p, path, asked, reason); d != nil {
			return *d
		}
	}
	if p == nil && safe {
		return s.read(&e)
	}
	if p != nil && p.Dialect.Plain() && len(r.Header["Destination"]) == 0 {
		return p.plainly(&e, path)
	}
	return s.judge(e, p, path.clone())
}

// runs decides about a safe method on what may be a design function of CouchDB, which may write all the same. Nil if it is none: a document
// whose id looks like one is read like any other.
func (s *Set) runs(e evaluation) *Decision {
	p, path, d := s.find(&e, nil)
	switch {
	case d != nil && d.Policy != nil && d.Policy.Dialect == dialect.CouchDB:
		return d
	case d != nil, p != nil && p.Dialect != dialect.CouchDB, p == nil && s.dialect != dialect.CouchDB:
		return nil
	}
	effect, err := dialect.CouchDB.Effect(&dialect.Request{Method: e.method, Segments: path.all(), Query: e.query, Host: e.r.Host, Header: e.r.Header})
	if err != nil || effect.Touch != dialect.Anything {
		return nil
	}
	out := s.judge(e, p, path)
	return &out
}

// find returns the policy that covers the path and how that reads it; nil if there is none. A decision instead is a rejection.
func (s *Set) find(e *evaluation, buf []string) (*Policy, canonicalPath, *Decision) {
	var (
		id     *identity     // the one under which path and reason hold
		path   canonicalPath // how id reads raw
		reason string        // why it is ambiguous, or empty
		host   = e.r.Host
	)
	if e.second { // its path begins with the bucket already
		host = ""
	}
	for _, p := range s.all {
		if !e.takes(p) {
			continue
		}
		met := p.meets(e)
		if met == no {
			continue
		}
		if id != p.identity { // equal identities share a pointer, so neighbours cost nothing
			id = p.identity
			path, reason = id.target(e.raw, e.query, host, buf)
		}
		switch {
		case reason != "":
			if e.mayMatch(p) {
				d := s.ambiguous(p, e, reason)
				return nil, path, &d
			}
		case !p.pattern.match(path, id.strict(path)):
		case met == maybe:
			d := s.ambiguous(p, e, "a header or query parameter that decides about the policy is given with two values, or in a form that stores read differently")
			return nil, path, &d
		default:
			return p, path, nil
		}
	}
	if !Safe(e.method) {
		if path, reason = s.identity.target(e.raw, e.query, host, buf); reason != "" {
			return nil, path, &Decision{Action: Reject, Err: &AmbiguousError{Reason: reason}}
		}
	}
	return nil, path, nil
}

// overridden returns the policy of a request that asks for another method than its own. One policy has to cover both methods, or the store
// that follows and the one that does not would write to different resources; and it has to say that its store follows.
func (s *Set) overridden(e *evaluation, p *Policy, path canonicalPath, asked, reason string) (*Policy, canonicalPath, *Decision) {
	second := evaluation{r: e.r, method: asked, raw: e.raw, query: e.query, loose: e.loose}
	q, _, d := s.find(&second, nil)
	if d != nil {
		return nil, path, d
	}
	switch {
	case e.method != http.MethodPost: // the frameworks that follow do so for POST
		return nil, path, &Decision{Action: Reject, Policy: p, Err: &RefusedError{Reason: reason}}
	case Safe(asked): // a store that does not follow writes
		return p, path, nil
	case p == nil && q == nil && !s.honours, p != nil && !p.honours, q != nil && !q.honours:
		return nil, path, &Decision{Action: Reject, Policy: p, Err: &RefusedError{Reason: reason}}
	case p != q:
		return nil, path, &Decision{Action: Reject, Policy: p, Err: &AmbiguousError{Policy: p.name(), Reason: reason + ", and another policy covers that method"}}
	}
	e.method = asked
	return p, path, nil
}

// judge decides about a request whose policy is known; p is nil if no policy covers its path.
func (s *Set) judge(state evaluation, p *Policy, path canonicalPath) Decision {
	e := &state // on the heap, where the decision may need it once more when the body is there
	speaks := s.dialect
	if p != nil {
		speaks = p.Dialect
	}
	effect, err := speaks.Effect(&dialect.Request{
		Method: e.method, Segments: path.all(), Query: e.query, Host: e.r.Host, Header: e.r.Header,
	})
	if err != nil {
		return s.unreadable(p, err)
	}
	if effect.Reads {
		return s.read(e)
	}
	w := writing{s: s, e: e, own: p, lead: p}
	if d := w.gather(path, &effect); d != nil {
		return *d
	}
	return w.decide(&effect)
}

// plainly decides about a write to the object of its path, which is what every write of most dialects is. It is decide without all that a
// second object needs.
func (p *Policy) plainly(e *evaluation, path canonicalPath) Decision {
	if p.Mode == Off {
		return Decision{Policy: p, Unfenced: "mode: off", Forward: p.strip(e)}
	}
	d := Decision{Policy: p, Forward: p.strip(e)}
	c, found, err := p.claim(e)
	if no := p.forbids(e.r); no != nil {
		err = no // whoever may not write learns nothing about a token
	}
	switch {
	case err != nil:
	case found:
		d.Token, d.TokenText, d.TokenSource, d.Signature = c.token, c.text, c.place, c.signature
	case p.MissingToken == MissingAllow:
		d.Unfenced = "no token (missing_token: allow)"
		return d
	default:
		err = p.missing()
	}
	bad := p.resources(e, path, &d)
	if err == nil {
		err = bad
	}
	if err == nil {
		err = d.covered()
	}
	if err == nil {
		d.Action, d.Releases = Fence, p.releases(e.method, path)
		d.settle(e)
		return d
	}
	d.Action, d.Err, d.Observed = Reject, err, p.Mode == Observe
	if bad != nil { // the answer then names no resource
		d.Resources, d.NeedsBody, d.pending = nil, false, nil
	}
	d.settle(e)
	return d
}

// settle brings the resources into their order, or puts them aside until the body is there.
func (d *Decision) settle(e *evaluation) {
	if d.NeedsBody {
		d.known, d.Resources = d.Resources, nil
		d.jsonPatch, d.encoded = isJSONPatch(e.r), isEncoded(e.r)
		return
	}
	d.tidy()
}

// unreadable rejects what a dialect makes nothing of.
func (s *Set) unreadable(p *Policy, err error) Decision {
	d := Decision{Action: Reject, Policy: p, Observed: !s.enforces}
	if p != nil {
		d.Observed = p.Mode == Observe && !s.enforces // its reach may be what another policy enforces
	}
	d.Err = unfenceable(p.name(), err)
	return d
}

// unfenceable turns the refusal of a dialect into an error of this package.
func unfenceable(policy string, err error) error {
	if r, ok := errors.AsType[*dialect.Refusal](err); ok && r.Ambiguous {
		return &AmbiguousError{Policy: policy, Reason: r.Reason}
	}
	return &UnfenceableError{Policy: policy, Reason: err.Error()}
}

// name is empty for no policy.
func (p *Policy) name() string {
	if p == nil {
		return ""
	}
	return p.Name
}

// read lets a request by that changes nothing.
func (s *Set) read(e *evaluation) Decision {
	d := Decision{}
	if s.strips {
		d.Forward = s.stripRead(e)
	}
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
		covered := s.unmatched == unmatchedAllow || Safe(e.method)
		for _, p := range s.all {
			if !e.takes(p) || !p.pattern.matchLoose(reading) {
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
