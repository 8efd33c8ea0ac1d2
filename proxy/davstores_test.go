package proxy_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/webdav"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// davStores are WebDAV servers that people run, and the one that Go programs embed, on a real directory. reach is how many of the attempts
// change the object at least when they are sent to the store itself: without such a number a table says nothing.
var davStores = []struct {
	name  string
	start func(testing.TB) *storetest.Store
	reach int
}{
	{"nginx", storetest.Nginx, 80},
	{"lighttpd", storetest.Lighttpd, 80},
	{"apache", storetest.Apache, 80},
	{"x-net-webdav", goDAV, 200},
}

func goDAV(t testing.TB) *storetest.Store {
	root := t.TempDir()
	s := httptest.NewServer(&webdav.Handler{FileSystem: webdav.Dir(root), LockSystem: webdav.NewMemLS()})
	t.Cleanup(s.Close)
	return &storetest.Store{Addr: s.Listener.Addr().String(), URL: s.URL, Root: root}
}

// lenient reads spellings as these servers do, so that they are not refused but have to find the right mark.
const lenient = `identity: {dot_segments: resolve, empty_segments: collapse, encoded_slash: separator}`

// TestNoSpellingPassesTheFenceOfAWebDAVStore: with marks of 34, nothing that carries 33 changes a file, its collection, or what else is in
// it, in whatever spelling.
func TestNoSpellingPassesTheFenceOfAWebDAVStore(t *testing.T) {
	files := func(settings string) string {
		return fmt.Sprintf("defaults: {dialect: webdav, in_doubt_hold: 300ms, drain_timeout: 5s, %s}\npolicies: [{name: files, match: {path: \"/{rest...}\"}, resource: \"{path}\"}]", settings)
	}
	for _, s := range davStores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && s.name != "x-net-webdav" {
				t.Skip("some 3,000 requests")
			}
			for _, p := range []struct {
				name, yaml string
				trees      bool // attempts on whole collections
				marked     bool // the collections have marks of their own
			}{
				{"reject", files("collections: reject"), true, false},
				{"reject, marked", files("collections: reject"), true, true},
				{"subtree", files("collections: subtree"), true, false},
				{"subtree, lenient", files("collections: subtree, " + lenient), true, true},
				{"http", defaultYAML, false, true}, // it knows no collections
			} {
				t.Run(p.name, func(t *testing.T) {
					store := s.start(t)
					r := newRig(t, store.URL, p.yaml)
					g := plant(t, r, store, p.marked)
					for _, a := range append(davAttempts(r.addr(), p.trees), davLocks(r.addr(), p.trees)...) {
						got := transmit(t, r.addr(), a.method, a.target, a.body, append([]string{"Fencing-Token", "33"}, a.header...)...)
						if bad := g.broken(); bad != "" {
							t.Fatalf("%v with 33 was answered %v, and %s", a, got, bad)
						}
						if s := got.header.Get("Fencing-Status"); s == "in-doubt" {
							t.Errorf("%v with 33 was answered %v; want a clear answer", a, got)
						}
					}
					g.holderGoesOn(r)
				})
			}
			t.Run("directly", func(t *testing.T) {
				if testing.Short() {
					t.Skip("it only shows that the table is sharp")
				}
				store := s.start(t)
				g := &protected{t: t, root: store.Root}
				reached := map[string]int{}
				sum := 0
				for i, a := range davAttempts(store.Addr, true) {
					if a.endless || i%3 != 0 { // a third of them will do
						continue
					}
					g.restore()
					transmitWithin(t, 5*time.Second, store.Addr, a.method, a.target, a.body, a.header...)
					if g.broken() != "" {
						reached[a.method]++
						sum++
					}
				}
				t.Logf("%d attempts of those tried change what is guarded when the store is reached directly: %v", sum, reached)
				if sum < s.reach {
					t.Errorf("%d attempts change something directly; want at least %d, or the table is blunt", sum, s.reach)
				}
			})
		})
	}
}

