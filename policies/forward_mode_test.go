package policies_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/policies"
)

func TestAuthorityHasOneForm(t *testing.T) {
	for _, tt := range []struct{ scheme, in, want string }{
		{"https", "S3.Example.Test", "s3.example.test:443"},
		{"http", "s3.example.test.", "s3.example.test:80"},
		{"https", "s3.example.test:443", "s3.example.test:443"},
		{"https", "s3.example.test.:0443", "s3.example.test:443"},
		{"", "s3.example.test:9000", "s3.example.test:9000"},
		{"", "s3.example.test", ""}, // no scheme, no port
		{"http", "[::1]", "[::1]:80"},
		{"http", "[0:0::0:1]:81", "[::1]:81"},
		{"http", "[::ffff:127.0.0.1]", "127.0.0.1:80"},
		{"http", "[fe80::1%25eth0]", ""},
		{"http", "::1", ""},
		{"http", "127.0.0.1", "127.0.0.1:80"},
		{"http", "", ""},
		{"http", ".", ""},
		{"http", "a..b", ""},
		{"http", "a b", ""},
		{"http", "a:", "a:80"},
		{"http", "a:0", ""},
		{"http", "a:65536", ""},
		{"http", "a:+80", ""},
		{"http", "a:80:80", ""},
		{"http", "user@a", ""},
		{"http", "a/b", ""},
		{"http", "bücher.test", ""},
		{"http", strings.Repeat("a", 64), ""},
		{"ftp", "a", ""},
	} {
		got, ok := policies.Authority(tt.scheme, tt.in)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("Authority(%q, %q) = %q, %v; want %q", tt.scheme, tt.in, got, ok, tt.want)
		}
	}
}

const forwardHead = `
unmatched_writes: fence
forward:
  listen: 127.0.0.1:3128
`

func TestForwardModeIsReadStrictly(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no listener", "unmatched_writes: fence\nforward: {upstreams: [{url: \"http://a.test\"}]}", "names no listener"},
		{"no store", forwardHead, "names no store"},
		{"an empty list", forwardHead + "  upstreams: []", "the list is empty"},
		{"no CA", forwardHead + "  upstreams: [{url: \"https://a.test\"}]", "without a CA of your own"},
		{"no CA for an alias", forwardHead + "  upstreams: [{url: \"http://a.test\", aliases: [\"https://b.test\"]}]", "without a CA of your own"},
		{"a CA for nothing", forwardHead + "  ca: {cert: a, key: b}\n  upstreams: [{url: \"http://a.test\"}]", "no store is reached by https"},
		{"a CA beside a URL that is none", forwardHead + "  ca: {cert: a, key: b}\n  upstreams: [{url: \"https://a.test/b\"}]", "more than a host and a port"},
		{"half a CA", forwardHead + "  ca: {cert: a}\n  upstreams: [{url: \"https://a.test\"}]", "key is missing"},
		{"no URL", forwardHead + "  upstreams: [{dial: \"127.0.0.1:1\"}]", "the store is not named"},
		{"a path", forwardHead + "  upstreams: [{url: \"http://a.test/b\"}]", "more than a host and a port"},
		{"another scheme", forwardHead + "  upstreams: [{url: \"ftp://a.test\"}]", "is not an http or https URL"},
		{"a star in the URL", forwardHead + "  upstreams: [{url: \"http://*.a.test\"}]", "does not name a host"},
		{"one name twice", forwardHead + "  upstreams: [{url: \"http://a.test\"}, {url: \"http://b.test\", aliases: [\"http://A.test:80\"]}]", "a.test:80 names two stores"},
		{"one address twice", forwardHead + "  upstreams: [{url: \"http://a.test\", dial: \"127.0.0.1:1\"}, {url: \"http://b.test\", dial: \"localhost:1\"}]", "one object would have two marks"},
		{"the upstream's address", "upstream: {url: \"http://127.0.0.1:9000\"}\n" + forwardHead + "  upstreams: [{url: \"http://a.test\", dial: \"localhost:9000\"}]", "write upstream.authority: a.test:80"},
		{"the listener of the upstream", "upstream: {url: \"http://127.0.0.1:9000\"}\nlisten: 127.0.0.1:3128\n" + forwardHead + "  upstreams: [{url: \"http://a.test\"}]", "has the address of"},
		{"the upstream is named but not given", "upstream: {timeout: 1s}\n" + forwardHead + "  upstreams: [{url: \"http://a.test\"}]", "the upstream is missing"},
		{"listen without an upstream", "listen: 127.0.0.1:8080\n" + forwardHead + "  upstreams: [{url: \"http://a.test\"}]", "it has no effect"},
		{"a star that nobody looks at", forwardHead + "  upstreams: [{url: \"http://a.test\", aliases: [\"http://*.a.test\"]}]", "no policy looks at the host"},
		{"an unknown rule", forwardHead + "  unlisted: pass\n  upstreams: [{url: \"http://a.test\"}]", "unlisted"},
		{"an unknown key", forwardHead + "  upstreams: [{url: \"http://a.test\", host: x}]", "host"},
		{"no authority", forwardHead + "  upstreams: [{url: \"http://a.test\", authority: \"a.test/x\"}]", "is not an authority"},
		{"TLS settings for http", forwardHead + "  upstreams: [{url: \"http://a.test\", tls: {ca: x}}]", "does not use https"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ps := problems(t, tt.text, policies.Overrides{})
			if len(ps) != 1 || !strings.Contains(ps[0].String(), tt.want) {
				t.Errorf("problems %q; want one with %q", ps, tt.want)
			}
		})
	}
}

