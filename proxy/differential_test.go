package proxy_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"golang.org/x/net/webdav"

	"github.com/fenceproxy/fenceproxy/policies"
)

// cleaning is the naive store that many have written: it cleans the path and puts the body there.
type cleaning struct {
	mu      sync.Mutex
	objects map[string]string
}

func (c *cleaning) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := path.Clean("/" + r.URL.Path)
	if r.Method == http.MethodPut {
		b, _ := io.ReadAll(r.Body)
		c.objects[key] = string(b)
		w.WriteHeader(http.StatusCreated)
		return
	}
	body, ok := c.objects[key]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, body)
}

// differential is a store in process with the policies that its dialect calls for.
type differential struct {
	name string
	new  func() http.Handler // an empty store
	set  *policies.Set
}

func differentials(t testing.TB) []differential {
	load := func(yaml string) *policies.Set {
		cfg, err := policies.Load("test.yaml", []byte(yaml), policies.Overrides{UpstreamURL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Policies
	}
	return []differential{
		{"webdav", func() http.Handler {
			fs := webdav.NewMemFS()
			for _, dir := range []string{"/d", "/d/e"} {
				if err := fs.Mkdir(context.Background(), dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			return &webdav.Handler{FileSystem: fs, LockSystem: webdav.NewMemLS()}
		}, load(`policies: [{name: p, match: {path: "/{rest...}"}, resource: "{path}", dialect: webdav, collections: subtree}]`)},
		{"resolving webdav", nil, load(`policies: [{name: p, match: {path: "/{rest...}"}, resource: "{path}", dialect: webdav,
  identity: {dot_segments: resolve, empty_segments: collapse, encoded_slash: separator}}]`)},
		{"s3", func() http.Handler {
			backend := s3mem.New()
			for _, bucket := range []string{"d", "bkt"} {
				if err := backend.CreateBucket(bucket); err != nil {
					t.Fatal(err)
				}
			}
			return gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
		}, load(`policies: [{name: p, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}", dialect: s3}]`)},
		{"cleaning", func() http.Handler { return &cleaning{objects: map[string]string{}} },
			load(`unmatched_writes: fence`)},
		{"cleaning, resolved", func() http.Handler { return &cleaning{objects: map[string]string{}} },
			load(`{unmatched_writes: fence, defaults: {identity: {dot_segments: resolve, empty_segments: collapse, encoded_slash: separator}}}`)},
	}
}

// raw sends a request to a handler as net/http would read it from the wire; nil if it would not.
func raw(h http.Handler, method, target, body string) *httptest.ResponseRecorder {
	text := method + " " + target + " HTTP/1.1\r\nHost: store.test\r\nContent-Length: " + itoa(len(body)) + "\r\n\r\n" + body
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
	if err != nil || r.RequestURI != target {
		return nil
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + itoa(n%10)
}

// FuzzOneObjectHasOneKey looks for two targets that get different keys and that a store takes for one object: a hole in the fence.
func FuzzOneObjectHasOneKey(f *testing.F) {
	for _, spelling := range []string{
		"/d/f", "/d/f/", "//d/f", "/d//f", "/d/./f", "/d/%2e/f", "/d/x/../f", "/d/%66", "/d%2Ff", "/d%2ff", "/d/f?x=1", "/d/f?", "/d/f;v=1", "/D/f", "/d/F",
		"/d/f%00", "/d/f%20", "/d/f.", "/d/%C3%A9", "/d/e%CC%81", `/d/\f`, "/d/%5Cf", "/d/e/..%2ff", "/d/%252e/f", "/./d/f", "/d/f/.", "/d/+f", "/d/%2Bf", "/d/f%23", "/d/f#",
	} {
		f.Add("/d/f", spelling)
		f.Add("/d/e", spelling)
	}
	all := differentials(f)
	all[1].new = all[0].new
	f.Fuzz(func(t *testing.T, one, two string) {
		if len(one) > 200 || len(two) > 200 {
			return
		}
		for _, d := range all {
			first, second := keysOf(d.set, one), keysOf(d.set, two)
			if first == "" || second == "" || first == second {
				continue
			}
			store := d.new()
			if w := raw(store, "PUT", one, "A"); w == nil || w.Code > 299 {
				continue
			}
			if w := raw(store, "PUT", two, "BB"); w == nil || w.Code > 299 {
				continue
			}
			if w := raw(store, "GET", one, ""); w == nil || w.Code > 299 || w.Body.String() != "A" {
				t.Fatalf("%s: %q has the key %q and %q the key %q, and a PUT to the second changed the first", d.name, one, first, two, second)
			}
		}
	})
}

// keysOf returns the resources of a PUT, or "" if it is refused.
func keysOf(set *policies.Set, target string) string {
	d := set.Decide(&policies.Request{Method: "PUT", Target: target, Host: "store.test", Header: http.Header{"Fencing-Token": {"34"}}})
	if d.Action != policies.Fence {
		return ""
	}
	var keys []string
	for _, r := range d.Resources {
		keys = append(keys, string(r))
	}
	return strings.Join(keys, "\x00")
}
