package proxy_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/webdav"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

const davYAML = `
defaults: {dialect: webdav, collections: %s, in_doubt_hold: 300ms, drain_timeout: 5s}
policies: [{name: files, match: {path: "/{rest...}"}, resource: "{path}"}]
`

// newDAV is a WebDAV server with the collections /a and /b behind a proxy. before is called with each write that reaches it.
func newDAV(t *testing.T, collections string, before func(*http.Request)) *rig {
	t.Helper()
	fs := webdav.NewMemFS()
	for _, dir := range []string{"/a", "/a/sub", "/b"} {
		if err := fs.Mkdir(context.Background(), dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	h := &webdav.Handler{FileSystem: fs, LockSystem: webdav.NewMemLS()}
	return newRigWith(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if before != nil && r.Method != http.MethodGet {
			before(r)
		}
		h.ServeHTTP(w, r)
	}), fmt.Sprintf(davYAML, collections))
}

// TestNoWebDAVMethodPassesTheFence: with a mark of 34 on /a/f and /b/f, nothing that carries 33 changes either.
func TestNoWebDAVMethodPassesTheFence(t *testing.T) {
	for _, collections := range []string{"subtree", "reject"} {
		t.Run(collections, func(t *testing.T) {
			r := newDAV(t, collections, nil)
			for _, f := range []string{"/a/f", "/b/f"} {
				if got := r.must("PUT", f, "from B", "Fencing-Token", "34"); got.code != 201 {
					t.Fatalf("PUT %s with 34 = %v", f, got)
				}
			}
			r.must("PUT", "/other", "mine", "Fencing-Token", "33")
			host := strings.TrimPrefix(r.url, "http://")
			for _, line := range []string{
				"PUT /a/f", "PUT /a/%66", "PUT /a/f/", "PUT /a//f", "PUT /a/./f", "PUT /a/x/../f", "PUT /a%2Ff", "PUT //a/f", "DELETE /a/f", "DELETE /a/f/",
				"DELETE /a", "DELETE /a/", "DELETE /%61", "DELETE /a/.", "DELETE /", "PROPPATCH /a/f", "MKCOL /a/f", "LOCK /a/f", "UNLOCK /a/f", "PATCH /a/f", "POST /a/f",
				"MOVE /a/f -> /gone", "MOVE /a -> /gone", "MOVE /a/ -> /gone/", "MOVE /other -> /a/f", "COPY /other -> /a/f", "COPY /other -> /a/%66",
				"COPY /other -> /a/f/", "COPY /other -> /a//f", "COPY /other -> /a/./f", "COPY /other -> /a%2Ff", "COPY /other -> //a/f",
				"COPY /other -> http://" + host + "/a/f", "COPY /other -> https://" + host + "/a/f", "COPY /other -> http://elsewhere.test/a/f",
				"COPY /other -> /a", "COPY /a/sub -> /a", "COPY /b -> /a", "MOVE /b -> /a", "COPY /a -> /b", "MOVE /a -> /b", "COPY /other -> /a/f?x", "COPY /other -> a/f",
			} {
				method, rest, _ := strings.Cut(line, " ")
				path, dest, _ := strings.Cut(rest, " -> ")
				header := []string{"Fencing-Token", "33", "Overwrite", "T", "Depth", "infinity"}
				if dest != "" {
					header = append(header, "Destination", dest)
				}
				got := r.must(method, path, "", header...)
				if got.code != 412 && got.code != 400 && got.code != 403 || !strings.Contains(got.body, "<D:error") {
					t.Errorf("%s with 33 = %v; want a refusal in the form of WebDAV", line, got)
				}
				for _, f := range []string{"/a/f", "/b/f"} {
					if now := r.must("GET", f, ""); now.body != "from B" {
						t.Fatalf("after %s with 33, %s holds %v; want B's bytes", line, f, now)
					}
				}
			}
			if m := r.mark("a/f"); m != 34 {
				t.Errorf("the mark is %d after all that; want 34", m)
			}
		})
	}
}

