package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/url"
	"strings"
	"time"
)

// DefaultTimeout is how long a probe waits for one answer unless told otherwise.
const DefaultTimeout = 10 * time.Second

// Config says which store is probed and how to speak to it.
type Config struct {
	URL     string         // http://host/path or https://host/path: the scratch prefix is made below it
	Socket  string         // path of a Unix socket; URL then names the Host
	Roots   *x509.CertPool // that the store's certificate is checked against; nil for the system's
	Timeout time.Duration  // for one answer; zero for DefaultTimeout
	Header  []string       // "Name: value" lines that every request carries
	User    string         // user:password for Basic authentication
	S3      *Credentials   // signs every request; nil for none
	Keep    bool           // leaves the scratch prefix in the store

	cache time.Duration // how long a cache may hide a write; zero for cacheTime
}

// Probe is one probe of one store. It is not safe for use by several goroutines and runs once.
type Probe struct {
	run  *run
	keep bool
}

// New checks the settings and sends nothing. The error is a [*ConfigError].
func New(c Config) (*Probe, error) {
	u, base, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	cl := &client{network: "tcp", address: u.Host, host: u.Host, timeout: c.Timeout, left: maxRequests}
	if cl.timeout <= 0 {
		cl.timeout = DefaultTimeout
	}
	switch {
	case c.Socket != "":
		cl.network, cl.address = "unix", c.Socket
	case u.Port() == "":
		cl.address = net.JoinHostPort(u.Hostname(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	}
	if u.Scheme == "https" {
		cl.tls = &tls.Config{ServerName: u.Hostname(), RootCAs: c.Roots, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	}
	for _, line := range c.Header {
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || name == "" || strings.ContainsAny(name, " \t\r\n") || strings.ContainsAny(value, "\r\n") {
			return nil, &ConfigError{Setting: "header", Reason: "a line is not a header", Hint: "write 'Name: value'"}
		}
		switch strings.ToLower(name) {
		case "host", "content-length", "transfer-encoding", "connection":
			return nil, &ConfigError{Setting: "header", Reason: "the probe sets " + name + " itself"}
		}
		cl.extra = append(cl.extra, field{name, value})
	}
	if c.User != "" {
		cl.extra = append(cl.extra, field{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(c.User))})
	}
	if c.S3 != nil {
		if c.User != "" {
			return nil, &ConfigError{Setting: "credentials", Reason: "there are two: a user and an S3 key", Hint: "give one of them"}
		}
		if c.S3.Key == "" || c.S3.Secret == "" {
			return nil, &ConfigError{Setting: "S3 key", Reason: "a key needs its secret, and a secret its key"}
		}
		cl.signer = &signer{*c.S3}
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // it never fails
	scratch := base + "/fenceproxy-probe-" + hex.EncodeToString(id)
	return &Probe{keep: c.Keep, run: &run{
		client: cl, scheme: u.Scheme, base: base, scratch: scratch, taken: map[ref]bool{}, cache: cmp.Or(c.cache, cacheTime),
		report: &Report{URL: u.Scheme + "://" + u.Host + base + "/", Scratch: scratch, Warnings: []string{}, Settings: []Setting{}, Left: []string{}},
	}}, nil
}

// parseURL returns the URL, and its path as it was written, without a slash at its end.
func parseURL(raw string) (u *url.URL, base string, err error) {
	wrong := func(reason, hint string) (*url.URL, string, error) {
		return nil, "", &ConfigError{Setting: "URL", Reason: reason, Hint: hint}
	}
	const form = "write http://HOST:PORT/PATH or https://…"
	u, err = url.Parse(raw)
	switch {
	case err != nil:
		return wrong("it cannot be read", form)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Hostname() == "":
		return wrong("it does not name a scheme and a host", form)
	case u.User != nil:
		return wrong("it holds credentials", "give them with --user, so that they are in no output")
	case strings.ContainsAny(raw, "?#"):
		return wrong("it holds a query or a fragment", form)
	}
	_, rest, _ := strings.Cut(raw, "://")
	if _, path, found := strings.Cut(rest, "/"); found {
		base = "/" + path
	}
	base = strings.TrimRight(base, "/")
	for _, c := range []byte(base) {
		if c <= ' ' || c >= 0x7f || c == '\\' || c == '"' || c == ';' {
			return wrong("its path holds a character that stores read in different ways", "encode it, or probe below another path")
		}
	}
	for seg := range strings.SplitSeq(strings.TrimPrefix(base, "/"), "/") {
		if d := unescape(seg); d == "." || d == ".." || d == "" && base != "" || strings.Contains(d, "/") {
			return wrong("its path holds dots, an encoded slash or an empty segment", "name the path plainly")
		}
	}
	return u, base, nil
}

// Scratch is the path, as it is sent, that everything written begins with.
func (p *Probe) Scratch() string { return p.run.scratch }

// URL is the store and the path below which the scratch prefix is made.
func (p *Probe) URL() string { return p.run.report.URL }

// MaxRequests is how many requests a probe sends at most, its cleaning up apart.
func (p *Probe) MaxRequests() int { return maxRequests }

// Run probes the store. Whatever happens, it then removes what it made: that may go on for two minutes after ctx has ended. The report is
// never nil; with an error it says what is left in the store and nothing that is safe to act upon. Errors are [*StoreError],
// [*SilentError], [*ConfigError], [ErrTooMany], [ErrFenceproxy] or that of ctx.
func (p *Probe) Run(ctx context.Context) (*Report, error) {
	r := p.run
	err := r.all(ctx)
	switch {
	case p.keep:
		r.report.Kept = len(r.made) > 0
	default:
		r.clean(context.WithoutCancel(ctx))
	}
	if err == nil {
		r.report.conclude()
	}
	return r.report, err
}

// all does everything but the cleaning up.
func (r *run) all(ctx context.Context) error {
	e, err := r.examine(ctx)
	if err != nil {
		return err
	}
	if err := r.begin(ctx, e); err != nil {
		return err
	}
	for _, s := range spellings() {
		if r.couch && s.id == "encoded-slash" {
			s = flatSlash()
		}
		row, err := r.spelling(ctx, s)
		if err != nil {
			return err
		}
		if row.ID != "" {
			r.report.Rows = append(r.report.Rows, row)
		}
	}
	for _, step := range []func(context.Context, *evidence) error{
		r.destinations, r.conditions, r.overrides, r.partial, r.lock, r.folder, r.uploads, r.recheckAll,
	} {
		if err := step(ctx, e); err != nil {
			return err
		}
	}
	r.report.evidence = *e
	return nil
}
