package proxy

import (
	"errors"
	"net/http"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/policies/signed"
)

// statusUnauthorized is the outcome of a write whose token is not signed as its policy wants it, has expired, or is for something else.
const statusUnauthorized = "unauthorized"

// challenges are what WWW-Authenticate says: 401 needs the header (RFC 9110 section 15.5.2), and no client takes this scheme for one whose
// password it could ask for.
var challenges = map[signed.Kind]string{
	signed.Unsigned:      `FencingToken error="unsigned", error_description="signed tokens alone are taken"`,
	signed.Invalid:       `FencingToken error="invalid", error_description="no known key has signed the token as it is, or it is not valid now"`,
	signed.Expired:       `FencingToken error="expired", error_description="the token has expired"`,
	signed.OtherResource: `FencingToken error="other-resource", error_description="the token is for another resource"`,
}

// ofSignature knows what is wrong with a signed token.
func (x *exchange) ofSignature(err error, r *rejection) bool {
	bad, ok := errors.AsType[*policies.UnauthorizedError](err)
	if !ok {
		return false
	}
	r.code, r.outcome, r.challenge = http.StatusUnauthorized, statusUnauthorized, challenges[bad.Kind]
	r.title = map[signed.Kind]string{
		signed.Unsigned:      "The fencing token is not signed",
		signed.Invalid:       "The signed token cannot be trusted",
		signed.Expired:       "The signed token has expired",
		signed.OtherResource: "The signed token is for another resource",
	}[bad.Kind]
	return true
}
