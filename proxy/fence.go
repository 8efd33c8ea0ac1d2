package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/leg"
)

// fence is the one [http.RoundTripper] through which every request goes to the upstream.
type fence struct{ p *Proxy }

// RoundTrip implements [http.RoundTripper]. A refusal is a response, not an error; an error means that the client is gone or that the
// upstream broke off an answer which was being passed on.
func (f fence) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchangeOf(req.Context())
	if x == nil {
		return nil, errors.New("proxy: a request reached the fence without having been identified")
	}
	d := &x.decision
	switch {
	case d.Action == policies.Fence && x.observed():
		return f.observe(req, x)
	case d.Action == policies.Fence:
		return f.enforce(req, x)
	case d.Action == policies.Reject:
		return f.wouldReject(req, x)
	}
	return f.pass(req, x)
}

// enforce admits a write and forwards it. The order of the steps is the guarantee; proxy/README.md says what breaks if two are swapped:
//
//  1. a stale token is refused before the body is read: see edge
//  2. the body is taken in
//  3. the gate: the mark is durable, lower writes have an outcome; under compare: hold the id gets its number just before
//  4. forward
//  5. the outcome is known only when the answer was read to its end
func (f fence) enforce(req *http.Request, x *exchange) (*http.Response, error) {
	p, d := f.p, &x.decision
	body, err := f.takeBody(req, x, d.Policy.Stream && !d.NeedsBody)
	if err != nil {
		return x.bodyFailed(err)
	}
	if d.NeedsBody {
		if err := body.resolve(f.p, d); err != nil {
			body.release()
			return x.refuse(err), nil
		}
	}
	if err := x.claimHold(); err != nil {
		body.release()
		return x.refuse(err), nil
	}
	start := time.Now()
	a, err := p.gate.Enter(req.Context(), x.write())
	p.metrics.gateWait.Observe(time.Since(start).Seconds())
	if err != nil {
		err = x.unclaimed(err)
		body.release()
		if req.Context().Err() != nil {
			return x.abandoned(req.Context().Err())
		}
		return x.refuse(err), nil
	}
	return f.forward(req, x, a, body)
}

// observe forwards a write whatever the gate says of it, and marks what the gate would have refused. Nothing waits for a body but a
// policy that reads it, and none is too long.
func (f fence) observe(req *http.Request, x *exchange) (*http.Response, error) {
	d := &x.decision
	body, err := f.takeBody(req, x, !d.NeedsBody)
	if err != nil {
		return x.bodyFailed(err)
	}
	if d.NeedsBody {
		switch d.Err = body.resolve(f.p, d); {
		case d.Err != nil && d.NamesOthers() && x.set.Enforces(): // what it names may be another policy's
			err := d.Err
			d.Err = nil
			body.release()
			return x.refuse(err), nil
		case d.Err != nil:
			return f.forward(req, x, nil, body)
		}
	}
	if d.Err = x.claimHold(); d.Err != nil {
		return f.forward(req, x, nil, body)
	}
	a, err := f.p.gate.Observe(x.write())
	d.Err = err
	if err != nil {
		d.Err = x.unclaimed(err)
	}
	return f.forward(req, x, a, body)
}

// wouldReject forwards a write that a policy in observe mode would refuse for what it says: no token, say.
func (f fence) wouldReject(req *http.Request, x *exchange) (*http.Response, error) {
	body, err := f.takeBody(req, x, true)
	if err != nil {
		return x.bodyFailed(err)
	}
	return f.forward(req, x, nil, body)
}

// write is what the gate is asked.
func (x *exchange) write() gate.Write {
	d := &x.decision
	w := gate.Write{
		Resources: d.Resources, Under: d.Under, Trees: trees(d.Trees), Token: d.Token, Greater: d.Policy.Compare == policies.Greater, Exclusive: d.Policy.Serial,
		DrainTimeout: d.Policy.DrainTimeout, Format: d.Policy.Format, By: x.client(), Policy: d.Policy.Name,
		Final: len(d.Policy.RevertOn) == 0 && !d.Policy.RevertUnsent, RevertUnsent: d.Policy.RevertUnsent, MaxJump: d.Policy.MaxJump,
	}
	if x.claim != nil {
		w.Holder, w.TTL = d.TokenText, x.claim.TTL()
	}
	if x.p != nil && x.p.newcomers != nil {
		w.First = x.firstMarks
	}
	return w
}

func trees(ts []policies.Tree) []gate.Tree {
	if len(ts) == 0 {
		return nil
	}
	out := make([]gate.Tree, len(ts))
	for i, t := range ts {
		out[i] = gate.Tree{Key: t.Key, Prefix: t.Prefix, Empty: t.Empty}
	}
	return out
}

// forward sends an admitted write and settles it. The admission (nil where nothing is gated) has exactly one outcome on every way out,
// panics included, and with it the body is freed.
func (f fence) forward(req *http.Request, x *exchange, a *gate.Admission, body *body) (resp *http.Response, err error) {
	o := &outcome{x: x, a: a, body: body}
	x.leapt(a)
	if x.claim != nil {
		x.claim.Admitted()
	}
	defer func() {
		if r := recover(); r != nil {
			o.lost(fmt.Errorf("panic while forwarding: %v", r))
			panic(r)
		}
	}()
	sentAt := time.Now()
	resp, err = finalAnswer(x.up.send(req, x, body, true))
	f.p.metrics.upstream.Observe(time.Since(sentAt).Seconds())
	if err != nil {
		if e := legError(err); !e.Sent {
			return o.notSent(e), nil
		}
		return o.lost(err), nil
	}
	return o.answered(resp)
}

// legError returns what the upstream's side said. An error that it did not explain counts as sent: that is the careful reading.
func legError(err error) *leg.Error {
	if e, ok := errors.AsType[*leg.Error](err); ok {
		return e
	}
	return &leg.Error{Err: err, Sent: true}
}

// finalAnswer makes an error of a status that is no final answer: 101, which nobody asked for, or one that HTTP does not know.
func finalAnswer(resp *http.Response, err error) (*http.Response, error) {
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode > 999) {
		resp.Body.Close()
		return nil, &leg.Error{Sent: true, Err: fmt.Errorf("the upstream answered with the status %d, which ends no request", resp.StatusCode)}
	}
	return resp, err
}

// pass forwards what is not fenced: reads, and writes that a policy lets through. It ends when the client goes away.
func (f fence) pass(req *http.Request, x *exchange) (*http.Response, error) {
	b := &body{}
	if req.Body != nil && req.Body != http.NoBody {
		b.stream = &streamedBody{x: x, from: req.Body, intake: intake{x: x}}
	}
	resp, err := finalAnswer(x.up.send(req, x, b, false))
	if err == nil {
		x.unfenced(rejection{code: resp.StatusCode, forwarded: "yes"})
		return resp, nil
	}
	r := x.passFailed(legError(err))
	x.unfenced(r)
	if req.Context().Err() != nil && !errors.Is(err, errClientStalled) { // net/http takes a client that stalls for one that is gone
		return nil, req.Context().Err()
	}
	r.outcome = "" // nothing was judged
	return x.response(r), nil
}
