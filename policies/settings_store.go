package policies

import (
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// decodeDialect reads the dialect, which sets the identity anew, and the keys that only one dialect has.
func (o *settings) decodeDialect(s section) {
	if s.has("dialect") {
		before := o.dialect
		var choices []choice[dialect.Name]
		for _, n := range dialect.Names() {
			choices = append(choices, choice[dialect.Name]{string(n), n})
		}
		enum(s, "dialect", &o.dialect, nil, choices...)
		if o.dialect != before {
			o.identity = preset(o.dialect)
			o.subtree, o.abortFree, o.uploadToken, o.signedToken = false, false, false, false
		}
	}
	only := func(key string, n dialect.Name) {
		if s.has(key) && o.dialect != n {
			s.at(key).errorf("", "it has no effect: it belongs to dialect: %s, and this is %s", n, o.dialect)
		}
	}
	only("collections", dialect.WebDAV)
	only("abort", dialect.S3)
	only("upload_token", dialect.S3)
	only("require_signed_token", dialect.S3)
	enum(s, "collections", &o.subtree, nil, choice[bool]{"reject", false}, choice[bool]{"subtree", true})
	enum(s, "abort", &o.abortFree, nil, choice[bool]{"fence", false}, choice[bool]{"allow", true})
	enum(s, "upload_token", &o.uploadToken, nil, choice[bool]{"each", false}, choice[bool]{"create", true})
	s.flag("require_signed_token", &o.signedToken)
	enum(s, "method_override", &o.honours, nil, choice[bool]{"reject", false}, choice[bool]{"honour", true})
	if o.honours && !o.dialect.Plain() {
		s.at("method_override").errorf("", "honour does not go with dialect: %s, where the method decides what else a request changes", o.dialect)
		o.honours = false
	}
	if v, ok := s.keys["max_batch"]; ok {
		if n, ok := v.integer(); ok {
			switch {
			case n == 0 || n > maxBatch:
				v.errorf("", "%d is out of range: 1 to %d resources", n, maxBatch)
			default:
				o.maxBatch = n
			}
		}
	}
}

func (o *settings) decodeIdentity(s section) {
	if !s.has("identity") {
		return
	}
	t := s.at("identity").section("dot_segments", "empty_segments", "trailing_slash", "encoded_slash", "path_params", "case", "unicode",
		"query_identity", "virtual_host_base")
	for _, option := range []struct {
		key   string
		dst   *rule
		rules []rule
	}{
		{"dot_segments", &o.identity.dots, []rule{reject, resolve, literal}},
		{"empty_segments", &o.identity.empties, []rule{reject, collapse, literal}},
		{"trailing_slash", &o.identity.slash, []rule{same, distinct, reject}},
		{"encoded_slash", &o.identity.encoded, []rule{reject, separator, literal}},
		{"path_params", &o.identity.params, []rule{literal, strip, reject}},
		{"case", &o.identity.letters, []rule{sensitive, fold}},
		{"unicode", &o.identity.unicode, []rule{asIs, nfcKey, nfcOnly}},
	} {
		choices := make([]choice[rule], len(option.rules))
		for i, r := range option.rules {
			choices[i] = choice[rule]{string(r), r}
		}
		enum(t, option.key, option.dst, nil, choices...)
	}
	o.decodeHosts(t)
	v, ok := t.keys["query_identity"]
	if !ok {
		return
	}
	if !o.dialect.Plain() {
		v.errorf("", "it does not go with dialect: %s, whose stores name what they hold by the path alone", o.dialect)
	}
	o.identity.query = nil
	for _, item := range v.items(true) {
		name, ok := item.text()
		switch {
		case !ok:
		case name == "" || strings.ContainsAny(name, "&=%?/;+ ") || badText(name) != "":
			item.errorf("write the decoded name", "%q is not the name of a query parameter", clip(name))
		case slices.Contains(o.identity.query, name):
			item.errorf("", "%s is given twice", name)
		default:
			o.identity.query = append(o.identity.query, name)
		}
	}
	slices.Sort(o.identity.query)
}

// decodeHosts reads the domains below which a host names a bucket.
func (o *settings) decodeHosts(t section) {
	v, ok := t.keys["virtual_host_base"]
	if !ok {
		return
	}
	if o.dialect != dialect.S3 {
		v.errorf("", "it has no effect: it belongs to dialect: s3, and this is %s", o.dialect)
	}
	o.identity.hosts = nil
	for _, item := range v.items(true) {
		name, ok := item.text()
		name = strings.ToLower(strings.TrimSuffix(name, "."))
		switch {
		case !ok:
		case name == "" || strings.ContainsAny(name, "*/:@ ") || name[0] == '.':
			item.errorf("write a domain: s3.example.test", "%q is not a domain", clip(name))
		case slices.Contains(o.identity.hosts, name):
			item.errorf("", "%s is given twice", name)
		default:
			o.identity.hosts = append(o.identity.hosts, name)
		}
	}
	slices.Sort(o.identity.hosts)
	// The longest base decides, so that s3.a.test is not taken for a bucket of a.test.
	slices.SortStableFunc(o.identity.hosts, func(a, b string) int { return len(b) - len(a) })
}
