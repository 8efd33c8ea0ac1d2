package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// reachFlags are how to trust a listener of operators or leases that speaks TLS. name is the flag with its URL.
func reachFlags(name string) []cli.Flag {
	env := func(what string) []string {
		return []string{"FENCEPROXY_" + strings.ToUpper(name) + "_" + what}
	}
	return []cli.Flag{
		&cli.StringFlag{Name: name + "-ca", EnvVars: env("CA"), TakesFile: true, Usage: "trust the authorities in the PEM `FILE`, where --" + name + " is https:// (default: those of the system)"},
		&cli.StringFlag{Name: name + "-cert", EnvVars: env("CERT"), TakesFile: true, Usage: "show the certificate in the PEM `FILE`, where the listener asks for one"},
		&cli.StringFlag{Name: name + "-key", EnvVars: env("KEY"), TakesFile: true, Usage: "use the key in the PEM `FILE` with --" + name + "-cert"},
	}
}

// reach returns the URL that a request to at begins with, and what sends it. at is host:port, http://, https:// or unix:///path; name is the
// flag that it comes from.
func reach(c *cli.Context, name, at string) (base string, tr *http.Transport, err error) {
	d := &net.Dialer{Timeout: 5 * time.Second}
	tr = &http.Transport{Proxy: nil, DialContext: d.DialContext}
	scheme, _, ok := strings.Cut(at, "://")
	switch {
	case strings.HasPrefix(at, "/"):
		return "", nil, withHint(usagef("--%s: %q is a path", name, at), "write unix://"+at)
	case !ok:
		at = "http://" + at
	case !slices.Contains([]string{"http", "https", "unix"}, strings.ToLower(scheme)):
		return "", nil, withHint(usagef("--%s: the scheme of %q is not known", name, at), "write http://host:port, https://host:port or unix:///path")
	}
	if path, ok := strings.CutPrefix(at, "unix://"); ok {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) }
		at = "http://localhost"
	}
	tr.TLSClientConfig, err = reachTLS(c, name)
	if err != nil {
		return "", nil, err
	}
	if tr.TLSClientConfig != nil && !strings.HasPrefix(at, "https://") {
		for _, what := range []string{"-ca", "-cert", "-key"} { // a variable may be there for another address
			if c.IsSet(name+what) && os.Getenv("FENCEPROXY_"+strings.ToUpper(name+strings.ReplaceAll(what, "-", "_"))) == "" {
				return "", nil, usagef("--%s%s has no effect: --%s is not https://", name, what, name)
			}
		}
	}
	return at, tr, nil
}

// reachHint returns what to do about a listener that could not be asked: absent, unless it or its certificate was there.
func reachHint(err error, name, absent string) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "name its authority with --" + name + "-ca FILE"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // how crypto/tls names an alert
		return "show a certificate that it trusts with --" + name + "-cert and --" + name + "-key"
	}
	return absent
}

// reachTLS returns nil if nothing is asked for but what is usual.
func reachTLS(c *cli.Context, name string) (*tls.Config, error) {
	ca, cert, key := c.String(name+"-ca"), c.String(name+"-cert"), c.String(name+"-key")
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--%s-cert and --%s-key go together", name, name)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("--%s-ca: %w", name, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--%s-ca: %s holds no PEM certificate", name, ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("--%s-cert: %w", name, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
