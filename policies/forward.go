package policies

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// Forward is what reaches the store in the place of what the client sent, where a policy has strip: true. All else is forwarded as it is.
type Forward struct {
	Target        string  // path and query; empty: as it came
	Authorization *string // value of the header; nil: as it came. Empty: the header is left out
}

// strip takes the token out of the query and the user name, where the policy says so. Nil: nothing was to be taken out.
func (p *Policy) strip(e *evaluation) *Forward {
	var f Forward
	for i := range p.places {
		switch pl := &p.places[i]; {
		case !pl.strip:
		case pl.kind == placeQuery:
			query := e.query
			if f.Target != "" {
				_, query, _ = strings.Cut(f.Target, "?")
			}
			if rest, found := without(query, pl.name); found {
				f.Target = e.raw
				if rest != "" {
					f.Target += "?" + rest
				}
			}
		case pl.kind == placeBasicUser:
			if v, found := pl.withoutUser(e.r.Header["Authorization"]); found {
				f.Authorization = &v
			}
		}
	}
	if f == (Forward{}) {
		return nil
	}
	return &f
}

// without returns a raw query without the parameter.
func without(query, name string) (rest string, found bool) {
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		raw, _, _ := strings.Cut(pair, "=")
		if n, err := url.QueryUnescape(raw); err == nil && n == name {
			found = true
			continue
		}
		kept = append(kept, pair)
	}
	return strings.Join(kept, "&"), found
}

// withoutUser returns the Authorization header without the token: the user name loses what the pattern matches, or is emptied; without a user
// name and a password nothing is left of it.
func (pl *place) withoutUser(values []string) (value string, found bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, rest, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false
	}
	text, err := base64.StdEncoding.DecodeString(strings.TrimLeft(rest, " "))
	user, password, ok := strings.Cut(string(text), ":")
	if err != nil || !ok {
		return "", false
	}
	left := ""
	if pl.pattern != nil {
		if left = pl.pattern.ReplaceAllLiteralString(user, ""); left == user {
			return "", false
		}
	}
	if left == "" && password == "" {
		return "", true
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(left+":"+password)), true
}

// stripRead takes the token out of a read, so that it reaches the store under the same target as the writes do. The first policy whose path
// fits decides, whatever its methods.
func (s *Set) stripRead(e *evaluation) *Forward {
	for _, p := range s.all {
		path, reason := p.identity.target(e.raw, e.query, e.r.Host, nil)
		if reason == "" && p.pattern.match(path, p.identity.strict(path)) && p.meets(e) != no {
			return p.strip(e)
		}
	}
	return nil
}