// davAttempts are the requests that would change /a/f, /b/f, /a/sub/g or the collections that hold them. /mine belongs to whoever sends
// them, and holds what they overwrite with. Without trees no attempt is about a whole collection.
func davAttempts(host string, trees bool) []attempt {
	var all []attempt
	add := func(method, target, body string, header ...string) {
		all = append(all, attempt{method: method, target: target, body: body, header: header})
	}
	const patch = `<?xml version="1.0"?><D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><s:stale xmlns:s="urn:s">33</s:stale></D:prop></D:set></D:propertyupdate>`
	writes := func(s string) {
		add("PUT", s, "stale")
		add("PUT", s, "st", "Content-Range", "bytes 0-1/6")
		add("PROPPATCH", s, patch, "Content-Type", "application/xml")
		add("MKCOL", s, "")
		add("POST", s, "stale")
		add("PATCH", s, "stale")
		add("UNLOCK", s, "", "Lock-Token", "<opaquelocktoken:0>")
		add("put", s, "stale")
		add("DELETE", s, "")
		add("MOVE", s, "", "Destination", "http://"+host+"/gone", "Overwrite", "T")
	}
	onto := func(source, s string) {
		for _, method := range []string{"COPY", "MOVE"} {
			add(method, source, "", "Destination", s, "Overwrite", "T", "Depth", "infinity")
			if strings.HasPrefix(s, "/") {
				add(method, source, "", "Destination", "http://"+host+s, "Overwrite", "T", "Depth", "infinity")
			}
		}
	}
	for _, s := range spellingsOf("a", "f", host) {
		writes(s)
		onto("/mine/f", s)
	}
	for _, s := range []string{
		"https://" + host + "/a/f", "http://elsewhere.test/a/f", "http://localhost/a/f", "http://127.0.0.1/a/f", "HTTP://" + host + "/a/f", "http://u:p@" + host + "/a/f", "ftp://" + host + "/a/f",
		"<http://" + host + "/a/f>", "\"/a/f\"", " /a/f", "/a/f /x", "/a/f, /mine/x", "a/f", "../a/f", "./a/f", "//" + host + "/a/f", "/gone\r\nDestination: /a/f", "/a/f\r\nDestination: /gone",
	} {
		onto("/mine/f", s)
	}
	// Writes that do not look like one.
	for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
		add("POST", "/a/f", "stale", name, "PUT")
		add("POST", "/a/f", "", name, "DELETE")
		add("GET", "/a/f", "", name, "DELETE")
	}
	add("POST", "/a/f?_method=DELETE", "")
	add("POST", "/a/f", "_method=DELETE", "Content-Type", "application/x-www-form-urlencoded")
	add("GET", "/a/f?_method=DELETE", "")
	add("PROPFIND", "/a/f", "stale")
	add("OPTIONS", "/a/f", "stale")
	add("BREW", "/a/f", "stale")
	for _, h := range []string{"elsewhere.test", "A", strings.ToUpper(host), "localhost", "", "[::1]"} {
		add("PUT", "/a/f", "stale", "Host", h)
		add("DELETE", "/a/f", "", "Host", h)
	}
	add("PUT", "/a/f", "stale", "Connection", "Fencing-Token")
	add("PUT", "/a/f", "stale", "Upgrade", "h2c", "Connection", "Upgrade, HTTP2-Settings", "HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")
	add("PUT", "/a/f", "stale", "X-Original-URL", "/mine/f", "X-Rewrite-URL", "/mine/f")
	add("PUT", "/mine/x", "stale", "X-Original-URL", "/a/f", "X-Rewrite-URL", "/a/f", "X-Forwarded-Prefix", "/a")
	add("PUT", "/mine/x", "stale", "Destination", "/a/f", "Content-Location", "/a/f")
	add("CONNECT", host, "PUT /a/f HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nstale")
	add("PUT", "/mine/x", "7\r\nsmuggle\r\n0\r\n\r\nPUT /a/f HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nstale", "Transfer-Encoding", "chunked")
	if !trees {
		return all
	}
	// A collection goes with all that is in it, or is replaced by another.
	root := false
	for _, s := range []string{
		"/a", "/a/", "/a//", "//a", "/./a", "/a/.", "/a/./", "/a/sub/..", "/a/sub/../", "/%61", "/%61/", "/a%2F", "/%2e/a/", "/x/../a/", "/b/../a", "/a/%2e", "/a?x", "/a/?", "/a#", "/a;v=1",
		"/a/sub", "/a/sub/", "/a//sub", "/a/./sub/", "/a%2Fsub", "http://" + host + "/a/",
		"*", "/", "//", "/.", "/./", "/a/..", "/%2e", "/?x", "http://" + host + "/", "http://" + host, // the root
	} {
		root = root || s == "*"
		add("DELETE", s, "")
		add("DELETE", s, "", "Depth", "infinity")
		for _, d := range []string{"http://" + host + "/gone/", "/gone"} {
			add("MOVE", s, "", "Destination", d, "Overwrite", "T")
			all[len(all)-1].endless = root // nginx moves it into itself
		}
		add("PUT", s, "stale")
		add("PROPPATCH", s, patch, "Content-Type", "application/xml")
		onto("/mine", s)
		onto("/mine/", s)
		onto("/mine/f", s)
		onto("/a/sub", s)
	}
	onto("/b", "/a")
	onto("/b/", "/a/")
	onto("/a", "/b")
	return all
}

