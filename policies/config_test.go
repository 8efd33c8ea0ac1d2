package policies_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fenceproxy/fenceproxy/policies"
)

const head = "upstream: {url: http://127.0.0.1:9000}\n"

// load fails the test if text, after an upstream, is not a valid configuration.
func load(t testing.TB, text string) *policies.Config {
	t.Helper()
	c, err := policies.Load("test.yaml", []byte(head+text), policies.Overrides{})
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return c
}

// problems returns what Load says about text.
func problems(t testing.TB, text string, over policies.Overrides) []policies.Problem {
	t.Helper()
	_, err := policies.Load("test.yaml", []byte(text), over)
	if err == nil {
		return nil
	}
	var all *policies.Errors
	if !errors.As(err, &all) {
		t.Fatalf("Load: %T; want *policies.Errors", err)
	}
	return all.Problems
}

func TestLoadReadsEveryKey(t *testing.T) {
	data, err := os.ReadFile("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := policies.Load("testdata/full.yaml", data, policies.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("warnings %v; want none", w)
	}
	if got, want := c.Upstream.String(), "https://store.example.test:9000"; got != want {
		t.Errorf("upstream %s; want %s", got, want)
	}
	c.Upstream.URL = nil
	if got := c.Forward.Stores[0].Upstream.URL.String(); got != "https://s3.example.test" {
		t.Errorf("the store of forward mode is at %s; want https://s3.example.test", got)
	}
	if diff := cmp.Diff([]string{"s3.example.test:443", "*.s3.example.test:443"}, c.Forward.Stores[0].Names()); diff != "" {
		t.Errorf("its names (-want +got):\n%s", diff)
	}
	c.Forward.Stores[0].Upstream.URL = nil
	got := *c
	got.Policies = nil
	want := policies.Config{
		Listen:   policies.Listener{Address: "127.0.0.1:8443", TLS: &policies.ListenerTLS{Cert: "tls/server.pem", Key: "tls/server.key", ClientCA: "tls/clients.pem", Request: true, Section: "listen.tls"}},
		Upstream: policies.Upstream{CA: "tls/store-ca.pem", Cert: "tls/proxy.pem", Key: "tls/proxy.key", Timeout: 90 * time.Second, PreserveHost: true, Authority: "store.example.test:9000"},
		Forward: policies.ForwardMode{
			Listen: policies.Listener{Address: "127.0.0.1:3128"}, CA: policies.CertFiles{Cert: "tls/ca.pem", Key: "tls/ca.key"}, Tunnel: true,
			Stores: []policies.Store{{Authority: "store.example.test:9000", Upstream: policies.Upstream{CA: "tls/store-ca.pem", Dial: "10.0.0.7:443", Timeout: 2 * time.Minute, PreserveHost: true}}},
		},
		TokenStore: policies.TokenStore{Dir: "/srv/fenceproxy", MustExist: true, MinFree: 1 << 30, MaxResources: 1000000},
		Admin:      policies.Admin{Listen: policies.Listener{Address: "127.0.0.1:9443"}, TokenFile: "/etc/fenceproxy/admin-token"},
		Leases:     policies.Leases{Listen: policies.Listener{Address: "127.0.0.1:9444"}, Max: 500},
		Spool:      policies.Spool{Memory: 512 << 10, Dir: "/var/spool/fenceproxy", Max: 20 << 30},
		Limits: policies.Limits{
			MaxHeader: 32 << 10, HeaderTimeout: 5 * time.Second, BodyTimeout: 30 * time.Second, MinUploadRate: 1 << 10, ConnectionsPerClient: 200,
			Connections: 5000, WaitersPerResource: 100, Waiters: 2000, NewResourcesPerClient: 50,
		},
		Log: policies.Log{Level: "debug", Format: "json"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(policies.Config{}), cmpopts.IgnoreUnexported(policies.Store{})); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
	rides, orders, files := c.Policies.Policies()[0], c.Policies.Policies()[1], c.Policies.Policies()[3]
	if rides.Limits.Max != 1<<63-1 {
		t.Errorf("rides max %d; a policy that sets the format takes the limits of that format", rides.Limits.Max)
	}
	if orders.Limits.Max != 1000000 || orders.StaleStatus != 409 || orders.Compare != policies.Greater || orders.Mode != policies.Observe || !orders.ReadsBody() {
		t.Errorf("orders %+v; want the defaults' max and its own settings", orders)
	}
	if !files.Stream || !files.Serial || files.MaxBody != 2<<30 || files.Settle != 250*time.Millisecond || !files.Reverts(403) || files.Reverts(500) {
		t.Errorf("files %+v", files)
	}
	wantPlaces := []string{"header X-Lock-Revision", "header User-Agent (fence-([0-9]+))", "query parameter fence", "Basic-auth user"}
	if diff := cmp.Diff(wantPlaces, rides.TokenPlaces()); diff != "" {
		t.Errorf("token places (-want +got):\n%s", diff)
	}
	if got, want := c.Policies.MaxInDoubtHold(), 15250*time.Millisecond; got != want {
		t.Errorf("MaxInDoubtHold %v; want %v", got, want)
	}
}

func TestLoadWithoutAFileFencesEachPath(t *testing.T) {
	c, err := policies.Load("", nil, policies.Overrides{UpstreamURL: "http://127.0.0.1:9000"})
	if err != nil {
		t.Fatal(err)
	}
	u := c.Policies.Unmatched()
	if u == nil || u.Name != "(unmatched)" || u.MissingToken != policies.MissingReject || u.DrainTimeout != 30*time.Second || u.InDoubtHold != 10*time.Second || u.StaleStatus != 412 {
		t.Fatalf("built-in policy %+v", u)
	}
	if c.Listen.Address != "127.0.0.1:8080" || c.Admin.Listen.Address != "127.0.0.1:8081" || c.Upstream.Timeout != time.Minute || !c.Upstream.PreserveHost ||
		c.TokenStore.MinFree != 256<<20 || c.Spool.Memory != 1<<20 || c.Spool.Max != 5<<30 {
		t.Errorf("defaults %+v", c)
	}
	if _, err := policies.Load("", nil, policies.Overrides{}); err == nil || !strings.Contains(err.Error(), "upstream.url: the upstream is missing") {
		t.Errorf("without an upstream: %v", err)
	}
	// An empty file is a file: what it leaves out is not guessed.
	if _, err := policies.Load("empty.yaml", []byte("# nothing\n"), policies.Overrides{UpstreamURL: "http://x"}); err == nil || !strings.Contains(err.Error(), "policies: there are no policies") {
		t.Errorf("empty file: %v", err)
	}
}

func TestOverridesWin(t *testing.T) {
	yes, long := true, 5*time.Minute
	text := "listen: 127.0.0.1:1\n" + head + "token_store: {dir: /a}\nunmatched_writes: reject\npolicies: []\n"
	c, err := policies.Load("f.yaml", []byte(text), policies.Overrides{
		Listen: ":2", UpstreamURL: "unix:///run/store.sock", UpstreamTimeout: &long, Dir: "/b", MustExist: &yes, AdminListen: "off",
		UnmatchedWrites: "fence", LogLevel: "warn", LogFormat: "json",
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen.Address != ":2" || c.Upstream.Socket != "/run/store.sock" || c.Upstream.URL.String() != "http://localhost" || c.Upstream.Timeout != long ||
		c.TokenStore.Dir != "/b" || !c.TokenStore.MustExist || c.Admin.Listen.Address != "" || c.Policies.Unmatched() == nil || c.Log.Level != "warn" || c.Log.Format != "json" {
		t.Errorf("config %+v", c)
	}
	ps := problems(t, head, policies.Overrides{Listen: "nope", UpstreamURL: "ftp://x", AdminListen: "9", UnmatchedWrites: "deny", LogLevel: "loud"})
	var paths []string
	for _, p := range ps {
		if p.File == "" {
			paths = append(paths, p.Path)
		}
	}
	if diff := cmp.Diff([]string{"upstream.url", "listen", "admin.listen", "log.level", "unmatched_writes"}, paths); diff != "" {
		t.Errorf("problems of overrides (-want +got):\n%s", diff)
	}
}

func TestLoadReportsAllProblemsInOrder(t *testing.T) {
	ps := problems(t, `listen: 127.0.0.1:8080
upstream:
  url: http://u:p@127.0.0.1:9000
  timeout: fast
policies:
  - name: a b
    match: {pth: /x}
    resource: "{nope}"
    drain_timout: 1s
`, policies.Overrides{})
	want := []string{
		`test.yaml:3:8: upstream.url: the upstream's URL holds credentials, which the proxy never adds to a request (write scheme, host and port only: http://127.0.0.1:9000)`,
		`test.yaml:4:12: upstream.timeout: "fast" is not a duration (write a number with its unit: 500ms, 30s, 2m)`,
		`test.yaml:6:11: policies[0].name: "a b" is not a name (use 1 to 64 of A-Z a-z 0-9 _ . -)`,
		`test.yaml:7:12: policies[0].match.path: the policy does not say which path it matches ("/{rest...}" matches every path)`,
		`test.yaml:7:13: policies[0].match.pth: unknown key "pth" (did you mean path?)`,
		`test.yaml:9:5: policies[0].drain_timout: unknown key "drain_timout" (did you mean drain_timeout?)`,
	}
	var got []string
	for _, p := range ps {
		got = append(got, p.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

// TestLoadRejects holds one mistake a row. A row is set into a policy p that is otherwise fine, unless it starts with a dash.
func TestLoadRejects(t *testing.T) {
	const policy = "policies:\n  - name: p\n    match: {path: \"/a/{id}\"}\n    resource: \"a/{id}\"\n    "
	for _, tt := range []struct{ name, text, want string }{
		{"misspelt mode", "mode: enforced", `"enforced" is not one of enforce, observe, off (did you mean enforce?)`},
		{"missing_token", "missing_token: ignore", "is not one of reject, allow"},
		{"compare", "compare: equal", "is not one of at-least, greater, hold"},
		{"epoch", "epoch: 65536", "65536 is out of range: 0 to 65535"},
		{"epoch as text", "epoch: two", "is not a whole number"},
		{"epoch below zero", "epoch: -1", "is not a whole number"},
		{"format", "token: {format: decimals}", "did you mean decimal?"},
		{"same_token", "same_token: parallel", "is not one of concurrent, serial"},
		{"request_body", "request_body: buffer", "is not one of spool, stream"},
		{"collections", "collections: subtree", "it has no effect: it belongs to dialect: webdav, and this is http"},
		{"abort", "abort: allow", "it belongs to dialect: s3"},
		{"upload_token", "upload_token: create", "it belongs to dialect: s3"},
		{"require_signed_token", "require_signed_token: true", "it belongs to dialect: s3"},
		{"virtual_host_base", "identity: {virtual_host_base: s3.test}", "it belongs to dialect: s3"},
		{"virtual host", "dialect: s3\n    identity: {virtual_host_base: 's3.test:80'}", "is not a domain"},
		{"query of webdav", "dialect: webdav\n    identity: {query_identity: id}", "it does not go with dialect: webdav"},
		{"keys without hierarchy", "{dialect: webdav, collections: subtree}", "subtree needs keys that lie beneath each other"},
		{"max_batch", "max_batch: 0", "0 is out of range: 1 to 1000 resources"},
		{"method_override of s3", "dialect: s3\n    method_override: honour", "honour does not go with dialect: s3"},
		{"query of s3", "dialect: s3\n    identity: {query_identity: id}", "it does not go with dialect: s3"},
		{"-tree in a template", "policies: [{name: a, match: {path: '/a'}, resource: 'a?tree'}]", "is kept for the marks of collections"},
		{"method_override", "method_override: yes", "is not one of reject, honour"},
		{"strip of a header", "token: {header: X-T, strip: true}", "it removes a query parameter or a user name"},
		{"strip alone", "token: {strip: true}", "it has no effect alone"},
		{"strip and a signature", "dialect: s3\n    token: {query: fence, strip: true}", "strip does not go with dialect: s3"},
		{"unknown dialect", "dialect: ftp", "is not one of http"},
		{"dots", "identity: {dot_segments: ignore}", "is not one of reject, resolve, literal"},
		{"empties", "identity: {empty_segments: resolve}", "is not one of reject, collapse, literal"},
		{"slash", "identity: {trailing_slash: strip}", "is not one of same, distinct, reject"},
		{"encoded", "identity: {encoded_slash: collapse}", "is not one of reject, separator, literal"},
		{"params", "identity: {path_params: drop}", "is not one of literal, strip, reject"},
		{"case", "identity: {case: insensitive}", "is not one of sensitive, fold"},
		{"unicode", "identity: {unicode: nfc}", "is not one of as-is, nfc-key, reject-non-nfc"},
		{"query_identity", "identity: {query_identity: [id, id]}", "id is given twice"},
		{"query_identity name", "identity: {query_identity: 'a=b'}", "is not the name of a query parameter"},
		{"negative duration", "settle: -1s", "out of range"},
		{"bare number", "settle: 10", "is not a duration"},
		{"long duration", "in_doubt_hold: 25h", "out of range"},
		{"no effect", "{same_token: serial, compare: greater}", ""},
		{"stale 403", "stale_status: 403", "not a final refusal"},
		{"stale 423", "stale_status: 423", "not a final refusal"},
		{"stale 200", "stale_status: 200", "not a status from 400 to 499"},
		{"stale text", "stale_status: conflict", "not a whole number"},
		{"revert 500", "revert_on: [500]", "does not say that the store turned the caller away"},
		{"revert scalar", "revert_on: 401", "where a list is expected"},
		{"bool", "reveal_mark: maybe", "where true or false is expected"},
		{"null", "mode:", "it is empty"},
		{"token without place", "token: {pattern: 'x([0-9]+)'}", "it has no effect alone"},
		{"two groups", "token: {header: User-Agent, pattern: '(a)([0-9]+)'}", "the pattern has 2 groups"},
		{"no group", "token: {header: User-Agent, pattern: '[0-9]+'}", "the pattern has 0 groups"},
		{"bad regexp", "token: {header: User-Agent, pattern: '('}", "not a regular expression"},
		{"pattern for two", "token: {header: [A, B], pattern: '([0-9]+)'}", "not certain which place"},
		{"from and header", "token: {header: A, from: [{query: q}]}", "no effect beside from"},
		{"from empty", "token: {from: []}", "names no place"},
		{"place twice", "token: {header: [A, a]}", "named twice"},
		{"hop header", "token: {header: Connection}", "belongs to the connection"},
		{"bad header", "token: {header: 'a b'}", "is not a header name"},
		{"basic false", "token: {basic_user: false}", "false has no effect"},
		{"max 0", "token: {max: 0}", "no token would be allowed"},
		{"max text", "token: {max: many}", "not a whole number"},
		{"znode max", "token: {format: znode, max: 4294967296}", "ZooKeeper's counter ends at"},
		{"unknown key", "drain: 1s", "unknown key"},
		{"unknown nested", "identity: {dotsegments: reject}", "did you mean dot_segments?"},
		{"misplaced", "path: /a", "it belongs under match"},
		{"doubled key", "mode: off\n    mode: off", "the key \"mode\" is given twice"},
		{"merge key", "<<: {mode: off}", "merge keys (<<) are not supported"},
		{"name twice", "mode: off\n  - name: p\n    match: {path: /b}\n    resource: b", `policies[0] has the name "p" too`},

		{"-not yaml", "policies: [", "not valid YAML"},
		{"-tab", "\tpolicies: 1", "not valid YAML"},
		{"-second document", "unmatched_writes: fence\n---\nlisten: :1\n", "a second YAML document starts here"},
		{"-list at the top", "- a\n- b", ""},
		{"-unmatched", "unmatched_writes: deny", "is not one of reject, allow, fence"},
		{"-no policies", "unmatched_writes: allow", "there are no policies"},
		{"-empty policies", "policies: []", "the list is empty"},
		{"-null policies", "policies:", "it is empty"},
		{"-policies mapping", "policies: {a: b}", "where a list is expected"},
		{"-unknown top", "unmatched_write: fence", "did you mean unmatched_writes?"},
		{"-name in defaults", "unmatched_writes: fence\ndefaults: {name: x}", "unknown key"},
		{"-listen", "unmatched_writes: fence\nlisten: 8080", "is not an address"},
		{"-listen url", "unmatched_writes: fence\nlisten: http://127.0.0.1:80", "is not an address"},
		{"-tls half", "unmatched_writes: fence\nlisten: {address: ':1', tls: {cert: a}}", "key is missing"},
		{"-same port", "unmatched_writes: fence\nadmin: {listen: 127.0.0.1:8080}", "the admin listener has the address of the proxy"},
		{"-loop", "unmatched_writes: fence\nlisten: 127.0.0.1:9000", "the upstream is the proxy itself"},
		{"-token file", "unmatched_writes: fence\nadmin: {listen: off, token_file: x}", "no effect"},
		{"-size", "unmatched_writes: fence\nspool: {memory: 1MB}", "is not a size"},
		{"-size huge", "unmatched_writes: fence\nspool: {max: 99999999TiB}", "too large"},
		{"-size zero", "unmatched_writes: fence\nspool: {max: 0}", "no body at all"},
		{"-log", "unmatched_writes: fence\nlog: {level: trace}", "is not one of debug, info, warn, error"},
		{"-no name", "policies: [{match: {path: /a}, resource: a}]", "policies[0].name: the policy has no name"},
		{"-reserved name", "policies: [{name: (unmatched), match: {path: /a}, resource: a}]", "is not a name"},
		{"-no resource", "policies: [{name: a, match: {path: /a}}]", "policies[0].resource: the policy does not name the resource"},
		{"-no match", "policies: [{name: a, resource: a}]", "does not say what it matches"},
		{"-methods empty", "policies: [{name: a, match: {path: /a, methods: []}, resource: a}]", "can never match"},
		{"-methods case", "policies: [{name: a, match: {path: /a, methods: [put]}, resource: a}]", "write PUT"},
		{"-connect", "policies: [{name: a, match: {path: /a, methods: [CONNECT]}, resource: a}]", "always refused"},
		{"-host port", "policies: [{name: a, match: {path: /a, host: 'a:80'}, resource: a}]", "is not a host"},
		{"-host star", "policies: [{name: a, match: {path: /a, host: 'a.*.b'}, resource: a}]", "is not a host"},
		{"-query list", "policies: [{name: a, match: {path: /a, query: [x]}, resource: a}]", "where a mapping is expected"},
		{"-header bad", "policies: [{name: a, match: {path: /a, header: {'a b': x}}, resource: a}]", "is not a header name"},
		{"-header twice", "policies: [{name: a, match: {path: /a, header: {x-a: x, X-A: y}}, resource: a}]", "given twice"},
		{"-stream body", "policies: [{name: a, match: {path: /a}, resource: '{body.id}', request_body: stream}]", "stream does not go with"},
		{"-placeholder", "policies: [{name: a, match: {path: '/{ride}'}, resource: '{rid}'}]", "did you mean ride?"},
		{"-dots in placeholder", "policies: [{name: a, match: {path: '/{r...}'}, resource: '{r...}'}]", "write {r}"},
		{"-brace", "policies: [{name: a, match: {path: '/a'}, resource: 'a{b'}]", "a brace stands alone"},
		{"-resource twice", "policies: [{name: a, match: {path: '/a'}, resource: [a, a]}]", "given twice"},
		{"-empty resource", "policies: [{name: a, match: {path: '/a'}, resource: []}]", "1 to 16"},
		{"-header.Host", "policies: [{name: a, match: {path: '/a'}, resource: '{header.Host}'}]", "write {host}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var text string
			if strings.HasPrefix(tt.name, "-") {
				text = tt.text
			} else if !strings.HasPrefix(tt.text, "{") {
				text = policy + tt.text
			} else {
				text = policy + strings.ReplaceAll(strings.Trim(tt.text, "{}"), ", ", "\n    ")
			}
			ps := problems(t, head+text+"\n", policies.Overrides{})
			if len(ps) == 0 {
				t.Fatalf("no problem; want %q", tt.want)
			}
			if all := (&policies.Errors{Problems: ps}).Error(); !strings.Contains(all, tt.want) {
				t.Errorf("got\n%s\nwant %q", all, tt.want)
			}
			for _, p := range ps {
				if p.File != "test.yaml" || p.Line == 0 && !strings.Contains(p.Message, "YAML") {
					t.Errorf("%+v has no place", p)
				}
			}
		})
	}
}

func TestLoadRejectsPatterns(t *testing.T) {
	for _, tt := range []struct{ path, identity, want string }{
		{"a", "", "starts with /"},
		{"/a{b}", "", "mixes text and a wildcard"},
		{"/{b}c", "", "mixes text and a wildcard"},
		{"/{}", "", "is not a name"},
		{"/{a-b}", "", "is not a name"},
		{"/{a}/{a}", "", "given twice"},
		{"/{a...}/b", "", "at the end only"},
		{"/{$}/b", "", "at the end only"},
		{"/a//b", "", "can never match"},
		{"/a/../b", "", "can never match"},
		{"/a%2Fb", "", "can never match"},
		{"/a%5Cb", "", "can never match"},
		{"/a%zz", "", "bad %-escape"},
		{"/a;b", "path_params: strip", "can never match"},
		{"/a;b", "path_params: reject", "can never match"},
		{"/a/{$}", "trailing_slash: reject", "can never match"},
		{"/a%2Fb", "encoded_slash: separator", "can never match"},
		{"/e\u0301", "unicode: reject-non-nfc", "can never match"},
	} {
		t.Run(tt.path+" "+tt.identity, func(t *testing.T) {
			text := head + "policies: [{name: p, match: {path: \"" + tt.path + "\"}, resource: x, identity: {" + tt.identity + "}}]"
			ps := problems(t, text, policies.Overrides{})
			if len(ps) != 1 || !strings.Contains(ps[0].Message, tt.want) || ps[0].Path != "policies[0].match.path" {
				t.Errorf("got %v; want one problem of the path, %q", ps, tt.want)
			}
		})
	}
}

func TestUpstreamURLs(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"http://store:9000", "http://store:9000"},
		{"http://store:9000/", "http://store:9000"},
		{"https://store", "https://store"},
		{"http://[::1]:80", "http://[::1]:80"},
		{"unix:///run/s.sock", "unix:///run/s.sock"},
		{"http://store/base", ""},
		{"http://store//", ""},
		{"http://store?x=1", ""},
		{"http://store#f", ""},
		{"http://u@store", ""},
		{"http://", ""},
		{"store:9000", ""},
		{"unix://run/s.sock", ""},
		{"unix:///run/s.sock?x", ""},
		{"http://sto re", ""},
	} {
		c, err := policies.Load("", nil, policies.Overrides{UpstreamURL: tt.url})
		switch {
		case tt.want == "" && err == nil:
			t.Errorf("%s is accepted", tt.url)
		case tt.want != "" && err != nil:
			t.Errorf("%s: %v", tt.url, err)
		case tt.want != "" && c.Upstream.String() != tt.want:
			t.Errorf("%s: %s; want %s", tt.url, c.Upstream, tt.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"shadowed", "policies:\n- {name: a, match: {path: '/x/{rest...}'}, resource: x}\n- {name: b, match: {path: '/x/{id}', methods: [PUT]}, resource: b}", "the policy b never matches: a matches all of it first"},
		{"other method", "policies:\n- {name: a, match: {path: '/x/{rest...}', methods: [PUT]}, resource: x}\n- {name: b, match: {path: '/x/{id}'}, resource: b}", ""},
		{"read beside write", "policies:\n- {name: a, match: {path: '/x/{rest...}'}, resource: x}\n- {name: b, match: {path: '/x/{id}', methods: [GET]}, resource: b}", ""},
		{"host", "policies:\n- {name: a, match: {path: /x, host: '*.h.test'}, resource: x}\n- {name: b, match: {path: /x, host: a.h.test}, resource: b}", "never matches"},
		{"other host", "policies:\n- {name: a, match: {path: /x, host: a.test}, resource: x}\n- {name: b, match: {path: /x}, resource: b}", ""},
		{"header", "policies:\n- {name: a, match: {path: /x, header: {A: '*'}}, resource: x}\n- {name: b, match: {path: /x, header: {A: 'v'}}, resource: b}", "never matches"},
		{"other query", "policies:\n- {name: a, match: {path: /x, query: {A: w}}, resource: x}\n- {name: b, match: {path: /x, query: {A: v}}, resource: b}", ""},
		{"literal before wildcard", "policies:\n- {name: a, match: {path: /x/y}, resource: x}\n- {name: b, match: {path: '/x/{id}'}, resource: b}", ""},
		{"distinct slash", "defaults: {identity: {trailing_slash: distinct}}\npolicies:\n- {name: a, match: {path: '/x/{rest...}'}, resource: x}\n- {name: b, match: {path: '/x'}, resource: b}", ""},
		{"same slash", "policies:\n- {name: a, match: {path: '/x/{rest...}'}, resource: x}\n- {name: b, match: {path: '/x'}, resource: b}", "never matches"},
		{"client chooses", "unmatched_writes: allow\npolicies:\n- {name: a, match: {path: /x, host: a.test}, resource: x}", "passes unfenced"},
		{"no hold", "unmatched_writes: fence\ndefaults: {in_doubt_hold: 0s}", "can land after one with a higher token"},
		{"spool", "spool: {memory: 1KiB}\nunmatched_writes: fence\ndefaults: {request_body: stream}", "every policy streams"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got string
			for _, w := range load(t, tt.text).Warnings() {
				got += w.String() + "\n"
				if w.Line == 0 || w.Path == "" {
					t.Errorf("%+v has no place", w)
				}
			}
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("warnings %q; want %q", got, tt.want)
			}
		})
	}
}

func TestLeasesAreOffUnlessTheyAreListenedFor(t *testing.T) {
	for _, tt := range []struct {
		name, text, flag string
		want             policies.Leases
		says             string // a problem or a warning
	}{
		{"nothing", "", "", policies.Leases{Max: 10000}, ""},
		{"on", "leases: {listen: '127.0.0.1:8082'}", "", policies.Leases{Listen: policies.Listener{Address: "127.0.0.1:8082"}, Max: 10000}, ""},
		{"on, another loopback", "leases: {listen: '[::1]:8082', max: 7}", "", policies.Leases{Listen: policies.Listener{Address: "[::1]:8082"}, Max: 7}, ""},
		{"by flag", "", "localhost:8082", policies.Leases{Listen: policies.Listener{Address: "localhost:8082"}, Max: 10000}, ""},
		{"flag wins", "leases: {listen: '127.0.0.1:8082'}", "off", policies.Leases{Max: 10000}, ""},
		{"off", "leases: {listen: off}", "", policies.Leases{Max: 10000}, ""},
		{"public", "leases: {listen: ':8082'}", "", policies.Leases{Listen: policies.Listener{Address: ":8082"}, Max: 10000}, "leases.listen: leases are handed out without asking who asks"},
		{"public by flag", "", "192.0.2.1:8082", policies.Leases{Listen: policies.Listener{Address: "192.0.2.1:8082"}, Max: 10000}, "leases.listen: leases are handed out without asking who asks"},
		{"no listener", "leases: {max: 7}", "", policies.Leases{}, "leases.listen: the section names no listener"},
		{"no effect", "leases: {listen: off, max: 7}", "", policies.Leases{}, "leases.max: it has no effect: leases.listen is off"},
		{"none", "leases: {listen: '127.0.0.1:1', max: 0}", "", policies.Leases{}, "leases.max: 0 is out of range: 1 to 1000000 leases"},
		{"too many", "leases: {listen: '127.0.0.1:1', max: 1000001}", "", policies.Leases{}, "leases.max: 1000001 is out of range"},
		{"no address", "leases: {listen: here}", "", policies.Leases{}, `"here" is not an address`},
		{"no address by flag", "", "8082", policies.Leases{}, `leases.listen: "8082" is not an address`},
		{"unknown key", "leases: {listn: '127.0.0.1:1'}", "", policies.Leases{}, "did you mean listen?"},
		{"that of the proxy", "leases: {listen: '127.0.0.1:8080'}", "", policies.Leases{}, "leases: the listener for leases has the address of the proxy itself, 127.0.0.1:8080"},
		{"that of operators", "", "127.0.0.1:8081", policies.Leases{}, "the listener for leases has the address of the admin listener, 127.0.0.1:8081"},
		{"free ports", "listen: 127.0.0.1:0", "127.0.0.1:0", policies.Leases{Listen: policies.Listener{Address: "127.0.0.1:0"}, Max: 10000}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := policies.Load("f.yaml", []byte(head+"unmatched_writes: fence\n"+tt.text), policies.Overrides{LeasesListen: tt.flag})
			said := ""
			if err != nil {
				said = err.Error()
			} else {
				if c.Leases != tt.want {
					t.Errorf("got %+v; want %+v", c.Leases, tt.want)
				}
				for _, w := range c.Warnings() {
					said += w.String()
				}
			}
			if (said == "") != (tt.says == "") || !strings.Contains(said, tt.says) || (err != nil) != (tt.want == policies.Leases{}) {
				t.Errorf("it says %q (%v); want %q", said, err, tt.says)
			}
		})
	}
}

func TestAliasesAreFollowedAndBounded(t *testing.T) {
	c := load(t, "policies:\n- {name: a, match: {path: /a}, resource: x, token: &t {header: T, format: hex}}\n- {name: b, match: {path: /b}, resource: y, token: *t}")
	if got := c.Policies.Policies()[1].TokenPlaces(); got[0] != "header T" {
		t.Errorf("places %v; want those of the alias", got)
	}
	bomb := "policies:\n- {name: a, match: {path: /a}, resource: x, token: &t {from: [" + strings.Repeat("{header: &h [A,B,C,D,E,F,G,H]},", 1)
	bomb += strings.Repeat("{header: *h},", 900) + "]}}\n" + strings.Repeat("- {name: a, match: {path: /a}, resource: x, token: *t}\n", 900)
	start := time.Now()
	if ps := problems(t, head+bomb, policies.Overrides{}); len(ps) == 0 {
		t.Error("a file that multiplies itself is accepted")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
	if ps := problems(t, head+"policies: &p\n- *p\n", policies.Overrides{}); len(ps) == 0 {
		t.Error("a file that holds itself is accepted")
	}
}

func TestDescribe(t *testing.T) {
	c := load(t, `policies:
- {name: a, match: {path: "/x/{id}", host: H.test, methods: [PUT, GET], query: {q: "1"}}, resource: ["x/{id}", all], compare: greater}
- {name: b, match: {path: /y}, resource: y, mode: off}
`)
	want := []policies.Row{
		{"a", "h.test/x/{id} ?q=1", "PUT,GET", "x/{id} + all", "header Fencing-Token, header X-Fencing-Token decimal, greater", "enforce"},
		{"b", "/y", "(writes)", "-", "-", "off"},
		{"(unmatched)", "/", "(writes)", "-", "-", "reject"},
	}
	if diff := cmp.Diff(want, c.Policies.Describe()); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestNearestSuggestsWhatWasProbablyMeant(t *testing.T) {
	known := []string{"serve", "check", "explain", "marks", "health", "demo", "version", "upstream", "upstream-timeout", "dir"}
	for got, want := range map[string]string{
		"serv": "serve", "sevre": "serve", "upsteam": "upstream", "mark": "marks", "expla": "explain", "demos": "demo",
		"": "", "xyz": "", "frobnicate": "",
	} {
		if near := policies.Nearest(got, known); near != want {
			t.Errorf("Nearest(%q) is %q; want %q", got, near, want)
		}
	}
}
