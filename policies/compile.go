package policies

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

var namePattern = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// decodePolicies compiles defaults, unmatched_writes and policies. override is the flag's value of unmatched_writes, or empty.
func (l *loader) decodePolicies(root section, unmatched unmatchedWrites, override string) *Set {
	base := defaultSettings()
	var defaults section
	if root.has("defaults") {
		defaults = root.at("defaults").section(settingKeys...)
		base.decode(defaults)
		if base.release.node != nil {
			base.release.errorf("write it in the policy", "release speaks of one policy's methods and paths")
		}
	}
	choices := []choice[unmatchedWrites]{{"reject", unmatchedReject}, {"allow", unmatchedAllow}, {"fence", unmatchedFence}}
	enum(root, "unmatched_writes", &unmatched, nil, choices...)
	if override != "" && oneOf(value{l: l, path: "unmatched_writes"}, override, []string{"reject", "allow", "fence"}) {
		unmatched = unmatchedWrites(override)
	}
	ids := intern{}
	set := &Set{unmatched: unmatched, identity: ids.of(base.identity), dialect: base.dialect}
	var places []section
	if v, ok := root.keys["policies"]; ok {
		items := v.items(false)
		if len(items) > maxPolicies {
			v.errorf("", "%d policies are given; at most %d are allowed", len(items), maxPolicies)
			items = nil
		}
		if len(items) == 0 && unmatched != unmatchedFence && v.kind() == "a list" {
			v.errorf("write a policy, or unmatched_writes: fence", "the list is empty, so no write would be fenced")
		}
		for i, item := range items {
			s := item.section(append([]string{"name", "match", "resource"}, settingKeys...)...)
			p := l.decodePolicy(s, base, ids)
			p.Index = i
			set.policies = append(set.policies, p)
			places = append(places, s)
		}
	} else if unmatched != unmatchedFence {
		root.at("policies").errorf("write a policy, or unmatched_writes: fence", "there are no policies, so no write would be fenced")
	}
	set.all = slices.Clone(set.policies)
	if unmatched == unmatchedFence {
		set.builtin = builtinPolicy(base, ids)
		set.builtin.checkHold(section{value: defaults.value}) // each key of defaults may have its effect elsewhere
		set.builtin.Index = len(set.policies)
		set.all = append(set.all, set.builtin)
	}
	set.fencesReads = slices.ContainsFunc(set.policies, func(p *Policy) bool { return slices.ContainsFunc(p.methods, Safe) })
	set.honours = base.honours || slices.ContainsFunc(set.all, func(p *Policy) bool { return p.honours })
	set.strips = slices.ContainsFunc(set.all, func(p *Policy) bool {
		return slices.ContainsFunc(p.places, func(pl place) bool { return pl.strip })
	})
	set.spoken = map[dialect.Name]bool{base.dialect: true}
	for _, p := range set.all {
		set.spoken[p.Dialect] = true
	}
	set.enforces = slices.ContainsFunc(set.all, func(p *Policy) bool { return p.Mode == Enforce })
	checkNames(places, set.policies)
	if len(l.problems) == 0 {
		checkOrder(places, set)
		checkShared(places, set)
	}
	return set
}

func builtinPolicy(base settings, ids intern) *Policy {
	p := &Policy{Name: UnmatchedName}
	base.fill(p, ids)
	p.pattern, _ = compilePattern("/", p.identity)
	t, _, _ := compileTemplate("{path}", p.pattern)
	p.templates = []template{t}
	p.tree = p.hierarchical()
	return p
}

// decodePolicy returns a policy that is complete if nothing was reported.
func (l *loader) decodePolicy(s section, base settings, ids intern) *Policy {
	p := &Policy{}
	base.release = value{}
	base.decode(s)
	base.fill(p, ids)
	if s.has("name") {
		s.text("name", &p.Name)
		if p.Name != "" && !namePattern.MatchString(p.Name) {
			s.at("name").errorf("use 1 to 64 of A-Z a-z 0-9 _ . -", "%q is not a name", clip(p.Name))
		}
	} else {
		s.at("name").errorf("", "the policy has no name")
	}
	if s.has("match") {
		p.decodeMatch(s.at("match").section("path", "methods", "host", "query", "header"))
	} else {
		s.at("match").errorf("write match: {path: \"/...\"}", "the policy does not say what it matches")
	}
	if s.has("resource") {
		p.decodeResource(s.at("resource"))
	} else {
		s.at("resource").errorf("write a template: \"rides/{id}\"", "the policy does not name the resource that its tokens guard")
	}
	p.decodeRelease(base.release)
	p.checkHold(s)
	p.checkSigned(s)
	p.tree = p.hierarchical()
	if p.subtree && !p.tree && s.has("collections") && p.pattern != nil && len(p.templates) > 0 {
		s.at("collections").errorf("end the template with the rest of the path: resource: \"{path}\", or \"dav/{rest}\" for the path \"/dav/{rest...}\"",
			"subtree needs keys that lie beneath each other as the paths do, and %s does not make such", strings.Join(p.Resource(), ", "))
	}
	if p.Stream && p.ReadsBody() {
		s.at("request_body").errorf("use request_body: spool", "stream does not go with a resource that is read from the body (%s)", strings.Join(p.Resource(), ", "))
	}
	return p
}

