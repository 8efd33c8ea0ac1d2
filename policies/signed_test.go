package policies_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/policies/signed"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// keyFiles are those that the tests name.
type keyFiles map[string][]byte

func newKeyFiles(t testing.TB) keyFiles {
	t.Helper()
	files := keyFiles{"garbage": []byte("not a key"), "short": []byte("c2hvcnQ"), "empty": nil}
	for name, a := range map[string]signed.Algorithm{"a.key": signed.HS256, "b.key": signed.HS256, "open.key": signed.HS256, "ed": signed.EdDSA} {
		signs, checks, err := signed.NewKey(a)
		if err != nil {
			t.Fatal(err)
		}
		files[name], files[name+".pub"] = signs, checks
	}
	return files
}

func (f keyFiles) read(name string) ([]byte, fs.FileMode, error) {
	data, ok := f[name]
	if !ok {
		return nil, 0, fmt.Errorf("open %s: %w", name, fs.ErrNotExist)
	}
	if name == "open.key" {
		return data, 0o644, nil
	}
	return data, 0o640, nil
}

func (f keyFiles) load(t testing.TB, text string) *policies.Config {
	t.Helper()
	c, err := policies.Load("test.yaml", []byte(head+text), policies.Overrides{ReadKey: f.read})
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return c
}

