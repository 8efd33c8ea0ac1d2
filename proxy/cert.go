package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certLook is how long a certificate is used before its files are looked at again.
const certLook = 2 * time.Second

// CertFiles names PEM files: a certificate with its key, authorities, or both. What is empty is not used.
type CertFiles struct {
	Cert, Key, CA string
}

// Certs is what the files hold, read again when they change. It is safe for concurrent use.
type Certs struct {
	section string // of the configuration, for messages
	caKey   string // the setting that names the authorities
	files   CertFiles
	log     *slog.Logger
	every   time.Duration

	mu sync.Mutex // guards the fields below; held while the files are read, so that they are read once for all who wait
	// +checklocks:mu
	now *loadedCerts // never nil
	// +checklocks:mu
	seen []os.FileInfo // the files as they were before now was read, or before they turned out to be broken
	// +checklocks:mu
	next time.Time // of the next look
}

// loadedCerts is what the files held at one time.
type loadedCerts struct {
	pair *tls.Certificate // nil if none is named
	pool *x509.CertPool   // nil if none is named
}

// LoadCerts reads the files. section is that of the configuration which names them, caKey its key for the authorities; the errors say them.
func LoadCerts(section, caKey string, files CertFiles, log *slog.Logger) (*Certs, error) {
	c := &Certs{section: section, caKey: caKey, files: files, log: log, every: certLook}
	if err := c.Reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Reload reads the files now. After an error what was read before stays in use.
func (c *Certs) Reload() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, _ := c.stat() // a file that is missing is reported when it is read
	changed := c.now != nil && !sameFiles(c.seen, seen)
	if err := c.readLocked(seen); err != nil {
		return err
	}
	if changed {
		c.tellLocked()
	}
	return nil
}

// +checklocks:c.mu
func (c *Certs) tellLocked() { c.log.Info("a changed certificate is in use", "section", c.section) }

// current returns what is in force. Every few seconds it looks whether the files have changed. Files that cannot be used change nothing,
// and are logged once.
func (c *Certs) current() *loadedCerts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := time.Now(); t.After(c.next) {
		c.next = t.Add(c.every)
		seen, err := c.stat()
		if err == nil && !sameFiles(c.seen, seen) {
			if err := c.readLocked(seen); err != nil {
				c.log.Error("a changed certificate cannot be used; the one from before stays", keyError, err)
			} else {
				c.tellLocked()
			}
		}
	}
	return c.now
}

// +checklocks:c.mu
func (c *Certs) readLocked(seen []os.FileInfo) error {
	c.seen = seen // first: what is broken now is not tried again until it changes
	l, err := c.read()
	if err != nil {
		return err
	}
	c.now = l
	return nil
}

// stat returns what the files look like. It goes before reading: what is written in between counts as changed.
func (c *Certs) stat() (seen []os.FileInfo, err error) {
	for _, name := range []string{c.files.Cert, c.files.Key, c.files.CA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		seen = append(seen, info)
	}
	return seen, nil
}

func sameFiles(a, b []os.FileInfo) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !os.SameFile(a[i], b[i]) || !a[i].ModTime().Equal(b[i].ModTime()) || a[i].Size() != b[i].Size() {
			return false
		}
	}
	return true
}

func (c *Certs) read() (*loadedCerts, error) {
	l := &loadedCerts{}
	if c.files.Cert != "" || c.files.Key != "" {
		pair, err := tls.LoadX509KeyPair(c.files.Cert, c.files.Key)
		switch {
		case is[*fs.PathError](err):
			return nil, fmt.Errorf("%s: %w", c.section, err)
		case err != nil:
			return nil, fmt.Errorf("%s: the certificate %s and the key %s cannot be used together: %w", c.section, c.files.Cert, c.files.Key, err)
		}
		l.pair = &pair
	}
	if c.files.CA != "" {
		pem, err := os.ReadFile(c.files.CA)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", c.section, c.caKey, err)
		}
		l.pool = x509.NewCertPool()
		if !l.pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.%s: %s holds no PEM certificate", c.section, c.caKey, c.files.CA)
		}
	}
	return l, nil
}

// serverConfig is for a listener that shows the certificate and, with authorities, asks for one of theirs as mode says.
func (c *Certs) serverConfig(mode tls.ClientAuthType) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocolNames()}
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current().pair, nil }
	if c.files.CA == "" {
		return config
	}
	// A session that is resumed would be judged by the authorities of the handshake before.
	config.SessionTicketsDisabled = true
	config.ClientAuth = mode
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := c.current()
		mine := &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: protocolNames(), SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*now.pair}, ClientAuth: mode, ClientCAs: now.pool,
		}
		return mine, nil
	}
	return config
}

// clientConfig is for a connection to name, which shows the certificate if it is asked for one. The authorities take the place of the
// system's.
func (c *Certs) clientConfig(name string) *tls.Config {
	now := c.current()
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name, RootCAs: now.pool}
	if now.pair != nil {
		config.Certificates = []tls.Certificate{*now.pair}
	}
	return config
}

// ReloadCertificates reads what belongs to the connections to the upstream now. After an error what was read before stays in use.
func (p *Proxy) ReloadCertificates() error {
	if p.upstream == nil {
		return nil
	}
	return p.upstream.reload()
}

// ReloadCertificates is [Proxy.ReloadCertificates] for the stores of forward mode.
func (f *Forward) ReloadCertificates() error {
	var err error
	for i := range f.mode.Stores {
		err = errors.Join(err, f.legs[&f.mode.Stores[i]].reload())
	}
	return err
}

// reload closes idle connections too: they were made with what was read before.
func (u *upstream) reload() error {
	if err := u.certs.Reload(); err != nil {
		return err
	}
	u.close()
	return nil
}

// protocolNames are the protocols of a TLS listener.
func protocolNames() []string { return []string{"h2", "http/1.1"} }
