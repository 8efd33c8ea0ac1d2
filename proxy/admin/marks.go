package admin

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/proxy/hold"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Mark is a resource's mark as the listener shows it.
type Mark struct {
	Resource string    `json:"resource"`
	Token    string    `json:"token"`
	Epoch    uint32    `json:"epoch,omitempty"`
	Format   string    `json:"format"`
	At       time.Time `json:"advanced_at"`
	By       string    `json:"by,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	InFlight int       `json:"in_flight"`
	InDoubt  int       `json:"in_doubt"`
	Waiting  int       `json:"waiting"`
	Hold     *Hold     `json:"hold,omitempty"` // nil where no id holds the resource
}

// Hold is who holds a resource under compare: hold.
type Hold struct {
	Holder  string  `json:"holder,omitempty"`          // shown with the bearer token alone
	TTL     string  `json:"ttl,omitempty"`             // empty: until it is released
	Left    float64 `json:"expires_seconds,omitempty"` // until it expires, as far as is known now; a write may renew it
	Expired bool    `json:"expired,omitempty"`         // whoever comes next claims the resource
}

// MarkOf returns what the listener shows of m; holder says that the id of a holder may be seen.
func MarkOf(m fencing.ResourceMark, holder bool) Mark {
	out := Mark{
		Resource: string(m.Resource), Token: m.Mark.Format.Print(m.Mark.Token), Epoch: m.Mark.Token.Epoch, Format: m.Mark.Format.String(),
		At: m.Mark.At.UTC(), By: m.Mark.By, Policy: m.Mark.Policy, Reason: m.Mark.Reason,
	}
	if m.Mark.Holder == "" {
		return out
	}
	out.Hold = &Hold{}
	if holder {
		out.Hold.Holder = m.Mark.Holder
	}
	if m.Mark.TTL > 0 {
		out.Hold.TTL = m.Mark.TTL.String()
	}
	return out
}

func (a admin) show(m fencing.ResourceMark, holder bool) Mark {
	out := MarkOf(m, holder)
	if out.Hold != nil {
		if s, err := a.Proxy.Holds().State(m.Resource); err == nil {
			out.Hold.Left, out.Hold.Expired = s.Left.Seconds(), !s.Held
		}
	}
	if s, ok := a.Gate.Inspect(m.Resource); ok {
		out.InFlight, out.InDoubt, out.Waiting = s.InFlight, s.InDoubt, s.Waiting
	}
	return out
}

// Listing is a page of /v1/resources.
type Listing struct {
	Resources []Mark `json:"resources"`
	// Next, if not empty, is the value of after for the next page.
	Next string `json:"next,omitempty"`
}

// resources lists marks in the order of their keys: ?prefix=, ?after= (exclusive), ?limit= (default 1,000).
func (a admin) resources(w http.ResponseWriter, r *http.Request) {
	n, err := limit(r, 1000, 100000)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	q, holder := r.URL.Query(), a.knowsToken(r)
	page := Listing{Resources: []Mark{}}
	err = a.Store.Range(q.Get("prefix"), func(m fencing.ResourceMark) error {
		if after := q.Get("after"); after != "" && string(m.Resource) <= after {
			return nil
		}
		if len(page.Resources) == n {
			page.Next = page.Resources[n-1].Resource
			return errEnough
		}
		page.Resources = append(page.Resources, a.show(m, holder))
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	answer(w, http.StatusOK, page)
}

// resource shows or sets one mark.
func (a admin) resource(w http.ResponseWriter, r *http.Request, key string) {
	name, ok := unescape(w, key)
	if !ok {
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		m, ok, err := a.Store.Load(name)
		switch {
		case err != nil:
			fail(w, http.StatusServiceUnavailable, err.Error())
		case !ok:
			fail(w, http.StatusNotFound, fmt.Sprintf("%q has no mark: no token was ever seen on it", name))
		default:
			answer(w, http.StatusOK, a.show(fencing.ResourceMark{Resource: name, Mark: m}, a.knowsToken(r)))
		}
	case http.MethodPut:
		if a.authorized(w, r) {
			a.set(w, r, name)
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		fail(w, http.StatusMethodNotAllowed, "use GET or PUT; a mark is never deleted, since that would let every old token in")
	}
}

// Change is the body of a PUT on a resource.
type Change struct {
	Token  string  `json:"token"`
	Epoch  *uint32 `json:"epoch,omitempty"`  // default: that of the present mark
	Format string  `json:"format,omitempty"` // default: that of the present mark, else decimal
	Lower  bool    `json:"lower,omitempty"`  // allow the mark to fall
	Reason string  `json:"reason,omitempty"` // required to lower
	By     string  `json:"by,omitempty"`     // who asks
}

// Changed is the answer to a [Change].
type Changed struct {
	Resource string `json:"resource"`
	Old      string `json:"old,omitempty"`
	New      string `json:"new"`
}

func (a admin) set(w http.ResponseWriter, r *http.Request, name fencing.Resource) {
	var c Change
	if err := decode(w, r, 64<<10, &c); err != nil {
		fail(w, http.StatusBadRequest, "the body is not a change: "+err.Error())
		return
	}
	present, had, err := a.Store.Load(name)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	m, err := c.Mark(present, had, a.Proxy.Policies().HasEpochs())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if m.By == "" {
		m.By = "operator at " + r.RemoteAddr
	}
	old, had, err := a.Gate.SetMark(name, m, c.Lower)
	switch {
	case errors.Is(err, gate.ErrWouldLower):
		fail(w, http.StatusConflict, fmt.Sprintf("the mark is %s; to lower it say so and give a reason", old.Format.Describe(old.Token)))
		return
	case errors.Is(err, gate.ErrChanged):
		fail(w, http.StatusConflict, err.Error()+": look again")
		return
	case errors.Is(err, tokenstore.ErrNoSpace), errors.Is(err, tokenstore.ErrFull):
		fail(w, http.StatusInsufficientStorage, err.Error())
		return
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	if err := a.Proxy.Holds().Changed(name); err != nil {
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	out := Changed{Resource: string(name), New: m.Format.Describe(m.Token)}
	if had {
		out.Old = old.Format.Describe(old.Token)
	}
	a.Logger.Warn("mark set by an operator", "resource", name, "token", out.New, "mark", out.Old,
		"lowered", had && m.Token.Less(old.Token), "by", m.By, "reason", m.Reason, "client", r.RemoteAddr)
	answer(w, http.StatusOK, out)
}

// ErrEpoch is the error for a new mark whose epoch is not certain.
var ErrEpoch = errors.New("the resource has no mark and policies have epochs: say in which epoch the token counts")

// ErrHeld is the error for a mark of a policy with compare: hold, whose number is not the operator's to set.
var ErrHeld = errors.New("the resource belongs to a policy with compare: hold, where the proxy counts the holders: release the hold instead, or name " +
	"a format of numbers if the policy has one now")

// Mark makes the change a mark. present is the mark that it replaces, if had. Where policies have epochs, a mark without a predecessor has
// to name its own: in a lower one than the policy's it would guard nothing.
func (c Change) Mark(present fencing.Mark, had, epochs bool) (fencing.Mark, error) {
	format, epoch := fencing.Decimal, uint32(0)
	if had {
		format, epoch = present.Format, present.Token.Epoch
	}
	switch {
	case c.Epoch != nil && *c.Epoch > policies.MaxEpoch:
		return fencing.Mark{}, fmt.Errorf("epoch %d is out of range: 0 to %d", *c.Epoch, policies.MaxEpoch)
	case c.Epoch != nil:
		epoch = *c.Epoch
	case !had && epochs:
		return fencing.Mark{}, ErrEpoch
	}
	if c.Format != "" {
		f, err := fencing.ParseFormat(c.Format)
		if err != nil {
			return fencing.Mark{}, err
		}
		format = f
	}
	if format == fencing.Opaque {
		return fencing.Mark{}, ErrHeld
	}
	t, err := format.Parse(c.Token)
	if err != nil {
		return fencing.Mark{}, err
	}
	if c.Lower && c.Reason == "" {
		return fencing.Mark{}, errors.New("to lower a mark give a reason; it is kept with the mark and in the log")
	}
	return fencing.Mark{Token: t.In(epoch), Format: format, At: time.Now(), By: c.By, Reason: c.Reason}, nil
}

// Release is the body of a POST to /v1/release.
type Release struct {
	Resource string `json:"resource"`
	Reason   string `json:"reason"`       // required; it is kept with the mark and in the log
	By       string `json:"by,omitempty"` // who asks
}

// release ends the hold on a resource.
func (a admin) release(w http.ResponseWriter, r *http.Request) {
	if !a.authorized(w, r) {
		return
	}
	var c Release
	if err := decode(w, r, 64<<10, &c); err != nil {
		fail(w, http.StatusBadRequest, "the body is not a release: "+err.Error())
		return
	}
	name := fencing.Resource(c.Resource)
	if err := name.Check(); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if c.Reason == "" {
		fail(w, http.StatusBadRequest, "to release a hold give a reason; it is kept with the mark and in the log")
		return
	}
	if c.By == "" {
		c.By = "operator at " + r.RemoteAddr
	}
	switch err := a.Proxy.Holds().Release(name, c.By, c.Reason); {
	case errors.Is(err, hold.ErrNotHeld):
		fail(w, http.StatusNotFound, err.Error())
	case errors.Is(err, hold.ErrChanged), errors.Is(err, gate.ErrChanged):
		fail(w, http.StatusServiceUnavailable, err.Error()+": look again")
	case errors.Is(err, tokenstore.ErrNoSpace):
		fail(w, http.StatusInsufficientStorage, err.Error())
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err.Error())
	default:
		a.Logger.Warn("hold released by an operator", "resource", name, "by", c.By, "reason", c.Reason, "client", r.RemoteAddr)
		answer(w, http.StatusOK, Released{Resource: c.Resource})
	}
}

// Released is the answer to a [Release].
type Released struct {
	Resource string `json:"resource"`
}

// begun is a writer that knows whether anything was written.
type begun struct {
	http.ResponseWriter
	any bool
}

func (b *begun) Write(p []byte) (int, error) {
	b.any = true
	return b.ResponseWriter.Write(p)
}

// export writes all marks. The ids of holders among them need the bearer token: without it an export that has one is refused, or breaks off.
func (a admin) export(w http.ResponseWriter, r *http.Request) {
	write := a.Store.Export
	if !a.knowsToken(r) {
		if a.Proxy.Policies().HasHolds() {
			a.authorized(w, r)
			return
		}
		write = a.Store.ExportWithoutHolders
	}
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Cache-Control", "no-store")
	out := &begun{ResponseWriter: w}
	err := write(out)
	if errors.Is(err, tokenstore.ErrHolders) && !out.any {
		a.authorized(w, r)
		return
	}
	if err != nil {
		a.Logger.Error("export broke off", "error", err)
		panic(http.ErrAbortHandler) // a cut answer; without its last line it is not an export anyway
	}
}

// imports merges an export. The marks go through the gate: it must not be overtaken by a mark that it has not seen.
func (a admin) imports(w http.ResponseWriter, r *http.Request) {
	if !a.authorized(w, r) {
		return
	}
	res, err := a.Store.ImportThrough(r.Body, func(m fencing.ResourceMark) (bool, error) {
		for {
			old, had, err := a.Gate.SetMark(m.Resource, m.Mark, false)
			switch {
			case errors.Is(err, gate.ErrWouldLower):
				return false, nil
			case errors.Is(err, gate.ErrChanged): // a write advances it at this moment
				select {
				case <-r.Context().Done():
					return false, r.Context().Err()
				case <-time.After(time.Millisecond):
				}
				continue
			case err != nil:
				return false, err
			}
			return !had || old.Token.Less(m.Mark.Token), a.Proxy.Holds().Changed(m.Resource)
		}
	})
	if err != nil {
		code := http.StatusServiceUnavailable
		if errors.Is(err, tokenstore.ErrImport) {
			code = http.StatusBadRequest
		}
		fail(w, code, err.Error())
		return
	}
	a.Logger.Warn("marks imported by an operator", "marks", res.Marks, "raised", res.Raised, "client", r.RemoteAddr)
	answer(w, http.StatusOK, res)
}
