package policies

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Tree is a collection that a write changes with everything beneath it.
type Tree struct {
	Key    fencing.Resource // carries the mark of the tree as a whole; no object has this key
	Prefix fencing.Resource // the keys of everything beneath begin with it
	Empty  bool             // collections: reject: only if nothing fenced lies beneath
}

// Upload is a step of an S3 multipart upload.
type Upload struct {
	dialect.Upload
	Object fencing.Resource // that the upload is for
	// NeedsToken says that the request carries no token and takes that with which the upload was created: see Decision.BindToken.
	NeedsToken bool
	// Remember says that later steps may come without a token: keep that of this one under the ID in the answer, durably, before it is
	// passed on.
	Remember bool
}

// touched is an object that a write changes.
type touched struct {
	policy *Policy
	path   canonicalPath
	tree   bool
	slash  bool // its raw path ends in a slash
}

// writing is a write on its way to a decision.
type writing struct {
	s       *Set
	e       *evaluation
	own     *Policy // that of the request's own path, or nil
	lead    *Policy // that judges the token
	objects []touched
	off     bool          // a policy with mode: off covers a part of it
	path    canonicalPath // the request's own
	first   [1]touched
}

// gather collects what the write changes, and finds the policy of each. A decision is a rejection, or lets the write pass.
func (w *writing) gather(path canonicalPath, effect *dialect.Effect) *Decision {
	w.objects, w.path = w.first[:0], path
	if d := w.reach(path, effect); d != nil {
		return d
	}
	for _, t := range effect.Others {
		if d := w.further(t); d != nil {
			return d
		}
	}
	w.lead = nil
	for _, o := range w.objects {
		if o.policy != nil {
			if d := w.agree(o.policy); d != nil {
				return d
			}
		}
	}
	if w.lead != nil || effect.Body != nil && w.own != nil && w.own.Mode != Off {
		if w.lead == nil {
			w.lead = w.own
		}
		return nil
	}
	switch {
	case len(w.objects) == 0 && effect.Body == nil && w.own != nil: // COPY to where no policy is
		return &Decision{Policy: w.own, Unfenced: "it changes nothing that a policy covers"}
	case effect.Body != nil && w.s.enforces:
		return w.refuse("its targets are named in the body, and the policy of its own path is off; give that one a mode, or send the writes one by one")
	case w.off || w.own != nil:
		return &Decision{Policy: w.own, Unfenced: "mode: off"}
	case w.s.unmatched == unmatchedAllow && effect.Body == nil:
		return &Decision{Unfenced: "unmatched_writes: allow"}
	}
	return w.unmatched(w.e.raw)
}

func (w *writing) unmatched(raw string) *Decision {
	return &Decision{Action: Reject, Err: &UnmatchedError{Method: w.e.r.Method, Path: raw}}
}

func (w *writing) refuse(reason string) *Decision {
	d := w.s.unreadable(w.own, &dialect.Refusal{Reason: reason})
	return &d
}

// agree makes p the policy that judges the token, or sees that it would judge as the one that does.
func (w *writing) agree(p *Policy) *Decision {
	switch {
	case p.Mode == Off:
		w.off = true
	case w.lead == nil:
		w.lead = p
	case w.lead != p && w.lead.judge != p.judge:
		return w.refuse(fmt.Sprintf("it touches policy %s and policy %s, which judge tokens differently; give them the same settings", w.lead.Name, p.Name))
	}
	return nil
}

// further adds an object that is not that of the request's own path. The request's method says little about what it does there, so the
// object belongs to the policies for replacing and for deleting it and to that for the method itself: all of their keys.
func (w *writing) further(t dialect.Target) *Decision {
	var found []*Policy
	for _, method := range []string{http.MethodPut, http.MethodDelete, w.e.method} {
		e := evaluation{r: w.e.r, method: method, raw: t.Path, query: w.e.query, second: true}
		p, path, d := w.s.find(&e, nil)
		if d != nil {
			d.Err = further(t.Path, d.Err)
			return d
		}
		if p == nil || slices.Contains(found, p) {
			continue
		}
		found = append(found, p)
		if d := w.add(p, path, t); d != nil {
			return d
		}
	}
	if len(found) > 0 {
		return nil
	}
	if w.s.unmatched != unmatchedAllow {
		return w.unmatched(t.Path)
	}
	path, _ := w.s.identity.target(t.Path, "", "", nil) // it is unambiguous, or find had said so
	return w.add(nil, path, t)
}

