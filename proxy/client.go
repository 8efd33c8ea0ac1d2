package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"

	"github.com/fenceproxy/fenceproxy/policies"
)

// statusForbidden is the outcome of a write whose client is not among those that its policy names.
const statusForbidden = "forbidden"

// client returns the address of the client without its port, and its name if a certificate says that.
func (x *exchange) client() string {
	host, _, err := net.SplitHostPort(x.in.RemoteAddr)
	if err != nil {
		host = x.in.RemoteAddr
	}
	if names := x.clientNames(); len(names) > 0 {
		return host + " (" + clip(names[0]) + ")"
	}
	return host
}

// clientNames returns the names in the client's certificate: the DNS names, URIs and mail addresses among its alternative names, in this
// order, then the common name. It returns none unless the certificate was verified.
func (x *exchange) clientNames() []string {
	state := x.in.TLS
	if x.via != nil {
		state = x.via.client // in a tunnel the client has shown it to the listener, not to the store that it believes to speak to
	}
	if state == nil || len(state.VerifiedChains) == 0 {
		return nil
	}
	return namesIn(state.PeerCertificates[0])
}

func namesIn(cert *x509.Certificate) []string {
	names := append([]string(nil), cert.DNSNames...)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	names = append(names, cert.EmailAddresses...)
	if cn := cert.Subject.CommonName; cn != "" {
		names = append(names, cn)
	}
	return names
}

// ofClientName knows the clients that may not write.
func (x *exchange) ofClientName(err error, r *rejection) bool {
	forbidden, ok := errors.AsType[*policies.ForbiddenError](err)
	if !ok {
		return false
	}
	r.code, r.outcome, r.title = http.StatusForbidden, statusForbidden, "This client may not write here"
	r.detail = sentence(forbidden) + " The write was not forwarded. Use the certificate of a client that may write, or ask the operator to " +
		"add one of the names to allow."
	if len(forbidden.Client) == 0 {
		r.detail = sentence(forbidden) + " The write was not forwarded. Send it over TLS, with the certificate of a client that may write."
	}
	return true
}

// modeOf is how a listener asks for the certificates of clients.
func modeOf(t *policies.ListenerTLS) tls.ClientAuthType {
	if t.Request {
		return tls.VerifyClientCertIfGiven
	}
	return tls.RequireAndVerifyClientCert
}
