package dialect

import (
	"net/url"
	"strings"
)

// EachParameter calls f with each decoded name and value of a raw query until f returns false. ok is false if a pair holds a bad escape,
// or a semicolon, which some stores take for a separator.
func EachParameter(query string, f func(name, value string) bool) (ok bool) {
	ok = true
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" {
			continue
		}
		rawName, rawValue, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(rawName)
		value, verr := url.QueryUnescape(rawValue)
		if err != nil || verr != nil || strings.Contains(pair, ";") {
			ok = false
			continue
		}
		if !f(name, value) {
			break
		}
	}
	return ok
}

// parameters returns the query with decoded names. ok is as for EachParameter.
func parameters(query string) (ps map[string][]string, ok bool) {
	if query == "" {
		return nil, true
	}
	ps = map[string][]string{}
	ok = EachParameter(query, func(name, value string) bool {
		ps[name] = append(ps[name], value)
		return true
	})
	return ps, ok
}

// single returns the value of a header that may be given once. ok is false if it is given more than once.
func single(r *Request, name string) (value string, given, ok bool) {
	vs := r.Header[name]
	if len(vs) == 0 {
		return "", false, true
	}
	return vs[0], true, len(vs) == 1
}

// escapePath writes a decoded text as a path: slashes separate, everything else is escaped where a path needs it.
func escapePath(text string) string {
	parts := strings.Split(text, "/")
	for i, p := range parts {
		parts[i] = escapeSegment(p)
	}
	return strings.Join(parts, "/")
}

// escapeSegment is url.PathEscape with the semicolon and the comma escaped or not as there; a dot segment stays one.
func escapeSegment(text string) string { return url.PathEscape(text) }
