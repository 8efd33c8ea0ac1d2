package lease

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Granted is the answer to a request for a lease.
type Granted struct {
	Name   string  `json:"name"`
	Token  string  `json:"token"` // decimal; text, since JavaScript would round it
	Secret string  `json:"secret"`
	TTL    float64 `json:"ttl_seconds"`
	Owner  string  `json:"owner,omitempty"`
}

// Renewed is the answer to a renewal.
type Renewed struct {
	Name string  `json:"name"`
	TTL  float64 `json:"ttl_seconds"`
}

// Shown is the answer to a look at a lease.
type Shown struct {
	Name      string  `json:"name"`
	Held      bool    `json:"held"`
	Owner     string  `json:"owner,omitempty"`
	TTL       float64 `json:"ttl_seconds,omitempty"`
	Remaining float64 `json:"remaining_seconds,omitempty"`
	Waiting   int     `json:"waiting"`
}

// Problem is the body of a refusal (RFC 9457).
type Problem struct {
	Type      string  `json:"type"`
	Title     string  `json:"title"`
	Status    int     `json:"status"`
	Detail    string  `json:"detail"`
	Resource  string  `json:"resource,omitempty"`
	Owner     string  `json:"owner,omitempty"`             // the holder
	Remaining float64 `json:"remaining_seconds,omitempty"` // until its lease ends
}

// Types of a [Problem].
const (
	TypeHeld        = "urn:fenceproxy:held"
	TypeNotHolder   = "urn:fenceproxy:not-holder"
	TypeGone        = "urn:fenceproxy:gone"
	TypeExhausted   = "urn:fenceproxy:exhausted"
	TypeBusy        = "urn:fenceproxy:busy"
	TypeUnavailable = "urn:fenceproxy:unavailable"
	typeMalformed   = "urn:fenceproxy:malformed"
	typeRefused     = "urn:fenceproxy:refused"
)

// Bounds on a request's body.
const (
	maxBody     = 8 << 10
	bodyTimeout = 10 * time.Second
)

// The verb comes before the name: a name may hold slashes, and end in anything.
const (
	leasesPath  = "/v1/leases/"
	renewPath   = "/v1/renew/"
	releasePath = "/v1/release/"
)

type handler struct {
	m      *Manager
	origin http.CrossOriginProtection // a page in a browser on this machine is no client
}

// Handler returns the handler of the listener for leases.
func (m *Manager) Handler() http.Handler { return &handler{m: m} }

// ServeHTTP implements [http.Handler].
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.origin.Check(r); err != nil {
		refuse(w, Problem{Type: typeRefused, Title: "Not for web pages", Status: http.StatusForbidden, Detail: err.Error()})
		return
	}
	// Names may hold anything, "//" and "%2F" too, which http.ServeMux would redirect or decode.
	path := r.URL.EscapedPath()
	if path == "/healthz" && r.Method == http.MethodGet {
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(w, "ok\n") // the client may be gone
		return
	}
	for prefix, verbs := range map[string]map[string]func(http.ResponseWriter, *http.Request, fencing.Resource){
		leasesPath:  {http.MethodPost: h.acquire, http.MethodGet: h.show},
		renewPath:   {http.MethodPost: h.renew},
		releasePath: {http.MethodPost: h.release},
	} {
		name, ok := strings.CutPrefix(path, prefix)
		if !ok || name == "" {
			continue
		}
		do := verbs[r.Method]
		if do == nil {
			allow := http.MethodPost
			if len(verbs) > 1 {
				allow = "GET, POST"
			}
			w.Header().Set("Allow", allow)
			refuse(w, Problem{Type: typeRefused, Title: "Another method", Status: http.StatusMethodNotAllowed, Detail: "use " + strings.ReplaceAll(allow, ", ", " or ")})
			return
		}
		decoded, err := url.PathUnescape(name)
		resource := fencing.Resource(decoded)
		if err == nil {
			err = resource.Check()
		}
		if err != nil {
			malformed(w, "", err.Error())
			return
		}
		do(w, r, resource)
		return
	}
	refuse(w, Problem{Type: typeRefused, Title: "No such page", Status: http.StatusNotFound,
		Detail: "there are POST and GET /v1/leases/{name}, POST /v1/renew/{name} and POST /v1/release/{name}"})
}

func (h *handler) acquire(w http.ResponseWriter, r *http.Request, name fencing.Resource) {
	var body struct {
		TTL   string `json:"ttl"`
		Wait  string `json:"wait"`
		Owner string `json:"owner"`
	}
	if !decode(w, r, name, &body) {
		return
	}
	q := Request{Name: name, Owner: body.Owner}
	for _, d := range []struct {
		key, text string
		dst       *time.Duration
	}{{"ttl", body.TTL, &q.TTL}, {"wait", body.Wait, &q.Wait}} {
		if d.text == "" && d.key == "wait" {
			continue
		}
		var err error
		if *d.dst, err = time.ParseDuration(d.text); err != nil {
			malformed(w, name, `"`+d.key+`" must be a number with its unit: "500ms", "30s", "2m"`)
			return
		}
	}
	g, err := h.m.Acquire(r.Context(), q)
	if err != nil {
		fail(w, name, err)
		return
	}
	answer(w, http.StatusCreated, Granted{string(name), strconv.FormatUint(g.Token, 10), g.Secret, g.TTL.Seconds(), g.Owner})
}

