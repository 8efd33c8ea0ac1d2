package policies

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Sample is a request that a policy covers, with the resource keys that it gets. Kept beside the marks, it shows whether another set of
// policies would give the same request other keys, which [Policy.KeyFingerprint] cannot: a policy under a new name, or one put
// before it, changes the keys as well.
type Sample struct {
	Method string            `json:"method"`
	Target string            `json:"target"`
	Host   string            `json:"host,omitempty"`
	Header map[string]string `json:"header,omitempty"`
	Body   string            `json:"body,omitempty"`
	Keys   []string          `json:"keys"`
}

// Samples returns a request for each policy that fences, by the policy's name, with the keys that the set gives it. A policy for which
// none can be made up, or whose request another policy refuses, has none.
func (s *Set) Samples() map[string]Sample {
	out := make(map[string]Sample, len(s.all))
	for _, p := range s.all {
		if p.Mode == Off {
			continue
		}
		q := p.sample()
		if q.Keys = s.Keys(q); len(q.Keys) > 0 {
			out[p.Name] = q
		}
	}
	return out
}

// Keys returns the resource keys that the set gives a request, tokens apart; none if it is refused or not fenced.
func (s *Set) Keys(q Sample) []string {
	h := make(http.Header, len(q.Header))
	for name, value := range q.Header {
		h.Set(name, value)
	}
	d := s.Decide(&Request{Method: q.Method, Target: q.Target, Host: q.Host, Header: h})
	if d.Action == Reject {
		_, missing := errors.AsType[*MissingTokenError](d.Err)
		_, bad := errors.AsType[*TokenError](d.Err)
		_, unsigned := errors.AsType[*UnauthorizedError](d.Err)
		if !missing && !bad && !unsigned { // for want of a token it still names its resource
			return nil
		}
	}
	if d.NeedsBody && d.ResolveBody([]byte(q.Body)) != nil {
		return nil
	}
	keys := make([]string, len(d.Resources))
	for i, r := range d.Resources {
		keys[i] = string(r)
	}
	return keys
}

// PathSample returns the request whose key is the path itself, as [Set.Unmatched] makes it.
func PathSample(key fencing.Resource) Sample {
	return Sample{Method: http.MethodPut, Target: "/" + strings.TrimPrefix(string(key), "/"), Keys: []string{string(key)}}
}

// sample makes up a request that p covers.
func (p *Policy) sample() Sample {
	q := Sample{Method: http.MethodPut, Host: strings.Replace(p.host, "*", "sample", 1), Header: map[string]string{}}
	if p.methods != nil {
		q.Method = p.methods[0]
		if i := slices.IndexFunc(p.methods, func(m string) bool { return !Safe(m) }); i >= 0 {
			q.Method = p.methods[i]
		}
	}
	var path strings.Builder
	for i, seg := range p.pattern.segments {
		text := url.PathEscape(seg.literal)
		if seg.name != "" {
			text = fmt.Sprintf("sample%d", i)
		}
		path.WriteString("/" + text)
	}
	switch p.pattern.tail {
	case tailSubtree:
		path.WriteString("/rest1/rest2")
	case tailSlash:
		path.WriteString("/")
	}
	query := url.Values{}
	set := func(name, value string) {
		if value == "*" || value == "" {
			value = "sample"
		}
		if query.Get(name) == "" {
			query.Set(name, value)
		}
	}
	for _, c := range p.query {
		set(c.name, c.value)
	}
	for _, name := range p.identity.query {
		set(name, "")
	}
	for _, c := range p.headers {
		q.Header[c.name] = strings.Replace(c.value, "*", "sample", 1)
	}
	body := map[string]any{}
	for i := range p.templates {
		for _, pt := range p.templates[i].parts {
			switch pt.kind {
			case partQuery:
				set(pt.name, "")
			case partHeader:
				if q.Header[pt.name] == "" {
					q.Header[pt.name] = "sample"
				}
			case partBody:
				nest(body, pt.field)
			}
		}
	}
	q.Target = path.String()
	if q.Target == "" {
		q.Target = "/"
	}
	if len(query) > 0 {
		q.Target += "?" + query.Encode()
	}
	if len(body) > 0 {
		text, err := json.Marshal(body)
		if err == nil { // maps of maps and strings
			q.Body = string(text)
		}
	}
	return q
}

// nest puts a text at a field of a JSON object.
func nest(object map[string]any, field []string) {
	for ; len(field) > 1; field = field[1:] {
		if field[1] == "[]" { // a list of one
			list, ok := object[field[0]].([]any)
			if !ok {
				list = []any{map[string]any{}}
				object[field[0]] = list
			}
			if len(field) == 2 {
				list[0] = "sample"
				return
			}
			inner, ok := list[0].(map[string]any)
			if !ok {
				return
			}
			object, field = inner, field[1:]
			continue
		}
		inner, ok := object[field[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			object[field[0]] = inner
		}
		object = inner
	}
	if _, ok := object[field[0]]; !ok {
		object[field[0]] = "sample"
	}
}