// TestATreeWithTheHighestTokenGoes: what is refused with a low token is done with one that no mark beneath exceeds.
func TestATreeWithTheHighestTokenGoes(t *testing.T) {
	r := newDAV(t, "subtree", nil)
	r.must("PUT", "/a/sub/f", "from A", "Fencing-Token", "33")
	r.must("PUT", "/b/f", "from A", "Fencing-Token", "33")
	if got := r.must("MOVE", "/a", "", "Fencing-Token", "34", "Destination", "/b", "Overwrite", "T"); got.code/100 != 2 {
		t.Fatalf("MOVE /a with 34 onto /b = %v", got)
	}
	if got := r.must("GET", "/b/sub/f", ""); got.body != "from A" {
		t.Errorf("the moved file = %v", got)
	}
	for path, want := range map[string]int{"/a/sub/f": 412, "/b/f": 412, "/b/new": 412, "/a/x/y": 412, "/other": 201} {
		if got := r.must("PUT", path, "stale", "Fencing-Token", "33"); got.code != want {
			t.Errorf("PUT %s with 33 after the MOVE = %v; want %d", path, got, want)
		}
	}
	if got := r.must("PUT", "/b/new", "from B", "Fencing-Token", "34"); got.code != 201 {
		t.Errorf("PUT beneath with the token of the MOVE = %v; want 201", got)
	}
}

// TestNothingSlipsIntoATreeMeanwhile: while a tree is on its way, higher writes beneath wait, and the tree waits for lower ones beneath.
func TestNothingSlipsIntoATreeMeanwhile(t *testing.T) {
	for _, tt := range []struct{ first, second []string }{
		{[]string{"DELETE", "/a", "33"}, []string{"PUT", "/a/sub/new", "34"}},
		{[]string{"PUT", "/a/sub/new", "33"}, []string{"DELETE", "/a", "34"}},
		{[]string{"MOVE", "/b", "33"}, []string{"PUT", "/a/f", "34"}}, // onto /a
		{[]string{"DELETE", "/a", "33"}, []string{"DELETE", "/a/sub", "34"}},
		{[]string{"DELETE", "/a/sub", "33"}, []string{"DELETE", "/a", "34"}},
	} {
		name := strings.Join(tt.first, " ") + ", " + strings.Join(tt.second, " ")
		t.Run(strings.ReplaceAll(name, "/", "_"), func(t *testing.T) {
			var mu sync.Mutex
			var order []string
			release := make(chan struct{})
			free := sync.OnceFunc(func() { close(release) })
			defer free()
			r := newDAV(t, "subtree", func(q *http.Request) {
				mu.Lock()
				order = append(order, q.Header.Get("Fencing-Token"))
				first := len(order) == 1
				mu.Unlock()
				if first {
					<-release
				}
			})
			send := func(q []string) <-chan reply {
				c := make(chan reply, 1)
				go func() {
					header := []string{"Fencing-Token", q[2]}
					if q[0] == "MOVE" {
						header = append(header, "Destination", "/a", "Overwrite", "T")
					}
					got, _ := r.do(q[0], q[1], "x", header...)
					c <- got
				}()
				return c
			}
			one := send(tt.first)
			eventually(t, "the first is in flight", func() bool { return r.gate.Stats().InFlight == 1 })
			two := send(tt.second)
			eventually(t, "the second waits", func() bool { return r.gate.Stats().Waiting == 1 })
			free()
			if got := <-one; got.code == 412 || got.code == 0 {
				t.Errorf("the first = %v", got)
			}
			if got := <-two; got.code == 412 || got.code == 0 {
				t.Errorf("the second = %v", got)
			}
			if got := strings.Join(order, " "); got != "33 34" {
				t.Errorf("the store saw the tokens %s; want 33 34", got)
			}
		})
	}
}

