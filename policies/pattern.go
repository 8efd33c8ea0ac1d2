package policies

import (
	"fmt"
	"go/token"
	"net/url"
	"slices"
	"strings"
)

// tail says how a pattern ends.
type tail uint8

const (
	tailNone    tail = iota // "/a": this path
	tailSlash               // "/a/{$}": this path with a trailing slash
	tailSubtree             // "/a/" or "/a/{rest...}": everything below
)

// pattern is a path pattern of net/http.ServeMux, compiled under the identity options of its policy.
type pattern struct {
	text     string
	segments []patternSegment
	tail     tail
	rest     string // name of the {rest...} capture, or empty
}

type patternSegment struct {
	name    string // capture, or empty for a literal
	literal string // canonical under the policy's identity
	loose   string // folded and normalised, for lenient readings
}

// canonicalPath is a path as a policy's identity reads it.
type canonicalPath struct {
	segments []string // decoded
	beyond   []string // what follows a document that the path ends at
	slash    bool     // it ended in a slash, and the identity tells the two apart
}

// clone returns the path with segments of its own. It is written so that the compiler sees that nothing of c is kept.
func (c canonicalPath) clone() canonicalPath {
	return canonicalPath{
		segments: append([]string(nil), c.segments...), beyond: append([]string(nil), c.beyond...), slash: c.slash,
	}
}

// all returns every segment, those beyond a document too.
func (c *canonicalPath) all() []string {
	if len(c.beyond) == 0 {
		return c.segments
	}
	return append(append([]string(nil), c.segments...), c.beyond...)
}

// compilePattern returns the pattern or a clause that says what is wrong with it.
func compilePattern(text string, id *identity) (*pattern, string) {
	if text == "" || text[0] != '/' {
		return nil, "a path pattern starts with /"
	}
	p := &pattern{text: text}
	parts := strings.Split(text[1:], "/")
	for i, part := range parts {
		last := i == len(parts)-1
		if part == "" && last {
			p.tail = tailSubtree
			break
		}
		if !strings.ContainsAny(part, "{}") {
			seg, reason := literalSegment(part, id)
			if reason != "" {
				return nil, reason
			}
			p.segments = append(p.segments, seg)
			continue
		}
		name, ok := strings.CutPrefix(part, "{")
		name, closed := strings.CutSuffix(name, "}")
		if !ok || !closed || strings.ContainsAny(name, "{}") {
			return nil, fmt.Sprintf("the segment %q mixes text and a wildcard; a wildcard is a whole segment", part)
		}
		if name == "$" {
			if !last {
				return nil, "{$} may stand at the end only"
			}
			p.tail = tailSlash
			break
		}
		name, multi := strings.CutSuffix(name, "...")
		switch {
		case multi && !last:
			return nil, fmt.Sprintf("{%s...} may stand at the end only", name)
		case !token.IsIdentifier(name):
			return nil, fmt.Sprintf("%q is not a name for a wildcard; use letters, digits and _", name)
		case p.index(name) >= 0:
			return nil, fmt.Sprintf("the wildcard {%s} is given twice", name)
		}
		if multi {
			p.tail, p.rest = tailSubtree, name
			break
		}
		p.segments = append(p.segments, patternSegment{name: name})
	}
	if id.slash == reject && p.tail == tailSlash && len(p.segments) > 0 {
		return nil, "it can never match: {$} asks for a trailing slash and identity.trailing_slash rejects it"
	}
	return p, ""
}

// literalSegment decodes a segment as ServeMux does and passes it through the identity, so that request and pattern are compared
// in the same form.
func literalSegment(part string, id *identity) (patternSegment, string) {
	decoded, err := url.PathUnescape(part)
	if err != nil {
		return patternSegment{}, fmt.Sprintf("the segment %q holds a bad %%-escape", part)
	}
	c, reason := id.canonical("/"+url.PathEscape(decoded), nil)
	if reason == "" && (len(c.segments) != 1 || c.slash) {
		reason = fmt.Sprintf("the segment %q is not one segment under the policy's identity", part)
	}
	if reason != "" {
		return patternSegment{}, "it can never match: " + reason
	}
	return patternSegment{literal: c.segments[0], loose: loosen(c.segments[0])}, ""
}

// index returns the segment that the capture name stands for; len(segments) is the rest, -1 is unknown.
func (p *pattern) index(name string) int {
	if name != "" && name == p.rest {
		return len(p.segments)
	}
	return slices.IndexFunc(p.segments, func(s patternSegment) bool { return s.name != "" && s.name == name })
}

func (p *pattern) captures() []string {
	var names []string
	for _, s := range p.segments {
		if s.name != "" {
			names = append(names, s.name)
		}
	}
	if p.rest != "" {
		names = append(names, p.rest)
	}
	return names
}

// match reports whether the pattern covers c. Where strict is false, "/a" and "/a/" are one path, so every ending fits both.
func (p *pattern) match(c canonicalPath, strict bool) bool {
	n := len(p.segments)
	if len(c.segments) < n || len(c.segments) > n && p.tail != tailSubtree {
		return false
	}
	if strict && n > 0 && len(c.segments) == n && c.slash != (p.tail != tailNone) {
		return false
	}
	for i := range p.segments {
		if s := &p.segments[i]; s.name == "" && s.literal != c.segments[i] {
			return false
		}
	}
	return true
}

// matchLoose is match for a lenient reading, whose segments have been through loosen.
func (p *pattern) matchLoose(segments []string) bool {
	n := len(p.segments)
	if len(segments) < n || len(segments) > n && p.tail != tailSubtree {
		return false
	}
	for i := range p.segments {
		if s := &p.segments[i]; s.name == "" && s.loose != segments[i] {
			return false
		}
	}
	return true
}

// covers reports whether p matches every path that q matches, both under one identity.
func (p *pattern) covers(q *pattern, strict bool) bool {
	n := len(p.segments)
	if len(q.segments) < n || p.tail != tailSubtree && (q.tail == tailSubtree || len(q.segments) != n) {
		return false
	}
	if strict && n > 0 && len(q.segments) == n && (p.tail == tailNone) != (q.tail == tailNone) {
		return false
	}
	for i := range p.segments {
		if s := &p.segments[i]; s.name == "" && (q.segments[i].name != "" || s.literal != q.segments[i].literal) {
			return false
		}
	}
	return true
}