func (p *Policy) decodeMatch(m section) {
	var text string
	m.text("path", &text)
	switch {
	case text != "":
		var reason string
		if p.pattern, reason = compilePattern(text, p.identity); reason != "" {
			m.at("path").errorf("", "%s", reason)
		}
	case !m.has("path"):
		m.at("path").errorf("\"/{rest...}\" matches every path", "the policy does not say which path it matches")
	}
	p.decodeMethods(m)
	if v, ok := m.keys["host"]; ok {
		m.text("host", &p.host)
		bare := strings.TrimPrefix(p.host, "*.")
		switch {
		case p.host == "":
		case bare == "" || strings.ContainsAny(bare, "*/ @") || hostName(bare) != strings.ToLower(bare):
			v.errorf("write a name without scheme and port: s3.example.test, or *.example.test", "%q is not a host", clip(p.host))
		}
		p.host = strings.ToLower(p.host)
	}
	p.query = decodePairs(m, "query", func(value, string) bool { return true })
	p.headers = decodePairs(m, "header", checkHeader)
}

func (p *Policy) decodeMethods(m section) {
	v, ok := m.keys["methods"]
	if !ok {
		return
	}
	p.methods = []string{}
	items := v.items(false)
	for _, item := range items {
		name, ok := item.text()
		switch {
		case !ok:
		case !isToken(name):
			item.errorf("", "%q is not a method", clip(name))
		case name != strings.ToUpper(name):
			item.errorf("methods are case-sensitive: write "+strings.ToUpper(name), "%q is not a method", clip(name))
		case name == "CONNECT":
			item.errorf("", "CONNECT is always refused")
		case slices.Contains(p.methods, name):
			item.errorf("", "%s is given twice", name)
		default:
			p.methods = append(p.methods, name)
		}
	}
	if len(items) == 0 && v.kind() == "a list" {
		v.errorf("leave it out to match every method that writes", "the list is empty, so the policy can never match")
	}
}

func decodePairs(m section, key string, check func(value, string) bool) []pair {
	v, ok := m.keys[key]
	if !ok {
		return nil
	}
	if v.kind() != "a mapping" {
		v.errorf("write {name: value}, or {name: \"*\"} for any value", "%s where a mapping is expected", v.kind())
		return nil
	}
	var out []pair
	for i := 0; i+1 < len(v.node.Content); i += 2 {
		name := v.child(v.node.Content[i], v.path)
		val := v.child(v.node.Content[i+1], join(v.path, name.node.Value))
		n, ok := name.text()
		t, vok := val.text()
		if !ok || !vok || !check(name, n) {
			continue
		}
		if key == "header" {
			n = newPlace(placeHeader, n, nil).name
		}
		switch {
		case n == "":
			name.errorf("", "the name is empty")
		case slices.ContainsFunc(out, func(p pair) bool { return p.name == n }):
			name.errorf("", "%s is given twice", n)
		default:
			out = append(out, pair{n, t})
		}
	}
	if len(v.node.Content) == 0 {
		v.errorf("leave it out", "it has no effect: it is empty")
	}
	return out
}

const maxTemplates = 16

func (p *Policy) decodeResource(v value) {
	items := v.items(true)
	if len(items) == 0 || len(items) > maxTemplates {
		v.errorf("", "%d resources are given; 1 to %d are allowed", len(items), maxTemplates)
		return
	}
	for _, item := range items {
		text, ok := item.text()
		if !ok {
			continue
		}
		t, reason, hint := compileTemplate(text, p.pattern)
		if reason == "" && slices.Contains(p.Resource(), text) {
			reason = fmt.Sprintf("the resource %q is given twice", text)
		}
		if reason != "" {
			item.errorf(hint, "%s", reason)
			continue
		}
		p.templates = append(p.templates, t)
	}
}

func checkNames(places []section, ps []*Policy) {
	seen := map[string]int{}
	for i, p := range ps {
		if p.Name == "" {
			continue
		}
		if first, ok := seen[p.Name]; ok {
			places[i].at("name").errorf("", "policies[%d] has the name %q too", first, p.Name)
			continue
		}
		seen[p.Name] = i
	}
}

// checkOrder warns of policies that an earlier one hides, and of writes that can choose not to be fenced.
func checkOrder(places []section, set *Set) {
	for j, late := range set.policies {
		for _, early := range set.policies[:j] {
			if early.identity == late.identity && early.conditions.covers(&late.conditions) && early.pattern.covers(late.pattern, late.identity.strictSlash()) {
				places[j].warnf("move it before that policy, or remove it", "the policy %s never matches: %s matches all of it first", late.Name, early.Name)
				break
			}
		}
		if set.unmatched == unmatchedAllow && late.Mode != Off && (late.host != "" || late.headers != nil || late.query != nil) {
			places[j].at("match").warnf("use unmatched_writes: reject", "a client that sends another host, header or query passes unfenced (unmatched_writes: allow)")
		}
	}
}