func (h *handler) show(w http.ResponseWriter, _ *http.Request, name fencing.Resource) {
	s := h.m.Inspect(name)
	answer(w, http.StatusOK, Shown{string(name), s.Held, s.Owner, s.TTL.Seconds(), seconds(s.Remaining), s.Waiting})
}

func (h *handler) renew(w http.ResponseWriter, r *http.Request, name fencing.Resource) {
	if secret, ok := secretOf(w, r, name); ok {
		if ttl, err := h.m.Renew(name, secret); err != nil {
			fail(w, name, err)
		} else {
			answer(w, http.StatusOK, Renewed{string(name), ttl.Seconds()})
		}
	}
}

func (h *handler) release(w http.ResponseWriter, r *http.Request, name fencing.Resource) {
	if secret, ok := secretOf(w, r, name); ok {
		if err := h.m.Release(name, secret); err != nil {
			fail(w, name, err)
		} else {
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

func secretOf(w http.ResponseWriter, r *http.Request, name fencing.Resource) (string, bool) {
	var body struct {
		Secret string `json:"secret"`
	}
	if !decode(w, r, name, &body) {
		return "", false
	}
	if body.Secret == "" {
		malformed(w, name, `"secret" is missing: it came with the lease`)
		return "", false
	}
	return body.Secret, true
}

// decode reads one JSON document with known keys only, and answers if it is none. It reads the body to its end: only then does the server
// notice that a client which waits is gone.
func decode(w http.ResponseWriter, r *http.Request, name fencing.Resource, to any) bool {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout)) // not supported in tests alone
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(to)
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty")
	} else if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something after it")
		}
	}
	if err != nil {
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			refuse(w, Problem{Type: typeMalformed, Title: "The request is too long", Status: http.StatusRequestEntityTooLarge, Detail: err.Error(), Resource: string(name)})
			return false
		}
		malformed(w, name, "the body is not the JSON of this request: "+err.Error())
		return false
	}
	_ = control.SetReadDeadline(time.Time{})
	return true
}

func malformed(w http.ResponseWriter, name fencing.Resource, detail string) {
	refuse(w, Problem{Type: typeMalformed, Title: "The request cannot be read", Status: http.StatusBadRequest, Detail: detail, Resource: string(name)})
}

// fail answers with what an error means to the client.
func fail(w http.ResponseWriter, name fencing.Resource, err error) {
	p := Problem{Type: TypeUnavailable, Title: "No lease can be granted now", Status: http.StatusServiceUnavailable, Detail: err.Error(), Resource: string(name)}
	held, isHeld := errors.AsType[*HeldError](err)
	request, isRequest := errors.AsType[*RequestError](err)
	retry := 0
	switch {
	case isHeld:
		p.Type, p.Title, p.Status = TypeHeld, "The lease is held", http.StatusConflict
		p.Owner, p.Remaining = held.Owner, seconds(held.Remaining)
		retry = max(1, int(math.Ceil(held.Remaining.Seconds())))
	case isRequest:
		p.Type, p.Title, p.Status = typeMalformed, "The request cannot be granted", http.StatusBadRequest
		p.Detail = request.Reason
	case errors.Is(err, ErrNotHolder):
		p.Type, p.Title, p.Status = TypeNotHolder, "Somebody else holds the lease", http.StatusForbidden
		p.Detail += ": stop, and take a new lease; writes with the old token are refused"
	case errors.Is(err, ErrGone):
		p.Type, p.Title, p.Status = TypeGone, "The lease is over", http.StatusGone
		p.Detail += ": stop, and take a new lease"
	case errors.Is(err, ErrExhausted):
		p.Type, p.Title, p.Status = TypeExhausted, "There is no higher token", http.StatusConflict
	case errors.Is(err, ErrTooMany), errors.Is(err, ErrOvertaken):
		p.Type, p.Title = TypeBusy, "Too much at a time"
		retry = 1
	case errors.Is(err, ErrNoSpace):
		p.Status = http.StatusInsufficientStorage
	case errors.Is(err, ErrClosed):
		retry = 1
	}
	if retry > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(retry))
	}
	refuse(w, p)
}

// seconds are what people read: three decimals.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

func answer(w http.ResponseWriter, code int, v any) { write(w, code, "application/json", v) }

func refuse(w http.ResponseWriter, p Problem) { write(w, p.Status, "application/problem+json", p) }

func write(w http.ResponseWriter, code int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client may be gone
}
