package policies_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

func TestWarnsOfWhatOthersReach(t *testing.T) {
	const tail = "\nunmatched_writes: fence\n"
	const tls = "tls: {cert: c, key: k, client_ca: a"
	for _, tt := range []struct {
		name, text string
		over       policies.Overrides
		want       string // the paths of the warnings
	}{
		{"all on loopback", "upstream: {url: 'http://localhost:9000'}\nlisten: '[::1]:8080'", policies.Overrides{}, ""},
		{"sockets", "upstream: {url: 'unix:///s'}\nadmin: {listen: 'unix:///run/a.sock'}\nleases: {listen: 'unix:///run/l.sock'}", policies.Overrides{}, ""},
		{"public listener", "upstream: {url: 'http://127.0.0.1:9000'}\nlisten: ':8080'", policies.Overrides{}, "listen"},
		{"by a flag", "upstream: {url: 'http://127.0.0.1:9000'}", policies.Overrides{Listen: "192.0.2.1:8080"}, "listen"},
		{"with TLS", "upstream: {url: 'http://127.0.0.1:9000'}\nlisten: {address: ':8080', tls: {cert: c, key: k}}", policies.Overrides{}, "listen"},
		{"with certificates of the clients", "upstream: {url: 'http://127.0.0.1:9000'}\nlisten: {address: ':8080', " + tls + "}}", policies.Overrides{}, ""},
		{"of some clients", "upstream: {url: 'http://127.0.0.1:9000'}\nlisten: {address: ':8080', " + tls + ", client_auth: request}}", policies.Overrides{}, "listen"},
		{"of the clients that write", "upstream: {url: 'http://127.0.0.1:9000'}\nlisten: {address: ':8080', " + tls + ", client_auth: request}}\ndefaults: {allow: [a]}", policies.Overrides{}, ""},
		{"public operators", "upstream: {url: 'http://127.0.0.1:9000'}\nadmin: {listen: '0.0.0.0:8081'}", policies.Overrides{}, "admin.listen"},
		{"with a token file", "upstream: {url: 'http://127.0.0.1:9000'}\nadmin: {listen: '0.0.0.0:8081', token_file: f}", policies.Overrides{}, "admin.listen"},
		{"with certificates", "upstream: {url: 'http://127.0.0.1:9000'}\nadmin: {listen: {address: '0.0.0.0:8081', " + tls + "}}}", policies.Overrides{}, ""},
		{"with certificates for some", "upstream: {url: 'http://127.0.0.1:9000'}\nadmin: {listen: {address: '0.0.0.0:8081', " + tls + ", client_auth: request}}}", policies.Overrides{}, "admin.listen"},
		{"public leases", "upstream: {url: 'http://127.0.0.1:9000'}\nleases: {listen: ':8082'}", policies.Overrides{}, "leases.listen"},
		{"leases for those with certificates", "upstream: {url: 'http://127.0.0.1:9000'}\nleases: {listen: {address: ':8082', " + tls + "}}}", policies.Overrides{}, ""},
		{"a store elsewhere", "upstream: {url: 'http://store.test:9000'}", policies.Overrides{}, "upstream.url"},
		{"that asks for a certificate", "upstream: {url: 'https://store.test:9000', tls: {cert: c, key: k}}", policies.Overrides{}, ""},
		{"public forward mode", "forward: {listen: ':3128', upstreams: [{url: 'http://s.test'}]}", policies.Overrides{}, "forward.listen"},
		{"an open proxy", "forward: {listen: ':3128', unlisted: tunnel, upstreams: [{url: 'http://s.test'}]}\nlimits: {connections: 100}", policies.Overrides{}, "forward.listen"},
		{"forward mode with certificates", "forward: {listen: {address: ':3128', " + tls + "}}, upstreams: [{url: 'http://s.test'}]}", policies.Overrides{}, ""},
		{"tunnels without a bound", "forward: {listen: '127.0.0.1:3128', unlisted: tunnel, upstreams: [{url: 'http://s.test'}]}", policies.Overrides{}, "forward.unlisted"},
		{"two stores of one host", "forward: {listen: '127.0.0.1:3128', upstreams: [{url: 'http://s.test'}, {url: 'http://s.test:81'}]}", policies.Overrides{}, "forward.upstreams[1]"},
		{"a store elsewhere by a flag", "", policies.Overrides{UpstreamURL: "http://192.0.2.1:9000"}, "upstream.url"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := policies.Load("x.yaml", []byte(tt.text+tail), tt.over)
			if err != nil {
				t.Fatal(err)
			}
			var paths []string
			for _, w := range c.Warnings() {
				paths = append(paths, w.Path)
			}
			if got := strings.Join(paths, " "); got != tt.want {
				t.Errorf("warnings at %q; want %q: %v", got, tt.want, c.Warnings())
			}
		})
	}
}

func TestListenersThatCannotBeMeant(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"admin: {listen: 'unix://run/a.sock'}", "needs an absolute path"},
		{"listen: 'unix:///run/a.sock'", "is not a number from 0 to 65535"},
		{"admin: {listen: {address: '127.0.0.1:1', tls: {cert: c}}}", "key is missing"},
		{"upstream: {url: 'https://127.0.0.1:9000', tls: {cert: c}}", "go together"},
		{"upstream: {url: 'http://127.0.0.1:9000', tls: {cert: c, key: k}}", "does not use https"},
	} {
		text := tt.text + "\nunmatched_writes: fence\n"
		over := policies.Overrides{}
		if !strings.HasPrefix(tt.text, "upstream") {
			over.UpstreamURL = "http://127.0.0.1:9000"
		}
		if _, err := policies.Load("x.yaml", []byte(text), over); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", tt.text, err, tt.want)
		}
	}
}