// sign signs a token that runs for a minute. scope is a key, several with spaces between, or a prefix that ends in an asterisk.
func (f keyFiles) sign(t testing.TB, file, scope, token string) string {
	t.Helper()
	k, err := signed.ParseKey(f[file])
	if err != nil {
		t.Fatal(err)
	}
	c := signed.Claims{Token: token, Expires: noon.Add(time.Minute)}
	if prefix, ok := strings.CutSuffix(scope, "*"); ok {
		c.Prefix = prefix
	} else {
		c.Resources = strings.Fields(scope)
	}
	text, err := k.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// judged is a decision in a few words.
func judged(d policies.Decision) string {
	if bad, ok := errors.AsType[*policies.UnauthorizedError](d.Err); ok {
		return string(bad.Kind)
	}
	return outcome(d)
}

const signedHS = "token: {signed: {algorithm: HS256, keys: [a.key]}}"

func TestSignedTokensAreJudged(t *testing.T) {
	f := newKeyFiles(t)
	cfg := f.load(t, `
unmatched_writes: fence
defaults: {`+signedHS+`}
policies:
  - {name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}
  - {name: two, match: {path: "/two/{id}"}, resource: ["a/{id}", "b/{id}"]}
  - {name: agent, match: {path: "/agent/{id}"}, resource: "agent/{id}", token: {header: User-Agent, pattern: 'fence-(\S+)'}}
  - {name: query, match: {path: "/query/{id}"}, resource: "query/{id}", token: {query: fence, strip: true}}
  - {name: user, match: {path: "/user/{id}"}, resource: "user/{id}", token: {basic_user: true}}
  - {name: pairs, match: {path: "/pairs/{id}"}, resource: "pairs/{id}", token: {format: pair}}
  - {name: seats, match: {path: "/seats/{id}"}, resource: "seats/{id}", compare: hold, token: {format: opaque}}
  - {name: later, match: {path: "/later/{id}"}, resource: "later/{id}", epoch: 3}
  - {name: bare, match: {path: "/bare/{id}"}, resource: "bare/{id}", token: {signed: off}}
  - {name: watched, match: {path: "/watched/{id}"}, resource: "watched/{id}", mode: observe}
`)
	seven := f.sign(t, "a.key", "rides/7", "34")
	for _, tt := range []struct {
		name, line string
		header     []string
		want, text string
	}{
		{"good", "PUT /rides/7", []string{"Fencing-Token: " + seven}, "rides/7", "34"},
		{"other header", "PUT /rides/7", []string{"X-Fencing-Token: " + seven}, "rides/7", "34"},
		{"twice the same", "PUT /rides/7", []string{"X-Fencing-Token: " + seven, "Fencing-Token: " + seven, "Fencing-Token: " + seven}, "rides/7", "34"},
		{"two, one number", "PUT /rides/7", []string{"X-Fencing-Token: " + seven, "Fencing-Token: " + f.sign(t, "a.key", "rides/*", "34")}, "malformed", ""},
		{"a bare one beside it", "PUT /rides/7", []string{"X-Fencing-Token: 99", "Fencing-Token: " + seven}, "unsigned", ""},
		{"no token", "PUT /rides/7", nil, "missing", ""},
		{"bare", "PUT /rides/7", []string{"Fencing-Token: 99999999"}, "unsigned", ""},
		{"empty", "PUT /rides/7", []string{"Fencing-Token: "}, "unsigned", ""},
		{"list", "PUT /rides/7", []string{"Fencing-Token: " + seven + ", " + seven}, "invalid", ""},
		{"another key", "PUT /rides/7", []string{"Fencing-Token: " + f.sign(t, "b.key", "rides/7", "34")}, "invalid", ""},
		{"another algorithm", "PUT /rides/7", []string{"Fencing-Token: " + f.sign(t, "ed", "rides/7", "34")}, "invalid", ""},
		{"another resource", "PUT /rides/77", []string{"Fencing-Token: " + seven}, "other-resource", "34"},
		{"prefix", "PUT /rides/77", []string{"Fencing-Token: " + f.sign(t, "a.key", "rides/*", "34")}, "rides/77", "34"},
		{"prefix that is no segment", "PUT /rides/77", []string{"Fencing-Token: " + f.sign(t, "a.key", "rides/7*", "34")}, "other-resource", "34"},
		{"not in the format", "PUT /rides/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "rides/7", "0x22")}, "malformed", ""},
		{"nothing in it", "PUT /rides/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "rides/7", "")}, "malformed", ""},
		{"above the maximum", "PUT /rides/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "rides/7", "9223372036854775808")}, "malformed", ""},
		{"pair", "PUT /pairs/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "pairs/7", "7.1042")}, "pairs/7", "7.1042"},
		{"id", "PUT /seats/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "seats/7", "hold-abc")}, "seats/7", "hold-abc"},
		{"id that looks signed", "PUT /seats/7", []string{"Fencing-Token: hold.a.b"}, "unsigned", ""},
		{"one of two", "PUT /two/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "a/7", "34")}, "other-resource", "34"},
		{"the other of two", "PUT /two/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "b/7", "34")}, "other-resource", "34"},
		{"both", "PUT /two/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "b/7 a/7", "34")}, "a/7 b/7", "34"},
		{"by pattern", "PUT /agent/7", []string{"User-Agent: curl fence-" + f.sign(t, "a.key", "agent/7", "34") + " x"}, "agent/7", "34"},
		{"by query", "PUT /query/7?fence=" + f.sign(t, "a.key", "query/7", "34"), nil, "query/7", "34"},
		{"by query, with a line end", "PUT /query/7?fence=" + f.sign(t, "a.key", "query/7", "34") + "%0A", nil, "invalid", ""},
		{"by user", "PUT /user/7", []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(f.sign(t, "a.key", "user/7", "34")+":"))}, "user/7", "34"},
		{"unmatched", "PUT /x/y", []string{"Fencing-Token: " + f.sign(t, "a.key", "x/y", "34")}, "x/y", "34"},
		{"unmatched and bare", "PUT /x/y", []string{"Fencing-Token: 34"}, "unsigned", ""},
		{"signed: off", "PUT /bare/7", []string{"Fencing-Token: 34"}, "bare/7", "34"},
		{"signed where none is wanted", "PUT /bare/7", []string{"Fencing-Token: " + f.sign(t, "a.key", "bare/7", "34")}, "malformed", ""},
		{"observed", "PUT /watched/7", []string{"Fencing-Token: 34"}, "unsigned", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.line, tt.header...)
			r.Time = noon
			d := cfg.Policies.Decide(r)
			if got := judged(d); got != tt.want || d.TokenText != tt.text {
				t.Errorf("%s, token %q (%v); want %s, token %q", got, d.TokenText, d.Err, tt.want, tt.text)
			}
			if d.Err != nil && strings.Contains(d.Err.Error(), "eyJ") && tt.name != "signed where none is wanted" { // there a part without the signature is shown
				t.Errorf("the error shows the token: %v", d.Err)
			}
			if d.Err != nil && d.Observed != (tt.name == "observed") {
				t.Errorf("observed = %t", d.Observed)
			}
		})
	}
	r := request("PUT /later/7", "Fencing-Token: "+f.sign(t, "a.key", "later/7", "34"))
	r.Time = noon
	if d := cfg.Policies.Decide(r); d.Token != (fencing.Token{Epoch: 3, Lo: 34}) {
		t.Errorf("token %v; want 34 in epoch 3", d.Token)
	}
	r.Time = time.Time{} // now, which is not the minute for which the token is signed
	if got := judged(cfg.Policies.Decide(r)); got != "expired" && time.Now().After(noon.Add(time.Minute)) || got != "later/7" && time.Now().Before(noon) {
		t.Errorf("by the clock of this machine: %s", got)
	}
}

func TestSignedTokensExpire(t *testing.T) {
	f := newKeyFiles(t)
	s := f.load(t, "unmatched_writes: fence\ndefaults: {"+signedHS+"}").Policies
	r := request("PUT /a", "Fencing-Token: "+f.sign(t, "a.key", "a", "34"))
	for at, want := range map[time.Duration]string{0: "a", time.Minute - 1: "a", time.Minute: "expired", 24 * time.Hour: "expired"} {
		r.Time = noon.Add(at)
		if got := judged(s.Decide(r)); got != want {
			t.Errorf("after %v: %s; want %s", at, got, want)
		}
	}
}

// Everything that a write changes must be covered, wherever it is named.
func TestSignedTokensCoverAllThatAWriteChanges(t *testing.T) {
	f := newKeyFiles(t)
	cfg := f.load(t, `
defaults: {`+signedHS+`}
policies:
  - {name: orders, match: {path: "/orders/{id}"}, resource: ["orders/{id}", "customers/{body.customer}", "items/{body.items[].id}"]}
  - {name: dav, match: {path: "/dav/{rest...}"}, resource: "dav/{rest}", dialect: webdav, collections: subtree}
  - {name: plain, match: {path: "/plain/{rest...}"}, resource: "plain/{rest}", dialect: webdav}
  - {name: mixed, match: {path: "/mixed/{id}"}, resource: ["mixed/{id}", "customers/{body.customer}"], dialect: webdav}
  - {name: docs, match: {path: "/db/{doc...}"}, resource: "db/{doc}", dialect: couchdb}
  - {name: s3, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}", dialect: s3}
  - {name: s3root, match: {path: "/{bucket}"}, resource: "bucket:{bucket}", dialect: s3}
`)
	const order = `{"customer":"acme","items":[{"id":"x"},{"id":"y"}]}`
	const batch = `<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>`
	for _, tt := range []struct {
		line, headers, body, scope, want string
	}{
		{"PUT /orders/7", "", order, "orders/7 customers/acme items/x items/y", "customers/acme items/x items/y orders/7"},
		{"PUT /orders/7", "", order, "orders/7 customers/acme items/x", "other-resource"},
		{"PUT /orders/7", "", order, "orders/7 items/x items/y", "other-resource"},
		{"PUT /orders/7", "", "", "customers/acme items/x items/y", "other-resource"}, // before the body is there

		{"PUT /mixed/7", "", order, "mixed/7 customers/acme", "customers/acme mixed/7"},
		{"PUT /mixed/7", "", order, "mixed/7", "other-resource"},
		{"PUT /mixed/7", "", "", "customers/acme", "other-resource"}, // before the body is there

		{"PUT /dav/a/b", "", "", "dav/a/b", "dav/a/b"}, // it lies in the collection dav/a, which it does not change
		{"DELETE /dav/a", "", "", "dav/a", "other-resource"},
		{"DELETE /dav/a", "", "", "dav/a*", "dav/a"},
		{"DELETE /dav/a", "", "", "dav/a/b*", "other-resource"},
		{"DELETE /plain/a", "", "", "plain/a", "other-resource"}, // the request does not say whether it is a collection
		{"DELETE /plain/a", "", "", "plain/*", "plain/a"},
		{"MOVE /dav/a", "Destination: /dav/b", "", "dav/a*", "other-resource"},
		{"MOVE /dav/a", "Destination: /dav/b", "", "dav/b*", "other-resource"},
		{"MOVE /dav/a", "Destination: /dav/b", "", "dav/*", "dav/a dav/b"},
		{"COPY /dav/a", "Destination: /dav/b", "", "dav/b*", "dav/b"}, // a is only read
		{"COPY /dav/a", "Destination: /dav/b", "", "dav/a*", "other-resource"},

		{"COPY /db/a", "Destination: b", "", "db/b", "db/b"},
		{"COPY /db/a", "Destination: b", "", "db/a", "other-resource"},
		{"POST /db/_bulk_docs", "", `{"docs":[{"_id":"a"},{"_id":"b"}]}`, "db/a db/b", "db/a db/b"},
		{"POST /db/_bulk_docs", "", `{"docs":[{"_id":"a"},{"_id":"b"}]}`, "db/a", "other-resource"},

		{"POST /bk?delete", "", batch, "bk/a bk/b", "bk/a bk/b"},
		{"POST /bk?delete", "", batch, "bk/b", "other-resource"},
		{"POST /bk?delete", "", batch, "bk*", "bk/a bk/b"},
		{"PUT /bk/a", "X-Amz-Copy-Source: bk/b", "", "bk/a", "bk/a"},
		{"PUT /bk/a?renameObject", "X-Amz-Rename-Source: b", "", "bk/a", "other-resource"},
	} {
		t.Run(tt.line+" "+tt.scope, func(t *testing.T) {
			r := request(tt.line, "Fencing-Token: "+f.sign(t, "a.key", tt.scope, "34"))
			if name, value, ok := strings.Cut(tt.headers, ": "); ok {
				r.Header.Set(name, value)
			}
			r.Time = noon
			d := cfg.Policies.Decide(r)
			if d.NeedsBody && d.Action == policies.Fence {
				if d.Err = d.ResolveBody([]byte(tt.body)); d.Err != nil {
					d.Action = policies.Reject
				}
			}
			if got := judged(d); got != tt.want {
				t.Errorf("%s (%v), trees %v; want %s", got, d.Err, d.Trees, tt.want)
			}
			if tt.want == "other-resource" && len(d.Resources) == 0 && !d.NeedsBody {
				t.Error("the refusal names no resource")
			}
		})
	}
}

// With upload_token: create the steps of an upload take the token of its creation, which was for the object.
func TestSignedTokenOfAnUploadIsForItsObject(t *testing.T) {
	f := newKeyFiles(t)
	cfg := f.load(t, `
defaults: {dialect: s3, upload_token: create, `+signedHS+`}
policies:
  - {name: both, match: {path: "/both/{key...}"}, resource: ["both/{key}", "job/{header.X-Job}"]}
  - {name: s3, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}
`)
	create := request("POST /b/k?uploads", "Fencing-Token: "+f.sign(t, "a.key", "b/k", "34"))
	create.Time = noon
	if d := cfg.Policies.Decide(create); judged(d) != "b/k" || !d.Upload.Remember {
		t.Fatalf("%s, %+v; want the upload of b/k, remembered", judged(d), d.Upload)
	}
	bare := request("POST /b/k?uploads", "Fencing-Token: 34")
	if d := cfg.Policies.Decide(bare); judged(d) != "unsigned" {
		t.Errorf("a creation with a bare token: %s; want unsigned", judged(d))
	}
	part := cfg.Policies.Decide(request("PUT /b/k?partNumber=1&uploadId=u"))
	if err := part.BindToken(fencing.Number(34), true); err != nil || judged(part) != "b/k" || part.Token != fencing.Number(34) {
		t.Errorf("a part: %v, %s, token %v; want b/k with 34", err, judged(part), part.Token)
	}
	more := cfg.Policies.Decide(request("PUT /both/k?partNumber=1&uploadId=u", "X-Job: 9"))
	if bad, ok := errors.AsType[*policies.UnauthorizedError](more.BindToken(fencing.Number(34), true)); !ok || bad.Kind != signed.OtherResource {
		t.Errorf("a part that changes more than its object is bound; want other-resource")
	}
	own := request("PUT /b/k?partNumber=1&uploadId=u", "Fencing-Token: "+f.sign(t, "a.key", "b/other", "34"))
	own.Time = noon
	if d := cfg.Policies.Decide(own); judged(d) != "other-resource" {
		t.Errorf("a part with a token of its own, for another object: %s", judged(d))
	}
}

func TestSignedTokenInAPresignedURL(t *testing.T) {
	f := newKeyFiles(t)
	cfg := f.load(t, `
policies:
  - {name: s3, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}", dialect: s3, require_signed_token: true, `+signedHS+`}
`)
	const url = "PUT /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=00&X-Amz-SignedHeaders="
	good, other := f.sign(t, "a.key", "b/k", "34"), f.sign(t, "a.key", "b/other", "34")
	for _, tt := range []struct{ name, line, token, want string }{
		{"both signatures", url + "host%3Bfencing-token", good, "b/k"},
		{"a URL that does not cover it", url + "host", good, "malformed"},
		{"a bare token that the URL covers", url + "host%3Bfencing-token", "34", "unsigned"},
		{"for another object", url + "host%3Bfencing-token", other, "other-resource"},
		{"no presigned URL", "PUT /b/k", good, "b/k"},
	} {
		r := request(tt.line, "Fencing-Token: "+tt.token)
		r.Time = noon
		if got := judged(cfg.Policies.Decide(r)); got != tt.want {
			t.Errorf("%s: %s; want %s", tt.name, got, tt.want)
		}
	}
}

func TestSignedKeysRotate(t *testing.T) {
	f := newKeyFiles(t)
	r := func(file string) *policies.Request {
		r := request("PUT /a", "Fencing-Token: "+f.sign(t, file, "a", "34"))
		r.Time = noon
		return r
	}
	for _, tt := range []struct{ config, old, new string }{
		{"{algorithm: HS256, keys: a.key}", "a", "invalid"},
		{"{algorithm: HS256, keys: [a.key, b.key]}", "a", "a"},
		{"{algorithm: HS256, keys: [b.key]}", "invalid", "a"},
	} {
		s := f.load(t, "unmatched_writes: fence\ndefaults: {token: {signed: "+tt.config+"}}").Policies
		if got := judged(s.Decide(r("a.key"))); got != tt.old {
			t.Errorf("%s: the old key: %s; want %s", tt.config, got, tt.old)
		}
		if got := judged(s.Decide(r("b.key"))); got != tt.new {
			t.Errorf("%s: the new key: %s; want %s", tt.config, got, tt.new)
		}
		f["a.key"], f["a.old"] = f["a.old"], f["a.key"] // what is in force does not look at files
		if got := judged(s.Decide(request("PUT /a", "Fencing-Token: 34"))); got != "unsigned" {
			t.Errorf("%s: without the file: %s", tt.config, got)
		}
		f["a.key"], f["a.old"] = f["a.old"], f["a.key"]
	}
	ed := f.load(t, "unmatched_writes: fence\ndefaults: {token: {signed: {algorithm: EdDSA, keys: [ed.pub]}}}").Policies
	if got := judged(ed.Decide(r("ed"))); got != "a" {
		t.Errorf("EdDSA: %s; want a", got)
	}
	if got := judged(ed.Decide(r("a.key"))); got != "invalid" {
		t.Errorf("HS256 where EdDSA is wanted: %s; want invalid", got)
	}
}

func TestSignedWithoutAReaderTakesNothing(t *testing.T) {
	f := newKeyFiles(t)
	s := load(t, "unmatched_writes: fence\ndefaults: {"+signedHS+"}").Policies
	r := request("PUT /a", "Fencing-Token: "+f.sign(t, "a.key", "a", "34"))
	r.Time = noon
	if got := judged(s.Decide(r)); got != "invalid" {
		t.Errorf("%s; want invalid", got)
	}
}

func TestSignedProblems(t *testing.T) {
	f := newKeyFiles(t)
	for _, tt := range []struct{ signed, want string }{
		{"{algorithm: HS256}", "names no key file"},
		{"{keys: [a.key]}", "does not say how tokens are signed"},
		{"{algorithm: none, keys: [a.key]}", `"none" is not one of HS256, EdDSA`},
		{"{algorithm: hs256, keys: [a.key]}", `"hs256" is not one of`},
		{"{algorithm: HS256, keys: []}", "0 key files are given"},
		{"{algorithm: HS256, keys: [a.key, b.key, open.key]}", "3 key files are given"},
		{"{algorithm: HS256, keys: [a.key, a.key]}", "a.key is given twice"},
		{`{algorithm: HS256, keys: [""]}`, "it is empty"},
		{"{algorithm: HS256, keys: [gone.key]}", "the key cannot be read: open gone.key: file does not exist"},
		{"{algorithm: HS256, keys: [garbage]}", "neither base64url text"},
		{"{algorithm: HS256, keys: [short]}", "it holds 5 bytes, and HS256 needs 32"},
		{"{algorithm: HS256, keys: [empty]}", "it is empty"},
		{"{algorithm: HS256, keys: [ed.pub]}", "is for EdDSA, and the algorithm is HS256"},
		{"{algorithm: EdDSA, keys: [a.key]}", "is for HS256, and the algorithm is EdDSA"},
		{"{algorithm: EdDSA, keys: [ed]}", "holds the private key"},
		{"off", "it has no effect"},
		{"HS256", "where a mapping"},
		{"{algorithm: HS256, keys: [a.key], alg: x}", `unknown key "alg"`},
	} {
		ps := problems(t, head+"unmatched_writes: fence\ndefaults: {token: {signed: "+tt.signed+"}}", policies.Overrides{ReadKey: f.read})
		if len(ps) != 1 || !strings.Contains(ps[0].Message, tt.want) || !strings.HasPrefix(ps[0].Path, "defaults.token.signed") || ps[0].Line == 0 {
			t.Errorf("%s: %v; want one that says %q, with its line", tt.signed, ps, tt.want)
		}
	}
}

func TestSignedWarnings(t *testing.T) {
	f := newKeyFiles(t)
	for _, tt := range []struct{ config, want string }{
		{"unmatched_writes: fence\ndefaults: {" + signedHS + "}", ""},
		{"unmatched_writes: fence\ndefaults: {token: {signed: {algorithm: HS256, keys: [open.key]}}}", "everybody on this machine can read the key open.key"},
		{"policies: [{name: a, match: {path: /a}, resource: a, missing_token: allow, " + signedHS + "}]", "whoever leaves the token out writes unfenced"},
		{"policies: [{name: a, match: {path: /a}, resource: x, " + signedHS + "}, {name: b, match: {path: /b}, resource: x}]", "takes tokens that nobody signed"},
		{"policies: [{name: a, match: {path: /a}, resource: x, " + signedHS + "}, {name: b, match: {path: /b}, resource: y}]", ""},
	} {
		var all []string
		for _, w := range f.load(t, tt.config).Warnings() {
			all = append(all, w.Message)
		}
		if got := strings.Join(all, "\n"); len(all) > 1 || tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s:\n%s\nwant %q", tt.config, got, tt.want)
		}
	}
}

// Two policies that a write touches have to judge its token alike: one that takes bare tokens must not open the other.
func TestSignedAndBareDoNotJudgeOneWrite(t *testing.T) {
	f := newKeyFiles(t)
	cfg := f.load(t, `
defaults: {dialect: webdav}
policies:
  - {name: a, match: {path: "/a/{rest...}"}, resource: "a/{rest}", `+signedHS+`}
  - {name: b, match: {path: "/b/{rest...}"}, resource: "b/{rest}"}
`)
	for _, line := range []string{"MOVE /b/x", "COPY /b/x"} {
		d := cfg.Policies.Decide(request(line, "Destination: /a/x", "Fencing-Token: 99999"))
		if d.Action == policies.Fence {
			t.Errorf("%s to /a/x with a bare token is let in", line)
		}
	}
	if d := cfg.Policies.Decide(request("MOVE /b/x", "Destination: /a/x", "Fencing-Token: 9")); d.Err == nil || !strings.Contains(d.Err.Error(), "judge tokens differently") {
		t.Errorf("MOVE from b to a: %v; want that they judge tokens differently", d.Err)
	}
}

func TestSignedIsNoChangeOfKeys(t *testing.T) {
	f := newKeyFiles(t)
	with, without := f.load(t, "unmatched_writes: fence\ndefaults: {"+signedHS+"}").Policies, load(t, "unmatched_writes: fence").Policies
	if a, b := with.Fingerprints()["(unmatched)"], without.Fingerprints()["(unmatched)"]; a != b {
		t.Errorf("fingerprints %q and %q differ", a, b)
	}
	for name, s := range without.Samples() {
		if got := with.Keys(s); fmt.Sprint(got) != fmt.Sprint(s.Keys) {
			t.Errorf("%s: keys %v; want %v, as without signatures", name, got, s.Keys)
		}
	}
	if rows := with.Describe(); !strings.HasSuffix(rows[0].Token, "decimal, signed HS256") {
		t.Errorf("the table says %q", rows[0].Token)
	}
}

func BenchmarkDecideSigned(b *testing.B) {
	f := newKeyFiles(b)
	for _, bb := range []struct{ name, token, key string }{
		{"bare", "{}", ""},
		{"HS256", "{signed: {algorithm: HS256, keys: [a.key]}}", "a.key"},
		{"EdDSA", "{signed: {algorithm: EdDSA, keys: [ed.pub]}}", "ed"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := f.load(b, "policies: [{name: rides, match: {path: '/rides/{id}'}, resource: 'rides/{id}', token: "+bb.token+"}]").Policies
			token := "34"
			if bb.key != "" {
				token = f.sign(b, bb.key, "rides/7", "34")
			}
			r := request("PUT /rides/7", "Fencing-Token: "+token, "Content-Type: application/json", "User-Agent: curl/8", "Accept: */*", "Content-Length: 20")
			r.Time = noon
			b.ReportAllocs()
			for b.Loop() {
				if d := s.Decide(r); d.Err != nil {
					b.Fatal(d.Err)
				}
			}
		})
	}
}
