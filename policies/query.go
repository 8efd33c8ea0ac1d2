package policies

import (
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// queryValue returns the value of a parameter in the form that keys use, and how often it is given. Space and plus are one
// character there: stores differ on which of the two a raw plus is.
func queryValue(query, name string, id *identity) (value string, n int, ok bool) {
	want := strings.ReplaceAll(id.normal(name), " ", "+")
	ok = dialect.EachParameter(query, func(k, v string) bool {
		if strings.ReplaceAll(id.normal(k), " ", "+") == want {
			n++
			value = strings.ReplaceAll(id.normal(v), " ", "+")
		}
		return true
	})
	return value, n, ok
}

// hasMethodParameter reports whether the query holds _method, in any spelling that a framework takes for it: escaped, in another
// case, behind a semicolon, or with the characters that PHP turns into an underscore.
func hasMethodParameter(query string) bool {
	if len(query) < len("_method") || !strings.ContainsAny(query, "mM%") {
		return false
	}
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		name = strings.Map(func(r rune) rune {
			if r == ' ' || r == '.' || r == '+' || r == '[' {
				return '_'
			}
			return r
		}, strings.TrimLeft(unescape(name), " +"))
		if strings.EqualFold(name, "_method") {
			return true
		}
	}
	return false
}
