package policies

import (
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

type placeKind uint8

const (
	placeHeader placeKind = iota
	placeQuery
	placeBasicUser
)

// place is one place in a request that may hold the token.
type place struct {
	kind    placeKind
	name    string         // of the header, canonical, or of the query parameter
	pattern *regexp.Regexp // with one group; nil where the whole value is the token
	label   string         // "header Fencing-Token"
	strip   bool           // it is taken out before the request is forwarded
}

func newPlace(kind placeKind, name string, pattern *regexp.Regexp) place {
	p := place{kind: kind, name: name, pattern: pattern}
	switch kind {
	case placeHeader:
		p.name = http.CanonicalHeaderKey(name)
		p.label = "header " + p.name
	case placeQuery:
		p.label = "query parameter " + name
	case placeBasicUser:
		p.label = "Basic-auth user"
	}
	if pattern != nil {
		p.label += " (" + pattern.String() + ")"
	}
	return p
}

// claimed is what the places hold between them.
type claimed struct {
	token  fencing.Token
	text   string // of a signed token the one in it
	place  string
	source *place

	raw       string // as it stands in the request
	signature *Signature
}

// claim reads the token. Every place is looked at: the first one that holds a token gives it, and any other token in the request
// must be the same number, since a client that names two has not said which it means. found is false if no place holds anything.
func (p *Policy) claim(e *evaluation) (c claimed, found bool, err error) {
	for i := range p.places {
		pl := &p.places[i]
		take := func(raw string) error {
			text := raw
			var s *Signature
			var err error
			if p.verifier != nil {
				if found && raw == c.raw { // it was checked
					return nil
				}
				if text, s, err = p.unsign(e, pl, raw); err != nil {
					return err
				}
			}
			t, err := p.parse(pl, text)
			switch {
			case err != nil:
				return err
			case !found:
				c, found = claimed{token: t, text: text, place: pl.label, source: pl, raw: raw, signature: s}, true
			case t != c.token || p.Format == fencing.Opaque && text != c.text || s != nil: // two that are signed may be for different resources
				reason := "it differs from the one in " + c.place
				if c.place == pl.label {
					reason = "two different tokens are given"
				}
				return &TokenError{Policy: p.Name, Place: pl.label, Reason: reason}
			}
			return nil
		}
		if err := p.eachValue(pl, e, take); err != nil {
			return claimed{}, true, err
		}
	}
	return c, found, nil
}

func (p *Policy) parse(pl *place, text string) (fencing.Token, error) {
	t, err := p.Format.Parse(text)
	if err == nil {
		err = p.Limits.Check(p.Format, t, text)
	}
	if err == nil {
		return t.In(p.Epoch), nil
	}
	if pe, ok := errors.AsType[*fencing.ParseError](err); ok && pl.kind == placeBasicUser {
		err = &fencing.ParseError{Text: "(not shown)", Format: pe.Format, Reason: pe.Reason} // it may be someone's name
	}
	return fencing.Token{}, &TokenError{Policy: p.Name, Place: pl.label, Err: err}
}

// eachValue calls take with each token text that a place holds.
func (p *Policy) eachValue(pl *place, e *evaluation, take func(string) error) error {
	bad := func(reason string) error { return &TokenError{Policy: p.Name, Place: pl.label, Reason: reason} }
	each := func(value string) error {
		if pl.pattern == nil {
			return take(value)
		}
		for _, m := range pl.pattern.FindAllStringSubmatch(value, -1) {
			if err := take(m[1]); err != nil {
				return err
			}
		}
		return nil
	}
	switch pl.kind {
	case placeHeader:
		vs := e.r.Header[pl.name]
		if len(vs) > 0 && nominated(e.r.Header, pl.name) {
			return bad("Connection names this header, which takes it away from the request on its way")
		}
		for _, v := range vs {
			if err := each(v); err != nil {
				return err
			}
		}
	case placeQuery:
		if e.query == "" {
			return nil
		}
		var err error
		ok := dialect.EachParameter(e.query, func(k, v string) bool {
			if k == pl.name {
				err = each(v)
			}
			return err == nil
		})
		if err == nil && !ok {
			err = bad("the query holds a bad escape or a semicolon, so its parameters are not certain")
		}
		return err
	case placeBasicUser:
		for _, v := range e.r.Header["Authorization"] {
			scheme, rest, _ := strings.Cut(v, " ")
			if !strings.EqualFold(scheme, "Basic") {
				continue
			}
			text, err := base64.StdEncoding.DecodeString(strings.TrimLeft(rest, " "))
			user, _, found := strings.Cut(string(text), ":")
			if err != nil || !found {
				return bad("the Authorization header is not Basic credentials")
			}
			if err := each(user); err != nil {
				return err
			}
		}
	}
	return nil
}

// signed returns an error where a presigned S3 URL does not cover the token that came with it: whoever gets hold of the URL could send it
// again with any other (https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html).
func (p *Policy) signed(e *evaluation, pl *place) error {
	if !p.signedToken {
		return nil
	}
	bad := func(reason string) error { return &TokenError{Policy: p.Name, Place: pl.label, Reason: reason} }
	signed, four, names := false, false, ""
	ok := dialect.EachParameter(e.query, func(name, value string) bool {
		switch strings.ToLower(name) {
		case "signature": // of version 2, which covers neither header nor parameter of ours
			signed, names = true, ""
			four = false
			return false
		case "x-amz-signature":
			signed, four = true, true
		case "x-amz-algorithm":
			signed = true
		case "x-amz-signedheaders":
			names += ";" + strings.ToLower(value)
		}
		return true
	})
	switch {
	case !ok && !signed:
		return bad("the query holds a bad escape or a semicolon, so that it is not certain whether the URL is signed")
	case !signed || four && pl.kind == placeQuery && names != "":
		return nil // version 4 covers every query parameter
	case four && pl.kind == placeHeader && slices.Contains(strings.Split(names, ";"), strings.ToLower(pl.name)):
		return nil
	}
	return bad("the presigned URL does not cover it, so that anybody who has the URL could send another; sign it in X-Amz-SignedHeaders")
}

// nominated reports whether Connection names the header, which makes it hop-by-hop: one proxy on the way drops it and another
// does not.
func nominated(h http.Header, name string) bool {
	for _, line := range h["Connection"] {
		for item := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(item), name) {
				return true
			}
		}
	}
	return false
}

// isToken reports whether s can be a header's name or a method (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		b := s[i]
		if b <= ' ' || b >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, b) >= 0 {
			return false
		}
	}
	return s != ""
}
