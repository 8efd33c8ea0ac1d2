package policies

import (
	"net/http"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// override returns the method that a request asks for instead of its own, and a clause that says how it does; asked is empty where it is
// not one method. Underscores count as dashes: a store behind CGI or WSGI sees no difference.
func override(h http.Header, query string) (asked, reason string) {
	take := func(method, how string) {
		method = strings.ToUpper(strings.Trim(method, " \t"))
		if !isToken(method) || reason != "" && method != asked || method == "CONNECT" {
			method = ""
		}
		asked, reason = method, how
	}
	for name, values := range h {
		switch len(name) {
		case len("X-HTTP-Method"), len("X-Method-Override"), len("X-HTTP-Method-Override"):
			if name[0]|0x20 != 'x' {
				continue
			}
			switch strings.ToLower(strings.ReplaceAll(name, "_", "-")) {
			case "x-http-method", "x-method-override", "x-http-method-override":
				for _, v := range values {
					take(v, "the header "+name+" asks the store for another method than the request line does")
				}
			}
		}
	}
	if query != "" && hasMethodParameter(query) {
		const how = "the query parameter _method asks the store for another method than the request line does"
		found := false
		dialect.EachParameter(query, func(name, value string) bool {
			if name == "_method" {
				found = true
				take(value, how)
			}
			return true
		})
		if !found { // a spelling that not every framework takes for it
			asked, reason = "", how
		}
	}
	return asked, reason
}
