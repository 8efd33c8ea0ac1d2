package policies_test

import (
	"net/url"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

func FuzzLoad(f *testing.F) {
	full, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(full)
	f.Add([]byte(head + "unmatched_writes: fence\n"))
	f.Add([]byte("a: &a [*a]\npolicies: *a\n"))
	f.Add([]byte("policies: [{name: p, match: {path: '/{a}/{b...}'}, resource: '{a}{body.x}'}]\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := policies.Load("f.yaml", data, policies.Overrides{})
		switch {
		case err != nil && err.Error() == "":
			t.Error("an error without text")
		case err == nil:
			c.Policies.Describe()
			c.Policies.Fingerprints()
			c.Policies.Decide(request("PUT /a/b?x=1", token34))
		}
	})
}

// cleaned is what a store that decodes once and cleans its paths, as net/http does, takes a target for.
func cleaned(target string) (string, bool) {
	raw, _, _ := strings.Cut(target, "?")
	text, err := url.PathUnescape(raw)
	return path.Clean(text), err == nil
}

// FuzzDecide compares two targets with a store that cleans its paths: targets that are one object there must share a key or be
// refused, and targets that share a key must be one object.
func FuzzDecide(f *testing.F) {
	for _, pair := range [][2]string{
		{"/a/b", "/a/%62/"}, {"/a/b", "/a//b"}, {"/a/b", "/a/./b"}, {"/a/b", "/a%2Fb"}, {"/a/%252F", "/a/%2F"}, {"/x/..", "/"}, {"/a;v", "/a%3bv"},
		{"/a/b?x", "/a/b#x"}, {"/%C3%A9", "/é"}, {"/a%5Cb", `/a\b`}, {"/a%3Fb", "/a?b"}, {"/%00", "/"}, {"*", ""},
	} {
		f.Add(pair[0], pair[1])
	}
	c, err := policies.Load("", nil, policies.Overrides{UpstreamURL: "http://store"})
	if err != nil {
		f.Fatal(err)
	}
	s := load(f, "unmatched_writes: allow\npolicies:\n- {name: public, match: {path: '/public/{rest...}'}, resource: p, mode: off}\n- {name: rides, match: {path: '/rides/{id}'}, resource: '{id}'}").Policies
	f.Fuzz(func(t *testing.T, one, other string) {
		put := func(target string) *policies.Request {
			r := request("PUT ", token34)
			r.Target = target
			return r
		}
		a, b := c.Policies.Decide(put(one)), c.Policies.Decide(put(other))
		if a.Action == policies.Fence && b.Action == policies.Fence {
			ca, oka := cleaned(one)
			cb, okb := cleaned(other)
			if !oka || !okb {
				t.Fatalf("%q or %q has a bad escape and is accepted", one, other)
			}
			if (ca == cb) != (a.Resources[0] == b.Resources[0]) {
				t.Fatalf("%q gives %q, %q gives %q; the store sees %q and %q", one, a.Resources, other, b.Resources, ca, cb)
			}
		}
		// What passes unfenced is nothing that the store takes for a ride.
		if d := s.Decide(put(one)); d.Action == policies.Pass {
			if p, ok := cleaned(one); !ok || strings.HasPrefix(p, "/rides/") && strings.Count(p, "/") == 2 {
				t.Fatalf("%q passes unfenced as %q", one, p)
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	f.Add("/rides/{id}/{rest...}", "rides/{id}")
	f.Add("/{a}/{$}", "{a}{body.a.b}{query.x}{header.X}{host}{path}")
	f.Add("/a%20b/", "{}{")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if reason := policies.CompileTemplate(pattern, text); reason == "" && (text == "" || pattern == "" || pattern[0] != '/') {
			t.Errorf("%q for %q is accepted", text, pattern)
		}
	})
}

func FuzzResolveBody(f *testing.F) {
	for _, body := range []string{`{"a":{"b":"x"},"id":7}`, `{"a":{"b":1.0}}`, `{"a":[[[[`, `{"id":"a","ID":"b"}`, "null", `{"a":{"b":"\ud800"},"id":"/%?"}`} {
		f.Add([]byte(body))
	}
	s := load(f, "policies: [{name: p, match: {path: /x}, resource: ['{body.a.b}', 'i/{body.id}']}]").Policies
	f.Fuzz(func(t *testing.T, body []byte) {
		d := s.Decide(request("PUT /x", token34))
		if err := d.ResolveBody(body); err != nil {
			if len(d.Resources) != 0 || err.Error() == "" {
				t.Fatalf("%q: %v beside %v", body, err, d.Resources)
			}
			return
		}
		if d.NeedsBody || len(d.Resources) == 0 {
			t.Fatalf("%q: %+v", body, d)
		}
		for _, r := range d.Resources {
			if err := r.Check(); err != nil {
				t.Fatalf("%q: %v", body, err)
			}
		}
	})
}
