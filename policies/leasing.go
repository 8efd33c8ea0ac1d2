package policies

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// TakesNoLease returns a policy under which the token of a lease on r could never be used, because its tokens are ids or pairs and a lease
// hands out single numbers; nil if there is none, or if the key may as well be that of a policy with numbers. A key does not say which policy
// made it, so this compares it with the templates, and errs on the side of nil: a lease too many does no harm.
func (s *Set) TakesNoLease(r fencing.Resource) *Policy {
	var found *Policy
	for _, p := range s.all {
		switch {
		case p.Mode == Off || !p.mayName(r):
		case !fencing.Decimal.SameOrder(p.Format):
			if found == nil && (!p.namesPaths() || p.takesPath(r)) {
				found = p
			}
		case !p.namesPaths() || s.leads(r, p):
			return nil
		}
	}
	return found
}

// mayName reports whether a template of p can give the key: for some values of its placeholders, whatever they can be in a request.
func (p *Policy) mayName(r fencing.Resource) bool {
	return slices.ContainsFunc(p.templates, func(t template) bool {
		if first := t.parts[0]; first.kind == partText && !strings.HasPrefix(string(r), first.text) {
			return false // most keys
		}
		var re strings.Builder
		re.WriteString(`(?s)^`)
		for _, pt := range t.parts {
			switch {
			case pt.kind == partText:
				re.WriteString(regexp.QuoteMeta(pt.text))
			case pt.kind == partPath || pt.kind == partCapture && pt.capture == len(p.pattern.segments):
				re.WriteString(`[^?]*`)
			default: // a slash or a question mark in a value is escaped
				re.WriteString(`[^/?]*`)
			}
		}
		if len(p.identity.query) > 0 {
			re.WriteString(`(\?.*)?`)
		}
		matched, err := regexp.MatchString(re.String()+`$`, string(r))
		return matched || err != nil
	})
}

// namesPaths reports whether each key of the policy is the path, so that it tells which request made it.
func (p *Policy) namesPaths() bool {
	if len(p.templates) != 1 || len(p.templates[0].parts) != 1 || len(p.identity.query) > 0 {
		return false
	}
	one := p.templates[0].parts[0]
	return one.kind == partPath || one.kind == partCapture && one.capture == 0 && len(p.pattern.segments) == 0
}

// takesPath reports whether the policy's pattern matches the path r.
func (p *Policy) takesPath(r fencing.Resource) bool {
	path, reason := p.identity.target(PathSample(r).Target, "", "", nil)
	return reason == "" && p.pattern.match(path, p.identity.strict(path))
}

// leads reports whether a write to the path r may go to p. It does not if a policy before it takes every write to that path.
func (s *Set) leads(r fencing.Resource, p *Policy) bool {
	q := PathSample(r)
	first, _, d := s.find(&evaluation{r: &Request{Method: http.MethodPut, Target: q.Target, Header: http.Header{}}, method: http.MethodPut, raw: q.Target}, nil)
	return d != nil || first == nil || first.conditional() || first.Index >= p.Index || slices.ContainsFunc(p.methods, Safe)
}