// TestCollectionsAreRefusedByDefault: nothing fenced may lie beneath.
func TestCollectionsAreRefusedByDefault(t *testing.T) {
	r := newDAV(t, "reject", nil)
	r.must("PUT", "/a/sub/f", "x", "Fencing-Token", "33")
	got := r.must("DELETE", "/a", "", "Fencing-Token", "99")
	if got.code != 403 || got.header.Get("Fencing-Status") != "unfenceable" || !strings.Contains(got.body, "collections: subtree") {
		t.Errorf("DELETE of a collection with a mark beneath = %v; want 403 and the way out", got)
	}
	if got := r.must("PUT", "/a/sub/g", "x", "Fencing-Token", "33"); got.code != 201 {
		t.Errorf("PUT with 33 after that = %v; what was refused was not seen", got)
	}
	if got := r.must("DELETE", "/b", "", "Fencing-Token", "33"); got.code/100 != 2 {
		t.Errorf("DELETE of a path with nothing fenced beneath = %v", got)
	}
	if got := r.must("PUT", "/a/f", "x", "Fencing-Token", "33"); got.code != 201 {
		t.Fatal(got)
	}
	if got := r.must("DELETE", "/a/f", "", "Fencing-Token", "33"); got.code/100 != 2 {
		t.Errorf("DELETE of a file = %v", got)
	}
}

// TestCouchDBRequestsAreFencedByDocument sends what changes a document to a store that takes everything.
func TestCouchDBRequestsAreFencedByDocument(t *testing.T) {
	store := newPlainStore()
	r := newRigWith(t, store, `
defaults: {dialect: couchdb}
policies: [{name: docs, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}"}]
`)
	for _, id := range []string{"a", "_design%2Fd"} {
		if got := r.must("PUT", "/db/"+id, "{}", "Fencing-Token", "34"); got.code != 201 {
			t.Fatalf("PUT %s with 34 = %v", id, got)
		}
	}
	before := len(store.applied())
	for _, tt := range []struct {
		method, path, body string
		code               int
	}{
		{"PUT", "/db/a", "{}", 409}, {"PUT", "/db//a/", "{}", 409}, {"PUT", "/db/%61", "{}", 409}, {"DELETE", "/db/a?rev=1-x", "", 409},
		{"PUT", "/db/a/photo.jpg", "x", 409}, {"PUT", "/db/_design/d", "{}", 409}, {"PUT", "/db/_design%2fd", "{}", 409}, {"PUT", "/db/_design/d/att", "x", 409},
		{"POST", "/db", `{"_id":"a"}`, 409}, {"POST", "/db/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"new"},{"_id":"a"}]}`, 409},
		{"POST", "/db/_purge", `{"a":["1-x"]}`, 409}, {"POST", "/db/_bulk_docs", `{"docs":[{"_id":"new"},{}]}`, 400}, {"DELETE", "/db", "", 403},
		{"POST", "/_replicate", `{"source":"x","target":"db"}`, 403}, {"PUT", "/db/_design/d/_update/f/a", "", 403},
	} {
		got := r.must(tt.method, tt.path, tt.body, "Fencing-Token", "33")
		if got.code != tt.code || !strings.Contains(got.body, `{"error":"`) || !strings.Contains(got.body, `"reason":"`) {
			t.Errorf("%s %s with 33 = %v; want %d in CouchDB's form", tt.method, tt.path, got, tt.code)
		}
	}
	if got := r.must("COPY", "/db/x", "", "Fencing-Token", "33", "Destination", "a?rev=1-x"); got.code != 409 {
		t.Errorf("COPY onto a = %v; want 409", got)
	}
	if extra := store.applied()[before:]; len(extra) > 0 {
		t.Errorf("the store applied %v; want nothing", extra)
	}
	if got := r.must("POST", "/db/_find", "{}"); got.code != 201 || got.header.Get("Fencing-Status") != "" {
		t.Errorf("a query by POST = %v; want it passed on as a read", got)
	}
	if m := r.mark(fencing.Resource("db/new")); m != 0 {
		t.Errorf("the mark of a document that was never written is %d", m)
	}
}
