package policies

import (
	"strconv"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// evidence is what has to hold of a token before it may shut lower ones out.
type evidence struct {
	maxJump      uint64 // how far it may be above the mark; 0: any distance
	revertUnsent bool   // one of which nothing was sent does not count
}

// decodeMaxJump reads token.max_jump.
func (o *settings) decodeMaxJump(t section) {
	v, ok := t.keys["max_jump"]
	if !ok {
		return
	}
	if o.format == fencing.Opaque {
		v.errorf("leave it out", "it has no effect: an opaque token is no number")
		return
	}
	text, ok := v.text()
	if !ok {
		return
	}
	switch n, err := strconv.ParseUint(text, 10, 64); {
	case err != nil:
		v.errorf("", "%q is not a whole number of 64 bits", clip(text))
	case n == 0:
		v.errorf("leave it out to let any token come", "no token above the mark would be allowed")
	default:
		o.evidence.maxJump = n
	}
}

func (o *settings) decodeRevertUnsent(s section) {
	s.flag("revert_unsent", &o.evidence.revertUnsent)
}

func (o *settings) fillEvidence(p *Policy) {
	p.MaxJump, p.RevertUnsent = o.evidence.maxJump, o.evidence.revertUnsent
	if p.Format == fencing.Opaque {
		p.MaxJump = 0 // that of the defaults is for numbers
	}
}