// davLocks would keep the holder from the guarded files, or make an empty file where none is. They come last: a lock hides other changes.
func davLocks(host string, trees bool) []attempt {
	var all []attempt
	targets := spellingsOf("a", "f", host)
	if trees {
		targets = append(targets, "/a", "/a/", "/a/sub", "/a/sub/", "/%61/", "/", "/a/.")
	}
	for _, depth := range []string{"0", "infinity"} {
		for _, s := range targets {
			const lock = `<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>`
			all = append(all, attempt{method: "LOCK", target: s, body: lock, header: []string{"Content-Type", "application/xml", "Depth", depth, "Timeout", "Second-600"}})
		}
	}
	return all
}

// protected is what nobody with a low token may change, seen from behind the store's back.
type protected struct {
	t    *testing.T
	root string
}

// guardedFiles and their only content.
var guardedFiles = []string{"a/f", "b/f", "a/sub/g"}

const fromB = "from B"

// plant makes the guarded files through the proxy with 34, and /mine with 33.
func plant(t *testing.T, r *rig, store *storetest.Store, marked bool) *protected {
	t.Helper()
	g := &protected{t, store.Root}
	g.directories()
	for _, name := range guardedFiles {
		if got := r.must("PUT", "/"+name, fromB, "Fencing-Token", "34"); got.code/100 != 2 {
			t.Fatalf("PUT /%s with 34 = %v", name, got)
		}
	}
	if marked {
		for _, dir := range []string{"/a", "/b", "/a/sub"} { // they are there: it is about their marks
			r.must("MKCOL", dir, "", "Fencing-Token", "34")
		}
	}
	if bad := g.broken(); bad != "" {
		t.Fatal(bad)
	}
	return g
}

// directories makes the collections, for whatever user the store runs as.
func (g *protected) directories() {
	for _, dir := range []string{"a", "a/sub", "b", "mine", "mine/sub"} {
		path := filepath.Join(g.root, dir)
		if info, err := os.Lstat(path); err == nil && !info.IsDir() {
			_ = os.Remove(path)
		}
		if err := os.MkdirAll(path, 0o777); err != nil {
			g.t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777); err != nil {
			g.t.Fatal(err)
		}
	}
	for _, name := range []string{"mine/f", "mine/sub/f"} {
		g.write(name, "stale")
	}
}

func (g *protected) write(name, content string) {
	path := filepath.Join(g.root, name)
	if info, err := os.Lstat(path); err == nil && info.IsDir() {
		_ = os.RemoveAll(path)
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		g.t.Fatal(err)
	}
}

// restore brings all back to where the attempts begin.
func (g *protected) restore() {
	if g.broken() == "" {
		if _, err := os.Stat(filepath.Join(g.root, "mine", "sub", "f")); err == nil {
			if _, err := os.Stat(filepath.Join(g.root, "mine", "f")); err == nil {
				return
			}
		}
	}
	g.directories()
	for _, name := range guardedFiles {
		g.write(name, fromB)
	}
}

// broken says what has changed, or "". It puts /mine back, which an admitted MOVE may have taken away.
func (g *protected) broken() string {
	for _, name := range guardedFiles {
		b, err := os.ReadFile(filepath.Join(g.root, name))
		if err != nil {
			return fmt.Sprintf("the store has lost /%s: %v", name, err)
		}
		if string(b) != fromB {
			return fmt.Sprintf("the store holds %q as /%s", b, name)
		}
	}
	if _, err := os.Stat(filepath.Join(g.root, "mine", "f")); err != nil {
		g.directories()
	} else if _, err := os.Stat(filepath.Join(g.root, "mine", "sub", "f")); err != nil {
		g.directories()
	}
	return ""
}

// holderGoesOn checks that nothing is left that hinders the holder of 34: no lock, no property, no mark above.
func (g *protected) holderGoesOn(r *rig) {
	g.t.Helper()
	for _, name := range guardedFiles {
		found := transmit(g.t, r.addr(), "PROPFIND", "/"+name, "", "Depth", "0")
		if strings.Contains(found.body, "33") && strings.Contains(found.body, "urn:s") || strings.Contains(found.body, "activelock") {
			g.t.Errorf("/%s after all that has %s; want neither a property nor a lock of a stale writer", name, found.body)
		}
		if got := r.must("PUT", "/"+name, fromB, "Fencing-Token", "34"); got.code/100 != 2 {
			g.t.Errorf("PUT /%s with 34 after all that = %v", name, got)
		}
		if got := r.must("DELETE", "/"+name, "", "Fencing-Token", "34"); got.code/100 != 2 {
			g.t.Errorf("DELETE /%s with 34 = %v", name, got)
		}
		if got := r.must("PUT", "/"+name, "from the dead", "Fencing-Token", "33"); got.code != 412 {
			g.t.Errorf("PUT /%s with 33 after the DELETE = %v; want 412: the mark outlives the object", name, got)
		}
	}
}
