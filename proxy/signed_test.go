package proxy_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/policies/signed"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// signingKeys are the key files of the tests: a and b are secrets.
func signingKeys(file string) ([]byte, fs.FileMode, error) {
	return []byte(base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat(file, 32)))), 0o600, nil
}

// jws signs a token with key a. scope is a resource, or a prefix that ends in an asterisk.
func jws(t testing.TB, scope, token string, life time.Duration) string {
	t.Helper()
	data, _, _ := signingKeys("a")
	k, err := signed.ParseKey(data)
	if err != nil {
		t.Fatal(err)
	}
	c := signed.Claims{Resources: []string{scope}, Token: token, Expires: time.Now().Add(life)}
	if prefix, ok := strings.CutSuffix(scope, "*"); ok {
		c.Resources, c.Prefix = nil, prefix
	}
	text, err := k.Sign(c)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const signedYAML = `
unmatched_writes: fence
defaults: {drain_timeout: 5s, in_doubt_hold: 300ms, token: {signed: {algorithm: HS256, keys: [a]}}}
`

func TestOutsiderCannotInventAToken(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, signedYAML)
	put := func(path, token string) reply {
		t.Helper()
		return r.must("PUT", path, "by "+token[len(token)-2:], "Fencing-Token", token)
	}
	holder := jws(t, "rides/7", "34", time.Hour)
	if got := put("/rides/7", holder); got.code != 201 || got.header.Get("Fencing-Status") != "admitted" {
		t.Fatalf("the holder = %v", got)
	}
	if m := r.mark("rides/7"); m != 34 {
		t.Errorf("mark %d; want 34, the token within", m)
	}
	changed := []byte(holder)
	changed[len(changed)-1] ^= 1
	for _, tt := range []struct{ name, path, token, kind, detail string }{
		{"a huge bare token", "/rides/7", "9000000000000000000", "unsigned", "The fencing token in header Fencing-Token is not signed, and policy (unmatched) takes signed tokens alone: "},
		{"another resource", "/rides/8", holder, "other-resource", `it is for "rides/7", and this write changes "rides/8"`},
		{"expired", "/rides/7", jws(t, "rides/7", "99", -time.Minute), "expired", "it expired at "},
		{"changed", "/rides/7", string(changed), "invalid", ""},
		{"none", "/rides/7", "eyJhbGciOiJub25lIn0." + strings.Split(holder, ".")[1] + ".eA", "invalid", `its algorithm is "none", and only HS256 is taken`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(store.applied())
			got := put(tt.path, tt.token)
			p := refused(t, got, 401, "unauthorized")
			if !strings.Contains(p.Detail, tt.detail) || p.Policy != "(unmatched)" || p.Resource != tt.path[1:] {
				t.Errorf("problem = %+v; want detail %q, resource %s", p, tt.detail, tt.path[1:])
			}
			if want := `FencingToken error="` + tt.kind + `", error_description="`; !strings.HasPrefix(got.header.Get("WWW-Authenticate"), want) {
				t.Errorf("WWW-Authenticate = %q; want %s", got.header.Get("WWW-Authenticate"), want)
			}
			if len(store.applied()) != before || r.mark("rides/7") != 34 || r.mark("rides/8") != 0 {
				t.Errorf("the store has %v, marks %d and %d; want nothing touched", store.applied(), r.mark("rides/7"), r.mark("rides/8"))
			}
		})
	}
	refused(t, r.must("PUT", "/rides/7", "x"), 428, "missing")
	if got := put("/rides/7", jws(t, "rides/7", "33", time.Hour)); got.code != 412 {
		t.Errorf("a stale token, well signed = %v; want 412", got)
	} else if p := refused(t, got, 412, "stale"); p.Token != "33" {
		t.Errorf("the problem shows the token %q; want 33, the one within", p.Token)
	}
	if n := metric(t, r, `fenceproxy_writes_total{outcome="unauthorized",policy="(unmatched)"}`); n != "5" {
		t.Errorf("%s writes are counted as unauthorized; want 5", n)
	}
}

