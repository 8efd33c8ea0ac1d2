package policies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/policies/signed"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Mode says what a policy does with the requests that it matches.
type Mode string

const (
	Enforce Mode = "enforce" // writes are ordered, stale ones rejected
	Observe Mode = "observe" // marks advance, nothing waits or is refused, all is counted
	Off     Mode = "off"     // writes pass as if there were no proxy
)

// Compare says how a token must stand to the mark.
type Compare string

const (
	AtLeast Compare = "at-least" // token >= mark: a holder writes many times
	Greater Compare = "greater"  // token > mark: each write needs a new number
	Hold    Compare = "hold"     // the first id claims the resource, and only that one passes until its hold ends
)

// MissingToken says what becomes of a request without a token.
type MissingToken string

const (
	MissingReject MissingToken = "reject"
	MissingAllow  MissingToken = "allow" // it passes unfenced
)

// Policy is a compiled rule. It is shared by all requests: its fields are not to be changed.
type Policy struct {
	Name         string
	Index        int // place in the file, from 0; the built-in policy has the number of the others
	Mode         Mode
	Compare      Compare
	MissingToken MissingToken
	Format       fencing.Format
	Limits       fencing.Limits
	Epoch        uint32    // in which the numbers of clients count; it comes before them when tokens are compared
	Hold         HoldTerms // with compare: hold
	DrainTimeout time.Duration
	InDoubtHold  time.Duration
	Settle       time.Duration
	Serial       bool   // same_token: serial
	Stream       bool   // request_body: stream
	RevertOn     []int  // statuses with which the store turns the caller away
	RevertUnsent bool   // a token of which nothing reached the store does not count either
	MaxJump      uint64 // how far a token may be above the mark of its resource; 0: any distance
	StaleStatus  int
	RevealMark   bool
	Dialect      dialect.Name // in which the store speaks, and answers are given
	MaxBatch     int          // resources that one write may name
	MaxBody      int64        // bytes that a body may have; 0: any number

	subtree     bool             // collections: subtree
	abortFree   bool             // abort: allow
	uploadToken bool             // upload_token: create
	signedToken bool             // require_signed_token
	verifier    *signed.Verifier // token.signed; nil: tokens are bare
	allow       []string         // who may write, as [ClientName] has it; nil: everybody
	honours     bool             // method_override: honour
	release     *release         // hold.release
	judge       string           // policies with equal texts judge a token alike
	tree        bool             // the keys are a hierarchy: see hierarchical

	conditions
	pattern   *pattern
	identity  *identity
	templates []template
	places    []place
}

// Reverts reports whether a token is no evidence when the upstream answers with status.
func (p *Policy) Reverts(status int) bool { return slices.Contains(p.RevertOn, status) }

// Path is the pattern as written.
func (p *Policy) Path() string { return p.pattern.text }

// Methods lists what the policy matches; nil means every method that is not [Safe].
func (p *Policy) Methods() []string { return slices.Clone(p.methods) }

// Resource lists the resource templates as written.
func (p *Policy) Resource() []string {
	out := make([]string, len(p.templates))
	for i, t := range p.templates {
		out[i] = t.text
	}
	return out
}

// ReadsBody reports whether a resource template reads the JSON body.
func (p *Policy) ReadsBody() bool {
	return slices.ContainsFunc(p.templates, func(t template) bool { return t.body })
}

// TokenPlaces lists where the token is looked for, in order: "header Fencing-Token".
func (p *Policy) TokenPlaces() []string {
	out := make([]string, len(p.places))
	for i, pl := range p.places {
		out[i] = pl.label
	}
	return out
}

// TokenHeaders lists the headers that are nothing but tokens, in canonical form.
func (p *Policy) TokenHeaders() []string {
	var out []string
	for _, pl := range p.places {
		if pl.kind == placeHeader && pl.pattern == nil {
			out = append(out, pl.name)
		}
	}
	return out
}

// Identity lists the identity options, in one line.
func (p *Policy) Identity() string { return p.identity.String() }

// KeyFingerprint is a stable, readable text of what decides the policy's resource keys and their order. When it changes, the marks
// that were kept under the old keys no longer guard the objects that they were taken for.
func (p *Policy) KeyFingerprint() string {
	keys := make([]string, len(p.templates))
	for i := range p.templates {
		keys[i] = p.templates[i].fingerprint(p.pattern)
	}
	slices.Sort(keys)
	order := "number"
	switch p.Format {
	case fencing.Pair:
		order = "pair"
	case fencing.Opaque:
		order = "hold"
	}
	text := fmt.Sprintf("resource %s; order %s; %s", strings.Join(keys, ", "), order, p.identity)
	if p.tree && p.Dialect.Hierarchical() { // the marks of collections count too
		text += "; collections"
	}
	return text
}

type unmatchedWrites string

const (
	unmatchedReject unmatchedWrites = "reject"
	unmatchedAllow  unmatchedWrites = "allow"
	unmatchedFence  unmatchedWrites = "fence"
)

// UnmatchedName is the name of the built-in policy of unmatched_writes: fence. No policy of a file can have it.
const UnmatchedName = "(unmatched)"

