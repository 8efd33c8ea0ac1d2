package admin

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fenceproxy/fenceproxy/proxy"
	"github.com/fenceproxy/fenceproxy/proxy/gate"
	"github.com/fenceproxy/fenceproxy/tokenstore"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// Config is what the listener shows and changes.
type Config struct {
	Proxy   *proxy.Proxy
	Gate    *gate.Gate
	Store   *tokenstore.Store
	Metrics *proxy.Metrics
	// Token is the bearer token (RFC 6750) that changes need. Empty: nothing can be changed.
	Token string
	// Stopping reports whether the process is on its way out.
	Stopping func() bool
	Logger   *slog.Logger
}

type admin struct{ Config }

// New returns the handler of the admin listener.
func New(c Config) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	a := admin{c}
	metrics := promhttp.HandlerFor(c.Metrics.Registry, promhttp.HandlerOpts{})
	// Resource keys may hold anything, "//" and "%2F" too, which http.ServeMux would redirect or decode.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.EscapedPath()
		if key, ok := strings.CutPrefix(path, "/v1/resources/"); ok && key != "" {
			a.resource(w, r, key)
			return
		}
		switch path {
		case "/healthz":
			a.only(w, r, http.MethodGet, func() { text(w, http.StatusOK, "ok\n") })
		case "/readyz":
			a.only(w, r, http.MethodGet, func() { a.ready(w) })
		case "/metrics":
			a.only(w, r, http.MethodGet, func() { metrics.ServeHTTP(w, r) })
		case "/v1/resources", "/v1/resources/":
			a.only(w, r, http.MethodGet, func() { a.resources(w, r) })
		case "/v1/decisions":
			a.only(w, r, http.MethodGet, func() { answer(w, http.StatusOK, map[string]any{"decisions": a.Proxy.Decisions().Last()}) })
		case "/v1/policies":
			a.only(w, r, http.MethodGet, func() { a.policies(w) })
		case "/v1/explain":
			a.only(w, r, http.MethodPost, func() { a.explain(w, r) })
		case "/v1/export":
			a.only(w, r, http.MethodGet, func() { a.export(w, r) })
		case "/v1/release":
			a.only(w, r, http.MethodPost, func() { a.release(w, r) })
		case "/v1/import":
			a.only(w, r, http.MethodPost, func() { a.imports(w, r) })
		default:
			fail(w, http.StatusNotFound, "no such page: there are /healthz, /readyz, /metrics, /v1/resources, /v1/resources/{key}, "+
				"/v1/decisions, /v1/policies, /v1/explain, /v1/release, /v1/export and /v1/import")
		}
	})
}

func (a admin) only(w http.ResponseWriter, r *http.Request, method string, do func()) {
	if r.Method != method && (method != http.MethodGet || r.Method != http.MethodHead) {
		w.Header().Set("Allow", method)
		fail(w, http.StatusMethodNotAllowed, "use "+method)
		return
	}
	do()
}

// ready says whether writes that need a new mark would be admitted.
func (a admin) ready(w http.ResponseWriter) {
	var reasons []string
	s := a.Store.Stats()
	if err := a.Store.Err(); err != nil {
		reasons = append(reasons, err.Error())
	} else if s.FreeBytes > 0 && s.FreeBytes < s.Reserve {
		reasons = append(reasons, fmt.Sprintf("the token store's volume has %d bytes free and needs %d", s.FreeBytes, s.Reserve))
	}
	if a.Stopping != nil && a.Stopping() {
		reasons = append(reasons, "the proxy is stopping")
	}
	code := http.StatusOK
	if len(reasons) > 0 {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, struct {
		Reasons    []string `json:"reasons,omitempty"`
		Recovering float64  `json:"recovering_seconds,omitempty"`
		Resources  uint64   `json:"resources"`               // with a mark
		Most       uint64   `json:"max_resources,omitempty"` // reaching it is no reason: another proxy would not help, and known resources go on
		Ready      bool     `json:"ready"`
	}{reasons, a.Gate.Recovering().Seconds(), s.Marks, s.MaxMarks, code == http.StatusOK})
}

// Policy is one line of /v1/policies.
type Policy struct {
	Name     string `json:"name"`
	Match    string `json:"match"`
	Methods  string `json:"methods"`
	Resource string `json:"resource"`
	Token    string `json:"token"`
	Mode     string `json:"mode"`
}

func (a admin) policies(w http.ResponseWriter) {
	var out []Policy
	for _, r := range a.Proxy.Policies().Describe() {
		out = append(out, Policy(r))
	}
	answer(w, http.StatusOK, map[string]any{"policies": out})
}

func (a admin) explain(w http.ResponseWriter, r *http.Request) {
	var q proxy.ExplainRequest
	if err := decode(w, r, 2<<20, &q); err != nil {
		fail(w, http.StatusBadRequest, "the body is not a request to explain: "+err.Error())
		return
	}
	e, err := proxy.Explain(a.Proxy.Policies(), q)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	e.Against(a.Proxy)
	answer(w, http.StatusOK, e)
}

// knowsToken checks the bearer token in constant time.
func (a admin) knowsToken(r *http.Request) bool {
	got, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && a.Token != "" && subtle.ConstantTimeCompare([]byte(got), []byte(a.Token)) == 1
}

// authorized checks the bearer token, and answers if it is not right.
func (a admin) authorized(w http.ResponseWriter, r *http.Request) bool {
	if a.Token == "" {
		fail(w, http.StatusForbidden, "changes are switched off: set admin.token_file")
		return false
	}
	if !a.knowsToken(r) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="fenceproxy"`)
		fail(w, http.StatusUnauthorized, "changes need the bearer token of admin.token_file")
		a.Logger.Warn("admin: change refused", "path", r.URL.Path, "client", r.RemoteAddr)
		return false
	}
	return true
}

// decode reads one JSON document with known keys only.
func decode(w http.ResponseWriter, r *http.Request, limit int64, to any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after it")
	}
	return nil
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, s) // the client may be gone
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client may be gone
}

func fail(w http.ResponseWriter, code int, detail string) {
	answer(w, code, struct {
		Status int    `json:"status"`
		Error  string `json:"error"`
	}{code, detail})
}

// unescape returns the resource that a path names.
func unescape(w http.ResponseWriter, key string) (fencing.Resource, bool) {
	name, err := url.PathUnescape(key)
	r := fencing.Resource(name)
	if err == nil {
		err = r.Check()
	}
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return "", false
	}
	return r, true
}

func limit(r *http.Request, def, most int) (int, error) {
	s := r.URL.Query().Get("limit")
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("limit must be a number from 1 to %d", most)
	}
	return n, nil
}

var errEnough = errors.New("enough")