// A signed token is a credential until it ends: it is in no answer, no log line and no record.
func TestSignedTokensAreNotShown(t *testing.T) {
	r := newRigWith(t, newPlainStore(), signedYAML+`
policies:
  - {name: query, match: {path: "/query/{id}"}, resource: "query/{id}", token: {query: fence}}
  - {name: user, match: {path: "/user/{id}"}, resource: "user/{id}", token: {basic_user: true}}
  - {name: watched, match: {path: "/watched/{id}"}, resource: "watched/{id}", mode: observe}
  - {name: webdav, match: {path: "/dav/{rest...}"}, resource: "dav/{rest}", dialect: webdav}
  - {name: s3, match: {path: "/s3/{key...}"}, resource: "s3/{key}", dialect: s3}
  - {name: couch, match: {path: "/couch/{doc...}"}, resource: "couch/{doc}", dialect: couchdb}
`)
	var secrets []string
	var shown strings.Builder
	send := func(path, token string, header ...string) {
		t.Helper()
		parts := strings.Split(token, ".")
		secrets = append(secrets, token, parts[len(parts)-1])
		got := r.must("PUT", path, "x", header...)
		fmt.Fprintf(&shown, "%d %v\n%s\n", got.code, got.header, got.body)
		h := http.Header{}
		for i := 0; i+1 < len(header); i += 2 {
			h.Add(header[i], header[i+1])
		}
		e, err := proxy.Explain(r.proxy.Policies(), proxy.ExplainRequest{Method: "PUT", URL: path, Header: h})
		if err != nil {
			t.Fatal(err)
		}
		e.Against(r.proxy)
		e.Target = "" // as it was asked
		b, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		shown.Write(b)
	}
	for _, life := range []time.Duration{time.Hour, -time.Hour} {
		for _, scope := range []string{"*", "other/*"} {
			sign := func(prefix string) string { return jws(t, strings.Replace(scope, "*", prefix+"*", 1), "34", life) }
			for _, path := range []string{"/plain/7", "/watched/7", "/dav/7", "/s3/7", "/couch/7"} {
				token := sign(path[1:])
				send(path, token, "Fencing-Token", token)
				send(path, token, "Fencing-Token", token+"x")
				send(path, token, "Fencing-Token", token, "X-Fencing-Token", jws(t, path[1:], "35", time.Hour))
			}
			token := sign("query/7")
			send("/query/7?fence="+token, token)
			token = sign("user/7")
			send("/user/7", token, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(token+":pw")))
		}
	}
	for _, d := range r.proxy.Decisions().Last() {
		fmt.Fprintf(&shown, "%+v\n", d)
	}
	shown.WriteString(r.logs.String())
	for _, want := range []string{"unauthorized", "admitted", "malformed", "would-reject", "FencingTokenUnauthorized", `"error":"unauthorized"`, "<F:type>urn:fenceproxy:unauthorized</F:type>", "token=34"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("nothing of what is looked at has %s", want)
		}
	}
	for _, secret := range secrets {
		if i := strings.Index(shown.String(), secret); i >= 0 {
			t.Errorf("shown: %.300s", shown.String()[max(0, i-150):])
			break
		}
	}
}

// metric returns the value of a line of /metrics.
func metric(t *testing.T, r *rig, name string) string {
	t.Helper()
	families, err := r.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if f.GetName()+"{"+strings.Join(labels, ",")+"}" == name {
				return fmt.Sprint(m.GetCounter().GetValue())
			}
		}
	}
	return "no"
}

// The token is judged when the request comes, before its body: a client that waits for 100 Continue is not asked for it.
func TestUnauthorizedReadsNoBody(t *testing.T) {
	r := newRigWith(t, newPlainStore(), signedYAML)
	c := r.dial()
	c.say("PUT /rides/8 HTTP/1.1\r\nHost: x\r\nFencing-Token: " + jws(t, "rides/7", "34", time.Hour) + "\r\nExpect: 100-continue\r\nContent-Length: 5368709120\r\n\r\n")
	if got, err := c.answer("PUT"); err != nil || got.code != 401 || got.header.Get("Connection") != "close" {
		t.Errorf("got %v, %v; want 401 on a connection that closes", got, err)
	}
}

