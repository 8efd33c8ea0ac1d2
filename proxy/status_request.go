package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
)

// ofRequest knows what is wrong with a request as it stands.
func (x *exchange) ofRequest(err error, r *rejection) bool {
	set := func(code int, outcome, title string) bool {
		r.code, r.outcome, r.title = code, outcome, title
		return true
	}
	if refused, ok := errors.AsType[*refusedError](err); ok {
		return set(refused.code, statusRefused, "The request cannot be fenced")
	}
	if is[*misdirectedError](err) {
		r.problem = "misdirected"
		return set(http.StatusMisdirectedRequest, statusRefused, "The request is for another host than its connection")
	}
	if is[*unlistedError](err) {
		r.problem = "unlisted"
		return set(http.StatusForbidden, statusRefused, "The host is none of the stores")
	}
	if is[*policies.MissingTokenError](err) {
		return set(http.StatusPreconditionRequired, statusMissing, "The fencing token is missing")
	}
	if is[*policies.TokenError](err) {
		return set(http.StatusBadRequest, statusMalformed, "The fencing token is malformed")
	}
	if is[*policies.AmbiguousError](err) {
		return set(http.StatusBadRequest, statusAmbiguous, "The request target is ambiguous")
	}
	if is[*policies.UnmatchedError](err) {
		return set(http.StatusForbidden, statusUnmatched, "No policy covers this write")
	}
	if is[*policies.UnfenceableError](err) {
		return set(http.StatusForbidden, statusUnfenceable, "The reach of the write cannot be told")
	}
	if is[*policies.BatchError](err) {
		return set(http.StatusRequestEntityTooLarge, statusTooLarge, "The write is too large to be fenced")
	}
	if is[*policies.RefusedError](err) {
		return set(http.StatusBadRequest, statusRefused, "The request cannot be fenced")
	}
	if is[*policies.BodyError](err) || is[*policies.KeyError](err) {
		return set(http.StatusBadRequest, statusMalformed, "The resource cannot be told from the request")
	}
	return false
}

// ofBody knows what may go wrong while the body is taken in.
func (x *exchange) ofBody(err error, r *rejection) bool {
	if spool, ok := errors.AsType[*spoolError](err); ok {
		r.code, r.outcome, r.retry = http.StatusServiceUnavailable, statusUnavailable, 5*time.Second
		r.title = "The body could not be taken in"
		if spool.full() {
			r.code, r.retry = http.StatusInsufficientStorage, 0
		}
		r.detail = "The spool directory refused it, so the write was not forwarded. The operator has to look at spool.dir."
		return true
	}
	switch {
	case errors.Is(err, errTooLarge):
		r.code, r.outcome, r.title = http.StatusRequestEntityTooLarge, statusTooLarge, "The body is too large"
		r.detail = fmt.Sprintf("The proxy takes in at most %d bytes (spool.max). Ask the operator to raise it, or to set request_body: stream.", x.p.spool.max)
	case errors.Is(err, errClientStalled):
		r.code, r.outcome, r.title = http.StatusRequestTimeout, statusAbandoned, "The body did not come"
		r.detail = fmt.Sprintf("No byte of it came for %v, so the write was not forwarded.", x.p.stall)
	case is[*bodyError](err):
		r.code, r.outcome, r.title = http.StatusBadRequest, statusAbandoned, "The body did not come whole"
		r.detail = "It broke off or is framed wrongly, so the write was not forwarded."
	default:
		return false
	}
	return true
}
