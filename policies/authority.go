package policies

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Authority returns a host and port in the one form in which resource keys and comparisons have them: lower case, without a final dot, with
// the port (that of the scheme, http or https, if none is given), an IPv6 address in brackets and in its shortest form (RFC 3986 section 3.2, RFC 5952). ok is false
// for what is none.
func Authority(scheme, hostport string) (authority string, ok bool) {
	host, port := hostport, ""
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		host, port = h, p
	} else if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	} else if strings.ContainsAny(host, ":[]") {
		return "", false
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return "", false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return "", false
		}
		host = ip.Unmap().String()
	} else {
		host = strings.TrimSuffix(strings.ToLower(host), ".")
		if !isHostName(host) {
			return "", false
		}
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), true
}

// isHostName reports whether s is letters, digits, hyphens and underscores between dots: what clients that follow RFC 3986 send, an
// internationalised name in its ASCII form.
func isHostName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := 0; i < len(label); i++ {
			b := label[i]
			if (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
				return false
			}
		}
	}
	return true
}
