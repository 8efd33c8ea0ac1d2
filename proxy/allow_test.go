package proxy_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy"
)

// issue makes a certificate for a client by the authority ca.
func issue(t *testing.T, ca tls.Certificate, template x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.ExtKeyUsage = big.NewInt(2), []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, mustParse(t, ca), key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestOnlyAllowedClientsWrite(t *testing.T) {
	ca, caFile, _ := selfSigned(t)
	_, cert, key := selfSigned(t)
	store := newPlainStore()
	const head = "listen: {address: ':1', tls: {cert: c, key: k, client_ca: a, client_auth: request}}\nunmatched_writes: fence\n"
	r := newRigWith(t, store, head+"defaults: {allow: [jobs.example.test, 'spiffe://x/jobs', 'ops@example.test', The Scheduler]}")
	_, addr := startServer(t, r.proxy.Handler(), &policies.ListenerTLS{Cert: cert, Key: key, ClientCA: caFile, Request: true})
	uri := &url.URL{Scheme: "spiffe", Host: "x", Path: "/jobs"}
	for _, tt := range []struct {
		name   string
		client *x509.Certificate // nil: none
		code   int
		by     string
	}{
		{"DNS name", &x509.Certificate{DNSNames: []string{"Jobs.example.test"}}, 201, "127.0.0.1 (Jobs.example.test)"},
		{"URI", &x509.Certificate{URIs: []*url.URL{uri}}, 201, "127.0.0.1 (spiffe://x/jobs)"},
		{"mail", &x509.Certificate{EmailAddresses: []string{"ops@example.test"}}, 201, "127.0.0.1 (ops@example.test)"},
		{"common name", &x509.Certificate{Subject: pkix.Name{CommonName: "The Scheduler"}}, 201, "127.0.0.1 (The Scheduler)"},
		{"any of its names", &x509.Certificate{Subject: pkix.Name{CommonName: "The Scheduler"}, DNSNames: []string{"other.test"}}, 201, "127.0.0.1 (other.test)"},
		{"stranger", &x509.Certificate{Subject: pkix.Name{CommonName: "The scheduler"}, DNSNames: []string{"other.test"}}, 403, ""},
		{"none", nil, 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := &tls.Config{InsecureSkipVerify: true}
			if tt.client != nil {
				config.Certificates = []tls.Certificate{issue(t, ca, *tt.client)}
			}
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
			defer c.CloseIdleConnections()
			send := func(method string) reply {
				t.Helper()
				req, _ := http.NewRequest(method, "https://"+addr+"/"+strconv.Itoa(len(tt.name)), nil)
				if method == "PUT" {
					req, _ = http.NewRequest(method, "https://"+addr+"/"+strconv.Itoa(len(tt.name)), strings.NewReader(strings.Repeat("x", 1<<20)))
					req.Header.Set("Fencing-Token", "7")
				}
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				b, _ := io.ReadAll(resp.Body)
				return reply{resp.StatusCode, resp.Header, string(b)}
			}
			before := len(store.applied())
			got := send("PUT")
			if got.code != tt.code {
				t.Fatalf("PUT = %v; want %d", got, tt.code)
			}
			if tt.code == 403 {
				if got.header.Get("Fencing-Status") != "forbidden" || !strings.Contains(got.body, `"urn:fenceproxy:forbidden"`) || !strings.Contains(got.body, `"forwarded": "no"`) {
					t.Errorf("the refusal is %v", got)
				}
				if len(store.applied()) != before {
					t.Errorf("it was forwarded")
				}
				if got := send("GET"); got.code == 403 {
					t.Errorf("a read was refused: %v", got)
				}
				return
			}
			if log := r.logs.String(); !strings.Contains(log, "client="+strconv.Quote(tt.by)) {
				t.Errorf("the log does not name %s:\n%s", tt.by, log)
			}
		})
	}
	if m := r.mark("/" + "4"); m != 0 { // of "none"
		t.Errorf("a client that may not write has left the mark %d", m)
	}
	if got := r.must("PUT", "/plain", "x", "Fencing-Token", "7"); got.code != 403 {
		t.Errorf("over the plain listener: %v; want 403", got)
	}
}

