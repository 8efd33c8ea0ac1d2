package policies

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

type partKind uint8

const (
	partText partKind = iota
	partCapture
	partPath
	partHost
	partQuery
	partHeader
	partBody
)

// part is a stretch of a resource template.
type part struct {
	kind    partKind
	text    string   // the text itself, or the placeholder as written: "{query.id}"
	name    string   // of the query parameter or the header
	capture int      // index of the pattern's segment
	field   []string // of the body
}

// template is a compiled resource template.
type template struct {
	text  string
	parts []part
	body  bool
}

// compileTemplate returns the template or a clause that says what is wrong, and a hint.
func compileTemplate(text string, p *pattern) (t template, reason, hint string) {
	t.text = text
	if strings.Contains(text, treeMark) {
		return t, treeMark + " is kept for the marks of collections", ""
	}
	if err := fencing.Resource(text).Check(); err != nil {
		return t, err.Error(), ""
	}
	for rest := text; rest != ""; {
		i := strings.IndexAny(rest, "{}")
		if i < 0 {
			t.parts = append(t.parts, part{text: rest})
			break
		}
		if i > 0 {
			t.parts = append(t.parts, part{text: rest[:i]})
		}
		end := strings.IndexByte(rest[i:], '}')
		if rest[i] == '}' || end < 0 {
			return t, "a brace stands alone; placeholders are written {name}", ""
		}
		pt, reason, hint := placeholder(rest[i+1:i+end], p)
		if reason != "" {
			return t, reason, hint
		}
		t.parts = append(t.parts, pt)
		t.body = t.body || pt.kind == partBody
		rest = rest[i+end+1:]
	}
	return t, "", ""
}

func placeholder(inner string, p *pattern) (pt part, reason, hint string) {
	pt.text = "{" + inner + "}"
	if p != nil && p.index(inner) >= 0 { // a capture wins over {host} and {path}
		pt.kind, pt.capture = partCapture, p.index(inner)
		return pt, "", ""
	}
	head, name, dotted := strings.Cut(inner, ".")
	switch {
	case inner == "host":
		pt.kind = partHost
	case inner == "path":
		pt.kind = partPath
	case dotted && head == "query" && name != "":
		pt.kind, pt.name = partQuery, name
	case dotted && head == "header" && isToken(name):
		if http.CanonicalHeaderKey(name) == "Host" {
			return pt, "{header.Host} is always missing", "write {host}"
		}
		pt.kind, pt.name = partHeader, http.CanonicalHeaderKey(name)
	case strings.HasPrefix(inner, "body") && parseField(inner[len("body"):]) != nil:
		pt.kind, pt.field = partBody, parseField(inner[len("body"):])
	default:
		if p == nil { // its pattern is broken and reported; the name cannot be checked
			return pt, "", ""
		}
		known := append(p.captures(), "host", "path", "query.NAME", "header.NAME", "body.FIELD", "body.LIST[].FIELD")
		hint = suggest(inner, known)
		if trimmed := strings.TrimSuffix(inner, "..."); trimmed != inner && p.index(trimmed) >= 0 {
			hint = "write {" + trimmed + "}"
		}
		if hint == "" {
			hint = "known here: " + strings.Join(known, ", ")
		}
		return pt, fmt.Sprintf("unknown placeholder {%s}", clip(inner)), hint
	}
	return pt, "", ""
}

// fingerprint is the template with each capture replaced by its place in the path, so that a renamed wildcard keeps its keys.
func (t *template) fingerprint(p *pattern) string {
	var b strings.Builder
	for _, pt := range t.parts {
		switch {
		case pt.kind == partCapture && pt.capture == len(p.segments):
			fmt.Fprintf(&b, "{segments %d...}", pt.capture+1)
		case pt.kind == partCapture:
			fmt.Fprintf(&b, "{segment %d}", pt.capture+1)
		default:
			b.WriteString(pt.text)
		}
	}
	return b.String()
}

// pending is a resource key that waits for fields of the body: its parts are text or partBody.
type pending []part

// resources adds the keys of a path to d.Resources, and to d.pending those that the templates read from the body.
func (p *Policy) resources(e *evaluation, path canonicalPath, d *Decision) error {
	suffix, err := p.querySuffix(e)
	if err != nil {
		return err
	}
	if d.Resources == nil {
		d.Resources = make([]fencing.Resource, 0, len(p.templates))
	}
	var buf [256]byte
	for i := range p.templates {
		t := &p.templates[i]
		if t.body {
			d.NeedsBody = true
		}
		key := appendAuthority(buf[:0], e.r.Authority)
		var wait pending
		for j := range t.parts {
			if t.parts[j].kind == partBody {
				wait = append(wait, part{text: string(key)}, t.parts[j])
				key = key[:0]
				continue
			}
			if key, err = p.appendPart(key, &t.parts[j], e, path); err != nil {
				return err
			}
		}
		key = append(key, suffix...)
		if t.body {
			d.pending = append(d.pending, append(wait, part{text: string(key)}))
			continue
		}
		r := fencing.Resource(key)
		if err := r.Check(); err != nil {
			return &KeyError{Policy: p.Name, Reason: err.Error()}
		}
		if e.r.reserves(key) {
			return &KeyError{Policy: p.Name, Reason: "begins as those of a store of forward mode do; set upstream.authority, which tells them apart"}
		}
		d.Resources = append(d.Resources, r)
	}
	return nil
}