func TestForwardModeFindsStores(t *testing.T) {
	c, err := policies.Load("test.yaml", []byte(forwardHead+`
  ca: {cert: a, key: b}
  upstreams:
    - {url: "https://s3.test", aliases: ["http://s3.test", "https://*.s3.test"]}
    - {url: "http://dav.test:8000", authority: "store.test:80"}
    - {url: "https://x.s3.test", aliases: ["https://*.y.s3.test"]}
defaults: {dialect: s3, identity: {virtual_host_base: s3.test}}
`), policies.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	for authority, want := range map[string]string{
		"s3.test:443": "s3.test:443", "s3.test:80": "s3.test:443", "b.s3.test:443": "s3.test:443", "a.b.s3.test:443": "s3.test:443",
		"b.s3.test:80": "", "xs3.test:443": "", "s3.test:444": "", "dav.test:8000": "store.test:80", "dav.test:80": "", "store.test:80": "",
		"x.s3.test:443": "x.s3.test:443", "b.y.s3.test:443": "x.s3.test:443", "y.s3.test:443": "s3.test:443", // the closest name
	} {
		got := ""
		if s := c.Forward.Find(authority); s != nil {
			got = s.Authority
		}
		if got != want {
			t.Errorf("Find(%s) has the authority %q; want %q", authority, got, want)
		}
	}
	if c.Upstream.URL != nil {
		t.Errorf("there is an upstream %v; want forward mode alone", c.Upstream)
	}
}

func TestAuthorityBeginsEveryKey(t *testing.T) {
	c := load(t, `
defaults: {dialect: webdav, collections: subtree}
policies: [{name: dav, match: {path: "/dav/{rest...}"}, resource: "dav/{rest}"}]
`)
	for _, tt := range []struct {
		method, target, destination string
		want                        []string
	}{
		{"PUT", "/dav/a/b", "", []string{"s.test:80/dav/a/b", "under s.test:80/dav/a?tree", "under s.test:80/dav?tree"}},
		{"DELETE", "/dav/a/", "", []string{"s.test:80/dav/a", "under s.test:80/dav?tree", "tree s.test:80/dav/a?tree s.test:80/dav/a/"}},
		{"MOVE", "/dav/a", "/dav/b", []string{"s.test:80/dav/a", "s.test:80/dav/b", "under s.test:80/dav?tree", "tree s.test:80/dav/a?tree s.test:80/dav/a/", "tree s.test:80/dav/b?tree s.test:80/dav/b/"}},
	} {
		r := &policies.Request{Method: tt.method, Target: tt.target, Authority: "s.test:80", Host: "s.test", Header: map[string][]string{"Fencing-Token": {"34"}}}
		if tt.destination != "" {
			r.Header["Destination"] = []string{tt.destination}
		}
		d := c.Policies.Decide(r)
		var got []string
		for _, k := range d.Resources {
			got = append(got, string(k))
		}
		for _, k := range d.Under {
			got = append(got, "under "+string(k))
		}
		for _, k := range d.Trees {
			got = append(got, "tree "+string(k.Key)+" "+string(k.Prefix))
		}
		if strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s %s touches\n%s\n(%v); want\n%s", tt.method, tt.target, strings.Join(got, "\n"), d.Err, strings.Join(tt.want, "\n"))
		}
	}
}

func TestAuthoritiesAreListedByTheWaysToAStore(t *testing.T) {
	c, err := policies.Load("test.yaml", []byte(`
unmatched_writes: fence
upstream: {url: "http://127.0.0.1:9000", authority: "store.test:80"}
forward: {listen: "127.0.0.1:3128", upstreams: [{url: "http://store.test", aliases: ["http://s.test"], dial: "[::1]:9000"}, {url: "http://b.test", authority: "c.test:1"}]}
`), policies.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"upstream": "store.test:80", "forward store.test:80": "store.test:80", "forward s.test:80": "store.test:80", "forward at 127.0.0.1:9000": "store.test:80",
		"forward b.test:80": "c.test:1", "forward at b.test:80": "c.test:1",
	}
	if diff := cmp.Diff(want, c.Policies.Authorities()); diff != "" {
		t.Errorf("Authorities (-want +got):\n%s", diff)
	}
	for host, want := range map[string]string{"x.test": "store.test:80", "": "store.test:80", "b.test": "c.test:1"} {
		if got := c.Policies.AuthorityOf("http", host); got != want {
			t.Errorf("AuthorityOf(%q) = %q; want %q", host, got, want)
		}
	}
	if got := load(t, "unmatched_writes: fence").Policies.Authorities(); got["upstream"] != "(none)" {
		t.Errorf("without an authority: %q", got)
	}
}

func TestKeysOfTheUpstreamBeginAsNoOtherStores(t *testing.T) {
	s := load(t, `
unmatched_writes: fence
forward: {listen: "127.0.0.1:3128", upstreams: [{url: "http://store.test"}]}
`).Policies
	for target, bad := range map[string]bool{"/store.test:80/k": true, "/store.test:80": true, "/STORE.test:80/k": false, "/store.test:8/k": false, "/k": false} {
		d := s.Decide(&policies.Request{Method: "PUT", Target: target, Reserved: s.Reserved(), Header: map[string][]string{"Fencing-Token": {"34"}}})
		if got := d.Action == policies.Reject; got != bad {
			t.Errorf("PUT %s: %v, %v; want it refused %v", target, d.Action, d.Err, bad)
		}
	}
}
