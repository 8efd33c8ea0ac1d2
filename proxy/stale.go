package proxy

import (
	"strconv"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// What is said of a token that hardly comes from the counter of the mark. By how much it is below the mark is for operators alone: refused
// tokens cost nothing, so a client could find the thousandth part of the mark by halving, and with it a number just above the mark,
// without ever being admitted on its way there. So the answer to a client holds one sentence that is the same for every stale token,
// unless the policy has reveal_mark. The log and explain --live are on the operator's side, where marks are shown anyway.
const (
	staleInGeneral = " If this token was taken just now, tell the operator: its source counts anew, or a second one numbers this resource."
	farBelowMark   = " The mark is more than a thousand times this token: the lock service was rebuilt or restored (set a higher epoch, once no writer holds " +
		"an old token), or this writer takes its number from another source than the one that set the mark."
	farAboveMark = " It is more than a thousand times the mark: where two sources number one resource (a revision and a clock, a zxid and a " +
		"sequence), the lower one is shut out from now on."
)

// staleError is a stale token for the log: with numbers as the clients of the policy write them, and with the likely cause.
type staleError struct {
	*gate.StaleTokenError
	format fencing.Format
}

func (e *staleError) Error() string {
	relation, cause := " is below the mark ", ""
	switch {
	case e.Greater:
		relation = " is not above the mark "
	case e.Token.FarBelow(e.Mark):
		relation = " is far below the mark "
	}
	if e.Token.FarBelow(e.Mark) {
		cause = ": the lock service was rebuilt (epoch), or two sources number one resource"
	}
	return "token " + e.format.Describe(e.Token) + relation + e.format.Describe(e.Mark) + " of " + strconv.Quote(string(e.Resource)) + cause
}

// Unwrap returns the error of the gate.
func (e *staleError) Unwrap() error { return e.StaleTokenError }

// leapt logs a token that is admitted far above the mark that it advanced. From now on the source of that mark is shut out, so it is said
// once, when it happens.
func (x *exchange) leapt(a *gate.Admission) {
	if a == nil {
		return
	}
	mark, ok := a.Leapt()
	if !ok {
		return
	}
	p := x.decision.Policy
	x.p.log.Warn("a token is far above the mark that it advanced: if two sources number this resource, the lower one is shut out from now on",
		x.attrs(keyMark, p.Format.Describe(mark), keyPolicy, p.Name)...)
}

// farAbove returns a sentence about a token that would be admitted far above the mark of one of its resources, or "".
func (e *Explanation) farAbove(g *gate.Gate) string {
	for _, r := range e.decision.Resources {
		if mark, ok, err := g.Mark(r); err == nil && ok && mark.Token.FarBelow(e.decision.Token) {
			return farAboveMark
		}
	}
	return ""
}
