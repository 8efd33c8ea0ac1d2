package examples

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// forwarding serves the configuration of dir in forward mode, with a CA for its stores, and returns the address of the listener.
func forwarding(t *testing.T, dir string) (at string, l *log) {
	t.Helper()
	ca := exec.Command(program(t, "fenceproxy"), "ca", "init", "--config", "fenceproxy.yaml")
	ca.Dir = dir
	if out, err := ca.CombinedOutput(); err != nil {
		t.Fatalf("ca init: %v\n%s", err, out)
	}
	_, l = run(t, dir, []string{"FENCEPROXY_ADMIN_LISTEN=off"}, "fenceproxy", "serve", "--config", "fenceproxy.yaml")
	return "http://" + l.await(t, `fenceproxy: forward mode on (\S+), to`)[1], l
}

func TestForwardProxyFencesWhatCannotBePointedElsewhere(t *testing.T) {
	t.Parallel()
	needs(t, "sh", "curl")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("forward-proxy")); err != nil {
		t.Fatal(err)
	}
	_, store := run(t, dir, nil, "store", "-listen", "127.0.0.1:0")
	address := store.await(t, `store: serving on (\S+)`)[1]
	file := filepath.Join(dir, "fenceproxy.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// The only changes: ports that are free.
	edited := strings.NewReplacer("127.0.0.1:3128", "127.0.0.1:0", "127.0.0.1:9000", address).Replace(string(text))
	write(t, file, edited, 0o600)
	at, l := forwarding(t, dir)

	cmd := exec.CommandContext(t.Context(), "sh", "./demo.sh")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "FORWARD="+at, "STORE=http://"+address)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil || errs.Len() > 0 {
		t.Fatalf("demo.sh: %v\n%s\n%s\nthe proxy's log:\n%s", err, &out, &errs, l)
	}
	var b strings.Builder
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "# ") {
			b.WriteString(line)
		}
	}
	sameTranscript(t, "forward-proxy", b.String())
	r := &rig{store: "http://" + address}
	r.stored(t, "/rides/7/driver", "driver B")
	l.await(t, `outcome=stale .* resource=rides.example.test:80/rides/7 token=33`)
}

// certFor writes a certificate for a host that vouches for itself.
func certFor(t *testing.T, host string) (cert, key string) {
	t.Helper()
	dir := t.TempDir()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host, "*." + host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), 0o600)
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})), 0o600)
	return cert, key
}

// TestForwardProxyBeforeS3 has clients that believe to speak to the store itself: by its name, with its TLS.
func TestForwardProxyBeforeS3(t *testing.T) {
	t.Parallel()
	const store = "https://s3.example.test"
	cert, key := certFor(t, "s3.example.test")
	addr, objects := startVersity(t, "--cert", cert, "--key", key)
	s := kept{store, inFiles(objects), accessDenied}
	text, err := os.ReadFile("clients/fenceproxy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	forward := fmt.Sprintf("forward:\n  listen: 127.0.0.1:0\n  ca: {cert: ca.pem, key: ca.key}\n  upstreams: [{url: %q, dial: %q, tls: {ca: %s}}]\n", store, addr, cert)
	edited := strings.NewReplacer("listen: 127.0.0.1:8080\n", "", "upstream: {url: http://127.0.0.1:9000}\n", forward).Replace(string(text))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "fenceproxy.yaml"), edited, 0o600)
	at, l := forwarding(t, dir)
	ca := filepath.Join(dir, "ca.pem")

	for _, c := range []snippet{
		{name: "curl", argv: script("curl.sh", "sh", "curl")},
		{name: "awscli-plugin", argv: withAWS("awscli-plugin.sh", anyAWS, "aws cli 2")},
		{name: "boto3", argv: withPython(debianPython)},
		{name: "aws-sdk-go-v2", argv: goClient("awssdk")},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := carrying{argv: c.argv(t), dir: t.TempDir(), at: func(string) []string {
				return []string{
					"PROXY=" + store, "HTTPS_PROXY=" + at, "https_proxy=" + at, "NO_PROXY=", "no_proxy=",
					"CURL_CA_BUNDLE=" + ca, "AWS_CA_BUNDLE=" + ca, "SSL_CERT_FILE=" + ca,
				}
			}}
			makeBucket(t, store+"/"+c.name, "--cacert", cert, "--resolve", "s3.example.test:443:127.0.0.1", "--connect-to", "s3.example.test:443:"+addr)
			client.file(t, "ride", "driver B\n")
			client.file(t, "late", "late driver A\n")
			ride := c.name + "/ride"
			client.must(t, "34", "upload", "ride", ride)
			s.holds(t, ride, "driver B\n")
			said := client.refused(t, isStale, "33", "upload", "late", ride)
			s.holds(t, ride, "driver B\n")
			client.must(t, "34", "download", ride, "back")
			if got, err := os.ReadFile(filepath.Join(client.dir, "back")); err != nil || string(got) != "driver B\n" {
				t.Errorf("download has %q, %v", got, err)
			}
			client.must(t, "34", "delete", ride)
			s.holdsNot(t, ride)
			l.await(t, "outcome=stale .* resource=s3.example.test:443/"+ride+" token=33")
			t.Logf("it says:\n%s", said)
		})
	}
}
