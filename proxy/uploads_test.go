package proxy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// noteMap is a Notes in memory.
type noteMap map[string]string

func (m noteMap) Meta(name string) (string, bool, error) { v, ok := m[name]; return v, ok, nil }
func (m noteMap) SetMeta(name, value string) error       { m[name] = value; return nil }
func (m noteMap) DeleteMeta(name string) error           { delete(m, name); return nil }
func (m noteMap) MetaNames(prefix string) ([]string, error) {
	names := slices.Sorted(maps.Keys(m))
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) }), nil
}

func TestUploadsKeepTheirTokens(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	notes := noteMap{"p/other": "x"}
	u := &uploads{notes: notes, now: func() time.Time { return now }}
	want := fencing.Token{Epoch: 2, Hi: 7, Lo: 1<<63 + 5}
	if err := u.remember("b/k", "id 1", want); err != nil {
		t.Fatal(err)
	}
	if got, ok, err := u.token("b/k", "id 1"); got != want || !ok || err != nil {
		t.Errorf("token = %v, %v, %v; want %v", got, ok, err, want)
	}
	for _, other := range [][2]string{{"b/k", "id 2"}, {"b/k2", "id 1"}, {"b", "k\x00id 1"}} {
		if _, ok, err := u.token(fencing.Resource(other[0]), other[1]); ok || err != nil {
			t.Errorf("upload %q of %q has a token (%v); it was never created", other[1], other[0], err)
		}
	}
	now = now.Add(uploadLife + 25*time.Hour)
	if err := u.remember("b/new", "id", want); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := u.token("b/k", "id 1"); ok {
		t.Error("an upload that nobody ended is kept for ever")
	}
	if err := u.forget("b/new", "id"); err != nil {
		t.Fatal(err)
	}
	if len(notes) != 1 {
		t.Errorf("left: %v; want what is not of uploads alone", notes)
	}
	notes[u.name("b/old", "id")] = "0.34 2030-01-01T00:00:00Z" // as it was written before there were epochs
	if got, ok, err := u.token("b/old", "id"); got != fencing.Number(34) || !ok || err != nil {
		t.Errorf("token = %v, %v, %v; want 34", got, ok, err)
	}
	notes[u.name("b/bad", "id")] = "x/0.34 2030-01-01T00:00:00Z"
	if _, ok, err := u.token("b/bad", "id"); ok || err == nil {
		t.Errorf("a damaged epoch = %v, %v; want an error, which rejects", ok, err)
	}
	notes[u.name("b/bad", "id")] = "no token"
	if _, ok, err := u.token("b/bad", "id"); ok || err == nil || errors.Is(err, errTooLarge) {
		t.Errorf("a damaged note = %v, %v; want an error, which rejects", ok, err)
	}
}

func TestSummaryReadsTheRoot(t *testing.T) {
	const created = `<InitiateMultipartUploadResult xmlns="x"><Bucket>b</Bucket><Key>k</Key><UploadId> a&amp;b </UploadId></InitiateMultipartUploadResult>`
	for _, tt := range []struct {
		body, id string
		failed   bool
	}{
		{created, " a&b ", false},
		{`<?xml version="1.0"?>` + "\n" + created, " a&b ", false},
		{strings.Repeat(" \n", 9000) + `<?xml version="1.0"?><Error><Code>InternalError</Code></Error>`, "", true},
		{`<CompleteMultipartUploadResult><Error/></CompleteMultipartUploadResult>`, "", false},
		{`<!-- x --><Error/>`, "", true},
		{`{"Error":1}`, "", false},
		{``, "", false},
		{`<InitiateMultipartUploadResult><UploadId>` + strings.Repeat("x", 9000), "", false},
	} {
		var whole, pieces summary
		_, _ = whole.Write([]byte(tt.body))
		for i := range len(tt.body) {
			_, _ = pieces.Write([]byte(tt.body[i : i+1]))
		}
		for _, s := range []*summary{&whole, &pieces} {
			if s.failed() != tt.failed || s.uploadID() != tt.id {
				t.Errorf("%.60q: failed %v, id %q; want %v, %q", tt.body, s.failed(), s.uploadID(), tt.failed, tt.id)
			}
		}
	}
}

func TestProblemsInTheFormOfADialect(t *testing.T) {
	p := Problem{Type: "urn:fenceproxy:stale", Title: "The token is <stale>", Status: 412, Detail: "33 < 34 & \"x\".", Resource: "b/k\x01", Forwarded: "no"}
	for name, want := range map[string][]string{
		"http":    {"application/problem+json", `"title": "The token is <stale>"`},
		"s3":      {"application/xml", "<Code>PreconditionFailed</Code><Message>The token is &lt;stale&gt;. 33 &lt; 34 &amp; &#34;x&#34;.</Message><Resource>b/k\uFFFD</Resource>"},
		"webdav":  {"application/xml; charset=utf-8", `<D:error xmlns:D="DAV:" xmlns:F="urn:fenceproxy"><F:type>urn:fenceproxy:stale</F:type>`},
		"couchdb": {"application/json", `{"error":"precondition_failed","reason":"The token is <stale>. 33 < 34 & \"x\".","status":412,"type":"urn:fenceproxy:stale","resource":"b/k\u0001","forwarded":"no"}`},
		"servlet": {"application/problem+json", `"type": "urn:fenceproxy:stale"`},
	} {
		kind, body := p.in(dialect.Name(name), nil)
		if kind != want[0] || !strings.Contains(string(body), want[1]) {
			t.Errorf("%s: %s\n%s\nwant %s with %s", name, kind, body, want[0], want[1])
		}
	}
}
