package proxy

import (
	"net/http"
	"strconv"
	"strings"
)

// Over HTTP/1.1 the server refuses a request line, a Host and a length that cannot be read in one way only. Over HTTP/2 these are fields
// like others, and it takes nearly anything for them; forwarded over HTTP/1.1, a space in the method would give the store another target
// than the policies saw.

// malformedH2 returns why an HTTP/2 request is malformed, or "". It takes Host out of the header, where HTTP/1.1 has it not either.
func malformedH2(r *http.Request) string {
	hosts, lengths := r.Header["Host"], r.Header["Content-Length"]
	switch {
	case !token(r.Method):
		return "the method is no token"
	case !strings.HasPrefix(r.RequestURI, "/") && (r.RequestURI != "*" || r.Method != http.MethodOptions):
		return "the :path is not a path"
	case strings.ContainsAny(r.RequestURI, " \t"):
		return "the :path holds a space"
	case r.Host == "" || strings.ContainsFunc(r.Host, notOfHost):
		return "the :authority is no host"
	case len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host):
		return "Host is not the :authority"
	case len(lengths) > 1 || len(lengths) == 1 && lengths[0] != strconv.FormatInt(r.ContentLength, 10):
		return "the Content-Length is not that of the body"
	}
	delete(r.Header, "Host")
	return ""
}

// token reports whether s is a token of HTTP (RFC 9110 section 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", c) })
}

// notOfHost reports whether c cannot stand in a host and port (RFC 3986 section 3.2.2).
func notOfHost(c rune) bool {
	return c <= ' ' || c > '~' || strings.ContainsRune("\"#/<>?@\\^`{|}", c)
}
