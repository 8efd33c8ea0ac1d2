package signed

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// Algorithm is how tokens are signed.
type Algorithm string

const (
	HS256 Algorithm = "HS256" // one secret on both sides
	EdDSA Algorithm = "EdDSA" // Ed25519: a private key signs, its public key checks
)

// Algorithms lists what there is.
func Algorithms() []string { return []string{string(HS256), string(EdDSA)} }

// minSecret is the length in bytes of the shortest secret (RFC 7518 section 3.2: that of the hash).
const minSecret = 32

// Key is a key as one file holds it. It never shows itself.
type Key struct {
	algorithm Algorithm
	secret    []byte             // HS256
	private   ed25519.PrivateKey // EdDSA; nil: it only checks
	public    ed25519.PublicKey  // EdDSA
}

// ParseKey reads a key file: base64url text of 32 bytes or more for HS256; PEM for EdDSA, PKIX for a public key and PKCS#8 for a private one.
func ParseKey(data []byte) (Key, error) {
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return Key{}, errors.New("it is empty")
	case bytes.HasPrefix(text, []byte("-----BEGIN")):
		return parsePEM(text)
	}
	secret, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(string(text), "="))
	switch {
	case err != nil:
		return Key{}, errors.New("it holds neither base64url text (which has - and _ for + and /) nor PEM")
	case len(secret) < minSecret:
		return Key{}, fmt.Errorf("it holds %d bytes, and HS256 needs %d", len(secret), minSecret)
	}
	return Key{algorithm: HS256, secret: secret}, nil
}

func parsePEM(text []byte) (Key, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return Key{}, errors.New("it is broken PEM")
	case len(bytes.TrimSpace(rest)) > 0:
		return Key{}, errors.New("it holds more than one key; give each a file of its own")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "PRIVATE KEY":
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return Key{}, fmt.Errorf("it holds PEM of the type %.40q; a public key is a PUBLIC KEY (PKIX), a private one a PRIVATE KEY (PKCS#8)", block.Type)
	}
	if err != nil {
		return Key{}, fmt.Errorf("its %s cannot be read", strings.ToLower(block.Type))
	}
	switch key := key.(type) {
	case ed25519.PublicKey:
		return Key{algorithm: EdDSA, public: key}, nil
	case ed25519.PrivateKey:
		return Key{algorithm: EdDSA, private: key, public: ed25519.PublicKey(key[ed25519.PrivateKeySize-ed25519.PublicKeySize:])}, nil
	}
	return Key{}, errors.New("it holds a key of another kind than Ed25519")
}

// NewKey makes a key. What signs is to be kept secret; checks is the public key, and empty for HS256, where one secret does both.
func NewKey(a Algorithm) (signs, checks []byte, err error) {
	if a == HS256 {
		secret := make([]byte, minSecret)
		if _, err := io.ReadFull(rand.Reader, secret); err != nil {
			return nil, nil, err
		}
		return []byte(base64.RawURLEncoding.EncodeToString(secret) + "\n"), nil, nil
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	p8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	pub, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p8}), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pub}), nil
}

// Algorithm is the one that the key is for. Each kind of key has exactly one.
func (k Key) Algorithm() Algorithm { return k.algorithm }

// Secret reports whether whoever has the key can sign with it.
func (k Key) Secret() bool { return k.secret != nil || k.private != nil }

// Private reports whether it is the private half of a pair.
func (k Key) Private() bool { return k.private != nil }

// Equal reports whether two keys check the same tokens.
func (k Key) Equal(l Key) bool {
	return k.algorithm == l.algorithm && bytes.Equal(k.secret, l.secret) && bytes.Equal(k.public, l.public)
}

// Format implements [fmt.Formatter]: no verb shows a key.
func (k Key) Format(s fmt.State, _ rune) { fmt.Fprintf(s, "(%s key)", k.algorithm) }

// checks is what the library checks with.
func (k Key) checks() any {
	if k.algorithm == HS256 {
		return k.secret
	}
	return k.public
}

// Sign returns the claims as a compact JWS.
func (k Key) Sign(c Claims) (string, error) {
	var with any = k.secret
	switch {
	case k.private != nil:
		with = k.private
	case k.secret == nil:
		return "", errors.New("it is a public key, which only checks: sign with the private one")
	}
	payload, err := c.marshal()
	if err != nil {
		return "", err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(k.algorithm), Key: with}, nil)
	if err != nil {
		return "", err
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	text, err := jws.CompactSerialize()
	if err == nil && len(text) > MaxLen {
		err = fmt.Errorf("the signed token has %d bytes, and %d are allowed: sign it for a prefix, or for fewer resources", len(text), MaxLen)
	}
	return text, err
}
