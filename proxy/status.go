package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/hold"
	"github.com/fenceproxy/fenceproxy/proxy/leg"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// statusHeader says what the fence made of a write.
const statusHeader = "Fencing-Status"

// What a Fencing-Status header says. The same words stand in the problem type, in metrics and in log lines.
const (
	statusAdmitted    = "admitted"
	statusStale       = "stale"
	statusMissing     = "missing"
	statusMalformed   = "malformed"
	statusImplausible = "implausible" // the token is further above the mark than max_jump lets it be
	statusAmbiguous   = "ambiguous"
	statusUnmatched   = "unmatched"
	statusUnfenceable = "unfenceable"
	statusRefused     = "refused"
	statusBusy        = "busy"
	statusUnavailable = "unavailable"
	statusInDoubt     = "in-doubt"
	statusWouldReject = "would-reject"
	statusTooLarge    = "too-large" // the body is longer than spool.max or max_body
	statusLimited     = "limited"   // the client took too much of what others need too
	statusAbandoned   = "abandoned" // the client went away before its write was forwarded
	statusUnfenced    = "unfenced"  // a policy lets it by: mode off, or missing_token: allow
)

// rejection is one row of the table of answers: what became of a request, and how the client is told.
type rejection struct {
	code      int    // HTTP status; 0 if there is nobody to tell
	outcome   string // the word in Fencing-Status; empty where nothing was judged
	problem   string // the last part of the problem type, where it is not the outcome
	title     string
	detail    string // what happened, and what to do next
	forwarded string // "no", "yes" or "unknown"
	retry     time.Duration
	resource  fencing.Resource
	mark      *fencing.Token
	challenge string // of a 401, for WWW-Authenticate
	operator  string // a sentence that follows detail where an operator asks
	err       error  // for the log
}

// refusedError is a request that no policy can allow.
type refusedError struct {
	code   int
	reason string
}

func (e *refusedError) Error() string { return e.reason }

// rejectionOf turns every error that may come up before a request is forwarded into what the client is told. An error that it does not
// know rejects.
func (x *exchange) rejectionOf(err error) rejection {
	r := rejection{forwarded: "no", err: x.logged(err)}
	if rs := x.decision.Resources; len(rs) > 0 {
		r.resource = rs[0]
	}
	switch {
	case x.ofLimits(err, &r), x.ofGate(err, &r), x.ofRequest(err, &r), x.ofSignature(err, &r), x.ofClientName(err, &r), x.ofBody(err, &r):
	default:
		r.code, r.outcome = http.StatusServiceUnavailable, statusUnavailable
		r.title = "The write could not be judged"
		r.retry = time.Second
	}
	if r.detail == "" {
		r.detail = sentence(err)
	}
	return r
}

// logged returns what the log says of an error.
func (x *exchange) logged(err error) error {
	if stale, ok := errors.AsType[*gate.StaleTokenError](err); ok && x.decision.Policy != nil {
		return &staleError{stale, x.decision.Policy.Format}
	}
	return err
}