// What the body names is covered too, and refused before any mark is touched.
func TestUnauthorizedByTheBody(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, signedYAML+`
policies: [{name: orders, match: {path: /orders}, resource: ["orders/{body.id}", "customers/{body.customer}"]}]
`)
	const body = `{"id": 7, "customer": "acme"}`
	got := r.must("POST", "/orders", body, "Fencing-Token", jws(t, "orders/*", "34", time.Hour))
	if p := refused(t, got, 401, "unauthorized"); p.Resource != "customers/acme" || !strings.Contains(p.Detail, `this write changes "customers/acme"`) {
		t.Errorf("problem = %+v", p)
	}
	if len(store.applied()) != 0 || r.mark("orders/7") != 0 || r.mark("customers/acme") != 0 {
		t.Errorf("the store has %v; want no write and no mark", store.applied())
	}
	e, err := proxy.Explain(r.proxy.Policies(), proxy.ExplainRequest{Method: "POST", URL: "/orders", Header: http.Header{"Fencing-Token": {jws(t, "orders/*", "34", time.Hour)}}, Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	if e.Against(r.proxy); e.Status != 401 || e.Fencing != "unauthorized" || !strings.HasPrefix(e.Signed, "HS256, valid until 2") || !strings.HasSuffix(e.Signed, `covers "orders/" and what lies below`) {
		t.Errorf("explained as %+v", e)
	}
}

// A token that expires while its write waits for lower ones was judged when the write came, and is not judged again.
func TestTokenThatExpiresInTheQueueIsAdmitted(t *testing.T) {
	store, arrived, release := newPlainStore(), make(chan struct{}, 1), make(chan struct{})
	store.before = func(q *http.Request) {
		if q.Header.Get("X-First") != "" {
			arrived <- struct{}{}
			<-release
		}
	}
	r := newRigWith(t, store, signedYAML)
	first := r.begin("PUT", "/a", "first", "X-First", "1", "Fencing-Token", jws(t, "a", "33", time.Hour))
	receive(t, "the first write at the store", arrived)
	const life = 3 * time.Second // exp counts in seconds
	expires := time.Now().Add(life)
	second := r.begin("PUT", "/a", "second", "Fencing-Token", jws(t, "a", "34", life))
	r.waiting(1)
	eventually(t, "its token has expired", func() bool { return time.Now().After(expires) })
	refused(t, r.must("PUT", "/a", "third", "Fencing-Token", jws(t, "a", "35", -time.Second)), 401, "unauthorized")
	close(release)
	for name, answer := range map[string]<-chan reply{"first": first, "second": second} {
		if got := receive(t, name, answer); got.code != 201 {
			t.Errorf("the %s = %v; want 201", name, got)
		}
	}
	if got := store.get("/a"); got != "second" {
		t.Errorf("the store has %q; want second", got)
	}
}

// The id within is what holds, whoever signed it again.
func TestSignedIDHoldsAResource(t *testing.T) {
	r := newRigWith(t, newPlainStore(), `
policies:
  - {name: seats, match: {path: "/seats/{id}"}, resource: "seats/{id}", compare: hold, token: {format: opaque, signed: {algorithm: HS256, keys: [a]}}}
`)
	put := func(token string) reply { return r.must("PUT", "/seats/7", "x", "Fencing-Token", token) }
	for i, tt := range []struct {
		token string
		code  int
	}{
		{jws(t, "seats/7", "hold-a", time.Hour), 201},
		{jws(t, "seats/*", "hold-a", time.Minute), 201},
		{jws(t, "seats/7", "hold-b", time.Hour), 412},
		{"hold-a", 401}, // whoever overheard the id
		{jws(t, "seats/8", "hold-a", time.Hour), 401},
	} {
		if got := put(tt.token); got.code != tt.code {
			t.Errorf("write %d = %v; want %d", i, got, tt.code)
		}
	}
	if strings.Contains(r.logs.String(), "hold-a") {
		t.Errorf("the log shows the id:\n%s", r.logs)
	}
}

// Keys change with a reload; a write that was judged with the old ones goes on.
func TestSigningKeysChangeWithThePolicies(t *testing.T) {
	r := newRigWith(t, newPlainStore(), signedYAML)
	token := jws(t, "a", "34", time.Hour)
	if got := r.must("PUT", "/a", "x", "Fencing-Token", token); got.code != 201 {
		t.Fatalf("before = %v", got)
	}
	cfg, err := policies.Load("new.yaml", []byte(strings.Replace(signedYAML, "[a]", "[b]", 1)), policies.Overrides{UpstreamURL: "http://127.0.0.1:1", ReadKey: signingKeys})
	if err != nil {
		t.Fatal(err)
	}
	r.proxy.SetPolicies(cfg.Policies)
	refused(t, r.must("PUT", "/a", "x", "Fencing-Token", token), 401, "unauthorized")
}
