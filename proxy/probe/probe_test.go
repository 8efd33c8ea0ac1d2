package probe_test

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/net/webdav"

	"github.com/fenceproxy/fenceproxy/policies"
	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
	"github.com/fenceproxy/fenceproxy/proxy/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run probes a store below a URL and expects it to say that nothing is left.
func run(t *testing.T, at string, change ...func(*probe.Config)) *probe.Report {
	t.Helper()
	report, err := tryRun(t, context.Background(), at, change...)
	if err != nil {
		t.Fatalf("Run: %v (left %q)", err, report.Left)
	}
	if len(report.Left) > 0 {
		t.Errorf("left in the store: %q; want nothing", report.Left)
	}
	var b strings.Builder
	if _, err := report.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
	// With its own advice no policy is weak, whatever the store.
	for _, w := range report.Compare(loads(t, report).Policies) {
		if w.Option != "" {
			t.Errorf("with what is to be pasted: %v", w)
		}
	}
	return report
}

func tryRun(t *testing.T, ctx context.Context, at string, change ...func(*probe.Config)) (*probe.Report, error) {
	t.Helper()
	c := probe.Config{URL: at, Timeout: 10 * time.Second}
	probe.Impatient(&c)
	for _, f := range change {
		f(&c)
	}
	p, err := probe.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return p.Run(ctx)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func expect(t *testing.T, report *probe.Report, verdicts map[string]probe.Verdict, checks map[string]string) {
	t.Helper()
	for id, want := range verdicts {
		if got := report.Row(id); got.Same != want {
			t.Errorf("%s: %s (%s); want %s", id, got.Same, got.Says, want)
		}
	}
	for id, want := range checks {
		if got := report.Check(id); got.Verdict != want {
			t.Errorf("%s: %s (%s); want %s", id, got.Verdict, got.Says, want)
		}
	}
}

// loads checks that what is to be pasted is a configuration, and returns it.
func loads(t *testing.T, report *probe.Report) *policies.Config {
	t.Helper()
	cfg, err := policies.Load("pasted.yaml", []byte("upstream: {url: http://127.0.0.1:9000}\nunmatched_writes: fence\n"+report.YAML), policies.Overrides{})
	if err != nil {
		t.Fatalf("what is to be pasted does not load: %v\n%s", err, report.YAML)
	}
	return cfg
}

// settings returns "key: value" lines.
func settings(report *probe.Report) []string {
	lines := []string{}
	for _, s := range report.Settings {
		lines = append(lines, s.Key+": "+s.Value)
	}
	return lines
}

func warns(report *probe.Report, text string) bool {
	return slices.ContainsFunc(report.Warnings, func(w string) bool { return strings.Contains(w, text) })
}

func (s *flatStore) expectEmpty(t *testing.T) {
	t.Helper()
	if left := s.left(); len(left) > 0 {
		t.Errorf("the store holds %q; want nothing", left)
	}
}

// flatVerdicts are those of a store that decodes the path and takes it as its key.
func flatVerdicts() map[string]probe.Verdict {
	return map[string]probe.Verdict{
		"dot": probe.Other, "dotdot": probe.Other, "encoded-dot": probe.Other, "encoded-dotdot": probe.Other, "encoded-climb": probe.Other,
		"empty": probe.Other, "trailing-slash": probe.Other, "encoded-slash": probe.Same, "escape": probe.Same, "hex-case": probe.Same,
		"params": probe.Other, "folder-params": probe.Other, "query": probe.Same, "case": probe.Other, "nfd": probe.Other,
		"backslash": probe.Other, "encoded-backslash": probe.Other, "trailing-dot": probe.Other, "trailing-space": probe.Other,
		"double": probe.Other, "double-slash": probe.Other, "plus": probe.Other, "absolute": probe.Same, "absolute-foreign": probe.Same,
		"host-foreign": probe.Same,
	}
}

func with(base map[string]probe.Verdict, changed map[string]probe.Verdict) map[string]probe.Verdict {
	for id, v := range changed {
		base[id] = v
	}
	return base
}

func TestFlatStores(t *testing.T) {
	deaf := map[string]string{
		"visible": "at once", "copy": "no effect", "if-none-match": "ignored", "if-match": "ignored", "x-http-method-override": "ignored",
		"x-http-method": "ignored", "x-method-override": "ignored", "_method": "ignored", "partial-put": "replaces the object",
		"lock-unmapped": "no effect", "delete-folder": "the objects below stay", "cut-fin": "the object is intact", "cut-reset": "the object is intact",
	}
	for _, tt := range []struct {
		name     string
		store    func(*flatStore)
		verdicts map[string]probe.Verdict
		checks   map[string]string
		dialect  string
		settings []string
		warning  string
	}{
		{name: "plain", verdicts: flatVerdicts(), checks: deaf, dialect: "http", warning: "ignores conditions"},
		{
			name: "conditional", store: func(s *flatStore) { s.conditional = true }, verdicts: flatVerdicts(), dialect: "http",
			checks: map[string]string{"if-none-match": "honoured", "if-match": "honoured"},
		},
		{
			name: "override", store: func(s *flatStore) { s.override = true }, dialect: "http", warning: "deletes on POST with X-HTTP-Method-Override",
			checks: map[string]string{"x-http-method-override": "honoured", "_method": "honoured", "x-http-method": "ignored", "x-method-override": "ignored"},
		},
		{
			name: "servlet", store: func(s *flatStore) { s.key = cutParams }, dialect: "servlet",
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"params": probe.Same, "folder-params": probe.Same}),
		},
		{
			name: "case", store: func(s *flatStore) { s.key = foldCase }, dialect: "http", settings: []string{"case: fold"},
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"case": probe.Same}), warning: "set identity.case: fold",
		},
		{
			name: "unicode", store: func(s *flatStore) { s.key = foldUnicode }, dialect: "http", settings: []string{"unicode: nfc-key"},
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"nfd": probe.Same}), warning: "set identity.unicode: nfc-key",
		},
		{
			name: "windows", store: func(s *flatStore) { s.key = windowsName }, dialect: "windows",
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{
				"case": probe.Same, "backslash": probe.Same, "encoded-backslash": probe.Same, "trailing-dot": probe.Same, "trailing-space": probe.Same,
				"trailing-slash": probe.Other, "dot": probe.Other,
			}),
		},
		{
			name: "twice", dialect: "http", warning: "decodes escapes twice",
			store: func(s *flatStore) {
				s.key = func(r *http.Request) string {
					if again, err := url.PathUnescape(r.URL.Path); err == nil {
						return again
					}
					return r.URL.Path
				}
			},
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"double": probe.Same, "double-slash": probe.Same}),
		},
		{
			name: "plus", dialect: "http", warning: "takes + in a path for a space",
			store: func(s *flatStore) {
				s.key = func(r *http.Request) string { return strings.ReplaceAll(r.URL.Path, "+", " ") }
			},
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"plus": probe.Same}),
		},
		{
			name: "raw", dialect: "http",
			store:    func(s *flatStore) { s.key = func(r *http.Request) string { return r.RequestURI } },
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"encoded-slash": probe.Other, "escape": probe.Other, "hex-case": probe.Other, "query": probe.Other, "absolute": probe.Other, "absolute-foreign": probe.Other}),
		},
		{
			name: "hosts", dialect: "http", warning: "another Host reaches another object",
			store:    func(s *flatStore) { s.key = func(r *http.Request) string { return r.Host + r.URL.Path } },
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"absolute-foreign": probe.Other, "host-foreign": probe.Other}),
		},
		{
			name: "strict", dialect: "http",
			store: func(s *flatStore) {
				s.refuse = func(r *http.Request) int {
					if path.Clean(r.URL.Path) != r.URL.Path {
						return http.StatusBadRequest
					}
					return 0
				}
			},
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{
				"dot": probe.Refused, "dotdot": probe.Refused, "encoded-dot": probe.Refused, "encoded-dotdot": probe.Refused, "encoded-climb": probe.Refused,
				"empty": probe.Refused, "trailing-slash": probe.Refused,
			}),
		},
		{
			name: "readers", dialect: "http", // PUT wants the plain spelling, GET and DELETE do not
			store: func(s *flatStore) {
				s.key = func(r *http.Request) string { return strings.TrimRight(r.URL.Path, "/") }
				s.refuse = func(r *http.Request) int {
					if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/") {
						return http.StatusConflict
					}
					return 0
				}
			},
			verdicts: with(flatVerdicts(), map[string]probe.Verdict{"trailing-slash": probe.Same}),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newFlatStore()
			if tt.store != nil {
				tt.store(s)
			}
			report := run(t, serve(t, s)+"/files")
			expect(t, report, tt.verdicts, tt.checks)
			if report.Dialect != tt.dialect {
				t.Errorf("dialect %s; want %s", report.Dialect, tt.dialect)
			}
			if diff := cmp.Diff(append([]string{}, tt.settings...), settings(report)); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if tt.warning != "" && !warns(report, tt.warning) {
				t.Errorf("warnings %q; want one with %q", report.Warnings, tt.warning)
			}
			s.expectEmpty(t)
		})
	}
}

