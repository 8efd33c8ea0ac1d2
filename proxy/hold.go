package proxy

import (
	"errors"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/hold"
)

// holds reports whether the write's token is an opaque id that holds the resource.
func (x *exchange) holds() bool {
	return x.decision.Policy != nil && x.decision.Policy.Compare == policies.Hold && x.decision.Action == policies.Fence
}

// claimHold has the write's id claim the resource, or finds that it holds it. Without compare: hold it does nothing. On success the claim has
// to be told an outcome: see unclaimed and outcome.
func (x *exchange) claimHold() error {
	if !x.holds() {
		return nil
	}
	d := &x.decision
	c, err := x.p.holds.Claim(d.Resources[0], d.TokenText, hold.Terms(d.Policy.Hold))
	if err != nil {
		return err
	}
	x.claim = c
	d.Token = c.Token()
	return nil
}

// unclaimed tells the claim that the gate refused the write, and returns the error for the client: a number that is stale means that the
// hold has passed to somebody else.
func (x *exchange) unclaimed(err error) error {
	if x.claim == nil {
		return err
	}
	stale, ok := errors.AsType[*gate.StaleTokenError](err)
	x.claim.Failed(ok)
	x.claim = nil
	if ok {
		return &hold.NotHolderError{Resource: stale.Resource}
	}
	return err
}

// releaseHold ends the hold of a write that the store has answered, if its policy says that such a write does. It returns once that is
// durable.
func (x *exchange) releaseHold(status int, answer *summary) {
	if x.claim == nil || !x.endsHold(status) || answer.failed() {
		return
	}
	if err := x.claim.Release(x.client(), "released by its holder"); err != nil {
		x.p.log.Error("a hold could not be released: it goes on until it expires or an operator releases it", x.attrs(keyError, err)...)
		return
	}
	x.p.log.Info("hold released by its holder", x.attrs()...)
}

// endsHold reports whether an answer with this status ends the hold of the write.
func (x *exchange) endsHold(status int) bool {
	return x.claim != nil && x.decision.Releases && status >= 200 && status <= 299
}

// shownToken is the token as it may be shown and logged. Of a hold it is the holder's number, once there is one: whoever knows the id can
// write.
func (x *exchange) shownToken() string {
	d := &x.decision
	if d.Policy == nil || d.Policy.Compare != policies.Hold {
		return clip(d.TokenText)
	}
	if x.claim != nil {
		return d.Token.String()
	}
	return ""
}

// Holds returns who holds what under policies with compare: hold.
func (p *Proxy) Holds() *hold.Manager { return p.holds }