// add adds an object under its policy, which may be nil.
func (w *writing) add(p *Policy, path canonicalPath, t dialect.Target) *Decision {
	slash := strings.HasSuffix(t.Path, "/")
	if t.Tree {
		if reason := w.s.beneath(p, path, len(path.segments), slash, dialect.Tree); reason != "" {
			return w.refuse("its target " + clip(t.Path) + " may be a collection: " + reason)
		}
	}
	w.objects = append(w.objects, touched{policy: p, path: path, tree: t.Tree && p.deep(path), slash: slash})
	return nil
}

// further says which target an error is about.
func further(path string, err error) error {
	if a, ok := errors.AsType[*AmbiguousError](err); ok {
		return &AmbiguousError{Policy: a.Policy, Reason: fmt.Sprintf("of the target %q, %s", clip(path), a.Reason)}
	}
	return err
}

// reach adds the object of the request's own path, as far as the request changes that.
func (w *writing) reach(path canonicalPath, effect *dialect.Effect) *Decision {
	p, depth := w.own, len(path.segments)
	switch effect.Touch {
	case dialect.Nothing:
		return nil
	case dialect.Container:
		if p != nil && p.pattern.tail == tailSubtree && !p.uniform(depth) {
			return w.refuse(effect.Reason + "; give it a policy whose path ends there")
		}
	case dialect.Anything:
		depth = min(effect.Depth, depth)
	}
	slash := strings.HasSuffix(w.e.raw, "/")
	if effect.Touch >= dialect.Tree {
		if reason := w.s.beneath(p, path, depth, slash, effect.Touch); reason != "" {
			return w.refuse(effect.Reason + ", and " + reason)
		}
	}
	w.objects = append(w.objects, touched{policy: p, path: path, tree: effect.Touch == dialect.Tree && p.deep(path), slash: slash})
	return nil
}

// decide is the part of a decision that comes after the policies are known.
func (w *writing) decide(effect *dialect.Effect) Decision {
	p, e := w.lead, w.e
	d := Decision{Policy: p, Forward: p.strip(e)}
	fail := func(err error) Decision {
		out := Decision{
			Action: Reject, Err: err, Policy: p, Forward: d.Forward,
			Observed: p.Mode == Observe && (effect.Body == nil || !w.s.enforces), // what the body names may be another policy's
			Token:    d.Token, TokenText: d.TokenText, TokenSource: d.TokenSource, Signature: d.Signature,
		}
		named := Decision{Policy: p}
		if w.resources(effect, &named) == nil { // for the answer: which resource the request speaks of
			out.Resources, out.NeedsBody, out.known, out.pending, out.targets = named.Resources, named.NeedsBody, named.known, named.pending, named.targets
			out.jsonPatch, out.encoded = named.jsonPatch, named.encoded
		}
		return out
	}
	if err := w.forbidden(); err != nil {
		return fail(err)
	}
	if effect.Upload != nil {
		if effect.Upload.Aborts && p.abortFree {
			d.Unfenced = "abort: allow"
			return d
		}
		d.Upload = &Upload{Upload: *effect.Upload, Remember: p.uploadToken && effect.Upload.Creates}
	}
	c, found, err := p.claim(e)
	switch {
	case err != nil:
		return fail(err)
	case found:
		if err := p.signed(e, c.source); err != nil {
			return fail(err)
		}
	case d.Upload != nil && p.uploadToken && !d.Upload.Creates:
		d.Upload.NeedsToken = true
	case p.MissingToken == MissingAllow:
		return Decision{Policy: p, Unfenced: "no token (missing_token: allow)", Forward: d.Forward}
	default:
		return fail(p.missing())
	}
	d.Token, d.TokenText, d.TokenSource, d.Signature = c.token, c.text, c.place, c.signature
	if err := w.resources(effect, &d); err != nil {
		return fail(err)
	}
	if err := d.covered(); err != nil {
		return fail(err)
	}
	d.Action = Fence
	d.Releases = p == w.own && p.releases(e.method, w.path)
	return d
}