// TestLateStore probes one that answers 202 and writes afterwards.
func TestLateStore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := newFlatStore()
	s.late = 40 * time.Millisecond
	report := run(t, serve(t, s)+"/files")
	expect(t, report, flatVerdicts(), map[string]string{"cut-fin": "the object is intact", "if-match": "ignored", "partial-put": "replaces the object"})
	if got := report.Check("visible"); got.Says != "202 Accepted" {
		t.Errorf("visible: %+v; want 202", got)
	}
	if got := settings(report); len(got) != 1 || !strings.HasPrefix(got[0], "settle: ") || !strings.Contains(report.YAML, "\n  settle: ") {
		t.Errorf("settings %q in %q; want settle alone", got, report.YAML)
	}
	if !warns(report, "set settle to the longest time") {
		t.Errorf("warnings %q; want one about settle", report.Warnings)
	}
	s.expectEmpty(t)
}

// TestLateToShow probes a store that answers 201 and shows its first object only to the fourth read.
func TestLateToShow(t *testing.T) {
	t.Parallel()
	s := newFlatStore()
	reads := 0 // the probe sends one request at a time
	s.refuse = func(r *http.Request) int {
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/d/f1.txt") {
			if reads++; reads < 4 {
				return http.StatusNotFound
			}
		}
		return 0
	}
	report := run(t, serve(t, s)+"/files")
	expect(t, report, flatVerdicts(), nil)
	if got := report.Check("visible"); got.Says != "201 Created" || !strings.HasPrefix(got.Verdict, "after ") {
		t.Errorf("visible: %+v; want a delay", got)
	}
	if got := settings(report); len(got) != 1 || !strings.HasPrefix(got[0], "settle: ") || !warns(report, "answered before it shows") {
		t.Errorf("settings %q, warnings %q; want settle", got, report.Warnings)
	}
	s.expectEmpty(t)
}

