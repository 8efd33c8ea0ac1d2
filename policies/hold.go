package policies

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// HoldTerms are the settings of compare: hold.
type HoldTerms struct {
	TTL   time.Duration // how long a hold lasts; 0: until it is released
	Renew bool          // each write of the holder begins that time anew
}

// String is "no ttl", "30s" or "30s, renewed".
func (h HoldTerms) String() string {
	switch {
	case h.TTL == 0:
		return "no ttl"
	case h.Renew:
		return h.TTL.String() + ", renewed"
	}
	return h.TTL.String()
}

// release says which of a policy's requests end the hold of whoever sends them.
type release struct {
	methods []string // nil: any
	path    *pattern // nil: any
}

// releases reports whether a request ends the hold when the store has accepted it.
func (p *Policy) releases(method string, path canonicalPath) bool {
	r := p.release
	return r != nil && (r.methods == nil || slices.Contains(r.methods, method)) && (r.path == nil || r.path.match(path, p.identity.strict(path)))
}

func (o *settings) decodeHold(s section) {
	if !s.has("hold") {
		return
	}
	h := s.at("hold").section("ttl", "renew_on_write", "release")
	if v, ok := h.keys["ttl"]; ok {
		if t, ok := v.text(); ok && t == "none" {
			o.hold.TTL = 0
		} else if ok {
			h.duration("ttl", &o.hold.TTL, false)
		}
	}
	h.flag("renew_on_write", &o.hold.Renew)
	if o.hold.Renew && o.hold.TTL == 0 && h.has("renew_on_write") {
		h.at("renew_on_write").errorf("set a ttl", "it has no effect: without a ttl a hold does not end by itself")
	}
	o.release = h.keys["release"]
}

// decodeRelease reads hold.release, which speaks of the policy's own paths and methods.
func (p *Policy) decodeRelease(v value) {
	if v.node == nil {
		return
	}
	s := v.section("methods", "path")
	if len(s.keys) == 0 && v.kind() == "a mapping" {
		v.errorf("name methods, a path, or both", "it does not say which requests end a hold")
		return
	}
	r := &release{}
	if m, ok := s.keys["methods"]; ok {
		items := m.items(false)
		if len(items) == 0 && m.kind() == "a list" {
			m.errorf("leave it out for any method", "the list is empty, so no request ends a hold")
		}
		for _, item := range items {
			name, ok := item.text()
			switch {
			case !ok:
			case !isToken(name) || name != strings.ToUpper(name):
				item.errorf("", "%q is not a method", clip(name))
			case !p.takes(name):
				item.errorf("", "the policy does not match %s, so it ends no hold", name)
			case slices.Contains(r.methods, name):
				item.errorf("", "%s is given twice", name)
			default:
				r.methods = append(r.methods, name)
			}
		}
	}
	var text string
	s.text("path", &text)
	if text != "" {
		var reason string
		switch r.path, reason = compilePattern(text, p.identity); {
		case reason != "":
			s.at("path").errorf("", "%s", reason)
		case p.pattern != nil && !p.pattern.covers(r.path, p.identity.strictSlash()):
			s.at("path").errorf("name a path that match.path covers", "the policy does not match all of %s, and the resource comes from match.path (%s)", text, p.pattern.text)
		}
	}
	p.release = r
}

// checkHold reports what does not go with compare: hold, or has no effect without it.
func (p *Policy) checkHold(s section) {
	opaque := p.Format == fencing.Opaque
	at := func(keys ...string) value {
		for _, key := range keys {
			if s.has(key) {
				return s.at(key)
			}
		}
		return s.value
	}
	if p.Compare != Hold {
		if opaque {
			at("token", "compare").errorf("set compare: hold", "an opaque token has no order: format: opaque goes with compare: hold alone, and this is %s", p.Compare)
		}
		if s.has("hold") {
			s.at("hold").errorf("set compare: hold", "it has no effect: it belongs to compare: hold, and this is %s", p.Compare)
		}
		return
	}
	if !opaque {
		at("compare", "token").errorf("set token: {format: opaque}", "compare: hold takes opaque tokens alone, and the format is %s", p.Format)
	}
	if s.has("epoch") && p.Epoch != 0 {
		s.at("epoch").errorf("leave it out", "it has no effect: with compare: hold the proxy itself counts the holders")
	}
	if s.has("reveal_mark") && p.RevealMark {
		s.at("reveal_mark").errorf("leave it out", "it has no effect: whoever knows a holder's id can write, so it is never shown")
	}
	p.Epoch, p.RevealMark = 0, false
	const one = "one write of a hold names one resource"
	if len(p.templates) > 1 {
		s.at("resource").errorf("use one template", "%s, and %d are given", one, len(p.templates))
	}
	for i := range p.templates {
		if t := &p.templates[i]; slices.ContainsFunc(t.parts, func(pt part) bool { return slices.Contains(pt.field, "[]") }) {
			s.at("resource").errorf("use one template without a list", "%s, and %s may give several", one, t.text)
		}
	}
	if p.Dialect == dialect.WebDAV {
		at("dialect", "compare").errorf("", "compare: hold does not go with dialect: webdav, where one write may change a whole tree")
	}
	if p.uploadToken {
		at("upload_token", "compare").errorf("send the id with each step", "compare: hold does not go with upload_token: create")
	}
}

// single refuses a write of a hold that changes more than one resource: each has a holder of its own.
func (p *Policy) single(d *Decision) error {
	if p.Compare != Hold || len(d.Resources) <= 1 && len(d.Under)+len(d.Trees) == 0 {
		return nil
	}
	return &UnfenceableError{Policy: p.Name, Reason: fmt.Sprintf("it changes %d resources, and under compare: hold each has a holder of its own; send one write for each",
		max(len(d.Resources), 2))}
}
