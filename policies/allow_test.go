package policies_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

const withClients = "upstream: {url: 'http://127.0.0.1:9000'}\nlisten: {address: 127.0.0.1:8443, tls: {cert: c, key: k, client_ca: a}}\n"

const allowYAML = withClients + `
defaults: {dialect: webdav, allow: [Jobs.example.test, "spiffe://example.test/Jobs"]}
unmatched_writes: allow
policies:
  - {name: jobs, match: {path: "/jobs/{id}"}, resource: "jobs/{id}"}
  - {name: open, match: {path: "/open/{id}"}, resource: "open/{id}", allow: any}
  - {name: lax, match: {path: "/lax/{id}"}, resource: "lax/{id}", missing_token: allow}
  - {name: seen, match: {path: "/seen/{id}"}, resource: "seen/{id}", mode: observe}
  - {name: out, match: {path: "/out/{id}"}, resource: "out/{id}", mode: off}
  - {name: secret, match: {path: "/secret/{id}", methods: [GET, PUT]}, resource: "secret/{id}"}
  - {name: bob, match: {path: "/bob/{id}"}, resource: "bob/{id}", allow: [bob]}
`

func TestAllowNamesWhoMayWrite(t *testing.T) {
	cfg, plain := loadWhole(t, allowYAML), loadWhole(t, strings.Replace(allowYAML, "dialect: webdav, ", "", 1))
	const tok = "Fencing-Token: 7"
	for _, tt := range []struct {
		name    string
		line    string
		headers []string
		client  []string
		want    string
	}{
		{"named", "PUT /jobs/1", []string{tok}, []string{"jobs.example.test"}, "jobs/1"},
		{"case of a DNS name", "PUT /jobs/1", []string{tok}, []string{"JOBS.example.TEST"}, "jobs/1"},
		{"second name", "PUT /jobs/1", []string{tok}, []string{"x", "spiffe://example.test/Jobs"}, "jobs/1"},
		{"case of a URI", "PUT /jobs/1", []string{tok}, []string{"spiffe://example.test/jobs"}, "forbidden"},
		{"another", "PUT /jobs/1", []string{tok}, []string{"other.example.test"}, "forbidden"},
		{"a longer name", "PUT /jobs/1", []string{tok}, []string{"jobs.example.test.evil.test", "xjobs.example.test"}, "forbidden"},
		{"a star in the certificate", "PUT /jobs/1", []string{tok}, []string{"*.example.test"}, "forbidden"},
		{"no certificate", "PUT /jobs/1", []string{tok}, nil, "forbidden"},
		{"an empty name", "PUT /jobs/1", []string{tok}, []string{""}, "forbidden"},
		{"no token either", "PUT /jobs/1", nil, nil, "forbidden"},
		{"a bad token too", "PUT /jobs/1", []string{"Fencing-Token: x"}, nil, "forbidden"},
		{"named, no token", "PUT /jobs/1", nil, []string{"jobs.example.test"}, "missing"},
		{"a read", "GET /jobs/1", nil, nil, "pass"},
		{"a read that is fenced", "GET /secret/1", []string{tok}, nil, "forbidden"},
		{"everybody", "PUT /open/1", []string{tok}, nil, "open/1"},
		{"unfenced all the same", "PUT /lax/1", nil, nil, "forbidden"},
		{"off", "PUT /out/1", nil, nil, "pass"},
		{"both ends of a copy", "COPY /open/1", []string{tok, "Destination: /bob/1"}, []string{"bob"}, "bob/1"},
		{"the end of a copy", "COPY /open/1", []string{tok, "Destination: /bob/1"}, []string{"jobs.example.test"}, "forbidden"},
		{"the end of a move", "MOVE /jobs/1", []string{tok, "Destination: /bob/1"}, []string{"jobs.example.test"}, "forbidden"},
		{"the beginning of a move", "MOVE /jobs/1", []string{tok, "Destination: /bob/1"}, []string{"bob"}, "forbidden"},
		{"both", "MOVE /jobs/1", []string{tok, "Destination: /bob/1"}, []string{"bob", "jobs.example.test"}, "bob/1 jobs/1"},
		{"from under no policy", "MOVE /elsewhere", []string{tok, "Destination: /bob/1"}, []string{"jobs.example.test"}, "forbidden"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := request(tt.line, tt.headers...)
			r.Client = tt.client
			d := cfg.Policies.Decide(r)
			got := outcome(d)
			var no *policies.ForbiddenError
			if errors.As(d.Err, &no) {
				got = "forbidden"
			}
			if got != tt.want {
				t.Errorf("%s by %q: %s (%v); want %s", tt.line, tt.client, got, d.Err, tt.want)
			}
			if strings.HasPrefix(tt.line, "COPY ") || strings.HasPrefix(tt.line, "MOVE ") { // in http they have one end
				return
			}
			d = plain.Policies.Decide(r)
			if got = outcome(d); errors.As(d.Err, &no) {
				got = "forbidden"
			}
			if got != tt.want {
				t.Errorf("under dialect http, %s by %q: %s (%v); want %s", tt.line, tt.client, got, d.Err, tt.want)
			}
		})
	}
	r := request("PUT /seen/1", tok)
	if d := cfg.Policies.Decide(r); d.Action != policies.Reject || !d.Observed {
		t.Errorf("an observing policy: %v, observed %v; want a refusal that is only observed", d.Action, d.Observed)
	}
}

