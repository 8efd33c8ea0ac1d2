package admin

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Mark is a resource's mark as the listener shows it.
type Mark struct {
	Resource string    `json:"resource"`
	Token    string    `json:"token"`
	Format   string    `json:"format"`
	At       time.Time `json:"advanced_at"`
	By       string    `json:"by,omitempty"`
	Policy   string    `json:"policy,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	InFlight int       `json:"in_flight"`
	InDoubt  int       `json:"in_doubt"`
	Waiting  int       `json:"waiting"`
}

// MarkOf returns what the listener shows of m.
func MarkOf(m fencing.ResourceMark) Mark {
	return Mark{
		Resource: string(m.Resource), Token: m.Mark.Format.Print(m.Mark.Token), Format: m.Mark.Format.String(),
		At: m.Mark.At.UTC(), By: m.Mark.By, Policy: m.Mark.Policy, Reason: m.Mark.Reason,
	}
}

func (a admin) show(m fencing.ResourceMark) Mark {
	out := MarkOf(m)
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
	q := r.URL.Query()
	page := Listing{Resources: []Mark{}}
	err = a.Store.Range(q.Get("prefix"), func(m fencing.ResourceMark) error {
		if after := q.Get("after"); after != "" && string(m.Resource) <= after {
			return nil
		}
		if len(page.Resources) == n {
			page.Next = page.Resources[n-1].Resource
			return errEnough
		}
		page.Resources = append(page.Resources, a.show(m))
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
			answer(w, http.StatusOK, a.show(fencing.ResourceMark{Resource: name, Mark: m}))
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
	Token  string `json:"token"`
	Format string `json:"format,omitempty"` // default: that of the present mark, else decimal
	Lower  bool   `json:"lower,omitempty"`  // allow the mark to fall
	Reason string `json:"reason,omitempty"` // required to lower
	By     string `json:"by,omitempty"`     // who asks
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
	m, err := c.Mark(present, had)
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
		fail(w, http.StatusConflict, fmt.Sprintf("the mark is %s; to lower it say so and give a reason", old.Format.Print(old.Token)))
		return
	case errors.Is(err, gate.ErrChanged):
		fail(w, http.StatusConflict, err.Error()+": look again")
		return
	case errors.Is(err, tokenstore.ErrNoSpace):
		fail(w, http.StatusInsufficientStorage, err.Error())
		return
	case err != nil:
		fail(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	out := Changed{Resource: string(name), New: m.Format.Print(m.Token)}
	if had {
		out.Old = old.Format.Print(old.Token)
	}
	a.Logger.Warn("mark set by an operator", "resource", name, "token", out.New, "mark", out.Old,
		"lowered", had && m.Token.Less(old.Token), "by", m.By, "reason", m.Reason, "client", r.RemoteAddr)
	answer(w, http.StatusOK, out)
}

// Mark makes the change a mark. present is the mark that it replaces, if had.
func (c Change) Mark(present fencing.Mark, had bool) (fencing.Mark, error) {
	format := fencing.Decimal
	if had {
		format = present.Format
	}
	if c.Format != "" {
		f, err := fencing.ParseFormat(c.Format)
		if err != nil {
			return fencing.Mark{}, err
		}
		format = f
	}
	t, err := format.Parse(c.Token)
	if err != nil {
		return fencing.Mark{}, err
	}
	if c.Lower && c.Reason == "" {
		return fencing.Mark{}, errors.New("to lower a mark give a reason; it is kept with the mark and in the log")
	}
	return fencing.Mark{Token: t, Format: format, At: time.Now(), By: c.By, Reason: c.Reason}, nil
}

func (a admin) export(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/jsonl")
	w.Header().Set("Cache-Control", "no-store")
	if err := a.Store.Export(w); err != nil {
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
			return !had || old.Token.Less(m.Mark.Token), nil
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