// ofGate knows the errors of the gate and of the token store.
func (x *exchange) ofGate(err error, r *rejection) bool {
	if stale, ok := errors.AsType[*gate.StaleTokenError](err); ok {
		r.code, r.outcome, r.resource = x.decision.Policy.StaleStatus, statusStale, stale.Resource
		r.title = "The fencing token is stale"
		r.detail = "A write with a higher token was seen on this resource, so this one was not forwarded. " +
			"Its sender no longer holds the lease: stop, take a new lease, and send the token that comes with it." + staleInGeneral
		if policies.IsTree(stale.Resource) {
			r.detail = "A write with a higher token was seen on this collection or on something in it, so this one was not forwarded. " +
				"Its sender no longer holds the lease: stop, take a new lease, and send the token that comes with it." + staleInGeneral
		}
		if stale.Greater { // its number may well be new, and another came first
			r.detail = "This resource takes each token once, and a write with this token or a higher one was seen, so this one was not " +
				"forwarded. Read the present state, take a new number, and send that."
		}
		if stale.Token.FarBelow(stale.Mark) {
			r.operator = farBelowMark
		}
		if x.decision.Policy.RevealMark {
			r.mark = &stale.Mark
			r.detail, r.operator = r.detail+r.operator, ""
		}
		return true
	}
	if other, ok := errors.AsType[*hold.NotHolderError](err); ok {
		r.code, r.outcome, r.resource = x.decision.Policy.StaleStatus, statusStale, other.Resource
		r.title = "Another id holds the resource"
		r.detail = "The first id that writes claims this resource, and only that one passes until its hold ends; this write carries another id, so " +
			"it was not forwarded. If its sender held the resource, that hold has expired or was released: stop, and read the present state " +
			"before claiming it anew."
		return true
	}
	if jump, ok := errors.AsType[*gate.JumpError](err); ok {
		r.code, r.outcome, r.resource = http.StatusBadRequest, statusImplausible, jump.Resource
		r.title = "The fencing token is implausible"
		r.detail = "It is further above the mark of this resource than the policy lets it be (max_jump), so the write was not forwarded. If the number is " +
			"right, the operator has to raise the mark with fenceproxy marks set, or max_jump."
		return true
	}
	if busy, ok := errors.AsType[*gate.BusyError](err); ok {
		r.code, r.outcome, r.resource, r.retry = http.StatusServiceUnavailable, statusBusy, busy.Resource, busy.RetryAfter
		r.title = "Earlier writes on this resource have no outcome yet"
		if busy.Reason == gate.BusyWaiters {
			r.problem = limitWaiters
		}
		r.detail = busyDetail[busy.Reason] + " This write was not forwarded; send it again, with the same token, if its lease still runs."
		if p := x.decision.Policy; p != nil && p.Compare == policies.Greater {
			r.detail = busyDetail[busy.Reason] + " This write was not forwarded, but its token is used up: send it again with a new one."
		}
		return true
	}
	if tree, ok := errors.AsType[*gate.TreeError](err); ok {
		r.code, r.outcome, r.resource = http.StatusForbidden, statusUnfenceable, tree.Resource
		r.title = "The collection holds fenced resources"
		r.detail = "Tokens were seen on resources beneath it, or are on their way there, so this write was not forwarded. Change the members one " +
			"by one, or ask the operator to set collections: subtree."
		return true
	}
	switch {
	case errors.Is(err, tokenstore.ErrNoSpace):
		r.code, r.outcome = http.StatusInsufficientStorage, statusUnavailable
		r.title = "The token store has no room for a new mark"
		r.detail = "The volume of the token store is below token_store.min_free, so no higher token is taken. Writes with tokens " +
			"seen before and reads go on. The operator has to free space."
	case errors.Is(err, gate.ErrClosed):
		r.code, r.outcome, r.retry = http.StatusServiceUnavailable, statusUnavailable, time.Second
		r.title = "The proxy is stopping"
		r.detail = "This write was not forwarded; send it again, with the same token, when the proxy is back."
	case errors.Is(err, tokenstore.ErrTooLarge):
		r.code, r.outcome = http.StatusRequestEntityTooLarge, statusTooLarge
		r.title = "The write is too large to be fenced"
		r.detail = "The marks of all its resources do not fit into one transaction of the token store, so it was not forwarded. Send it in parts."
	case isStoreError(err):
		r.code, r.outcome, r.retry = http.StatusServiceUnavailable, statusUnavailable, 5*time.Second
		r.title = "The token store is unavailable"
		r.detail = "Without it no write can be judged, so this one was not forwarded. The operator finds the reason in the proxy's log."
	default:
		return false
	}
	return true
}

func isStoreError(err error) bool { _, ok := errors.AsType[*gate.StoreError](err); return ok }