// TestStaleReads probes a store whose reads lag behind its writes in every spelling but the one that was written: what looks like two objects
// at first is one.
func TestStaleReads(t *testing.T) {
	t.Parallel()
	s := newFlatStore()
	s.key = foldCase
	type cached struct {
		code int
		body string
		when time.Time
	}
	cache := map[string]cached{} // by raw path, as a reverse proxy keeps them; the probe sends one request at a time
	report := run(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			delete(cache, r.RequestURI)
			s.ServeHTTP(w, r)
			return
		}
		c, ok := cache[r.RequestURI]
		if !ok || time.Since(c.when) > 700*time.Millisecond {
			rec := httptest.NewRecorder()
			s.ServeHTTP(rec, r)
			c = cached{rec.Code, rec.Body.String(), time.Now()}
			cache[r.RequestURI] = c
		}
		w.WriteHeader(c.code)
		_, _ = w.Write([]byte(c.body))
	}))+"/files", probe.Patient)
	expect(t, report, map[string]probe.Verdict{"case": probe.Same, "params": probe.Other}, nil)
}

func TestFileStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	report := run(t, serve(t, fileStore{dir}))
	expect(t, report, with(flatVerdicts(), map[string]probe.Verdict{
		"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Same,
		"empty": probe.Same, "trailing-slash": probe.Same,
	}), map[string]string{"cut-fin": "the object is cut or mixed", "cut-reset": "the object is cut or mixed"})
	if len(report.Settings) > 0 || report.Dialect != "http" {
		t.Errorf("dialect %s with %v; want http, whose defaults refuse or merge all of that", report.Dialect, report.Settings)
	}
	if got := report.Row("dot").Advice; got != "dot_segments: reject refuses it: keep that (resolve would merge)" {
		t.Errorf("advice %q", got)
	}
	if !warns(report, "keep request_body: spool") {
		t.Errorf("warnings %q; want one about cut uploads", report.Warnings)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left on disk: %v, %v; want nothing, no folder either", left, err)
	}
}

