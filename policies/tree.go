package policies

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// fixed returns how many leading segments of a path decide the policy's keys; ok is false if all of them do.
func (p *Policy) fixed() (n int, ok bool) {
	n = len(p.pattern.segments)
	for i := range p.templates {
		for _, pt := range p.templates[i].parts {
			if pt.kind == partPath || pt.kind == partCapture && pt.capture == len(p.pattern.segments) {
				return 0, false
			}
		}
	}
	return n, true
}

// uniform reports whether everything below the first depth segments of a path that the policy covers has the same keys.
func (p *Policy) uniform(depth int) bool {
	n, ok := p.fixed()
	return ok && p.pattern.tail == tailSubtree && depth >= n && len(p.identity.query) == 0 && !p.varies()
}

// varies reports whether two requests for one path can have different keys.
func (p *Policy) varies() bool {
	for i := range p.templates {
		for _, pt := range p.templates[i].parts {
			switch pt.kind {
			case partHost, partQuery, partHeader, partBody:
				return true
			}
		}
	}
	return false
}

// conditional reports whether requests for a path that the policy covers can go to another policy.
func (p *Policy) conditional() bool {
	return p.host != "" || p.query != nil || p.headers != nil || p.methods != nil
}

// writes reports whether the policy is about any method that changes something.
func (p *Policy) writes() bool {
	return p.methods == nil || slices.ContainsFunc(p.methods, func(m string) bool { return !Safe(m) })
}

// hierarchical reports whether the keys of what lies beneath a path begin with the path's own: one template, whose last part is the rest of
// the path or the whole of it.
func (p *Policy) hierarchical() bool {
	if p.pattern == nil || p.pattern.tail != tailSubtree || len(p.templates) != 1 || len(p.templates[0].parts) == 0 || len(p.identity.query) > 0 || p.varies() {
		return false
	}
	last := p.templates[0].parts[len(p.templates[0].parts)-1]
	for _, pt := range p.templates[0].parts[:len(p.templates[0].parts)-1] {
		if pt.kind == partPath || pt.kind == partCapture && pt.capture == len(p.pattern.segments) {
			return false
		}
	}
	return last.kind == partPath || last.kind == partCapture && last.capture == len(p.pattern.segments)
}

// deep reports whether a write to everything beneath the path has to be told to the gate as a tree.
func (p *Policy) deep(path canonicalPath) bool {
	return p != nil && p.Mode != Off && p.tree && p.Dialect.Hierarchical() && !p.uniform(len(path.segments))
}

// beneath says why a write that changes everything below the first depth segments of a path cannot be fenced, or "". p covers the path and
// may be nil.
func (s *Set) beneath(p *Policy, path canonicalPath, depth int, slash bool, touch dialect.Touch) string {
	top := path.segments[:depth]
	for i, q := range s.all {
		if q == p || q.Mode == Off || !q.writes() || !q.pattern.mayLieBeneath(top) {
			continue
		}
		if p == nil || i < p.Index || p.conditional() || p.pattern.tail != tailSubtree {
			return "policy " + q.Name + " covers what may lie beneath"
		}
	}
	switch {
	case p == nil || p.Mode == Off || p.pattern.tail != tailSubtree || p.uniform(depth):
		return "" // nothing that is fenced lies beneath, or all of it under one key
	case touch == dialect.Anything:
		return "the objects have keys of their own; give them one resource for all"
	case !p.tree || !p.Dialect.Hierarchical():
		return "its keys do not show what lies beneath (" + p.templates[0].text + "); give the whole tree one resource, or end the template with the rest of the path"
	case depth < len(p.pattern.segments):
		return "it lies above the policy's path"
	case slash && !p.subtree:
		return "collections: reject is set; change the members one by one, or set collections: subtree"
	}
	if _, ok := p.collection("", top); !ok {
		return "it is the root of all that the policy covers"
	}
	return ""
}

// mayLieBeneath reports whether the pattern covers a path that begins with the segments and is longer.
func (p *pattern) mayLieBeneath(top []string) bool {
	n := len(p.segments)
	if n <= len(top) && p.tail != tailSubtree {
		return false
	}
	for i := range min(n, len(top)) {
		if s := &p.segments[i]; s.name == "" && s.loose != loosen(top[i]) {
			return false
		}
	}
	return true
}

// treeMark ends the key that carries the mark of a tree. No other key ends so: a question mark in a value is escaped, and what a query adds
// has an equals sign.
const treeMark = "?tree"

// IsTree reports whether r carries the mark of a whole collection: see [Tree].
func IsTree(r fencing.Resource) bool { return strings.HasSuffix(string(r), treeMark) }

// collection returns the tree of the collection with these segments in the store; ok is false for the root of everything.
func (p *Policy) collection(authority string, segments []string) (t Tree, ok bool) {
	key := ""
	for i := range p.templates[0].parts {
		b, err := p.appendPart([]byte(key), &p.templates[0].parts[i], &evaluation{r: &Request{}}, canonicalPath{segments: segments})
		if err != nil {
			return t, false // not of a hierarchy: texts and captures always have a value
		}
		key = string(b)
	}
	rest := len(segments) > len(p.pattern.segments) || p.templates[0].parts[len(p.templates[0].parts)-1].kind == partPath
	switch {
	case len(segments) == 0 || key == "":
		return t, false
	}
	key = string(appendAuthority(nil, authority)) + key
	switch {
	case rest:
		return Tree{Key: fencing.Resource(key + treeMark), Prefix: fencing.Resource(key + "/")}, true
	case key[len(key)-1] != '/': // the rest is glued to a text that ends in no slash
		return t, false
	}
	return Tree{Key: fencing.Resource(key[:len(key)-1] + treeMark), Prefix: fencing.Resource(key)}, true
}

// ancestry adds the collections that the object lies in, and its own tree, to d.
func (p *Policy) ancestry(e *evaluation, o *touched, d *Decision) error {
	n := len(o.path.segments)
	if n > maxDepth {
		return &KeyError{Policy: p.Name, Reason: fmt.Sprintf("the path lies in more than %d collections", maxDepth)}
	}
	for k := max(1, len(p.pattern.segments)); k < n; k++ {
		if t, ok := p.collection(e.r.Authority, o.path.segments[:k]); ok {
			d.Under = append(d.Under, t.Key)
		}
	}
	if !o.tree {
		return nil
	}
	t, ok := p.collection(e.r.Authority, o.path.segments)
	if !ok {
		return &UnfenceableError{Policy: p.Name, Reason: "it is the root of all that the policy covers"}
	}
	t.Empty = !p.subtree
	if !slices.Contains(d.Trees, t) {
		d.Trees = append(d.Trees, t)
	}
	if err := t.Key.Check(); err != nil {
		return &KeyError{Policy: p.Name, Reason: err.Error()}
	}
	return nil
}

// maxDepth bounds the collections that one path lies in.
const maxDepth = 256
