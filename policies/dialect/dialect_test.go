package dialect_test

import (
	"encoding/xml"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

func request(method, path, query string) *dialect.Request {
	return &dialect.Request{
		Method: method, Segments: strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), Query: query, Host: "store.test", Header: http.Header{},
	}
}

// TestUnknownMethodsAreWrites: no dialect lets a method by that it does not know.
func TestUnknownMethodsAreWrites(t *testing.T) {
	for _, n := range dialect.Names() {
		for _, method := range []string{"FROB", "put", "get", "PATCH", "BIND", "VERSION-CONTROL", "PURGE"} {
			for _, path := range []string{"/", "/a", "/a/b", "/a/_b", "/_a/b", "/a/_find", "/_session", "/a/_design/d/_view/v"} {
				if e, err := n.Effect(request(method, path, "select&select-type=2")); err == nil && e.Reads {
					t.Errorf("%s: %s %s only reads", n, method, path)
				}
			}
		}
	}
}

// FuzzDeleteObjects: every key that a lenient reader finds in the document is among those that are fenced, or the document is refused.
func FuzzDeleteObjects(f *testing.F) {
	for _, s := range []string{
		`<Delete><Object><Key>a</Key></Object></Delete>`,
		`<?xml version="1.0" encoding="UTF-8"?><Delete xmlns="x"><Quiet>true</Quiet><Object><VersionId>v</VersionId><Key>a/b c</Key></Object></Delete>`,
		`<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>`,
		`<Delete><Object><Key>a<!-- x -->b</Key></Object></Delete>`,
		`<Delete><Object><Key><![CDATA[a&b]]></Key></Object></Delete>`,
		`<Delete><Object><Key>&#x2e;&#x2e;/a</Key></Object></Delete>`,
		`<Delete><Object><Key>a</Key></Object></Delete><Delete><Object><Key>b</Key></Object></Delete>`,
		`<a:Delete xmlns:a="x"><a:Object><a:Key>a</a:Key></a:Object></a:Delete>`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := dialect.S3.Effect(request("POST", "/b", "delete"))
		if err != nil || e.Body == nil {
			t.Fatalf("?delete has no body: %v", err)
		}
		targets, reason := e.Body(body)
		if reason != "" {
			if len(targets) > 0 {
				t.Fatalf("targets beside the reason %q", reason)
			}
			return
		}
		var lenient struct {
			Objects []struct {
				Key string `xml:"Key"`
			} `xml:"Object"`
		}
		if err := xml.Unmarshal(body, &lenient); err != nil {
			t.Fatalf("accepted what encoding/xml does not read: %v", err)
		}
		if len(targets) != len(lenient.Objects) {
			t.Fatalf("%d targets; a plain reader finds %+v", len(targets), lenient.Objects)
		}
		for i, tg := range targets {
			if got := unescape(strings.TrimPrefix(tg.Path, "/b/")); got != lenient.Objects[i].Key {
				t.Fatalf("target %q is %q; a plain reader finds %q", tg.Path, got, lenient.Objects[i].Key)
			}
		}
	})
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' {
			b.WriteByte(byte(strings.IndexByte("0123456789ABCDEF", s[i+1])<<4 | strings.IndexByte("0123456789ABCDEF", s[i+2])))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// FuzzJSONStrings: no document makes it panic, and values and a reason exclude each other.
func FuzzJSONStrings(f *testing.F) {
	for _, s := range []string{`{"docs":[{"_id":"a"},{"_id":"b"}]}`, `{"docs":[{"_id":"a","_ID":"b"}]}`, `{"docs":[]}`, `[{"docs":1}]`, `{"docs":[[{"_id":1}]]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		values, reason := dialect.JSONStrings(body, []string{"docs", "[]", "_id"})
		if (reason == "") == (len(values) == 0) || slices.Contains(values, "") {
			t.Fatalf("%q: values %q, reason %q", body, values, reason)
		}
		_, _ = dialect.JSONPatchPaths(body)
		_, _ = dialect.JSONNames(body)
	})
}
