package proxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

const (
	leafLife    = 24 * time.Hour
	leafRenewal = 8 * time.Hour // how long before its end a certificate is made anew
	clockSkew   = time.Hour     // how far a client's clock may be behind
	maxLeaves   = 1024
)

// leaves makes the certificates that clients of forward mode are shown, for hosts that a policy's operator has named. They are made by
// crypto/x509 and not by goproxy's signer, which derives keys from that of the CA.
type leaves struct {
	ca  *tls.Certificate
	key *ecdsa.PrivateKey // of all leaves; it is never written anywhere
	now func() time.Time

	mu sync.Mutex // guards certs
	// +checklocks:mu
	certs map[string]*tls.Certificate // by host
}

// newLeaves reads the CA. The error says what is wrong with its files.
func newLeaves(files policies.CertFiles, log *slog.Logger) (*leaves, error) {
	if info, err := os.Stat(files.Key); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("others can read the key of forward.ca, and imitate the stores with it: chmod 600", "file", files.Key)
	}
	ca, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		return nil, fmt.Errorf("forward.ca: %w", err)
	}
	now := time.Now()
	switch c := ca.Leaf; {
	case !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf(`forward.ca: %s is no certificate authority; make one with "fenceproxy ca init"`, files.Cert)
	case now.After(c.NotAfter):
		return nil, fmt.Errorf("forward.ca: %s expired on %s", files.Cert, c.NotAfter.Format(time.DateOnly))
	case now.Before(c.NotBefore):
		return nil, fmt.Errorf("forward.ca: %s is not valid before %s", files.Cert, c.NotBefore.Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return &leaves{ca: &ca, key: key, now: time.Now, certs: map[string]*tls.Certificate{}}, nil
}

// certificate returns one for the host, which is a name or an IP address in canonical form.
func (l *leaves) certificate(host string) (*tls.Certificate, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if c := l.certs[host]; c != nil && now.Before(c.Leaf.NotAfter.Add(-leafRenewal)) {
		return c, nil
	}
	c, err := l.sign(host, now)
	if err != nil {
		return nil, err
	}
	if len(l.certs) >= maxLeaves { // only below an alias with a star can there be so many
		clear(l.certs)
	}
	l.certs[host] = c
	return c, nil
}

func (l *leaves) sign(host string, now time.Time) (*tls.Certificate, error) {
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	ca := l.ca.Leaf
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	if template.NotAfter.After(ca.NotAfter) {
		template.NotAfter = ca.NotAfter
	}
	if !now.Before(ca.NotAfter) {
		return nil, errors.New("the CA of forward mode has expired")
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, l.key.Public(), l.ca.PrivateKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, l.ca.Certificate...), PrivateKey: l.key, Leaf: leaf}, nil
}

func serialNumber() (*big.Int, error) {
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
}

// CA is a certificate authority of the operator's own.
type CA struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// NewCA makes a certificate authority that is valid for life. With hosts, it can vouch for these and what lies below them only, so that whoever
// gets hold of its key can imitate nothing else (RFC 5280 section 4.2.1.10).
func NewCA(name string, hosts []string, life time.Duration) (*CA, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := serialNumber()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockSkew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		PermittedDNSDomainsCritical: len(hosts) > 0,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			bits := 8 * net.IPv6len
			if v4 := ip.To4(); v4 != nil {
				ip, bits = v4, 8*net.IPv4len
			}
			template.PermittedIPRanges = append(template.PermittedIPRanges, &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)})
		} else {
			template.PermittedDNSDomains = append(template.PermittedDNSDomains, host)
		}
	}
	if len(hosts) > 0 { // a kind of name without a constraint is free
		if template.PermittedIPRanges == nil {
			template.ExcludedIPRanges = everyAddress()
		}
		if template.PermittedDNSDomains == nil {
			template.ExcludedDNSDomains = []string{""}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return &CA{Cert: cert, Key: key}, err
}

func everyAddress() []*net.IPNet {
	return []*net.IPNet{
		{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)},
		{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
	}
}

// WriteFiles writes the CA as PEM. It overwrites nothing; only its owner can read the key.
func (c *CA) WriteFiles(files policies.CertFiles) error {
	key, err := x509.MarshalPKCS8PrivateKey(c.Key)
	if err != nil {
		return err
	}
	if err := writePEM(files.Key, "PRIVATE KEY", key, 0o600); err != nil {
		return err
	}
	if err := writePEM(files.Cert, "CERTIFICATE", c.Cert.Raw, 0o644); err != nil {
		return errors.Join(err, os.Remove(files.Key))
	}
	return nil
}
