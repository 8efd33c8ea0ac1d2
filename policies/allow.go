package policies

import (
	"fmt"
	"slices"
	"strings"
)

// ForbiddenError is the refusal of a write whose client is not among those that the policy names.
type ForbiddenError struct {
	Policy string
	Client []string // the names in the client's certificate; none if it showed none
}

// Error names the client as its certificate does.
func (e *ForbiddenError) Error() string {
	if len(e.Client) == 0 {
		return fmt.Sprintf("policy %s lets only certain clients write, by their certificates, and this one showed none", e.Policy)
	}
	return fmt.Sprintf("policy %s lets only certain clients write, and the certificate of this one names %s", e.Policy, clip(strings.Join(e.Client, ", ")))
}

// ClientName brings a name in a certificate, or in an allow list, into the form in which the two are compared. Letters, digits, dots and
// dashes alone are what DNS names are made of, whose case means nothing; in a URI, an address or a sentence it does.
func ClientName(s string) string {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' {
			return s
		}
	}
	return strings.ToLower(s)
}

// forbids returns an error if the policy names who may write and the client is none of them.
func (p *Policy) forbids(r *Request) error {
	if p == nil || p.allow == nil {
		return nil
	}
	for _, name := range r.Client {
		if slices.Contains(p.allow, ClientName(name)) {
			return nil
		}
	}
	return &ForbiddenError{Policy: p.Name, Client: r.Client}
}

// Allow lists who may write; nil means everybody.
func (p *Policy) Allow() []string { return slices.Clone(p.allow) }

// maxAllowed bounds allow.
const maxAllowed = 1000

func (o *settings) decodeAllow(s section) {
	v, ok := s.keys["allow"]
	if !ok {
		return
	}
	if v.kind() == `"any"` {
		if o.allow == nil {
			v.errorf("leave it out", "it has no effect: everybody may write under defaults")
		}
		o.allow = nil
		return
	}
	o.allow = []string{}
	items := v.items(false)
	if v.kind() == "a list" && len(items) == 0 {
		v.errorf("name those who may write, or write allow: any", "the list is empty, so nobody could write")
	}
	if len(items) > maxAllowed {
		v.errorf("", "%d names are given; at most %d are allowed", len(items), maxAllowed)
		return
	}
	for _, item := range items {
		name, ok := item.text()
		switch {
		case !ok:
		case name == "" || strings.TrimSpace(name) != name:
			item.errorf("write the name as it stands in the certificate", "%q is not a name", clip(name))
		case strings.Contains(name, "*"):
			item.errorf("name each client", "%q has a star, and names are compared as a whole", clip(name))
		case slices.Contains(o.allow, ClientName(name)):
			item.errorf("", "%s is given twice", clip(name))
		default:
			o.allow = append(o.allow, ClientName(name))
		}
	}
}

// checkAllow finds policies under which nobody could write.
func (c *Config) checkAllow(root section) {
	for _, l := range []Listener{c.Listen, c.Forward.Listen} {
		if l.TLS != nil && l.TLS.ClientCA != "" {
			return
		}
	}
	for _, p := range c.Policies.all {
		if len(p.allow) > 0 && p.Mode != Off { // an empty one was reported
			root.at("listen").errorf("set listen.tls.client_ca, or leave allow out",
				"policy %s names who may write (allow), and no listener asks for a client's certificate: nobody could", p.Name)
			return
		}
	}
}
