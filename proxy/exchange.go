package proxy

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/proxy/hold"
)

// exchange is one request on its way through the proxy. It is the ResponseWriter of the request, so that headers which belong to
// the connection survive the reverse proxy, and travels in the request's context to the fence.
type exchange struct {
	http.ResponseWriter
	p        *Proxy
	in       *http.Request // as the server made it: its Trailer is filled in when the body has been read
	body     *clientBody   // the body of in
	set      *policies.Set // the policies that were in force when the request came
	decision policies.Decision
	via      *via      // how a request of forward mode came; nil: by the reverse listener
	up       *upstream // the store that it is for
	target   string    // path and query as on the request line
	start    time.Time

	claim     *hold.Claim // of a write under compare: hold that the gate is asked about or has admitted
	closeConn bool        // send Connection: close with the final head
	answer    *answer     // the upstream's answer once it is being passed on
	writeBy   time.Time   // what writeDeadline has set; by the goroutine of the handler

	mu sync.Mutex // guards final; held while an interim answer is written
	// +checklocks:mu
	final bool // no interim answer is passed on any more
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// WriteHeader implements [http.ResponseWriter]. An answer that leaves before the client's body was read to its end closes the
// connection: the server cannot know where the next request begins (RFC 9112 section 9.3). Over HTTP/2 it always knows, and Connection
// would send the other streams away.
func (x *exchange) WriteHeader(status int) {
	if status < 200 && !x.in.ProtoAtLeast(1, 1) {
		return // HTTP/1.0 knows no interim answers (RFC 9110 section 15.2)
	}
	if status >= 200 {
		h := x.Header()
		if x.in.ProtoMajor == 1 && (x.closeConn || !x.body.ended.Load()) {
			h.Set("Connection", "close")
		}
		if _, ok := h["Content-Type"]; !ok {
			h["Content-Type"] = nil // the server would guess one
		}
	}
	x.ResponseWriter.WriteHeader(status)
}

// Unwrap lets [http.ResponseController] reach the connection.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// readDeadline bounds the next read of the client's body. Zero lifts the bound; below zero nothing more is read.
func (x *exchange) readDeadline(d time.Duration) {
	t := time.Time{}
	if d != 0 {
		t = time.Now().Add(d)
	}
	_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(t) // not supported: no bound
}

// writeDeadline bounds the next write to the client. Zero lifts the bound.
func (x *exchange) writeDeadline(d time.Duration) {
	t := time.Time{}
	if d > 0 {
		t = time.Now().Add(d)
	}
	x.writeBy = t
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(t)
}

// refuseBody prepares an answer to a client whose body was not read. A small body that is there already is thrown away, so that the
// connection can be kept. A client that waits for 100 Continue must not be asked for the body (RFC 9110 section 10.1.1). Over HTTP/2 the
// stream alone ends, and whether the client waits is not known: the server takes Expect away.
func (x *exchange) refuseBody() {
	const small, soon = 64 << 10, 20 * time.Millisecond
	n := x.in.ContentLength
	if x.in.ProtoMajor != 1 || x.body.ended.Load() || n < 0 || n > small || x.in.Header.Get("Expect") != "" {
		return
	}
	x.readDeadline(soon)
	_, _ = io.Copy(io.Discard, x.body) // what did not come in time closes the connection
	x.readDeadline(0)
}

// dialect is the one in which the client is answered.
func (x *exchange) dialect() dialect.Name {
	switch {
	case x.decision.Policy != nil:
		return x.decision.Policy.Dialect
	case x.set != nil:
		return x.set.Dialect()
	}
	return dialect.HTTP
}

// ownCase is the beginning of the names of headers that reach the client as the store spells them.
func (x *exchange) ownCase() string {
	if x.set.Speaks(dialect.S3) {
		return "X-Amz-Meta-"
	}
	return ""
}
