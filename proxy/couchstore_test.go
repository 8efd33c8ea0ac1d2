package proxy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/proxy/internal/storetest"
)

// TestNoSpellingPassesTheFenceOfACouchStore: with a mark of 34 on a document and on a design document, nothing that carries 33 changes either,
// in whatever spelling, by body, batch, copy, attachment or function. All attempts name the present revision, as a writer would that has
// just read it.
func TestNoSpellingPassesTheFenceOfACouchStore(t *testing.T) {
	const docs = `
defaults: {dialect: couchdb, in_doubt_hold: 300ms, drain_timeout: 5s}
policies: [{name: docs, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}"}]
`
	t.Parallel()
	if testing.Short() {
		t.Skip("some 2,000 requests to a slow store")
	}
	for _, p := range []struct{ name, yaml string }{
		{"by document", docs},
		{"by database", strings.Replace(docs, "{db}/{doc}\"}]", "{db}\"}]", 1)},
	} {
		t.Run(p.name, func(t *testing.T) {
			store := storetest.PouchDB(t)
			c := newCouch(t, store.Addr)
			r := newRig(t, store.URL, p.yaml)
			for _, id := range couchDocs {
				body := fmt.Sprintf(`{"_rev":%q,"v":%q}`, c.get(id).Rev, fromB)
				if got := transmit(t, r.addr(), "PUT", "/db/"+id, body, "Fencing-Token", "34", "Content-Type", "application/json"); got.code != 201 {
					t.Fatalf("PUT %s with 34 = %v", id, got)
				}
			}
			for i, a := range couchAttempts(r.addr(), c.revs()) {
				got := transmit(t, r.addr(), a.method, a.target, a.body, append([]string{"Fencing-Token", "33"}, a.header...)...)
				if s := got.header.Get("Fencing-Status"); s != "" && s != "admitted" && i%50 != 0 {
					continue // the proxy says that it forwarded nothing; now and then it is not believed: the store is slow
				}
				if bad := c.broken(); bad != "" {
					t.Fatalf("%v %s with 33 was answered %v, and (by now) %s", a, a.body, got, bad)
				}
			}
			if bad := c.broken(); bad != "" {
				t.Error(bad)
			}
		})
	}
	t.Run("directly", func(t *testing.T) {
		store := storetest.PouchDB(t)
		c := newCouch(t, store.Addr)
		reached := map[string]int{}
		sum := 0
		for i := 0; i < len(couchAttempts(store.Addr, [2]string{})); i += 11 { // the store is slow
			a := couchAttempts(store.Addr, c.revs())[i] // with the revisions of now
			transmitWithin(t, 5*time.Second, store.Addr, a.method, a.target, a.body, a.header...)
			if c.broken() != "" {
				reached[a.method]++
				sum++
				c.restore()
			}
		}
		t.Logf("%d attempts of those tried change a document when the store is reached directly: %v", sum, reached)
		if sum < 20 {
			t.Errorf("%d attempts change something directly; want at least 20, or the table is blunt", sum)
		}
	})
}

var couchDocs = []string{"a", "_design/d"}

// couch is a database seen from behind the proxy's back.
type couch struct {
	t    *testing.T
	addr string
}

type couchDoc struct {
	Rev         string `json:"_rev"`
	V           string
	Attachments map[string]any `json:"_attachments"`
}

func newCouch(t *testing.T, addr string) couch {
	c := couch{t, addr}
	c.restore()
	return c
}

func (c couch) get(id string) couchDoc {
	c.t.Helper()
	got := transmit(c.t, c.addr, "GET", "/db/"+id, "")
	var d couchDoc
	if got.code == 200 {
		if err := json.Unmarshal([]byte(got.body), &d); err != nil {
			c.t.Fatalf("GET %s = %v: %v", id, got, err)
		}
	}
	return d
}

func (c couch) revs() [2]string { return [2]string{c.get(couchDocs[0]).Rev, c.get(couchDocs[1]).Rev} }

