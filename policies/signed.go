package policies

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/signed"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// UnauthorizedError is the refusal of a token that is not signed by a key of the policy, that has expired, or that is for other resources.
type UnauthorizedError struct {
	Policy string
	Place  string // where it was found: "header Fencing-Token"
	Kind   signed.Kind
	Reason string // a clause, with nothing of a token in it but what a good signature covers
}

// Error says what is wrong with the token, never what it is: whoever has a good one can use it.
func (e *UnauthorizedError) Error() string {
	if e.Kind == signed.Unsigned {
		return fmt.Sprintf("the fencing token in %s is not signed, and policy %s takes signed tokens alone: send the compact JWS that comes with the lease", e.Place, e.Policy)
	}
	return fmt.Sprintf("the signed token in %s is refused by policy %s: %s", e.Place, e.Policy, e.Reason)
}

// Signature is what a decision knows of a signed token.
type Signature struct {
	Algorithm signed.Algorithm
	Claims    *signed.Claims
}

// String is "HS256, valid until 2026-11-30T02:00:00Z, covers "rides/7"".
func (s *Signature) String() string {
	return fmt.Sprintf("%s, valid until %s, covers %s", s.Algorithm, s.Claims.Expires.UTC().Format(time.RFC3339), s.Claims.Scope())
}

// unsign returns the token that a signed one holds.
func (p *Policy) unsign(e *evaluation, pl *place, text string) (inner string, s *Signature, err error) {
	now := e.r.Time
	if now.IsZero() {
		now = time.Now()
	}
	c, err := p.verifier.Verify(text, now)
	if bad, ok := errors.AsType[*signed.Error](err); ok {
		return "", nil, &UnauthorizedError{Policy: p.Name, Place: pl.label, Kind: bad.Kind, Reason: bad.Reason}
	}
	if err != nil {
		return "", nil, err
	}
	return c.Token, &Signature{p.verifier.Algorithm(), c}, nil
}

// covered returns an error if the signed token is not for all that the write is known to change by now. Collections that the write only lies
// in need not be covered.
func (d *Decision) covered() error {
	if d.Signature == nil {
		return nil
	}
	c := d.Signature.Claims
	other := func(what string) error {
		return &UnauthorizedError{Policy: d.Policy.Name, Place: d.TokenSource, Kind: signed.OtherResource, Reason: fmt.Sprintf("it is for %s, and this write changes %s", c.Scope(), what)}
	}
	for _, known := range [][]fencing.Resource{d.known, d.Resources} {
		for _, r := range known {
			if !c.Covers(string(r)) {
				return other(fmt.Sprintf("%q", clip(string(r))))
			}
		}
	}
	for _, t := range d.Trees {
		if !c.CoversTree(string(t.Prefix)) {
			return other(fmt.Sprintf("what may be a collection, with everything below %q; it takes a token for the prefix %q", clip(string(t.Prefix)), clip(strings.TrimSuffix(string(t.Prefix), "/"))))
		}
	}
	return nil
}

// boundCovered is covered for a step of an upload that has the token of its creation: that was for the upload's object alone.
func (d *Decision) boundCovered() error {
	if d.Policy.verifier == nil {
		return nil
	}
	for _, r := range d.Resources {
		if r != d.Upload.Object {
			return &UnauthorizedError{
				Policy: d.Policy.Name, Place: d.TokenSource, Kind: signed.OtherResource,
				Reason: fmt.Sprintf("it is for %q, and this step changes %q too: send it a token of its own", clip(string(d.Upload.Object)), clip(string(r))),
			}
		}
	}
	return nil
}

// checkSigned warns of writes that get by without a signature.
func (p *Policy) checkSigned(s section) {
	if p.verifier != nil && p.MissingToken == MissingAllow && p.Mode == Enforce {
		s.at("missing_token").warnf("set missing_token: reject", "tokens are signed, and whoever leaves the token out writes unfenced")
	}
}

// KeyReader reads a key file of token.signed and says who may: the permission bits, or 0 where they mean nothing.
type KeyReader func(file string) (data []byte, mode fs.FileMode, err error)

// maxSigningKeys lets a new key in beside the old one.
const maxSigningKeys = 2

func (o *settings) decodeSigned(t section) {
	v, ok := t.keys["signed"]
	if !ok {
		return
	}
	if v.kind() == `"off"` {
		if o.verifier == nil {
			v.errorf("leave it out", "it has no effect: tokens are not signed under defaults")
		}
		o.verifier, o.signedKeys = nil, ""
		return
	}
	s := v.section("algorithm", "keys")
	if v.kind() != "a mapping" {
		return // reported
	}
	a := signed.Algorithm("")
	enum(s, "algorithm", &a, nil, choice[signed.Algorithm]{"HS256", signed.HS256}, choice[signed.Algorithm]{"EdDSA", signed.EdDSA})
	if !s.has("algorithm") {
		s.at("algorithm").errorf("write algorithm: HS256, or EdDSA", "it does not say how tokens are signed")
	}
	if !s.has("keys") {
		s.at("keys").errorf(`make one with "fenceproxy token keygen", and write keys: [FILE]`, "it names no key file")
		return
	}
	var files []string
	var keys []signed.Key
	items := s.at("keys").items(true)
	if len(items) == 0 || len(items) > maxSigningKeys {
		s.at("keys").errorf("", "%d key files are given; 1 to %d are allowed, the second one while keys change", len(items), maxSigningKeys)
		return
	}
	for _, item := range items {
		file, ok := item.text()
		switch {
		case !ok:
			continue
		case file == "":
			item.errorf("name a file", "it is empty")
			continue
		case slices.Contains(files, file):
			item.errorf("", "%s is given twice", file)
			continue
		}
		files = append(files, file)
		if key, ok := item.signingKey(file, a); ok {
			keys = append(keys, key)
		}
	}
	o.verifier, _ = signed.NewVerifier(a, keys...) // each key was found to be for a
	o.signedKeys = fmt.Sprint(a, files)
}

// signingKey reads a key file; ok is false if that was not asked for, or something is wrong with it.
func (v value) signingKey(file string, a signed.Algorithm) (key signed.Key, ok bool) {
	if v.l.readKey == nil {
		return key, false
	}
	data, mode, err := v.l.readKey(file)
	if err != nil {
		v.errorf(`make one with "fenceproxy token keygen"`, "the key cannot be read: %v", err)
		return key, false
	}
	key, err = signed.ParseKey(data)
	switch {
	case err != nil && a == signed.HS256 && bytes.Contains(data, []byte("-----BEGIN")):
		v.errorf(`make one with "fenceproxy token keygen"`, "the key file %s holds PEM, and HS256 takes a secret", file)
	case err != nil:
		v.errorf(`make one with "fenceproxy token keygen"`, "the key file %s cannot be used: %v", file, err)
	case a != "" && key.Algorithm() != a:
		v.errorf("", "the key file %s is for %s, and the algorithm is %s", file, key.Algorithm(), a)
	case key.Private():
		v.errorf("name the public key, and keep the private one from the proxy", "the key file %s holds the private key, with which whoever reads it can sign", file)
	default:
		if key.Secret() && mode&0o004 != 0 {
			v.warnf("chmod 640 "+file, "everybody on this machine can read the key %s, and sign any token with it", file)
		}
		return key, true
	}
	return key, false
}