func TestAllowOfEachObjectOfABatch(t *testing.T) {
	cfg := loadWhole(t, withClients+`
defaults: {dialect: s3}
policies:
  - {name: jobs, match: {path: "/b/jobs/{k...}"}, resource: "jobs/{k}", allow: [jobs]}
  - {name: all, match: {path: "/{bucket}/{k...}"}, resource: "{bucket}/{k}"}
`)
	for _, client := range []string{"jobs", "other"} {
		r := request("POST /b?delete", "Fencing-Token: 7")
		r.Client = []string{client}
		d := cfg.Policies.Decide(r)
		if !d.NeedsBody {
			t.Fatalf("got %v, %v; want one that needs its body", d.Action, d.Err)
		}
		err := d.ResolveBody([]byte(`<Delete><Object><Key>x</Key></Object><Object><Key>jobs/1</Key></Object></Delete>`))
		var no *policies.ForbiddenError
		if errors.As(err, &no) != (client == "other") {
			t.Errorf("%s: %v", client, err)
		}
	}
}

func TestAllowThatCannotBeMeant(t *testing.T) {
	const store = "upstream: {url: 'http://127.0.0.1:9000'}\n"
	for _, tt := range []struct{ name, text, want string }{
		{"nobody is asked", store + "unmatched_writes: fence\ndefaults: {allow: [a]}", "no listener asks for a client's certificate"},
		{"empty", withClients + "unmatched_writes: fence\ndefaults: {allow: []}", "nobody could write"},
		{"star", withClients + "unmatched_writes: fence\ndefaults: {allow: ['*.example.test']}", "has a star"},
		{"twice", withClients + "unmatched_writes: fence\ndefaults: {allow: [a, A]}", "given twice"},
		{"any of nothing", withClients + "unmatched_writes: fence\ndefaults: {allow: any}", "has no effect"},
		{"a word", withClients + "unmatched_writes: fence\ndefaults: {allow: a}", "where a list is expected"},
		{"an empty name", withClients + "unmatched_writes: fence\ndefaults: {allow: ['']}", "is not a name"},
		{"asked without an authority", store + "unmatched_writes: fence\nlisten: {address: ':1', tls: {cert: c, key: k, client_auth: request}}", "it has no effect alone"},
		{"asked how", store + "unmatched_writes: fence\nlisten: {address: ':1', tls: {cert: c, key: k, client_ca: a, client_auth: maybe}}", "is not one of require, request"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policies.Load("x.yaml", []byte(tt.text), policies.Overrides{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want %q in it", err, tt.want)
			}
		})
	}
}

// loadWhole fails the test if text is not a valid configuration.
func loadWhole(t *testing.T, text string) *policies.Config {
	t.Helper()
	c, err := policies.Load("test.yaml", []byte(text), policies.Overrides{})
	if err != nil {
		t.Fatalf("Load:\n%v", err)
	}
	return c
}

func TestDescribeNamesTheClients(t *testing.T) {
	c := load(t, "listen: {address: '127.0.0.1:1', tls: {cert: c, key: k, client_ca: a}}\n"+
		"policies: [{name: a, match: {path: /a}, resource: a, allow: [a, b], missing_token: allow}]")
	if got, want := c.Policies.Describe()[0].Token, "header Fencing-Token, header X-Fencing-Token decimal, optional, clients a, b"; got != want {
		t.Errorf("token %q; want %q", got, want)
	}
}