func TestWebDAV(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	report := run(t, serve(t, &webdav.Handler{FileSystem: webdav.Dir(dir), LockSystem: webdav.NewMemLS()}))
	expect(t, report, with(flatVerdicts(), map[string]probe.Verdict{
		"dot": probe.Same, "dotdot": probe.Same, "encoded-dot": probe.Same, "encoded-dotdot": probe.Same, "encoded-climb": probe.Same,
		"empty": probe.Same, "trailing-slash": probe.Same, "folder-params": probe.Refused,
		"destination": probe.Same, "destination-path": probe.Same, "destination-escape": probe.Same, "destination-slash": probe.Same,
		"destination-dot": probe.Same, "destination-foreign": probe.Refused, "destination-move": probe.Same,
	}), map[string]string{
		"copy": "the target is replaced", "partial-put": "replaces the object", "lock-unmapped": "creates an object",
		"delete-folder": "takes the objects below along", "cut-fin": "the object is cut or mixed", "cut-reset": "the object is cut or mixed",
	})
	if report.Dialect != "webdav" || len(report.Settings) > 0 {
		t.Errorf("dialect %s with %v; want webdav with its defaults", report.Dialect, report.Settings)
	}
	for _, text := range []string{"collections: subtree", "LOCK creates an object", "keep request_body: spool"} {
		if !warns(report, text) {
			t.Errorf("warnings %q; want one with %q", report.Warnings, text)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left on disk: %v, %v; want nothing", left, err)
	}
}

// TestServletWebDAV probes a WebDAV store in a servlet container: the dialect of the one, with the identity of the other.
func TestServletWebDAV(t *testing.T) {
	t.Parallel()
	store := &webdav.Handler{FileSystem: webdav.NewMemFS(), LockSystem: webdav.NewMemLS()}
	report := run(t, serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = cutParams(r)
		store.ServeHTTP(w, r)
	})))
	expect(t, report, map[string]probe.Verdict{"params": probe.Same, "folder-params": probe.Same, "destination": probe.Same}, nil)
	if want := "defaults:\n  dialect: webdav\n  identity: {path_params: strip}\n"; report.YAML != want {
		t.Errorf("to paste: %q; want %q", report.YAML, want)
	}
}

