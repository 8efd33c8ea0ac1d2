package proxy

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Explanation is what the proxy would make of a request.
type Explanation struct {
	Method      string   `json:"method"`
	Target      string   `json:"target"`
	Store       string   `json:"store,omitempty"` // begins its keys
	Action      string   `json:"action"`          // pass, fence or reject
	Policy      string   `json:"policy,omitempty"`
	Mode        string   `json:"mode,omitempty"`
	Resources   []string `json:"resources,omitempty"`
	Token       string   `json:"token,omitempty"`
	TokenSource string   `json:"token_source,omitempty"`
	Signed      string   `json:"signed,omitempty"` // what a signed token says
	Epoch       uint32   `json:"epoch,omitempty"`  // in which the token counts
	Status      int      `json:"status,omitempty"` // of the refusal
	Fencing     string   `json:"fencing_status,omitempty"`
	Detail      string   `json:"detail"`

	decision policies.Decision
	set      *policies.Set
}

// ExplainRequest is a request to be explained. Body may be nil.
type ExplainRequest struct {
	Method string      `json:"method"`
	URL    string      `json:"url"` // a path, or an absolute URL whose host becomes the Host
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	Client []string    `json:"client,omitempty"` // the names in the client's certificate
}

// Explain says what would become of a request under set, marks apart: see [Explanation.Against]. Nothing is forwarded or changed.
func Explain(set *policies.Set, q ExplainRequest) (*Explanation, error) {
	target, host, authority := q.URL, "", set.Authority()
	if scheme, rest, ok := strings.Cut(q.URL, "://"); ok {
		i := strings.IndexAny(rest, "/?")
		if i < 0 {
			rest, i = rest+"/", len(rest)
		}
		host, target = rest[:i], rest[i:]
		authority = set.AuthorityOf(scheme, host)
		if target[0] == '?' {
			target = "/" + target
		}
	}
	wayErr, unseen := way(set, q.URL)
	if unseen {
		return &Explanation{
			Method: q.Method, Target: target, Action: policies.Pass.String(), set: set,
			Detail: "In forward mode it is for a host that is none of the stores: it is passed on unseen, not fenced (unlisted: tunnel).",
		}, nil
	}
	if target == "" || strings.ContainsAny(target, " \r\n\t") {
		return nil, fmt.Errorf("%q cannot stand in a request line; encode it", q.URL)
	}
	header := make(http.Header, len(q.Header))
	for name, vs := range q.Header {
		for _, v := range vs {
			header.Add(name, v)
		}
	}
	if h := header.Get("Host"); h != "" {
		host = h
		header.Del("Host")
	}
	if q.Body != nil && header.Get("Content-Length") == "" {
		header.Set("Content-Length", itoa(len(q.Body)))
	}
	r := &http.Request{Method: q.Method, URL: &url.URL{}, RequestURI: target, Host: host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	x := &exchange{in: r, set: set, p: &Proxy{spool: &spooler{}}, body: newClientBody(nil)}
	e := &Explanation{Method: q.Method, Target: target, Store: authority, set: set}
	err := cmp.Or(wayErr, x.refusal())
	if err == nil {
		x.decision = set.Decide(&policies.Request{Method: q.Method, Target: x.target, Authority: authority, Host: host, Header: header, Client: q.Client})
		err = x.decision.Err
		if err == nil && x.decision.NeedsBody {
			err = x.decision.ResolveBody(q.Body)
		}
	}
	e.fill(x, err)
	return e, nil
}

// way returns why a request does not reach a store where there is forward mode alone, or that it is passed on unseen. Beside an upstream a
// host may be that of the proxy itself.
func way(set *policies.Set, url string) (err error, unseen bool) {
	scheme, rest, absolute := strings.Cut(url, "://")
	switch host, _, _ := strings.Cut(rest, "/"); {
	case set.Reverse():
		return nil, false
	case !absolute:
		return &refusedError{http.StatusBadRequest, notForward}, false
	default:
		host, _, _ = strings.Cut(host, "?")
		unlisted, tunnel := set.Unlisted(scheme, host)
		if unlisted && !tunnel {
			return &unlistedError{named: host}, false
		}
		return nil, tunnel
	}
}

func (e *Explanation) fill(x *exchange, err error) {
	d := &x.decision
	e.decision = *d
	if err != nil { // marks have no say in it any more
		e.decision.Action = policies.Reject
	}
	e.Action, e.Token, e.TokenSource = d.Action.String(), d.TokenText, d.TokenSource
	if d.Signature != nil {
		e.Signed = d.Signature.String()
	}
	if p := d.Policy; p != nil {
		e.Policy, e.Mode, e.Epoch = p.Name, string(p.Mode), p.Epoch
	}
	for _, r := range d.Resources {
		e.Resources = append(e.Resources, string(r))
	}
	switch {
	case err != nil:
		e.refused(x, err, d.Observed || d.Action == policies.Fence && d.Policy.Mode == policies.Observe)
	case d.Action == policies.Fence:
		e.Detail = "It is forwarded when its token is not below the mark of its resource and lower writes have an outcome."
		if d.Policy.Compare == policies.Greater {
			e.Detail = "It is forwarded when its token is above the mark of its resource and lower writes have an outcome."
		}
		if d.Policy.Compare == policies.Hold {
			e.Detail = "It is forwarded when nobody else holds its resource (it claims it, if nobody does) and writes of earlier holders have an outcome."
		}
		if d.Policy.Mode == policies.Observe {
			e.Detail = "It is forwarded at once; the policy only observes."
		}
	case d.Unfenced != "":
		e.Detail = "It is forwarded unfenced: " + d.Unfenced + "."
	default:
		e.Detail = "It is a read that no policy fences, and is forwarded."
	}
}

func (e *Explanation) refused(x *exchange, err error, observed bool) {
	r := x.rejectionOf(err)
	r.detail += r.operator
	e.Action, e.Status, e.Fencing, e.Detail = policies.Reject.String(), r.code, r.outcome, r.detail
	if observed {
		e.Action, e.Status, e.Fencing = policies.Pass.String(), 0, statusWouldReject+"; reason="+r.outcome
		e.Detail = "It is forwarded, since the policy only observes. Enforced, it would be refused: " + r.detail
	}
}

// Against compares the token with marks and holds, as the proxy would at this moment.
func (e *Explanation) Against(p *Proxy) {
	d, g := e.decision, p.gate
	if d.Action != policies.Fence || len(d.Resources) == 0 {
		return
	}
	var err error
	if d.Policy.Compare == policies.Hold {
		err = p.holds.Check(d.Resources[0], d.TokenText)
	} else {
		err = g.Check(gate.Write{
			Resources: d.Resources, Under: d.Under, Trees: trees(d.Trees), Token: d.Token, Greater: d.Policy.Compare == policies.Greater,
			Format: d.Policy.Format, MaxJump: d.Policy.MaxJump,
		})
	}
	if err != nil {
		x := &exchange{in: &http.Request{Method: e.Method}, set: e.set, decision: d, p: &Proxy{spool: &spooler{}}}
		e.refused(x, err, d.Policy.Mode == policies.Observe)
		return
	}
	if d.Policy.Compare == policies.Hold {
		e.Detail = "Nobody else holds its resource: it is forwarded when writes of earlier holders have an outcome."
		return
	}
	busy := func(r fencing.Resource) bool {
		s, ok := g.Inspect(r)
		return ok && (s.InFlight > 0 || s.InDoubt > 0) && s.Seen.Token != d.Token
	}
	e.Detail = "Its token is good and nothing stands in its way: it is forwarded."
	for _, r := range d.Resources {
		if busy(r) {
			e.Detail = fmt.Sprintf("Its token is good. It waits for writes with another token on %q, at most %v.", r, d.Policy.DrainTimeout)
			break
		}
	}
	e.Detail += e.farAbove(g)
}

// WriteTo prints the explanation for people.
func (e *Explanation) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", name, value)
		}
	}
	fmt.Fprintf(&b, "%s %s\n", e.Method, e.Target)
	line("store", e.Store)
	line("policy", e.Policy)
	line("mode", e.Mode)
	for _, r := range e.Resources {
		line("resource", fmt.Sprintf("%q", r))
	}
	if e.TokenSource != "" {
		line("token", fmt.Sprintf("%s (%s)", e.Token, e.TokenSource))
	}
	line("signed", e.Signed)
	if e.Epoch != 0 {
		line("epoch", fmt.Sprint(e.Epoch))
	}
	line("action", e.Action)
	if e.Status != 0 {
		line("answer", fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	}
	line("fencing", e.Fencing)
	fmt.Fprintf(&b, "\n%s\n", e.Detail)
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}