// forbidden returns an error if the client may not write one of the objects.
func (w *writing) forbidden() error {
	for i := range w.objects {
		if p := w.objects[i].policy; p != nil && p.Mode != Off {
			if err := p.forbids(w.e.r); err != nil {
				return err
			}
		}
	}
	return w.lead.forbids(w.e.r)
}

func (p *Policy) missing() error { return &MissingTokenError{Policy: p.Name, Places: p.TokenPlaces()} }

// BindToken gives a decision whose upload needs it the token with which the upload was created; ok is false if none is known.
func (d *Decision) BindToken(t fencing.Token, ok bool) error {
	if d.Upload == nil || !d.Upload.NeedsToken {
		return nil
	}
	if !ok {
		return d.Policy.missing()
	}
	d.Upload.NeedsToken = false
	d.Token, d.TokenText, d.TokenSource = t, d.Policy.Format.Print(t), "the upload's creation"
	return d.boundCovered()
}

// resources fills what the write touches into d.
func (w *writing) resources(effect *dialect.Effect, d *Decision) error {
	for i := range w.objects {
		o := &w.objects[i]
		if o.policy == nil || o.policy.Mode == Off {
			continue
		}
		if err := o.policy.resources(w.e, o.path, d); err != nil {
			return err
		}
		if o.policy.tree && o.policy.Dialect.Hierarchical() {
			if err := o.policy.ancestry(w.e, o, d); err != nil {
				return err
			}
		}
	}
	if d.Upload != nil && len(d.Resources) > 0 {
		d.Upload.Object = d.Resources[0]
	}
	if effect.Body != nil {
		d.NeedsBody = true
		lead, s, e := w.lead, w.s, *w.e
		d.targets = func(body []byte) ([]fencing.Resource, error) { return s.named(lead, &e, effect.Body, body) }
	}
	d.settle(w.e)
	if err := w.lead.single(d); err != nil {
		return err
	}
	if n := len(d.Resources); n > 1 && n > w.lead.MaxBatch {
		return &BatchError{Policy: w.lead.Name, Reason: fmt.Sprintf("it names %d resources, and max_batch allows %d", n, w.lead.MaxBatch)}
	}
	return nil
}

// tidy sorts, and drops what is named twice. What the write changes as a tree it need not be told to lie in.
func (d *Decision) tidy() {
	d.Resources, d.Under = sorted(d.Resources), sorted(d.Under)
	if len(d.Trees) == 0 {
		return
	}
	slices.SortFunc(d.Trees, func(a, b Tree) int { return strings.Compare(string(a.Key), string(b.Key)) })
	d.Trees = slices.Compact(d.Trees)
	d.Under = slices.DeleteFunc(d.Under, func(u fencing.Resource) bool {
		return slices.ContainsFunc(d.Trees, func(t Tree) bool { return t.Key == u })
	})
}

// named returns the resources of the targets that a body names. All of them belong to policies that judge tokens as lead does.
func (s *Set) named(lead *Policy, e *evaluation, read func([]byte) ([]dialect.Target, string), body []byte) ([]fencing.Resource, error) {
	targets, reason := read(body)
	if reason != "" {
		return nil, &BodyError{Policy: lead.Name, Reason: reason}
	}
	if len(targets) > lead.MaxBatch {
		return nil, &BatchError{Policy: lead.Name, Reason: fmt.Sprintf("it names %d objects, and max_batch allows %d", len(targets), lead.MaxBatch)}
	}
	var d Decision
	for _, t := range targets {
		w := writing{s: s, e: e, own: lead, lead: lead}
		if bad := w.further(t); bad != nil {
			return nil, bad.Err
		}
		for _, o := range w.objects {
			if o.policy == nil || o.policy.Mode == Off {
				continue
			}
			if bad := w.agree(o.policy); bad != nil {
				return nil, bad.Err
			}
			if err := o.policy.forbids(e.r); err != nil {
				return nil, err
			}
			if err := o.policy.resources(e, o.path, &d); err != nil {
				return nil, err
			}
			if d.NeedsBody {
				return nil, &UnfenceableError{Policy: o.policy.Name, Reason: "its targets are named in the body, and policy " + o.policy.Name + " reads their resources from another one"}
			}
		}
	}
	return d.Resources, nil
}