// Set is the compiled policies of one configuration. It never changes and may be used by any number of goroutines.
type Set struct {
	policies    []*Policy // in file order
	builtin     *Policy   // nil unless unmatched_writes: fence
	all         []*Policy // policies, then builtin
	unmatched   unmatchedWrites
	identity    *identity    // of defaults
	dialect     dialect.Name // of defaults
	fencesReads bool
	enforces    bool // some policy enforces
	honours     bool // some policy honours method overrides
	strips      bool // some policy takes the token out of requests, so reads have to be looked at
	spoken      map[dialect.Name]bool
	reverse     bool         // there is an upstream
	authority   string       // of the store behind it
	forward     *ForwardMode // its stores
	reserved    []string     // see Reserved
}

// Policies returns the policies of the file, in its order.
func (s *Set) Policies() []*Policy { return slices.Clone(s.policies) }

// Unmatched returns the built-in policy that fences writes which no other policy covers, or nil if they are rejected or allowed.
func (s *Set) Unmatched() *Policy { return s.builtin }

// UnmatchedWrites is what becomes of writes that no policy covers: reject, allow or fence.
func (s *Set) UnmatchedWrites() string { return string(s.unmatched) }

// Dialect is that of the defaults, in which requests are answered that no policy covers.
func (s *Set) Dialect() dialect.Name { return s.dialect }

// namesBuckets reports whether a host may name a bucket.
func (s *Set) namesBuckets() bool {
	return len(s.identity.hosts) > 0 || slices.ContainsFunc(s.all, func(p *Policy) bool { return len(p.identity.hosts) > 0 })
}

// Speaks reports whether requests are read in the dialect, by a policy or by the defaults.
func (s *Set) Speaks(n dialect.Name) bool { return s.spoken[n] }

// MaxInDoubtHold is the longest time that any policy holds a write whose outcome is unknown, settle included.
func (s *Set) MaxInDoubtHold() time.Duration {
	var longest time.Duration
	for _, p := range s.all {
		longest = max(longest, p.InDoubtHold+p.Settle)
	}
	return longest
}

// Epochs returns the epoch of each policy, by name, that of the built-in one too.
func (s *Set) Epochs() map[string]uint32 {
	out := make(map[string]uint32, len(s.all))
	for _, p := range s.all {
		out[p.Name] = p.Epoch
	}
	return out
}

// Enforces reports whether some policy enforces.
func (s *Set) Enforces() bool { return s.enforces }

// HasHolds reports whether some policy has compare: hold.
func (s *Set) HasHolds() bool {
	return slices.ContainsFunc(s.all, func(p *Policy) bool { return p.Compare == Hold })
}

// HasEpochs reports whether some policy has an epoch other than 0.
func (s *Set) HasEpochs() bool {
	return slices.ContainsFunc(s.all, func(p *Policy) bool { return p.Epoch != 0 })
}

// Fingerprints returns [Policy.KeyFingerprint] by name, of the built-in policy too.
func (s *Set) Fingerprints() map[string]string {
	out := make(map[string]string, len(s.all))
	for _, p := range s.all {
		out[p.Name] = p.KeyFingerprint()
	}
	return out
}

func (s *Set) allStream() bool {
	return len(s.all) > 0 && !slices.ContainsFunc(s.all, func(p *Policy) bool { return !p.Stream })
}

// Row is a policy as a table shows it.
type Row struct {
	Name, Match, Methods, Resource, Token, Mode string
}

// Describe returns one row a policy, in the order in which they are tried, and a last one for what none of them covers.
func (s *Set) Describe() []Row {
	rows := make([]Row, 0, len(s.all)+1)
	for _, p := range s.all {
		row := Row{
			Name: p.Name, Match: p.describeMatch(), Methods: "(writes)", Resource: strings.Join(p.Resource(), " + "),
			Token: strings.Join(p.TokenPlaces(), ", ") + " " + p.Format.String(), Mode: string(p.Mode),
		}
		if p.methods != nil {
			row.Methods = strings.Join(p.methods, ",")
		}
		switch p.Compare {
		case Greater:
			row.Token += ", greater"
		case Hold:
			row.Token += ", hold (" + p.Hold.String() + ")"
		}
		if p.Epoch != 0 {
			row.Token += fmt.Sprintf(", epoch %d", p.Epoch)
		}
		if p.MaxJump != 0 {
			row.Token += fmt.Sprintf(", at most %d above the mark", p.MaxJump)
		}
		if p.verifier != nil {
			row.Token += ", signed " + string(p.verifier.Algorithm())
		}
		if p.MissingToken == MissingAllow {
			row.Token += ", optional"
		}
		if p.allow != nil {
			row.Token += ", clients " + strings.Join(p.allow, ", ")
		}
		if p.Mode == Off {
			row.Resource, row.Token = "-", "-"
		}
		rows = append(rows, row)
	}
	if s.builtin == nil {
		rows = append(rows, Row{Name: UnmatchedName, Match: "/", Methods: "(writes)", Resource: "-", Token: "-", Mode: string(s.unmatched)})
	}
	return rows
}

func (p *Policy) describeMatch() string {
	text := p.host + p.pattern.text
	for _, q := range p.query {
		text += " ?" + q.name + "=" + q.value
	}
	for _, h := range p.headers {
		text += " " + h.name + ":" + h.value
	}
	return text
}

// intern gives equal identities one pointer, so that Decide reads a path once for all policies that agree on how to.
type intern map[string]*identity

func (m intern) of(id identity) *identity {
	text := id.String()
	if known, ok := m[text]; ok {
		return known
	}
	m[text] = &id
	return &id
}
