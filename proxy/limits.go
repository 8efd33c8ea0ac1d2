package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore"
)

// The limits, as metrics name them.
const (
	limitMaxBody     = "max_body"
	limitSpool       = "spool_max"
	limitBodyTimeout = "body_timeout"
	limitUploadRate  = "min_upload_rate"
	limitSlowReader  = "slow_reader" // body_timeout, of a client that takes nothing of its answer
	limitWaiters     = "waiters"
	limitNewcomers   = "new_resources_per_client"
	limitResources   = "max_resources"
	limitPerClient   = "connections_per_client"
	limitConnections = "connections"
)

var limitNames = []string{
	limitMaxBody, limitSpool, limitBodyTimeout, limitUploadRate, limitSlowReader, limitWaiters, limitNewcomers, limitResources, limitPerClient,
	limitConnections,
}

// errTooSlow is returned when a body comes more slowly than limits.min_upload_rate. It is a kind of stall.
var errTooSlow error = slowError{}

type slowError struct{}

func (slowError) Error() string {
	return "the client sends its body too slowly (limits.min_upload_rate)"
}
func (slowError) Unwrap() error { return errClientStalled }

// tooLongError says that a body is longer than its policy allows.
type tooLongError struct{ max int64 }

func (e *tooLongError) Error() string {
	return fmt.Sprintf("the body is longer than %d bytes (max_body)", e.max)
}

// newcomerError says that a client made the first marks of too many resources.
type newcomerError struct{ retry time.Duration }

func (e *newcomerError) Error() string { return "the client writes to too many new resources" }

// limitOf returns the limit that an error speaks of, or "".
func limitOf(err error) string {
	if busy, ok := errors.AsType[*gate.BusyError](err); ok && busy.Reason == gate.BusyWaiters {
		return limitWaiters
	}
	switch {
	case err == nil:
	case is[*tooLongError](err):
		return limitMaxBody
	case errors.Is(err, errTooLarge):
		return limitSpool
	case errors.Is(err, errTooSlow):
		return limitUploadRate
	case errors.Is(err, errClientStalled):
		return limitBodyTimeout
	case is[*newcomerError](err):
		return limitNewcomers
	case errors.Is(err, tokenstore.ErrFull):
		return limitResources
	}
	return ""
}

// ofLimits knows what a client took too much of. It comes before those who know the same errors as something more general.
func (x *exchange) ofLimits(err error, r *rejection) bool {
	switch limitOf(err) {
	case limitMaxBody:
		r.code, r.outcome, r.title = http.StatusRequestEntityTooLarge, statusTooLarge, "The body is too large"
		r.detail = fmt.Sprintf("This policy takes no body that is longer than %d bytes (max_body), so the write was not forwarded. Send less, or ask the "+
			"operator to raise it.", x.maxBody())
	case limitUploadRate:
		r.code, r.outcome, r.problem, r.title = http.StatusRequestTimeout, statusAbandoned, "too-slow", "The body came too slowly"
		r.detail = fmt.Sprintf("It has to come with %d bytes a second on average (limits.min_upload_rate), so the write was not forwarded.", x.p.minRate)
	case limitNewcomers:
		r.code, r.outcome, r.title = http.StatusTooManyRequests, statusLimited, "Too many new resources"
		if e, ok := errors.AsType[*newcomerError](err); ok {
			r.retry = e.retry
		}
		r.detail = "This client has written to many resources that were never written to before (limits.new_resources_per_client), so this write was not " +
			"forwarded. Send it again later, with the same token, if its lease still runs. Resources that are known already are not affected."
	case limitResources:
		r.code, r.outcome, r.problem, r.title = http.StatusInsufficientStorage, statusLimited, "max-resources", "There is no room for another resource"
		r.detail = "The token store holds as many marks as it may (token_store.max_resources), and this resource has none, so the write was not forwarded. " +
			"Resources that have a mark are not affected. The operator has to raise the limit."
	default:
		return false
	}
	return true
}

// ofClient tells of a body that the client broke off, or that the proxy did, after it was partly forwarded or not at all; ok is false if
// something else broke.
func (x *exchange) ofClient(err error, sent bool, r *rejection) bool {
	if !errors.Is(err, errClientStalled) && !is[*tooLongError](err) {
		return false
	}
	told := rejection{}
	if !x.ofLimits(err, &told) && !x.ofBody(err, &told) {
		return false
	}
	r.code, r.problem, r.title, r.detail = told.code, told.problem, told.title, told.detail
	if r.problem == "" {
		r.problem = told.outcome
	}
	if sent {
		r.detail = "What had come of the body was sent on, and its connection was then cut."
	}
	return true
}

// tooLong returns an error if the announced length of the body is above its policy's.
func (x *exchange) tooLong() error {
	if most := x.maxBody(); most > 0 && x.in.ContentLength > most {
		return &tooLongError{most}
	}
	return nil
}

// maxBody is how long the body may be; 0 is any length.
func (x *exchange) maxBody() int64 {
	if p := x.decision.Policy; p != nil && p.Mode == policies.Enforce {
		return p.MaxBody
	}
	return 0
}

