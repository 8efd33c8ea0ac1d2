package signed

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4/json" // refuses doubled names, and takes them in one case only
)

// Claims are what a signed token says.
type Claims struct {
	Resources []string  // the keys that it is for, as "fenceproxy explain" prints them; empty where Prefix is set
	Prefix    string    // it is for this key and every one below
	Token     string    // the fencing token, in the policy's format
	Expires   time.Time // from then on it is refused
	NotBefore time.Time // until then it is refused; zero: at once
}

// Covers reports whether the claims are for the resource.
func (c *Claims) Covers(resource string) bool {
	for _, r := range c.Resources {
		if r == resource {
			return true
		}
	}
	return c.coversBelow(resource)
}

// CoversTree reports whether the claims are for every resource whose key begins with prefix. Only a prefix is.
func (c *Claims) CoversTree(prefix string) bool { return c.coversBelow(prefix) }

// coversBelow reports whether the key is the prefix or lies below it: "rides/7" does not cover "rides/77".
func (c *Claims) coversBelow(key string) bool {
	rest, ok := strings.CutPrefix(key, c.Prefix)
	return ok && c.Prefix != "" && (rest == "" || rest[0] == '/' || strings.HasSuffix(c.Prefix, "/"))
}

// Scope says what the claims are for, in a few words: "rides/7"; "rides/" and what lies below.
func (c *Claims) Scope() string {
	const shown = 3
	switch n := len(c.Resources); {
	case c.Prefix != "":
		return fmt.Sprintf("%.200q and what lies below", c.Prefix)
	case n > shown:
		return fmt.Sprintf("%.200q and %d more", c.Resources[:shown], n-shown)
	case n == 1:
		return fmt.Sprintf("%.200q", c.Resources[0])
	}
	return fmt.Sprintf("%.200q", c.Resources)
}

// payload is the JSON of claims. Names that are not here are ignored.
type payload struct {
	Resource json.RawMessage `json:"resource,omitempty"`
	Prefix   *string         `json:"prefix,omitempty"`
	Token    json.RawMessage `json:"token,omitempty"`
	Expires  json.RawMessage `json:"exp,omitempty"`
	Before   json.RawMessage `json:"nbf,omitempty"`
}

// parseClaims reads a payload whose signature is good. The error is a clause.
func parseClaims(data []byte) (*Claims, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("its claims are not UTF-8")
	}
	var p payload
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("its claims cannot be read: %w", err)
	}
	c := &Claims{}
	if err := json.Unmarshal(p.Token, &c.Token); err != nil || p.Token[0] != '"' {
		return nil, errors.New(`it needs the claim token as text: {"token": "34"}, since a number may lose digits on its way`)
	}
	switch {
	case p.Prefix != nil && p.Resource != nil:
		return nil, errors.New("it has both claims, resource and prefix; give it one")
	case p.Prefix != nil:
		c.Prefix = *p.Prefix
	case p.Resource != nil && p.Resource[0] == '"':
		c.Resources = []string{""}
		if err := json.Unmarshal(p.Resource, &c.Resources[0]); err != nil {
			return nil, fmt.Errorf("its claim resource cannot be read: %w", err)
		}
	case p.Resource != nil:
		var list []*string
		if err := json.Unmarshal(p.Resource, &list); err != nil {
			return nil, errors.New("its claim resource is neither a text nor a list of texts")
		}
		for _, r := range list {
			if r == nil {
				return nil, errors.New("its claim resource is neither a text nor a list of texts")
			}
			c.Resources = append(c.Resources, *r)
		}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	var err error
	if c.Expires, err = date("exp", p.Expires); err != nil {
		return nil, err
	}
	if p.Before != nil {
		c.NotBefore, err = date("nbf", p.Before)
	}
	return c, err
}

// check finds claims that would be for nothing.
func (c *Claims) check() error {
	for _, r := range c.Resources {
		if r == "" {
			return errors.New("its claim resource holds an empty text")
		}
	}
	if c.Prefix == "" && len(c.Resources) == 0 {
		return errors.New("it is for no resource: it needs the claim resource or prefix")
	}
	return nil
}

// date reads a NumericDate (RFC 7519 section 2): seconds, which may have a fraction.
func date(name string, n json.RawMessage) (time.Time, error) {
	const last = 253402300799 // the end of the year 9999, beyond which a date cannot be written
	if n == nil {
		return time.Time{}, fmt.Errorf("it never ends: it needs the claim %s", name)
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil || !(f > 0 && f <= last) { // neither is NaN
		return time.Time{}, fmt.Errorf("its claim %s is not a date in seconds since 1970", name)
	}
	whole, part := math.Modf(f)
	return time.Unix(int64(whole), int64(part*1e9)), nil
}

// marshal writes claims as parseClaims reads them.
func (c *Claims) marshal() ([]byte, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Prefix != "" && len(c.Resources) > 0 {
		return nil, errors.New("it has both claims, resource and prefix; give it one")
	}
	out := struct {
		Resource any    `json:"resource,omitempty"`
		Prefix   string `json:"prefix,omitempty"`
		Token    string `json:"token"`
		Expires  int64  `json:"exp"`
		Before   int64  `json:"nbf,omitempty"`
	}{Prefix: c.Prefix, Token: c.Token, Expires: c.Expires.Unix()}
	switch len(c.Resources) {
	case 0:
	case 1:
		out.Resource = c.Resources[0]
	default:
		out.Resource = c.Resources
	}
	if !c.NotBefore.IsZero() {
		out.Before = c.NotBefore.Unix()
	}
	return json.Marshal(out)
}
