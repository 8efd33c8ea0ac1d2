package probe_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/text/unicode/norm"
)

// flatStore is a key-value store in memory. What it does in another way than the plainest is in its fields.
type flatStore struct {
	key         func(*http.Request) string // nil: the decoded path as it is
	conditional bool                       // honours If-Match and If-None-Match
	override    bool                       // honours X-HTTP-Method-Override and _method on POST
	late        time.Duration              // applies writes that long after its answer, 202
	refuse      func(*http.Request) int    // a status for requests that it does not take
	dead        int                        // answers that many requests, then none; 0: all

	mu      sync.Mutex
	objects map[string]string
	seen    []string // method and target of each request
}

func newFlatStore() *flatStore { return &flatStore{objects: map[string]string{}} }

func (s *flatStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.RequestURI)
	count := len(s.seen)
	s.mu.Unlock()
	if s.dead > 0 && count > s.dead {
		panic(http.ErrAbortHandler)
	}
	if s.refuse != nil {
		if code := s.refuse(r); code != 0 {
			w.WriteHeader(code)
			return
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	key := r.URL.Path
	if s.key != nil {
		key = s.key(r)
	}
	method := r.Method
	if s.override && method == http.MethodPost {
		if m := r.Header.Get("X-HTTP-Method-Override"); m != "" {
			method = m
		}
		if m := r.URL.Query().Get("_method"); m != "" {
			method = m
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answerLocked(w, r, method, key, string(body))
}

// answerLocked does what a method says. The caller holds mu.
func (s *flatStore) answerLocked(w http.ResponseWriter, r *http.Request, method, key, body string) {
	old, there := s.objects[key]
	switch method {
	case http.MethodGet:
		if !there {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, old)
	case http.MethodDelete:
		s.applyLocked(func() { delete(s.objects, key) })
		w.WriteHeader(http.StatusNoContent)
	case http.MethodPut:
		if s.conditional && (there && r.Header.Get("If-None-Match") == "*" || r.Header.Get("If-Match") != "") {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		s.applyLocked(func() { s.objects[key] = body })
		code := http.StatusCreated
		if s.late > 0 {
			code = http.StatusAccepted
		}
		w.WriteHeader(code)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// applyLocked changes the objects, now or later. The caller holds mu.
func (s *flatStore) applyLocked(change func()) {
	if s.late == 0 {
		change()
		return
	}
	time.AfterFunc(s.late, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		change()
	})
}

func (s *flatStore) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for k := range s.objects {
		keys = append(keys, k)
	}
	return keys
}

func (s *flatStore) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

// cutParams reads paths as servlet containers do.
func cutParams(r *http.Request) string {
	segs := strings.Split(r.URL.Path, "/")
	for i := range segs {
		segs[i], _, _ = strings.Cut(segs[i], ";")
	}
	return strings.Join(segs, "/")
}

func foldCase(r *http.Request) string { return strings.ToLower(r.URL.Path) }

func foldUnicode(r *http.Request) string { return norm.NFC.String(r.URL.Path) }

// windowsName reads paths as Windows does.
func windowsName(r *http.Request) string {
	segs := strings.Split(strings.ReplaceAll(strings.ToLower(r.URL.Path), `\`, "/"), "/")
	for i := range segs {
		segs[i] = strings.TrimRight(segs[i], ". ")
	}
	return strings.Join(segs, "/")
}

// fileStore is the REST store that everyone writes once: paths are cleaned, uploads go straight into the file.
type fileStore struct{ dir string }

func (s fileStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := filepath.Join(s.dir, filepath.FromSlash(path.Clean("/"+r.URL.Path)))
	switch r.Method {
	case http.MethodGet:
		b, err := os.ReadFile(name)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(b)
	case http.MethodPut:
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		f, err := os.Create(name)
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer f.Close()
		if _, err := io.Copy(f, r.Body); err != nil {
			return
		}
		w.WriteHeader(http.StatusCreated)
	case http.MethodDelete:
		if err := os.Remove(name); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// couchStore speaks as much CouchDB as a probe needs: one database, documents with revisions, paths split on runs of slashes before they
// are decoded.
type couchStore struct {
	mu   sync.Mutex
	docs map[string]map[string]any
	revs int
}

func (s *couchStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answerLocked(w, r)
}

// answerLocked answers a request. The caller holds mu.
func (s *couchStore) answerLocked(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(v)
	}
	fail := func(code int, e, reason string) { answer(code, map[string]string{"error": e, "reason": reason}) }
	var parts []string
	for p := range strings.SplitSeq(r.URL.EscapedPath(), "/") {
		if p != "" {
			p = strings.ReplaceAll(p, "%2F", "/")
			parts = append(parts, strings.NewReplacer("%7E", "~", "%7e", "~", "%74", "t", "%20", " ", "%25", "%", "%C3%A9", "é", "e%CC%81", "e\u0301").Replace(p))
		}
	}
	switch {
	case len(parts) == 0:
		answer(http.StatusOK, map[string]string{"couchdb": "Welcome", "version": "3.3.3"})
		return
	case parts[0] != "db" || len(parts) == 1:
		fail(http.StatusNotFound, "not_found", "Database does not exist.")
		return
	case len(parts) > 2 && strings.ContainsAny(parts[2], "/"):
		fail(http.StatusBadRequest, "bad_request", "attachment")
		return
	}
	id := strings.Join(parts[1:], "\x00") // an attachment is no document
	doc, there := s.docs[id]
	current, _ := doc["_rev"].(string)
	switch r.Method {
	case http.MethodGet:
		if !there {
			fail(http.StatusNotFound, "not_found", "missing")
			return
		}
		answer(http.StatusOK, doc)
	case http.MethodPut:
		var body map[string]any
		if json.NewDecoder(r.Body).Decode(&body) != nil {
			fail(http.StatusBadRequest, "bad_request", "invalid UTF-8 JSON")
			return
		}
		if rev, _ := body["_rev"].(string); rev != current {
			fail(http.StatusConflict, "conflict", "Document update conflict.")
			return
		}
		body["_id"], body["_rev"] = id, s.nextLocked()
		s.docs[id] = body
		answer(http.StatusCreated, map[string]any{"ok": true, "id": id, "rev": body["_rev"]})
	case http.MethodDelete, http.MethodPost:
		rev := r.URL.Query().Get("rev")
		if r.Method == http.MethodPost {
			if r.Header.Get("X-HTTP-Method-Override") != http.MethodDelete {
				fail(http.StatusMethodNotAllowed, "method_not_allowed", "Only DELETE,GET,HEAD,PUT,COPY allowed")
				return
			}
			rev = r.Header.Get("If-Match")
		}
		if !there || rev != current {
			fail(http.StatusConflict, "conflict", "Document update conflict.")
			return
		}
		delete(s.docs, id)
		answer(http.StatusOK, map[string]any{"ok": true, "id": id, "rev": s.nextLocked()})
	default:
		fail(http.StatusMethodNotAllowed, "method_not_allowed", "no")
	}
}

// nextLocked is a new revision. The caller holds mu.
func (s *couchStore) nextLocked() string {
	s.revs++
	return fmt.Sprintf("%d-abc", s.revs)
}