func TestUpstreamThatWantsACertificate(t *testing.T) {
	ca, caFile, _ := selfSigned(t)
	mine, certFile, keyFile := selfSigned(t)
	_, strangerCert, strangerKey := selfSigned(t)
	accepted := x509.NewCertPool()
	accepted.AddCert(mustParse(t, mine))
	store := newPlainStore()
	serve := func(t *testing.T, template x509.Certificate) string {
		t.Helper()
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		ln, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
			Certificates: []tls.Certificate{issue(t, ca, template)}, ClientCAs: accepted, ClientAuth: tls.RequireAndVerifyClientCert,
		})
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: store, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
		go func() { _ = s.Serve(ln) }()
		t.Cleanup(func() { s.Close() })
		return "https://" + ln.Addr().String()
	}
	good, expired := serve(t, x509.Certificate{}), serve(t, x509.Certificate{NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)})
	yaml := func(ca, cert, key string) string {
		return "upstream: {url: 'https://x', tls: {ca: " + ca + ", cert: " + cert + ", key: " + key + "}}\n" + defaultYAML
	}
	for _, mode := range []string{"spool", "stream"} {
		for _, tt := range []struct {
			name, url, yaml string
			code            int
			status, log     string
		}{
			{"right", good, yaml(caFile, certFile, keyFile), 201, "admitted", ""},
			{"expired", expired, yaml(caFile, certFile, keyFile), 502, "admitted", "certificate has expired"},
			{"of another authority", good, yaml(strangerCert, certFile, keyFile), 502, "admitted", "certificate signed by unknown authority"},
			{"our own is not accepted", good, yaml(caFile, strangerCert, strangerKey), 502, "in-doubt", "tls: "}, // with TLS 1.3 that is mostly known only after the request was sent
		} {
			t.Run(mode+"/"+tt.name, func(t *testing.T) {
				r := newRig(t, tt.url, strings.Replace(tt.yaml, "in_doubt_hold", "request_body: "+mode+", in_doubt_hold", 1))
				got := r.must("PUT", "/a", "body", "Fencing-Token", "7")
				early := tt.status == "in-doubt" && got.header.Get("Fencing-Status") == "admitted" && strings.Contains(got.body, `"forwarded": "no"`)
				if got.code != tt.code || got.header.Get("Fencing-Status") != tt.status && !early {
					t.Fatalf("got %v; want %d %s", got, tt.code, tt.status)
				}
				if tt.code == 502 && tt.status == "admitted" && !strings.Contains(got.body, `"forwarded": "no"`) {
					t.Errorf("the answer does not say that nothing was sent: %v", got)
				}
				if log := r.logs.String(); tt.log != "" && !strings.Contains(log, tt.log) {
					t.Errorf("the log does not say %q:\n%s", tt.log, log)
				}
			})
		}
	}
	t.Run("a changed certificate is used", func(t *testing.T) {
		r := newRig(t, good, yaml(caFile, certFile, keyFile))
		r.put("/a", 7, "x", 201, "admitted")
		for to, from := range map[string]string{certFile: strangerCert, keyFile: strangerKey} {
			b, err := os.ReadFile(to)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.WriteFile(to, b, 0o600) })
			replace(t, to, from)
		}
		if err := r.proxy.ReloadCertificates(); err != nil {
			t.Fatal(err)
		}
		r.put("/a", 8, "x", 502, "in-doubt")
	})
	t.Run("files that cannot be used", func(t *testing.T) {
		cfg, err := policies.Load("x.yaml", []byte(yaml(caFile, certFile, strangerKey)), policies.Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proxy.New(proxy.Config{Upstream: cfg.Upstream, Spool: cfg.Spool, Policies: cfg.Policies}); err == nil || !strings.Contains(err.Error(), "upstream.tls") {
			t.Errorf("a key of another certificate: %v", err)
		}
	})
}