// uploadGrace is how long a body may take to come before its rate counts.
const uploadGrace = 5 * time.Second

// intake measures a body while it comes from the client. Only the time in which the proxy waits for the client counts against the client.
type intake struct {
	x      *exchange
	got    int64
	waited time.Duration
}

// read reads from the client. Its error is [io.EOF], errClientStalled, errTooSlow, a [*tooLongError] or a [*bodyError].
func (in *intake) read(from io.Reader, p []byte) (int, error) {
	within, slow := in.x.p.stall, false
	if left, ok := in.left(); ok && left < within {
		within, slow = max(left, time.Nanosecond), true
	}
	if !in.x.body.ended.Load() { // after the end nothing is waited for
		in.x.readDeadline(within)
	}
	start := time.Now()
	n, err := from.Read(p)
	in.waited += time.Since(start)
	if in.x.in.ProtoMajor != 1 {
		in.x.readDeadline(0) // over HTTP/2 it ends the body by itself, while nobody waits for the client too
	}
	in.got += int64(n)
	if most := in.x.maxBody(); most > 0 && in.got > most {
		return n, &tooLongError{most}
	}
	if err = clientError(err); slow && errors.Is(err, errClientStalled) {
		err = errTooSlow
	}
	return n, err
}

// left is how much longer the client may take for its next byte before its rate is too low.
func (in *intake) left() (time.Duration, bool) {
	p := in.x.p
	if p.minRate <= 0 {
		return 0, false
	}
	paid := time.Duration(float64(in.got) / float64(p.minRate) * float64(time.Second))
	return max(paid, p.grace) - in.waited, true
}

// newcomers bounds how many resources a client may write to that were never written to before: each leaves a mark, or costs the disk as
// much to take one back. It is safe for concurrent use.
//
// Each client has a bucket. One that was not used for as long as it takes to fill is as good as new, so forgetting it gives nobody anything.
type newcomers struct {
	rate  rate.Limit
	burst int
	span  time.Duration // in which an empty bucket fills
	most  int           // clients in one generation
	now   func() time.Time

	mu sync.Mutex // guards the fields below; never held across I/O
	// +checklocks:mu
	young, old map[netip.Addr]*rate.Limiter // a bucket that is used moves to young
	// +checklocks:mu
	turned time.Time // when young was new
	// +checklocks:mu
	crowd *rate.Limiter // shared by all for whom there is no place
}

// mostNewcomers is how many clients have a bucket of their own, in each of two generations: some megabytes.
const mostNewcomers = 16384

// newNewcomers returns nil, which lets everybody in, if there is no bound.
func newNewcomers(perSecond int) *newcomers {
	if perSecond <= 0 {
		return nil
	}
	const seconds = 10
	n := &newcomers{rate: rate.Limit(perSecond), burst: seconds * perSecond, span: seconds * time.Second, most: mostNewcomers, now: time.Now}
	n.young, n.crowd = map[netip.Addr]*rate.Limiter{}, rate.NewLimiter(n.rate, n.burst)
	return n
}

// take asks for count first marks. The error is a [*newcomerError].
func (n *newcomers) take(client netip.Addr, count int) error {
	now := n.now()
	n.mu.Lock()
	defer n.mu.Unlock()
	b := n.bucketLocked(client, now)
	r := b.ReserveN(now, min(count, n.burst)) // a write on more resources than that must pass some time
	if wait := r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return &newcomerError{wait}
	}
	for count -= n.burst; count > 0; count -= n.burst { // and leaves the bucket in debt
		b.ReserveN(now, min(count, n.burst))
	}
	return nil
}

// +checklocks:n.mu
func (n *newcomers) bucketLocked(client netip.Addr, now time.Time) *rate.Limiter {
	if now.Sub(n.turned) >= n.span {
		owing := map[netip.Addr]*rate.Limiter{} // of those that would be forgotten
		for c, b := range n.old {
			if _, seen := n.young[c]; !seen && b.TokensAt(now) < float64(n.burst) { // after so long only who was in debt has not a full one
				owing[c] = b
			}
		}
		n.old, n.young, n.turned = n.young, owing, now
	}
	if b, ok := n.young[client]; ok {
		return b
	}
	if len(n.young) >= n.most {
		if b, ok := n.old[client]; ok {
			return b
		}
		return n.crowd
	}
	b, ok := n.old[client]
	if !ok {
		b = rate.NewLimiter(n.rate, n.burst)
	}
	n.young[client] = b
	return b
}

// firstMarks is what the gate asks before a write makes the first marks of resources.
func (x *exchange) firstMarks(count int) error {
	return x.p.newcomers.take(clientOf(x.in.RemoteAddr), count)
}

// clientOf returns what connections and buckets are counted by: the address, or of IPv6 its /64, which is what one client is given. It is
// not valid where the address is none, as over a Unix socket.
func clientOf(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	a := ap.Addr().Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			a = p.Addr()
		}
	}
	return a
}