func TestCouchDB(t *testing.T) {
	t.Parallel()
	s := &couchStore{docs: map[string]map[string]any{}}
	at := serve(t, s)
	report := run(t, at+"/db")
	expect(t, report, map[string]probe.Verdict{
		"dot": probe.Untried, "encoded-climb": probe.Untried, "empty": probe.Same, "trailing-slash": probe.Same, "encoded-slash": probe.Other,
		"escape": probe.Same, "hex-case": probe.Same, "params": probe.Other, "query": probe.Same, "case": probe.Other, "host-foreign": probe.Same,
	}, map[string]string{"if-none-match": "honoured", "if-match": "honoured", "x-http-method-override": "honoured", "copy": "not tried", "cut-fin": "the object is intact"})
	if report.Dialect != "couchdb" || len(report.Settings) > 0 {
		t.Errorf("dialect %s with %v; want couchdb with its defaults", report.Dialect, report.Settings)
	}
	if len(s.docs) > 0 {
		t.Errorf("left in the database: %v; want nothing", s.docs)
	}
	_, err := tryRun(t, context.Background(), at)
	if _, ok := errors.AsType[*probe.ConfigError](err); !ok {
		t.Errorf("Run without a database = %v; want a ConfigError", err)
	}
}

// TestStaysBelowScratch looks at every request that a probe sends: in each reading of its path, what it could write is below the prefix.
func TestStaysBelowScratch(t *testing.T) {
	t.Parallel()
	s := newFlatStore()
	report := run(t, serve(t, s)+"/files")
	writes := 0
	for _, line := range s.requests() {
		method, target, _ := strings.Cut(line, " ")
		if method == http.MethodGet || method == http.MethodOptions {
			continue
		}
		writes++
		if _, rest, ok := strings.Cut(target, "://"); ok {
			_, rest, _ = strings.Cut(rest, "/")
			target = "/" + rest
		}
		reading, _, _ := strings.Cut(target, "?")
		for range 3 {
			if !strings.HasPrefix(reading, report.Scratch) || !strings.HasPrefix(path.Clean(strings.ReplaceAll(reading, `\`, "/")), report.Scratch) {
				t.Errorf("%s reaches outside %s", line, report.Scratch)
			}
			reading = unescape(reading)
		}
	}
	if writes < 80 || len(s.requests()) > 900 {
		t.Errorf("%d writes of %d requests; want a whole probe, and a bounded one", writes, len(s.requests()))
	}
}

func unescape(s string) string {
	if out, err := url.PathUnescape(s); err == nil {
		return out
	}
	return s
}

// TestInterrupted ends probes at many places; each of them leaves nothing.
func TestInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, after := range []int{1, 4, 5, 9, 40, 100, 160, 200} {
		s := newFlatStore()
		ctx, cancel := context.WithCancel(context.Background())
		count := 0 // the probe sends one request at a time
		at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.ServeHTTP(w, r)
			if count++; count == after {
				cancel()
			}
		}))
		report, err := tryRun(t, ctx, at+"/files")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("after %d requests: Run = %v; want that of the context", after, err)
		}
		if after > 9 && len(s.left()) == 0 && !slices.ContainsFunc(s.requests(), func(l string) bool { return strings.HasPrefix(l, "DELETE ") }) {
			t.Errorf("after %d requests: nothing was deleted, so nothing was tested", after)
		}
		for _, what := range report.Left {
			if !strings.Contains(what, "was not answered") {
				t.Errorf("after %d requests: left %q", after, what)
			}
		}
		s.expectEmpty(t)
	}
}

func TestKeep(t *testing.T) {
	t.Parallel()
	s := newFlatStore()
	report := run(t, serve(t, s)+"/files", func(c *probe.Config) { c.Keep = true })
	if !report.Kept || len(s.left()) == 0 {
		t.Errorf("kept %v, the store holds %d objects; want all that was written", report.Kept, len(s.left()))
	}
}

// TestCannotRemove probes a store that takes no DELETE.
func TestCannotRemove(t *testing.T) {
	t.Parallel()
	s := newFlatStore()
	s.refuse = func(r *http.Request) int {
		if r.Method == http.MethodDelete {
			return http.StatusForbidden
		}
		return 0
	}
	report, err := tryRun(t, context.Background(), serve(t, s)+"/files")
	if err != nil {
		t.Fatal(err)
	}
	left := s.left()
	for i := range left {
		left[i] = path.Clean(left[i])
	}
	if len(report.Left) < len(left) || len(left) == 0 {
		t.Errorf("Left names %d of %d objects; want all", len(report.Left), len(left))
	}
}

func TestStoreFails(t *testing.T) {
	t.Parallel()
	refusing := func(code int) *flatStore {
		s := newFlatStore()
		s.refuse = func(*http.Request) int { return code }
		return s
	}
	t.Run("refuses", func(t *testing.T) {
		for _, code := range []int{401, 403, 404, 405, 409, 500, 503} {
			report, err := tryRun(t, context.Background(), serve(t, refusing(code))+"/files")
			e, ok := errors.AsType[*probe.StoreError](err)
			if !ok || e.Status != code || !strings.HasPrefix(e.Target, report.Scratch) {
				t.Errorf("%d: Run = %v; want a StoreError with it", code, err)
			} else if (e.Hint == "") != (code >= 500 && code != 501) {
				t.Errorf("%d: hint %q", code, e.Hint)
			}
			if len(report.Left) > 0 {
				t.Errorf("%d: left %q; want nothing: nothing was taken", code, report.Left)
			}
		}
	})
	t.Run("forgets", func(t *testing.T) {
		s := newFlatStore()
		n := 0
		s.key = func(*http.Request) string { n++; return string(rune('a' + n%20)) }
		_, err := tryRun(t, context.Background(), serve(t, s)+"/files", func(c *probe.Config) { c.Timeout = 100 * time.Millisecond })
		if e, ok := errors.AsType[*probe.StoreError](err); !ok || e.Status != 201 || !strings.Contains(e.Error(), "does not give the object back") {
			t.Errorf("Run = %v; want a StoreError that says so", err)
		}
	})
	t.Run("absent", func(t *testing.T) {
		_, err := tryRun(t, context.Background(), "http://"+storetest.FreeAddress(t)+"/files")
		if e, ok := errors.AsType[*probe.SilentError](err); !ok || !strings.Contains(e.Error(), "connection refused") {
			t.Errorf("Run = %v; want a SilentError", err)
		}
	})
	t.Run("dies", func(t *testing.T) {
		s := newFlatStore()
		s.dead = 60
		report, err := tryRun(t, context.Background(), serve(t, s)+"/files")
		if _, ok := errors.AsType[*probe.SilentError](err); !ok {
			t.Errorf("Run = %v; want a SilentError", err)
		}
		if len(report.Left) == 0 || len(s.left()) == 0 {
			t.Errorf("left %q, the store holds %q; want both to say so", report.Left, s.left())
		}
	})
	t.Run("hangs", func(t *testing.T) {
		stop := make(chan struct{})
		at := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
		defer close(stop)
		start := time.Now()
		_, err := tryRun(t, context.Background(), at+"/files", func(c *probe.Config) { c.Timeout = 50 * time.Millisecond })
		if _, ok := errors.AsType[*probe.SilentError](err); !ok || time.Since(start) > 5*time.Second {
			t.Errorf("Run = %v after %s; want a SilentError soon", err, time.Since(start))
		}
	})
	t.Run("fenceproxy", func(t *testing.T) {
		for _, method := range []string{http.MethodGet, http.MethodPut} {
			at := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == method {
					w.Header().Set("Fencing-Status", "missing")
				}
				w.WriteHeader(http.StatusNotFound)
			}))
			if _, err := tryRun(t, context.Background(), at+"/files"); !errors.Is(err, probe.ErrFenceproxy) {
				t.Errorf("Run = %v where %s is fenced; want ErrFenceproxy", err, method)
			}
		}
	})
}

// TestCarries sends the header lines and credentials that it is told to, over TLS and over a Unix socket.
func TestCarries(t *testing.T) {
	t.Parallel()
	guarded := func(s *flatStore) http.Handler {
		s.refuse = func(r *http.Request) int {
			if user, password, _ := r.BasicAuth(); user != "me" || password != "a:b" || r.Header.Get("X-Tenant") != "7" {
				return http.StatusUnauthorized
			}
			return 0
		}
		return s
	}
	login := func(c *probe.Config) { c.User, c.Header = "me:a:b", []string{"X-Tenant: 7"} }
	t.Run("TLS", func(t *testing.T) {
		s := newFlatStore()
		server := httptest.NewTLSServer(guarded(s))
		defer server.Close()
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		report := run(t, server.URL+"/files", login, func(c *probe.Config) { c.Roots = roots })
		expect(t, report, flatVerdicts(), map[string]string{"cut-fin": "the object is intact", "cut-reset": "the object is intact"})
		s.expectEmpty(t)
		if _, err := tryRun(t, context.Background(), server.URL+"/files"); err == nil {
			t.Error("Run took a certificate that nobody vouches for")
		}
	})
	t.Run("socket", func(t *testing.T) {
		s := newFlatStore()
		name := filepath.Join(t.TempDir(), "s")
		ln, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: guarded(s)}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(ln) }()
		defer func() { server.Close(); <-done }()
		report := run(t, "http://localhost/files", login, func(c *probe.Config) { c.Socket = name })
		expect(t, report, flatVerdicts(), map[string]string{"cut-reset": "not tried", "cut-fin": "the object is intact"})
		expect(t, report, map[string]probe.Verdict{"host-case": probe.Same, "host-dot": probe.Same}, nil)
		s.expectEmpty(t)
	})
}

func TestNewRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config probe.Config
		want   string
	}{
		{"no scheme", probe.Config{URL: "127.0.0.1:9000"}, "URL: "},
		{"another scheme", probe.Config{URL: "ftp://store/x"}, "URL: it does not name a scheme and a host"},
		{"no host", probe.Config{URL: "http:///x"}, "URL: it does not name a scheme and a host"},
		{"credentials", probe.Config{URL: "http://me:secret@store/x"}, "URL: it holds credentials"},
		{"query", probe.Config{URL: "http://store/x?y"}, "URL: it holds a query or a fragment"},
		{"dots", probe.Config{URL: "http://store/x/../y"}, "URL: its path holds dots"},
		{"encoded dots", probe.Config{URL: "http://store/x/%2e%2e/y"}, "URL: its path holds dots"},
		{"empty segment", probe.Config{URL: "http://store//y"}, "URL: its path holds dots"},
		{"encoded slash", probe.Config{URL: "http://store/x%2Fy"}, "URL: its path holds dots"},
		{"space", probe.Config{URL: "http://store/x y"}, "URL: its path holds a character"},
		{"parameter", probe.Config{URL: "http://store/x;y"}, "URL: its path holds a character"},
		{"header", probe.Config{URL: "http://store/", Header: []string{"X-Tenant"}}, "header: a line is not a header"},
		{"two headers", probe.Config{URL: "http://store/", Header: []string{"X: a\r\nY: b"}}, "header: a line is not a header"},
		{"own header", probe.Config{URL: "http://store/", Header: []string{"Host: x"}}, "header: the probe sets Host itself"},
		{"half a key", probe.Config{URL: "http://store/", S3: &probe.Credentials{Key: "k"}}, "S3 key: "},
		{"two logins", probe.Config{URL: "http://store/", User: "u:p", S3: &probe.Credentials{Key: "k", Secret: "s"}}, "credentials: there are two"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := probe.New(tt.config)
			if _, ok := errors.AsType[*probe.ConfigError](err); !ok || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("New = %v; want a ConfigError that begins with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "me:secret") {
				t.Errorf("the error shows a password: %v", err)
			}
		})
	}
}
