package policies_test

import (
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// request builds a request from "PUT /target" and header lines.
func request(line string, headers ...string) *policies.Request {
	method, target, _ := strings.Cut(line, " ")
	h := http.Header{}
	for _, l := range headers {
		name, value, _ := strings.Cut(l, ": ")
		h.Add(name, value)
	}
	return &policies.Request{Method: method, Target: target, Host: "store.test:9000", Header: h}
}

// outcome is a decision in one word or key: the key, "pass", or the kind of the refusal.
func outcome(d policies.Decision) string {
	var (
		missing   *policies.MissingTokenError
		token     *policies.TokenError
		ambiguous *policies.AmbiguousError
		unmatched *policies.UnmatchedError
		refused   *policies.RefusedError
		key       *policies.KeyError
	)
	switch {
	case d.Action == policies.Pass:
		return "pass"
	case d.Action == policies.Fence && d.NeedsBody:
		return "body"
	case d.Action == policies.Fence:
		var keys []string
		for _, r := range d.Resources {
			keys = append(keys, string(r))
		}
		return strings.Join(keys, " ")
	case errors.As(d.Err, &missing):
		return "missing"
	case errors.As(d.Err, &token):
		return "malformed"
	case errors.As(d.Err, &ambiguous):
		return "ambiguous"
	case errors.As(d.Err, &unmatched):
		return "unmatched"
	case errors.As(d.Err, &refused):
		return "refused"
	case errors.As(d.Err, &key):
		return "key"
	}
	return "unknown error"
}

const token34 = "Fencing-Token: 34"

// TestSpellings is the table of spellings that real stores take for /d/f.txt, under the defaults and under each option.
func TestSpellings(t *testing.T) {
	const key = "d/f.txt"
	for _, tt := range []struct{ identity, target, want string }{
		{"", "/d/f.txt", key},
		{"", "/d/./f.txt", "ambiguous"},
		{"", "/d/x/../f.txt", "ambiguous"},
		{"", "/d/%2e/f.txt", "ambiguous"},
		{"", "/d/x/%2E%2e/f.txt", "ambiguous"},
		{"", "/d/x/.%2e/f.txt", "ambiguous"},
		{"", "/d/x%2f..%2ff.txt", "ambiguous"},
		{"", "//d/f.txt", "ambiguous"},
		{"", "/d//f.txt", "ambiguous"},
		{"", "/d/f.txt//", "ambiguous"},
		{"", "/d/f.txt/", key},
		{"", "/d/%66.txt", key},
		{"", "/%64/f%2etxt", key},
		{"", "/d/~=:,&+%C3%A9", "d/~=:,&+é"},
		{"", "/d/%7E%3D%3a%2C%26%2b\u00e9", "d/~=:,&+é"},
		{"", "/d%2Ff.txt", "ambiguous"},
		{"", "/d%2ff.txt", "ambiguous"},
		{"", "/d/f.txt;v=1", "d/f.txt;v=1"},
		{"", "/d/..;v=1/f.txt", "ambiguous"},
		{"", "/d/f.txt%3Bv=1", "d/f.txt;v=1"},
		{"", "/d/f.txt?x=1", key},
		{"", "/d/f.txt?", key},
		{"", "/d/f.txt#frag", "ambiguous"},
		{"", "/d/f.txt?x#frag", "ambiguous"},
		{"", "/D/F.TXT", "D/F.TXT"},
		{"", "/d/f .txt", "ambiguous"},
		{"", "/d/f\t.txt", "ambiguous"},
		{"", "/d/f%00.txt", "ambiguous"},
		{"", "/d/f%0a.txt", "ambiguous"},
		{"", "/d/f%7f.txt", "ambiguous"},
		{"", "/d/f%C2%85.txt", "ambiguous"},
		{"", "/d/%252F", "d/%252F"},
		{"", "/d/%2566", "d/%2566"},
		{"", "/d/a%3Fb", "d/a%3Fb"},
		{"", "/d/a+b", "d/a+b"},
		{"", "/d/a%20b", "d/a b"},
		{"", `/d\f.txt`, "ambiguous"},
		{"", "/d%5Cf.txt", "ambiguous"},
		{"", "/d/%C0%AE", "ambiguous"},
		{"", "/d/\xff", "ambiguous"},
		{"", "/d/%zz", "ambiguous"},
		{"", "/d/%6", "ambiguous"},
		{"", "/d/%", "ambiguous"},
		{"", "/d/...", "d/..."},
		{"", "/d/.f", "d/.f"},
		{"", "/", "/"},
		{"", "", "ambiguous"},
		{"", "d/f.txt", "ambiguous"},
		{"", "http://other/d/f.txt", "ambiguous"},
		{"", "*", "ambiguous"},
		{"", "/" + strings.Repeat("a", policies.MaxPathLen), "ambiguous"},
		{"", "/" + strings.Repeat("a", fencing.MaxResourceLen+1), "key"},

		{"dot_segments: resolve", "/d/./f.txt", key},
		{"dot_segments: resolve", "/d/x/%2e%2E/f.txt", key},
		{"dot_segments: resolve", "/../d/f.txt", "ambiguous"},
		{"dot_segments: resolve", "/d/f.txt/.", key},
		{"dot_segments: resolve", "/d/..", "/"},
		{"dot_segments: resolve", "/d/x/..;a/f.txt", "ambiguous"},
		{"dot_segments: resolve, trailing_slash: distinct", "/d/f.txt/x/..", key + "/"},
		{"dot_segments: resolve, encoded_slash: separator", "/d/x%2f..%2ff.txt", key},
		{"dot_segments: literal", "/d/../f.txt", "d/../f.txt"},
		{"dot_segments: literal", "/d/%2e/f.txt", "d/./f.txt"},
		{"empty_segments: collapse", "//d///f.txt", key},
		{"empty_segments: collapse", "//", "/"},
		{"empty_segments: literal", "/d//f.txt", "d//f.txt"},
		{"trailing_slash: distinct", "/d/f.txt/", key + "/"},
		{"trailing_slash: reject", "/d/f.txt/", "ambiguous"},
		{"trailing_slash: reject", "/", "/"},
		{"encoded_slash: separator", "/d%2Ff.txt", key},
		{"encoded_slash: separator", "/d/%2ff.txt", "ambiguous"},
		{"encoded_slash: separator", "/d%2F..%2Ff.txt", "ambiguous"},
		{"encoded_slash: separator", "/d/f.txt%2F", key},
		{"encoded_slash: literal", "/d%2ff.txt", "d%2Ff.txt"},
		{"encoded_slash: literal", "/d%252Ff.txt", "d%252Ff.txt"},
		{"encoded_slash: literal", "/d/x%2f..%2ff.txt", "ambiguous"},
		{"path_params: strip", "/d/f.txt;v=1", key},
		{"path_params: strip", "/d;v=1/f.txt;a;b", key},
		{"path_params: strip", "/d/..;v/f.txt", "ambiguous"},
		{"path_params: strip", "/d/;v/f.txt", "ambiguous"},
		{"path_params: strip", "/d/f.txt%3Bv", "ambiguous"},
		{"path_params: strip", "/d/f.txt/;v", key},
		{"path_params: reject", "/d/f.txt;v=1", "ambiguous"},
		{"path_params: reject", "/d/f.txt%3bv=1", "ambiguous"},
		{"case: fold", "/D/F.TxT", key},
		{"case: fold", "/d/%46.txt", key},
		{"case: fold", "/d/\u212A\u017F", "d/ks"},
		{"case: fold", "/d/%C3%89", "d/é"},
		{"unicode: nfc-key", "/d/e%CC%81", "d/é"},
		{"unicode: nfc-key, case: fold", "/d/E\u0301", "d/é"},
		{"unicode: reject-non-nfc", "/d/e\u0301", "ambiguous"},
		{"unicode: reject-non-nfc", "/d/\u00e9", "d/é"},
		{"query_identity: [id, v]", "/d/f.txt?v=2&id=1&x", key + "?id=1&v=2"},
		{"query_identity: id", "/d/f.txt?%69d=4%32", key + "?id=42"},
		{"query_identity: id", "/d/f.txt?id=", key},
		{"query_identity: id", "/d/f.txt?ID=1", key},
		{"query_identity: id, case: fold", "/d/f.txt?ID=A", key + "?id=a"},
		{"query_identity: id", "/d/f.txt?id=1&id=1", "ambiguous"},
		{"query_identity: id", "/d/f.txt?id=1&x=%zz", "ambiguous"},
		{"query_identity: id", "/d/f.txt?x;id=1", "ambiguous"},
		{"query_identity: id", "/d/f.txt?id=a%26b%3Dc", key + "?id=a%26b%3Dc"},
		{"query_identity: id", "/d/f.txt?id=a%20b", key + "?id=a+b"},
		{"query_identity: id", "/d/f.txt%3Fid=1", key + "%3Fid=1"},
	} {
		t.Run(tt.identity+" "+tt.target[:min(len(tt.target), 40)], func(t *testing.T) {
			s := load(t, "unmatched_writes: fence\ndefaults: {identity: {"+tt.identity+"}}").Policies
			if got := outcome(s.Decide(request("PUT "+tt.target, token34))); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
			// A read that no policy fences passes, whatever its spelling, as long as it is a path at all.
			want := "pass"
			if !strings.HasPrefix(tt.target, "/") {
				want = "ambiguous"
			}
			if got := outcome(s.Decide(request("GET "+tt.target, ""))); got != want {
				t.Errorf("GET: got %s; want %s", got, want)
			}
		})
	}
}

func TestPatterns(t *testing.T) {
	for _, tt := range []struct{ path, identity, target, want string }{
		{"/a", "", "/a", "k"},
		{"/a", "", "/a/", "k"},
		{"/a", "", "/a/b", "unmatched"},
		{"/a", "trailing_slash: distinct", "/a/", "unmatched"},
		{"/a/", "", "/a", "k"},
		{"/a/", "", "/a/b/c", "k"},
		{"/a/", "trailing_slash: distinct", "/a", "unmatched"},
		{"/a/", "trailing_slash: distinct", "/a/", "k"},
		{"/a/{$}", "", "/a", "k"},
		{"/a/{$}", "trailing_slash: distinct", "/a", "unmatched"},
		{"/a/{$}", "trailing_slash: distinct", "/a/", "k"},
		{"/a/{$}", "", "/a/b", "unmatched"},
		{"/{$}", "", "/", "k"},
		{"/{$}", "", "/a", "unmatched"},
		{"/{r...}", "", "/", "k"},
		{"/{x}", "", "/", "unmatched"},
		{"/{x}/{r...}", "", "/a", "k"},
		{"/{x}/{r...}", "trailing_slash: distinct", "/a", "unmatched"},
		{"/{x}/b", "", "/q/b", "k"},
		{"/{x}/b", "", "/q/c", "unmatched"},
		{"/a%20b/c", "", "/a%20b/c", "k"},
		{"/a b/c", "", "/a%20b/c", "k"},
		{"/\u00e9", "", "/%C3%A9", "k"},
		{"/e\u0301", "unicode: nfc-key", "/%C3%A9", "k"},
		{"/ABC", "case: fold", "/a%42c", "k"},
		{"/abc", "", "/ABC", "unmatched"},
		{"/a%2Fb", "encoded_slash: literal", "/a%2fb", "k"},
		{"/a%2Fb", "encoded_slash: literal", "/a/b", "unmatched"},
		{"/a/../b", "dot_segments: literal", "/a/%2e./b", "k"},
		{"/a;v", "", "/a;v", "k"},
	} {
		t.Run(tt.path+" "+tt.identity+" "+tt.target, func(t *testing.T) {
			s := load(t, "policies: [{name: p, match: {path: \""+tt.path+"\"}, resource: k, identity: {"+tt.identity+"}}]").Policies
			if got := outcome(s.Decide(request("PUT "+tt.target, token34))); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}

func TestTheFirstPolicyInFileOrderWins(t *testing.T) {
	s := load(t, `
policies:
  - {name: one, match: {path: "/a/{id}", methods: [PUT]}, resource: "one/{id}"}
  - {name: special, match: {path: "/a/special"}, resource: special}
  - {name: tenant, match: {path: "/a/{id}", host: "*.t.test", query: {q: "1"}, header: {X-T: v}}, resource: tenant}
  - {name: reads, match: {path: "/a/{id}", methods: [GET]}, resource: "r/{id}"}
  - {name: off, match: {path: "/off/{rest...}"}, resource: off, mode: off}
  - {name: rest, match: {path: "/a/{rest...}"}, resource: "rest/{rest}"}
`).Policies
	tenant := request("POST /a/x?q=1", token34, "X-T: v")
	tenant.Host = "A.b.T.test.:80"
	for _, tt := range []struct {
		r            *policies.Request
		policy, want string
	}{
		{request("PUT /a/special", token34), "one", "one/special"},
		{request("POST /a/special", token34), "special", "special"},
		{tenant, "tenant", "tenant"},
		{request("POST /a/x", token34), "rest", "rest/x"},
		{request("POST /a/x?q=1", token34, "X-T: v"), "rest", "rest/x"},
		{request("GET /a/x", token34), "reads", "r/x"},
		{request("GET /a/x"), "reads", "missing"},
		{request("GET /a/x/y"), "", "pass"},
		{request("HEAD /a/x"), "", "pass"},
		{request("GET /a/%2e/x"), "reads", "ambiguous"},
		{request("GET /b/%2e/x"), "", "pass"},
		{request("GET /a" + strings.Repeat("/", policies.MaxPathLen) + "x"), "reads", "ambiguous"},
		{request("GET /b/%2e%2e/a/x"), "reads", "ambiguous"},
		{request("put /a/x", token34), "rest", "rest/x"},
		{request("MKCOL /a/x", token34), "rest", "rest/x"},
		{request("PUT /off/x"), "off", "pass"},
		{request("POST /off/%2e%2e/x"), "off", "ambiguous"},
		{request("PUT /off%2f..%2fa/x"), "one", "ambiguous"},
		{request("PUT /zzz", token34), "", "unmatched"},
		{request("PUT /z//z", token34), "", "ambiguous"},
		{request("OPTIONS *"), "", "pass"},
	} {
		d := s.Decide(tt.r)
		got := ""
		if d.Policy != nil {
			got = d.Policy.Name
		}
		if got != tt.policy || outcome(d) != tt.want {
			t.Errorf("%s %s: policy %q, %s; want %q, %s", tt.r.Method, tt.r.Target, got, outcome(d), tt.policy, tt.want)
		}
	}
}

// TestNoSpellingSlipsPastAPolicy tries the ways in which a path can look like one that is not fenced.
func TestNoSpellingSlipsPastAPolicy(t *testing.T) {
	s := load(t, `
unmatched_writes: allow
policies:
  - {name: public, match: {path: "/public/{rest...}"}, resource: p, mode: off}
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}
`).Policies
	for _, target := range []string{
		"/public/../rides/7", "/public/%2e%2e/rides/7", "/public/%2e%2e%2frides%2f7", "/public/..%5crides%5c7", `/public/..\rides\7`,
		"/public/..;/rides/7", "//rides/7", "/rides//7", "/./rides/7", "/x/../rides/7", "/rides%2f7", "/rides%2F7", "/rides/7%00", "/rides/7#x",
		`\rides/7`, `/x\..\rides\7`, "/rides/%2e/7", "/rides/7/.", "/rides/x/../7", "/rides/%C0%AE/7", "/rides%C0%AF7", "/public//..//rides/7",
		"/%72ides/7/%2e", "/public/%00/../../rides/7", "/public/%25/..%2f..%2frides/7", "/public/%2e%2e/unknown", "/unknown/%2e%2e/x",
	} {
		for _, method := range []string{"PUT", "POST", "put"} {
			if d := s.Decide(request(method+" "+target, token34)); d.Action != policies.Reject || d.Observed {
				t.Errorf("%s %q: %s; want a refusal", method, target, outcome(d))
			}
		}
	}
	for target, want := range map[string]string{"/rides/7": "rides/7", "/rides/%37/": "rides/7", "/%72ides/7?x": "rides/7", "/public/a": "pass", "/other": "pass"} {
		if got := outcome(s.Decide(request("PUT "+target, token34))); got != want {
			t.Errorf("%s: %s; want %s", target, got, want)
		}
	}
}

// A policy that reads spellings in its own way must not let a later policy's stricter reading be lost, and the other way round.
func TestIdentityIsPerPolicy(t *testing.T) {
	s := load(t, `
policies:
  - {name: couch, match: {path: "/db/{doc}"}, resource: "db/{doc}", identity: {encoded_slash: literal, empty_segments: collapse}}
  - {name: rest, match: {path: "/s3/{key...}"}, resource: "{key}", identity: {encoded_slash: separator}}
  - {name: plain, match: {path: "/{rest...}"}, resource: "plain/{rest}"}
`).Policies
	for target, want := range map[string]string{
		"/db/a%2Fb": "db/a%2Fb", "/db//a": "db/a", "/db/a/b": "plain/db/a/b", "/s3/a%2Fb": "a/b", "/s3%2Fa": "a", "/s3//a": "ambiguous",
		"/x/a%2Fb": "ambiguous", "/x%2e": "plain/x.",
	} {
		if got := outcome(s.Decide(request("PUT "+target, token34))); got != want {
			t.Errorf("%s: %s; want %s", target, got, want)
		}
	}
}

func TestObservedAmbiguityNeverShieldsAnEnforcedPolicy(t *testing.T) {
	const text = `
policies:
  - {name: watch, match: {path: "/w/{rest...}"}, resource: w, mode: observe}
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}
`
	reject, allow := load(t, text).Policies, load(t, "unmatched_writes: allow"+text).Policies
	for _, tt := range []struct {
		s        *policies.Set
		target   string
		observed bool
	}{
		{reject, "/w/a//b", true}, {reject, "/w/%2e%2e/rides/7", false}, {reject, "/w/%2e%2e/x", false},
		{allow, "/w/a//b", true}, {allow, "/w/%2e%2e/rides/7", false}, {allow, "/w/%2e%2e/x", true},
	} {
		d := tt.s.Decide(request("PUT "+tt.target, token34))
		if outcome(d) != "ambiguous" || d.Observed != tt.observed {
			t.Errorf("%s: %s, observed %v; want ambiguous, %v", tt.target, outcome(d), d.Observed, tt.observed)
		}
	}
	if d := reject.Decide(request("PUT /w/a")); outcome(d) != "missing" || !d.Observed {
		t.Errorf("missing token: %s, observed %v", outcome(d), d.Observed)
	}
}

func TestConditionsThatStoresReadDifferently(t *testing.T) {
	s := load(t, `
policies:
  - {name: draft, match: {path: "/a/{id}", query: {draft: "1"}}, resource: d, mode: off}
  - {name: job, match: {path: "/a/{id}", header: {X-Job: nightly}}, resource: j, mode: off}
  - {name: rest, match: {path: "/a/{id}"}, resource: "a/{id}"}
`).Policies
	for _, tt := range []struct {
		target, header, want string
	}{
		{"/a/1?draft=1", "", "pass"}, {"/a/1?%64raft=%31", "", "pass"}, {"/a/1?draft=0", "", "a/1"}, {"/a/1?draft=1&draft=0", "", "ambiguous"},
		{"/a/1?draft=1&draft=1", "", "pass"}, {"/a/1?draft=1&x=%zz", "", "ambiguous"}, {"/a/1?x;draft=1", "", "ambiguous"}, {"/b/1?draft=1&draft=0", "", "unmatched"},
		{"/a/1", "X-Job: nightly", "pass"}, {"/a/1", "X-Job: daily", "a/1"}, {"/a/1", "X-Job: nightly\nX-Job: daily", "ambiguous"},
		{"/a/1", "X-Job: nightly\nConnection: close, x-job", "ambiguous"},
	} {
		headers := append(strings.Split(tt.header, "\n"), token34)
		if got := outcome(s.Decide(request("PUT "+tt.target, headers...))); got != tt.want {
			t.Errorf("%s %q: %s; want %s", tt.target, tt.header, got, tt.want)
		}
	}
}

func TestMethodOverridesAreRefused(t *testing.T) {
	s := load(t, "unmatched_writes: allow\npolicies: [{name: p, match: {path: /a}, resource: a}]").Policies
	for _, header := range []string{"X-HTTP-Method-Override: DELETE", "X-HTTP-Method: PUT", "x-method-override: PUT", "X_HTTP_Method_Override: PUT", "X-Http-Method-Override: "} {
		for _, method := range []string{"POST", "GET", "PUT"} {
			if got := outcome(s.Decide(request(method+" /a", header, token34))); got != "refused" {
				t.Errorf("%s with %s: %s; want refused", method, header, got)
			}
		}
	}
	for query, want := range map[string]string{
		"_method=PUT": "refused", "%5Fmethod=PUT": "refused", "a=1&_METHOD=PUT": "refused", "a;_method=x": "refused", "_method": "refused", ".method=PUT": "refused",
		"%zz&_%6dethod=PUT": "refused", "_methods=1": "a", "method=PUT": "a", "x=_method": "a", "m=1&%41": "a",
	} {
		if got := outcome(s.Decide(request("POST /a?"+query, token34))); got != want {
			t.Errorf("?%s: %s; want %s", query, got, want)
		}
	}
}

func TestTokens(t *testing.T) {
	basic := func(s string) string { return "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }
	const places = "{from: [{header: T}, {header: User-Agent, pattern: 'fence-([0-9]+)'}, {query: fence}, {basic_user: true}]}"
	for _, tt := range []struct{ token, query, headers, want, source string }{
		{"", "", "Fencing-Token: 34", "34", "header Fencing-Token"},
		{"", "", "fencing-token: 0034", "34", "header Fencing-Token"},
		{"", "", "X-Fencing-Token: 34", "34", "header X-Fencing-Token"},
		{"", "", "Fencing-Token: 34\nFencing-Token: 34", "34", "header Fencing-Token"},
		{"", "", "Fencing-Token: 34\nX-Fencing-Token: 34", "34", "header Fencing-Token"},
		{"", "", "", "missing", ""},
		{"", "", "Fencing_Token: 34", "missing", ""},
		{"", "fence=34", "", "missing", ""},
		{"", "", "Fencing-Token: 34\nFencing-Token: 99", "malformed", ""},
		{"", "", "Fencing-Token: 34\nX-Fencing-Token: 99", "malformed", ""},
		{"", "", "Fencing-Token: 34\nX-Fencing-Token: ", "malformed", ""},
		{"", "", "Fencing-Token: 34\nConnection: Fencing-Token", "malformed", ""},
		{"", "", "Connection: Fencing-Token", "missing", ""},
		{"", "", "Fencing-Token: ", "malformed", ""},
		{"", "", "Fencing-Token: 0", "malformed", ""},
		{"", "", "Fencing-Token: +34", "malformed", ""},
		{"", "", "Fencing-Token: -34", "malformed", ""},
		{"", "", "Fencing-Token: 34,99", "malformed", ""},
		{"", "", "Fencing-Token: 34, 34", "malformed", ""},
		{"", "", "Fencing-Token: 3_4", "malformed", ""},
		{"", "", "Fencing-Token: 0x22", "malformed", ""},
		{"", "", "Fencing-Token: 1e3", "malformed", ""},
		{"", "", "Fencing-Token: 34.0", "malformed", ""},
		{"", "", "Fencing-Token: 34abc", "malformed", ""},
		{"", "", "Fencing-Token: 3 4", "malformed", ""},
		{"", "", "Fencing-Token: \uff13\uff14", "malformed", ""},
		{"", "", "Fencing-Token: \u0663\u0664", "malformed", ""},
		{"", "", "Fencing-Token: \"34\"", "malformed", ""},
		{"", "", "Fencing-Token: 9223372036854775808", "malformed", ""},
		{"", "", "Fencing-Token: 18446744073709551615", "malformed", ""},
		{"", "", "Fencing-Token: 18446744073709551616", "malformed", ""},
		{"", "", "Fencing-Token: " + strings.Repeat("0", 21), "malformed", ""},
		{"", "", "Fencing-Token: NaN", "malformed", ""},
		{"", "", "Fencing-Token: 34;v=1", "malformed", ""},
		{"{allow_zero: true}", "", "Fencing-Token: 0", "0", "header Fencing-Token"},
		{"{max: 40}", "", "Fencing-Token: 41", "malformed", ""},
		{"{max: 18446744073709551615}", "", "Fencing-Token: 18446744073709551615", "18446744073709551615", "header Fencing-Token"},
		{"{format: hex}", "", "Fencing-Token: 0x22", "34", "header Fencing-Token"},
		{"{format: hex}", "", "Fencing-Token: 22", "malformed", ""},
		{"{format: znode}", "", "Fencing-Token: /l/lock-0000000034", "34", "header Fencing-Token"},
		{"{format: pair}", "", "Fencing-Token: 7.34", "7.34", "header Fencing-Token"},
		{places, "", "User-Agent: curl fence-34", "34", "header User-Agent (fence-([0-9]+))"},
		{places, "", "User-Agent: curl", "missing", ""},
		{places, "", "User-Agent: fence-34 fence-35", "malformed", ""},
		{places, "", "User-Agent: fence-34 fence-34", "34", "header User-Agent (fence-([0-9]+))"},
		{places, "f%65nce=34", "", "34", "query parameter fence"},
		{places, "fence=34&fence=35", "", "malformed", ""},
		{places, "fence=", "", "malformed", ""},
		{places, "fence=34&x=%zz", "", "malformed", ""},
		{places, "fence=34;x", "", "malformed", ""},
		{places, "", basic("34:pw"), "34", "Basic-auth user"},
		{places, "", basic("alice:pw"), "malformed", ""},
		{places, "", basic(":pw"), "malformed", ""},
		{places, "", "Authorization: Basic !!", "malformed", ""},
		{places, "", "Authorization: Bearer 34", "missing", ""},
		{places, "fence=34", "T: 34\n" + basic("0034:x"), "34", "header T"},
		{places, "fence=35", "T: 34", "malformed", ""},
		{places, "", "Fencing-Token: 34", "missing", ""},
		{"{basic_user: true, pattern: 'fence-([0-9]+)$'}", "", basic("alice:pw"), "missing", ""},
		{"{basic_user: true, pattern: 'fence-([0-9]+)$'}", "", basic("alice+fence-34:pw"), "34", "Basic-auth user (fence-([0-9]+)$)"},
	} {
		t.Run(tt.token+tt.query+tt.headers, func(t *testing.T) {
			setting := ""
			if tt.token != "" {
				setting = ", token: " + tt.token
			}
			s := load(t, "policies: [{name: p, match: {path: /a}, resource: a"+setting+"}]").Policies
			d := s.Decide(request("PUT /a?"+tt.query, strings.Split(tt.headers, "\n")...))
			got := outcome(d)
			if d.Action == policies.Fence {
				got = d.Token.String()
			}
			if got != tt.want || d.TokenSource != tt.source {
				t.Errorf("got %s from %q; want %s from %q (%v)", got, d.TokenSource, tt.want, tt.source, d.Err)
			}
			var pe *fencing.ParseError
			if errors.As(d.Err, &pe) && strings.Contains(d.Err.Error(), "alice") {
				t.Errorf("%v names a user", d.Err)
			}
		})
	}
}

func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		pattern, host string
		want          bool
	}{
		{"s3.test", "s3.test", true}, {"s3.test", "S3.TEST.:9000", true}, {"s3.test", "b.s3.test", false}, {"s3.test", "", false},
		{"*.s3.test", "b.s3.test", true}, {"*.s3.test", "a.b.S3.test:1", true}, {"*.s3.test", "s3.test", false}, {"*.s3.test", "xs3.test", false},
		{"[::1]", "[::1]:80", true}, {"[::1]", "[::1]", true}, {"127.0.0.1", "127.0.0.1:80", true},
	} {
		s := load(t, "policies: [{name: p, match: {path: /a, host: '"+tt.pattern+"'}, resource: a}]").Policies
		r := request("PUT /a", token34)
		r.Host = tt.host
		if got := outcome(s.Decide(r)) == "a"; got != tt.want {
			t.Errorf("host %q for %q: %v; want %v", tt.host, tt.pattern, got, tt.want)
		}
	}
}

// TestRefusalsSayWhatToDo holds the sentences that clients and operators read.
func TestRefusalsSayWhatToDo(t *testing.T) {
	s := load(t, "policies: [{name: p, match: {path: /a}, resource: '{query.id}'}]").Policies
	for _, tt := range []struct {
		r    *policies.Request
		want string
	}{
		{request("PUT /a"), "policy p needs a fencing token and the request carries none: send the token that came with the lease as header Fencing-Token or header X-Fencing-Token"},
		{request("PUT /a", "Fencing-Token: -1"), `the fencing token in header Fencing-Token cannot be used: "-1" is not a token of the decimal format: it carries a sign; tokens are unsigned, and a negative one comes from a counter that overflowed or was never set; send exactly one token, as policy p expects it`},
		{request("PUT /a", token34), "policy p cannot name the resource: {query.id} is missing: send the query parameter id"},
		{request("PUT //a", token34), "the request is ambiguous: the path holds an empty segment (//); send the plain spelling, or tell policy p how the store reads it (identity)"},
		{request("PUT //b", token34), "the request is ambiguous: the path holds an empty segment (//); send the plain spelling"},
		{request("PUT /b?x", token34), `no policy covers PUT "/b": add a policy for the path, or set unmatched_writes`},
		{request("PUT /a?_method=x"), "the request is refused: the query parameter _method asks the store for another method than the request line does; send the method itself"},
	} {
		d := s.Decide(tt.r)
		if d.Action != policies.Reject || d.Err.Error() != tt.want {
			t.Errorf("%s: %s: %v; want %s", tt.r.Target, d.Action, d.Err, tt.want)
		}
	}
	p := s.Policies()[0]
	if diff := cmp.Diff([]string{"Fencing-Token", "X-Fencing-Token"}, p.TokenHeaders()); diff != "" || p.Path() != "/a" || p.Methods() != nil || s.UnmatchedWrites() != "reject" || !strings.Contains(p.Identity(), "case=sensitive") {
		t.Errorf("accessors of %+v: %s", p, diff)
	}
}

func TestMissingTokenAllow(t *testing.T) {
	s := load(t, "policies: [{name: p, match: {path: /a}, resource: a, missing_token: allow}]").Policies
	if d := s.Decide(request("PUT /a")); d.Action != policies.Pass || d.Unfenced != "no token (missing_token: allow)" || d.Policy.Name != "p" {
		t.Errorf("%+v; want it to pass unfenced", d)
	}
	if got := outcome(s.Decide(request("PUT /a", "Fencing-Token: x"))); got != "malformed" {
		t.Errorf("malformed token: %s", got)
	}
	if got := outcome(s.Decide(request("PUT /a", token34))); got != "a" {
		t.Errorf("with token: %s", got)
	}
}

func TestTemplates(t *testing.T) {
	for _, tt := range []struct{ path, resource, target, headers, want string }{
		{"/{a}/{b}", "{b}-{a}", "/x/y", "", "y-x"},
		{"/{a}/{b...}", "{b}", "/x/y%25/z", "", "y%25/z"},
		{"/{a}/{b...}", "{b}", "/x", "", "key"},
		{"/{a...}", "all", "/x", "", "all"},
		{"/{a...}", "{host}/{path}", "/x/y/", "", "store.test/x/y"},
		{"/{a...}", "{path}", "/", "", "/"},
		{"/{a...}", "t/{query.id}", "/x?id=4%2F2", "", "t/4%2F2"},
		{"/{a...}", "t/{query.id}", "/x?%69d=42&z=1", "", "t/42"},
		{"/{a...}", "t/{query.id}", "/x", "", "key"},
		{"/{a...}", "t/{query.id}", "/x?id=", "", "key"},
		{"/{a...}", "t/{query.id}", "/x?id=1&id=1", "", "key"},
		{"/{a...}", "t/{query.id}", "/x?id=1&%zz", "", "key"},
		{"/{a...}", "t/{query.id}", "/x?id=%00", "", "key"},
		{"/{a...}", "t/{query.id}", "/x?id=%ff", "", "key"},
		{"/{a...}", "t/{header.x-tenant}", "/x", "X-Tenant: a/b", "t/a%2Fb"},
		{"/{a...}", "t/{header.X-Tenant}", "/x", "", "key"},
		{"/{a...}", "t/{header.X-Tenant}", "/x", "X-Tenant: a\nX-Tenant: a", "key"},
		{"/{a...}", "t/{header.X-Tenant}", "/x", "X-Tenant: a\nConnection: X-Tenant", "key"},
		{"/{a...}", "[z, \"{a}\", a]", "/z", "", "a z"},
		{"/{a...}", "{body.id}", "/z", "", "body"},
	} {
		t.Run(tt.resource+tt.target+tt.headers, func(t *testing.T) {
			resource := tt.resource
			if resource[0] != '[' {
				resource = "\"" + resource + "\""
			}
			s := load(t, "policies: [{name: p, match: {path: \""+tt.path+"\"}, resource: "+resource+"}]").Policies
			d := s.Decide(request("PUT "+tt.target, append(strings.Split(tt.headers, "\n"), token34)...))
			if got := outcome(d); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
			if d.Err != nil && d.Token != fencing.Number(34) {
				t.Errorf("token %v; want the one that was read before the refusal", d.Token)
			}
		})
	}
}

func TestKeyFingerprints(t *testing.T) {
	of := func(policy string) string {
		return load(t, "policies: [{name: p, "+policy+"}]").Policies.Policies()[0].KeyFingerprint()
	}
	base := of(`match: {path: "/rides/{id}"}, resource: "rides/{id}"`)
	for _, keeps := range []string{
		`match: {path: "/rides/{ride}"}, resource: "rides/{ride}"`,
		`match: {path: "/rides/{id}/{rest...}"}, resource: "rides/{id}"`,
		`match: {path: "/rides/{id}"}, resource: "rides/{id}", token: {header: T, format: hex}, settle: 1s`,
	} {
		if got := of(keeps); got != base {
			t.Errorf("%s: %s; want %s", keeps, got, base)
		}
	}
	for _, changes := range []string{
		`match: {path: "/rides/{id}"}, resource: "ride/{id}"`,
		`match: {path: "/rides/{id}/{x}"}, resource: "rides/{x}"`,
		`match: {path: "/rides/{id}"}, resource: "rides/{id}", token: {format: pair}`,
		`match: {path: "/rides/{id}"}, resource: "rides/{id}", identity: {case: fold}`,
	} {
		if got := of(changes); got == base {
			t.Errorf("%s does not change the fingerprint", changes)
		}
	}
	if want := "resource rides/{segment 2}; order number; dot_segments=reject "; !strings.HasPrefix(base, want) {
		t.Errorf("fingerprint %q; want prefix %q, which is compared with what was stored before", base, want)
	}
	all := load(t, "unmatched_writes: fence").Policies.Fingerprints()
	if diff := cmp.Diff([]string{"(unmatched)"}, slices.Collect(keysOf(all))); diff != "" {
		t.Error(diff)
	}
}

func keysOf(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestCaptureHidesPlaceholderOfItsName(t *testing.T) {
	cfg, err := policies.Load("test.yaml", []byte(`
upstream: {url: "http://127.0.0.1:9000"}
policies: [{name: all, match: {path: "/kv/{path...}"}, resource: "{path}"}]
`), policies.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	d := cfg.Policies.Decide(&policies.Request{Method: "PUT", Target: "/kv/a/b", Header: http.Header{"Fencing-Token": {"1"}}})
	if len(d.Resources) != 1 || d.Resources[0] != "a/b" {
		t.Errorf("resources = %v; want a/b, the capture and not the whole path", d.Resources)
	}
}

func TestDestinationIsUnfenceable(t *testing.T) {
	for _, tt := range []struct {
		mode     string
		observed bool
	}{{"enforce", false}, {"observe", true}} {
		cfg := load(t, `
unmatched_writes: allow
policies: [{name: rides, match: {path: "/rides/{id}"}, resource: "{id}", mode: `+tt.mode+`}]
`)
		d := cfg.Policies.Decide(&policies.Request{Method: "COPY", Target: "/public/x", Header: http.Header{"Destination": {"/rides/7"}}})
		if _, ok := errors.AsType[*policies.UnfenceableError](d.Err); !ok || d.Observed != tt.observed {
			t.Errorf("mode %s: COPY onto a fenced path = %v, observed %v; want UnfenceableError, %v", tt.mode, d.Err, d.Observed, tt.observed)
		}
	}
}