var busyDetail = map[gate.BusyReason]string{
	gate.BusyInFlight:   "Writes with another token were still on their way when the drain timeout ended.",
	gate.BusyInDoubt:    "A write with another token went to the store and was not answered, so that it may still land; its hold has not ended.",
	gate.BusyRecovering: "The proxy was stopped uncleanly and waits until writes from before cannot land any more.",
	gate.BusyWaiters:    "Too many writes wait for this resource.",
	gate.BusyUnproven:   "A write with a higher token waits, and whether that one counts was not known when the drain timeout ended.",
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// sentence returns an error's text as a sentence.
func sentence(err error) string {
	s := []rune(err.Error())
	if len(s) == 0 {
		return ""
	}
	if s[0] >= 'a' && s[0] <= 'z' {
		s[0] -= 'a' - 'A'
	}
	if last := s[len(s)-1]; last != '.' && last != '!' && last != '?' {
		s = append(s, '.')
	}
	return string(s)
}

// passFailed tells of a request that got no answer and is not in doubt: nothing was sent, or it was not fenced.
func (x *exchange) passFailed(err *leg.Error) rejection {
	r := rejection{code: http.StatusBadGateway, outcome: statusAdmitted, forwarded: "yes", err: err, resource: x.resource()}
	if !err.Sent {
		r.forwarded = "no"
	}
	switch {
	case x.ofClient(err, err.Sent, &r):
	case !err.Sent:
		r.problem = "upstream-unreachable"
		r.title = "The upstream could not be reached"
		r.detail = "Nothing of the request was sent. It may be sent again."
	case err.Timeout:
		r.code, r.problem = http.StatusGatewayTimeout, "upstream-silent"
		r.title = "The upstream did not answer in time"
		r.detail = "The request was sent and not answered."
	default:
		r.problem = "upstream-failed"
		r.title = "The upstream broke off"
		r.detail = "The request was sent and got no complete answer."
	}
	return r
}

// inDoubt tells of a write that was sent and got no complete answer.
func (x *exchange) inDoubt(err *leg.Error) rejection {
	r := rejection{code: http.StatusBadGateway, outcome: statusInDoubt, forwarded: "unknown", err: err, resource: x.resource()}
	r.title = "The outcome of the write is unknown"
	r.detail = "It was sent to the upstream, which broke off before its answer was complete. It may have landed, it may still land, or it may " +
		"never. Read the resource before writing again."
	if err.Timeout {
		r.code = http.StatusGatewayTimeout
		r.detail = "It was sent to the upstream, which did not answer in time. It may have landed, it may still land, or it may never. Read the " +
			"resource before writing again."
	}
	if limitOf(err) == limitMaxBody { // a 502 would be sent again
		r.code = http.StatusRequestEntityTooLarge
		r.detail = fmt.Sprintf("Its body turned out longer than %d bytes (max_body), and the connection to the upstream was cut in the middle of it. Part of it "+
			"may have landed. Read the resource before writing again.", x.maxBody())
	}
	return r
}

// admitted tells of a write that was forwarded and answered.
func (x *exchange) admitted(code int) rejection {
	r := rejection{code: code, outcome: statusAdmitted, forwarded: "yes", resource: x.resource()}
	if err := x.decision.Err; err != nil { // observe mode
		r.outcome, r.err = statusWouldReject, x.logged(err)
	}
	return r
}

func (x *exchange) resource() fencing.Resource {
	if rs := x.decision.Resources; len(rs) > 0 {
		return rs[0]
	}
	return ""
}

// mark writes the Fencing-Status of a write that was forwarded and answered.
func (x *exchange) mark(h http.Header) {
	status := statusAdmitted
	if err := x.decision.Err; err != nil {
		status = statusWouldReject + "; reason=" + x.rejectionOf(err).outcome
	}
	h.Set(statusHeader, status)
}

// render writes a rejection's headers into h and returns its body.
func (x *exchange) render(r rejection, h http.Header) []byte {
	if r.problem == "" {
		r.problem = r.outcome
	}
	p := Problem{
		Type: "urn:fenceproxy:" + r.problem, Title: r.title, Status: r.code, Detail: r.detail,
		Resource: string(r.resource), Token: x.shownToken(), Forwarded: r.forwarded,
	}
	if x.decision.Policy != nil {
		p.Policy = x.decision.Policy.Name
		if r.mark != nil {
			p.Mark = x.decision.Policy.Format.Describe(*r.mark)
		}
	}
	kind, body := p.in(x.dialect(), make([]byte, 0, 768))
	// One array for the values of all headers. Each is cut to its length, so that whoever adds to one does not write into the next.
	values := make([]string, 0, 6)
	set := func(name, value string) {
		values = append(values, value)
		h[name] = values[len(values)-1 : len(values) : len(values)]
	}
	set("Content-Type", kind)
	set("Cache-Control", "no-store")
	if r.outcome != "" {
		set(statusHeader, r.outcome)
	}
	set("Content-Length", strconv.Itoa(len(body)))
	if r.challenge != "" {
		set("Www-Authenticate", r.challenge)
	}
	if r.retry > 0 {
		set("Retry-After", strconv.Itoa(int(math.Ceil(r.retry.Seconds()))))
	}
	return body
}

// clip shortens what a client sent before it is shown to anybody.
func clip(s string) string {
	if len(s) > 256 {
		return s[:256] + "..."
	}
	return s
}

// response makes a rejection an answer of the round trip.
func (x *exchange) response(r rejection) *http.Response {
	h := make(http.Header, 6)
	body := x.render(r, h)
	return &http.Response{
		StatusCode: r.code, Status: strconv.Itoa(r.code) + " " + http.StatusText(r.code),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Request: x.in,
	}
}

// refuse answers a write that was not forwarded, from within the fence.
func (x *exchange) refuse(err error) *http.Response {
	r := x.rejectionOf(err)
	x.decided(r)
	x.refuseBody()
	return x.response(r)
}

// reject answers a request that did not get as far as the fence.
func (x *exchange) reject(err error) {
	r := x.rejectionOf(err)
	x.decided(r)
	x.refuseBody()
	body := x.render(r, x.Header())
	if r.code == http.StatusMethodNotAllowed {
		x.Header().Set("Allow", "GET, HEAD, OPTIONS, PUT, POST, PATCH, DELETE")
	}
	x.WriteHeader(r.code)
	if x.in.Method != http.MethodHead {
		_, _ = x.Write(body) // the client may be gone
	}
}

// bodyFailed answers a write whose body did not come whole.
func (x *exchange) bodyFailed(err error) (*http.Response, error) {
	if x.in.Context().Err() != nil && !errors.Is(err, errClientStalled) { // net/http takes a client that stalls for one that is gone
		return x.abandoned(err)
	}
	r := x.rejectionOf(err)
	x.decided(r)
	return x.response(r), nil
}

// abandoned ends a write whose client went away before it was forwarded.
func (x *exchange) abandoned(err error) (*http.Response, error) {
	x.decided(rejection{outcome: statusAbandoned, forwarded: "no", err: err, resource: x.resource()})
	return nil, err
}
