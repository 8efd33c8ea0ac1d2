package policies

import "slices"

// checkShared reports policies that give the same keys, so that they share marks, and read the marks in different ways.
func checkShared(places []section, set *Set) {
	for j, late := range set.policies {
		for i, early := range set.policies[:j] {
			if late.Mode == Off || early.Mode == Off || !late.sharesKeys(early) {
				continue
			}
			if (late.Compare == Hold) != (early.Compare == Hold) {
				places[j].at("compare").errorf("set compare: hold in both or in none", "policies[%d] names the same resource with compare: %s, and this one with %s: holders and numbers cannot share a mark",
					i, early.Compare, late.Compare)
			}
			if a, b := late.verifier == nil, early.verifier == nil; a != b {
				places[j].at("token").warnf("set token.signed in both", "policies[%d] names the same resource, and one of the two takes tokens that nobody signed: they raise the mark for both", i)
			}
			if a, b := late.tree && late.Dialect.Hierarchical(), early.tree && early.Dialect.Hierarchical(); a != b {
				places[j].at("dialect").errorf("give both the same", "policies[%d] names the same resource in another dialect: its writes would not be known to lie in the collections of this one, or the other way round", i)
			}
			if late.Epoch != early.Epoch {
				places[j].at("epoch").errorf("give both the same", "policies[%d] names the same resource and has epoch %d, this one %d: every token of the lower would be stale",
					i, early.Epoch, late.Epoch)
			}
		}
	}
}

// sharesKeys reports whether a template of p surely gives keys that one of q gives too. With {path} that hangs on the paths.
func (p *Policy) sharesKeys(q *Policy) bool {
	same := p.pattern.text == q.pattern.text
	keys := func(p *Policy) (out []string) {
		for i := range p.templates {
			t := &p.templates[i]
			if same || !slices.ContainsFunc(t.parts, func(pt part) bool { return pt.kind == partPath }) {
				out = append(out, t.fingerprint(p.pattern))
			}
		}
		return out
	}
	others := keys(q)
	return slices.ContainsFunc(keys(p), func(k string) bool { return slices.Contains(others, k) })
}
