package proxy_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/fenceproxy/fenceproxy/proxy"
)

// wantProblem is what encoding/json makes of p.
func wantProblem(t *testing.T, p proxy.Problem) string {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestProblemReadsLikeEncodingJSON(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for _, p := range []proxy.Problem{
		{},
		{Type: "urn:fenceproxy:stale", Title: "t", Status: 412, Detail: "d", Resource: "rides/7", Policy: "rides", Token: "33", Mark: "34", Forwarded: "no"},
		{Status: -1, Token: string(all)},
		{Resource: "ä€\U0001F680\u2028\u2029\ufffd\x7f\u00a0</script>&"},
		{Resource: "cut \xe2\x82", Policy: "lone \xff byte", Token: "surrogate \xed\xa0\x80", Mark: "overlong \xc0\xaf", Detail: "\xe2\x80"},
	} {
		if got, want := string(proxy.AppendProblem(p)), wantProblem(t, p); got != want {
			t.Errorf("%+v: got\n%s\nwant\n%s", p, got, want)
		}
	}
}

func FuzzProblemReadsLikeEncodingJSON(f *testing.F) {
	f.Add("rides/7", "33", 412)
	f.Add("\x00\b\f\n\r\t\"\\/<>&\u2028\u2029", "\xff\xc3\x28\xe2\x80", 0)
	f.Fuzz(func(t *testing.T, resource, token string, status int) {
		p := proxy.Problem{Type: token, Title: resource, Status: status, Detail: token, Resource: resource, Policy: token, Token: token, Mark: resource, Forwarded: "no"}
		if got, want := string(proxy.AppendProblem(p)), wantProblem(t, p); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}