// restore brings all back to where the attempts begin.
func (c couch) restore() {
	c.t.Helper()
	transmit(c.t, c.addr, "PUT", "/db", "")
	for id, v := range map[string]string{couchDocs[0]: fromB, couchDocs[1]: fromB, "mine": "stale"} {
		d := c.get(id)
		if d.V == v && len(d.Attachments) == 0 {
			continue
		}
		body := fmt.Sprintf(`{"v":%q}`, v)
		if d.Rev != "" {
			body = fmt.Sprintf(`{"v":%q,"_rev":%q}`, v, d.Rev)
		}
		if got := transmit(c.t, c.addr, "PUT", "/db/"+id, body, "Content-Type", "application/json"); got.code != 201 {
			c.t.Fatalf("PUT %s = %v", id, got)
		}
	}
}

// broken says what has changed, or "".
func (c couch) broken() string {
	c.t.Helper()
	for _, id := range couchDocs {
		if d := c.get(id); d.V != fromB || len(d.Attachments) > 0 {
			return fmt.Sprintf("the store holds %+v as %s", d, id)
		}
	}
	return ""
}

// couchAttempts are the requests that would change the documents, whose revisions are given.
func couchAttempts(host string, revs [2]string) []attempt {
	var all []attempt
	add := func(method, target, body string, header ...string) {
		if strings.HasPrefix(body, "{") || strings.HasPrefix(body, "[") {
			header = append(header, "Content-Type", "application/json")
		}
		all = append(all, attempt{method: method, target: target, body: body, header: header})
	}
	with := func(target, query string) string {
		switch {
		case strings.ContainsAny(target, "#"):
			return target
		case strings.Contains(target, "?"):
			return target + "&" + query
		}
		return target + "?" + query
	}
	for i, id := range couchDocs {
		rev := revs[i]
		spellings := append(spellingsOf("db", id, host), "/%2F%2fdb/"+id, "/db%2f/"+id, "/.%2fdb/"+id, "/db%2f./"+id, "/x%2f..%2fdb/"+id, "/db%2fx%2f../"+id, "/..%2fdb/"+id, "/%2e%2fdb/"+id, "/DB/"+id, "/db%00/"+id, "/db%20/"+id, "/%20db/"+id, "/db%09/"+id, "/db%C2%A0/"+id, "/db./"+id, "/%EF%BB%BFdb/"+id, "/%3Fdb/"+id, "/db%23/"+id, "/d%2Fb/"+id, "/d*b/"+id, "/d%2f%2fb/"+id, "/db../"+id, "/d:b/"+id, "/d%7Cb/"+id, "/db%80/"+id)
		if i == 1 {
			spellings = append(spellings, "/db/_design%2Fd", "/db/_design%2fd", "/db/%5Fdesign/d", "/db/%5fdesign%2Fd", "/db/_design//d", "/db//_design/d", "/db/_design/d/", "/db/_design/%64", "/db%2F_design%2Fd", "/db/_design/./d", "/db/_DESIGN/d")
		}
		for _, s := range spellings {
			add("PUT", s, fmt.Sprintf(`{"_rev":%q,"v":"stale"}`, rev))
			add("PUT", with(s, "rev="+rev), `{"v":"stale"}`)
			add("PUT", with(s, "new_edits=false"), `{"_rev":"9-ffffffffffffffffffffffffffffffff","v":"stale"}`)
			add("DELETE", with(s, "rev="+rev), "")
			add("DELETE", s, "", "If-Match", rev)
			add("POST", s, fmt.Sprintf(`{"_rev":%q,"v":"stale"}`, rev))
			if !strings.ContainsAny(s, "?#") {
				add("PUT", s+"/photo?rev="+rev, "stale", "Content-Type", "text/plain")
				add("DELETE", s+"/photo?rev="+rev, "")
			}
		}
		for _, d := range []string{id, "/" + id, "/db/" + id, "db/" + id, strings.ReplaceAll(id, "/", "%2F"), strings.ReplaceAll(id, "d", "%64"), "http://" + host + "/db/" + id, id + "/", "./" + id} {
			add("COPY", "/db/mine", "", "Destination", d+"?rev="+rev)
			add("COPY", "/db/mine", "", "Destination", d)
			add("COPY", "/d%2Fb/mine", "", "Destination", d+"?rev="+rev)
		}
		docs := []string{
			fmt.Sprintf(`{"_id":%q,"_rev":%q,"v":"stale"}`, id, rev), fmt.Sprintf(`{"_id":"mine","_id":%q,"_rev":%q,"v":"stale"}`, id, rev), fmt.Sprintf(`{"_id":%q,"_id":"mine","_rev":%q,"v":"stale"}`, id, rev),
			fmt.Sprintf(`{"\u005fid":%q,"_rev":%q,"v":"stale"}`, id, rev), fmt.Sprintf(`{"_ID":"mine","_id":%q,"_rev":%q,"v":"stale"}`, id, rev), fmt.Sprintf(`{"_id":%q,"_rev":%q,"_deleted":true}`, id, rev),
			fmt.Sprintf(`{"_id":"%s\u0000","_rev":%q,"v":"stale"}`, id, rev), fmt.Sprintf(`{"_id":["%s"],"_rev":%q,"v":"stale"}`, id, rev), fmt.Sprintf(`{"_id":%q,"_rev":"9-ffffffffffffffffffffffffffffffff","v":"stale"}`, id),
		}
		for _, doc := range docs {
			for _, target := range []string{"/db", "/db/", "//db", "/db//", "/%64b", "/db?new_edits=false", "/db?batch=ok", "/d%2Fb", "/db.", "/db%20"} {
				add("POST", target, doc)
			}
			for _, body := range []string{
				`{"docs":[` + doc + `]}`, `{"docs":[{"_id":"new","v":"x"},` + doc + `]}`, `{"new_edits":false,"docs":[` + doc + `]}`, `{"docs":[],"docs":[` + doc + `]}`, `{"docs":[` + doc + `],"docs":[]}`, `{"Docs":[{"_id":"mine"}],"docs":[` + doc + `]}`,
				`[` + doc + `]`, `{"\u0064ocs":[` + doc + `]}`,
			} {
				add("POST", "/db/_bulk_docs", body)
				add("POST", "/db/_bulk_docs?new_edits=false", body)
			}
			add("POST", "/db//_bulk_docs", `{"docs":[`+doc+`]}`)
			add("POST", "/d%2Fb/_bulk_docs", `{"docs":[`+doc+`]}`)
			add("POST", "/db%2F/_bulk_docs", `{"docs":[`+doc+`]}`)
			add("POST", "/db/%5fbulk_docs", `{"docs":[`+doc+`]}`)
			add("PUT", "/db/_bulk_docs", `{"docs":[`+doc+`]}`)
			add("POST", "/db/_bulk_docs", `{"docs":[`+doc+`]}`, "X-HTTP-Method-Override", "PUT")
		}
		add("POST", "/db/_purge", fmt.Sprintf(`{%q:[%q]}`, id, rev))
		add("POST", "/db/"+id, "", "X-HTTP-Method-Override", "DELETE", "If-Match", rev)
	}
	for _, target := range []string{"/db", "/db/", "//db", "/%64b", "/db?x", "/db//", "/d%2Fb", "/db.", "/db%20", "/%2Fdb"} {
		add("DELETE", target, "")
	}
	add("POST", "/_replicate", `{"source":"mine","target":"db"}`)
	add("POST", "/_replicate", fmt.Sprintf(`{"source":"http://%s/mine","target":"http://%s/db"}`, host, host))
	add("PUT", "/_replicator/x", `{"source":"mine","target":"db"}`)
	add("POST", "/db/_compact", `{}`)
	add("POST", "/db/_design/d/_update/f/a", "stale")
	add("PUT", "/db/_design/d/_update/f/a", "stale")
	add("PUT", "/db/_security", `{"admins":{"names":["stale"]}}`)
	add("POST", "/db/_revs_limit", "1")
	add("PUT", "/db/_revs_limit", "1")
	add("PUT", "/_config/admins/stale", `"x"`)
	add("PUT", "/db/_local/x", `{"v":"stale"}`)
	return all
}