// appendAuthority begins a key with the store that it is in.
func appendAuthority(key []byte, authority string) []byte {
	if authority == "" {
		return key
	}
	return append(append(key, authority...), '/')
}

// reserves reports whether a key is kept for another store.
func (r *Request) reserves(key []byte) bool {
	for _, prefix := range r.Reserved {
		if strings.HasPrefix(string(key)+"/", prefix) {
			return true
		}
	}
	return false
}

func sorted(rs []fencing.Resource) []fencing.Resource {
	if len(rs) > 1 {
		slices.Sort(rs)
		rs = slices.Compact(rs)
	}
	return rs
}

func (p *Policy) appendPart(key []byte, pt *part, e *evaluation, path canonicalPath) ([]byte, error) {
	fail := func(reason string) ([]byte, error) {
		return key, &KeyError{Policy: p.Name, Placeholder: pt.text, Reason: reason}
	}
	switch pt.kind {
	case partText:
		return append(key, pt.text...), nil
	case partPath:
		if len(path.segments) == 0 {
			return append(key, '/'), nil
		}
		return appendSegments(key, path, 0), nil
	case partCapture:
		if pt.capture < len(p.pattern.segments) {
			return appendEscaped(key, path.segments[pt.capture]), nil
		}
		return appendSegments(key, path, pt.capture), nil
	case partHost:
		host := hostName(e.r.Host)
		if host == "" {
			return fail("is missing: the request names no host")
		}
		return appendEscaped(key, host), nil
	case partHeader:
		vs := e.r.Header[pt.name]
		switch {
		case len(vs) == 0 || len(vs) == 1 && vs[0] == "":
			return fail("is missing: send the header " + pt.name)
		case len(vs) > 1:
			return fail("is ambiguous: the header " + pt.name + " is given more than once")
		case nominated(e.r.Header, pt.name):
			return fail("is ambiguous: Connection names the header " + pt.name + ", so it would not reach the store")
		}
		return appendEscaped(key, vs[0]), nil
	}
	v, n, ok := queryValue(e.query, pt.name, p.identity)
	switch {
	case !ok:
		return fail("is ambiguous: the query holds a bad escape or a semicolon")
	case n == 0 || v == "":
		return fail("is missing: send the query parameter " + pt.name)
	case n > 1:
		return fail("is ambiguous: the query parameter " + pt.name + " is given more than once")
	}
	return appendEscaped(key, v), nil
}

// querySuffix is what identity.query_identity adds to each key. An empty parameter counts as an absent one: most stores read the
// two alike.
func (p *Policy) querySuffix(e *evaluation) (string, error) {
	if len(p.identity.query) == 0 {
		return "", nil
	}
	var key []byte
	for _, name := range p.identity.query {
		v, n, ok := queryValue(e.query, name, p.identity)
		switch {
		case !ok:
			return "", &AmbiguousError{Policy: p.Name, Reason: "the query holds a bad escape or a semicolon"}
		case n > 1:
			return "", &AmbiguousError{Policy: p.Name, Reason: fmt.Sprintf("the query parameter %s is given more than once", name)}
		case v == "":
			continue
		}
		mark := byte('&')
		if len(key) == 0 {
			mark = '?'
		}
		key = append(append(append(key, mark), name...), '=')
		key = append(key, pairEscapes.Replace(string(appendEscaped(nil, v)))...)
	}
	return string(key), nil
}

var pairEscapes = strings.NewReplacer("&", "%26", "=", "%3D")

// appendEscaped writes one value into a key. The three characters that have a meaning in keys are escaped, so that two different
// values never give one text and a slash inside a value never looks like a separator.
func appendEscaped(key []byte, s string) []byte {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '/') < 0 && strings.IndexByte(s, '?') < 0 {
		return append(key, s...)
	}
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '%':
			key = append(key, "%25"...)
		case '/':
			key = append(key, "%2F"...)
		case '?':
			key = append(key, "%3F"...)
		default:
			key = append(key, s[i])
		}
	}
	return key
}

func appendSegments(key []byte, c canonicalPath, from int) []byte {
	for i, s := range c.segments[from:] {
		if i > 0 {
			key = append(key, '/')
		}
		key = appendEscaped(key, s)
	}
	if c.slash && len(c.segments) > from {
		key = append(key, '/')
	}
	return key
}
