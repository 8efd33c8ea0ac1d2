package proxy

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/leg"
)

// outcome settles one forwarded write: it tells the gate, frees the body and records the decision, once.
type outcome struct {
	x    *exchange
	a    *gate.Admission // nil where nothing is gated
	body *body
	once sync.Once
}

// smallAnswer is the longest answer to a write that is read before it is passed on, so that the gate does not wait for the client.
const smallAnswer = 64 << 10

// notSent settles a write of which no byte reached the upstream.
func (o *outcome) notSent(err *leg.Error) *http.Response {
	r := o.x.passFailed(err)
	o.settle(r, func() {
		if o.a != nil {
			if err := o.a.NotSent(); err != nil {
				o.x.p.log.Error("the mark of a token that was not sent could not be taken back", o.x.attrs(keyError, err)...)
			}
		}
		o.claimed()
	})
	return o.x.response(r)
}

// lost settles a write that was sent, at least in part, and has no complete answer: it may still land.
func (o *outcome) lost(err error) *http.Response {
	r := o.x.inDoubt(legError(err))
	o.doubt(r)
	return o.x.response(r)
}

func (o *outcome) doubt(r rejection) {
	o.settle(r, func() {
		if o.a != nil {
			o.a.InDoubt(o.x.decision.Policy.InDoubtHold)
		}
		o.claimed()
	})
}

// claimed tells the claim of a hold that its write was accepted, or may have been.
func (o *outcome) claimed() {
	if o.x.claim != nil {
		o.x.claim.Accepted()
	}
}

// settle runs once; whoever comes later is too late.
func (o *outcome) settle(r rejection, tell func()) {
	o.once.Do(func() {
		tell()
		o.body.release()
		o.x.decided(r)
	})
}

// answered passes an answer on. The write has its outcome when the answer was read to its end, not before: S3's
// CompleteMultipartUpload sends 200 and goes on working, and says in the body how it went.
func (o *outcome) answered(resp *http.Response) (*http.Response, error) {
	o.x.mark(resp.Header)
	refused := o.a != nil && o.x.decision.Policy.Reverts(resp.StatusCode)
	sum := o.x.summary()
	done := func() { o.complete(resp.StatusCode, refused, sum) }
	if resp.Body == http.NoBody {
		done()
		return resp, nil
	}
	whole := refused || o.x.remembers() || o.x.endsHold(resp.StatusCode) // what follows the answer has to be done before the client has it
	if whole || resp.ContentLength >= 0 && resp.ContentLength <= smallAnswer || noBody(o.x.in.Method, resp) {
		head, err := io.ReadAll(io.LimitReader(resp.Body, smallAnswer+1))
		if err != nil {
			resp.Body.Close()
			return o.lost(err), nil
		}
		if len(head) <= smallAnswer {
			resp.Body.Close()
			sum.look(head)
			done()
			resp.Body = io.NopCloser(bytes.NewReader(head))
			return resp, nil
		}
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), resp.Body), resp.Body}
	}
	answer := &answer{o: o, from: sum.watch(resp.Body), done: done}
	o.x.answer = answer
	resp.Body = answer
	return resp, nil
}

// noBody reports whether the answer ends with its head (RFC 9110 section 6.4.1).
func noBody(method string, resp *http.Response) bool {
	return method == http.MethodHead || resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// complete settles a write whose answer was read to its end.
func (o *outcome) complete(status int, refused bool, sum *summary) {
	r := o.x.admitted(status)
	if status < 300 && sum.failed() && r.err == nil {
		r.err = errFailedInside
	}
	o.settle(r, func() {
		switch {
		case o.a == nil:
		case refused:
			if err := o.a.Refused(); err != nil {
				o.x.p.log.Error("the mark of a refused token could not be taken back", o.x.attrs(keyError, err)...)
			}
			if o.x.claim != nil {
				o.x.claim.Refused()
			}
		default:
			o.a.Done(o.x.decision.Policy.Settle)
			o.x.releaseHold(status, sum)
			o.claimed()
		}
		o.x.uploadAnswered(status, sum)
	})
}

// errFailedInside is noted of a write whose answer is an error although its status is not.
var errFailedInside = errors.New("the status of the answer is that of a success, and its body is an error")

// answer is an answer of the upstream that is passed on while it comes.
type answer struct {
	o    *outcome
	from io.ReadCloser
	done func()

	taken time.Duration // how long the client took for what it was given so far
	given time.Time     // when it was last given something; by the one goroutine that reads

	mu sync.Mutex // guards the fields below: the server may close while a read is under way
	// +checklocks:mu
	ended bool // the end of the answer, or its break, was seen
	// +checklocks:mu
	closed bool
}

// Read returns the upstream's bytes as they come. Between two reads the client takes what it was given. The gate waits for the end of the
// answer, so for all of it together the client has no more time than for one stall.
func (a *answer) Read(p []byte) (int, error) {
	if !a.given.IsZero() {
		a.taken += time.Since(a.given)
	}
	if a.o.x.in.ProtoMajor != 1 {
		a.o.x.writeDeadline(0) // over HTTP/2 it ends the stream by itself, while the store is silent too
	}
	n, err := a.from.Read(p)
	if n > 0 {
		a.o.x.writeDeadline(max(a.o.x.p.stall-a.taken, time.Nanosecond))
	}
	a.given = time.Now()
	if err != nil {
		a.end(err)
	}
	return n, err
}

// end notes how the answer ended.
func (a *answer) end(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return
	}
	a.ended = true
	if errors.Is(err, io.EOF) {
		a.done()
	} else {
		a.o.doubt(a.o.x.inDoubt(legError(err)))
	}
	if !a.closed { // or the handler may have returned, and there is nothing left to set
		a.o.x.writeDeadline(0)
	}
}

// Close is called when the answer was passed on, or when the client is gone. In that case the rest is still read, by a goroutine that
// ends with the answer or when the upstream is silent for its timeout: the write goes on, and the gate must know when it ended.
func (a *answer) Close() error {
	a.mu.Lock()
	rest := !a.ended && !a.closed
	closed := a.closed
	a.closed = true
	a.mu.Unlock()
	switch {
	case rest:
		a.o.x.p.leftovers.Go(func() {
			_, err := io.Copy(io.Discard, a.from)
			if err == nil {
				err = io.EOF
			}
			a.end(err)
			a.from.Close()
		})
	case !closed:
		return a.from.Close()
	}
	return nil
}
