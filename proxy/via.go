package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies"
)

// via is the way by which a request of forward mode came, from the client's CONNECT or the absolute target that it sent.
type via struct {
	mode   *policies.ForwardMode
	store  *policies.Store // nil: the host is unlisted
	up     *upstream
	named  string               // the authority that the client named, in canonical form
	scheme string               // in which it speaks to the store, as it believes
	client *tls.ConnectionState // of the client's connection to the forward listener, if that is TLS
	err    error                // why the request goes no further; the other fields may be empty then
}

type viaKey struct{}

func viaOf(ctx context.Context) *via {
	v, _ := ctx.Value(viaKey{}).(*via)
	return v
}

// authority begins the keys of the store that the request is for.
func (x *exchange) authority() string {
	if x.via != nil && x.via.store != nil {
		return x.via.store.Authority
	}
	return x.set.Authority()
}

// reserved is what no key of the request may begin with.
func (x *exchange) reserved() []string {
	if x.via != nil {
		return nil
	}
	return x.set.Reserved()
}

// misdirectedError is a request in a tunnel to one host that names another.
type misdirectedError struct{ named, host string }

func (e *misdirectedError) Error() string {
	return fmt.Sprintf("the request names the host %q on a connection that was opened to %s; open one to that host", clip(e.host), e.named)
}

// unlistedError is a request for a host that the operator has not named.
type unlistedError struct {
	named  string
	listed []string // the names of stores at this host, with their ports
}

func (e *unlistedError) Error() string {
	if len(e.listed) > 0 {
		return fmt.Sprintf("this proxy knows the host at another port than %s asks for: %s", clip(e.named), strings.Join(e.listed, ", "))
	}
	return fmt.Sprintf("this proxy is not for %s; reach it directly (NO_PROXY), or ask the operator to list it in forward.upstreams, or to set unlisted: tunnel", clip(e.named))
}

// forwardTarget returns the origin form of the target of a request of forward mode. Whatever names a host must name the one that the client
// opened its connection to, or asked for: a request that policies see as one for this store must not be one for another.
func (v *via) forwardTarget(r *http.Request) (string, error) {
	if host, ok := policies.Authority(v.scheme, r.Host); !ok || host != v.named {
		return "", &misdirectedError{v.named, r.Host}
	}
	if strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" && r.Method == http.MethodOptions {
		return r.RequestURI, nil
	}
	if r.URL.Host == "" || r.URL.User != nil || r.URL.Opaque != "" {
		return "", &policies.AmbiguousError{Reason: "the request target is neither a path nor a URL without credentials"}
	}
	if at, ok := policies.Authority(r.URL.Scheme, r.URL.Host); !ok || at != v.named || r.URL.Scheme != v.scheme {
		return "", &misdirectedError{v.named, r.URL.Scheme + "://" + r.URL.Host}
	}
	return originForm(r.RequestURI), nil
}

// originForm cuts scheme and host off an absolute target.
func originForm(target string) string {
	_, rest, _ := strings.Cut(target, "://")
	i := strings.IndexAny(rest, "/?")
	switch {
	case i < 0:
		return "/"
	case rest[i] == '?':
		return "/" + rest[i:]
	}
	return rest[i:]
}
