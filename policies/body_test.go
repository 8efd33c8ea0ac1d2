package policies_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

func TestResolveBody(t *testing.T) {
	deep := strings.Repeat(`{"x":`, 300) + "1" + strings.Repeat("}", 300)
	for _, tt := range []struct{ resource, body, want string }{
		{`"o/{body.order.id}"`, `{"order":{"id":"a/b%"},"z":[1,{"order":2}]}`, "o/a%2Fb%25"},
		{`"o/{body.order.id}"`, `{"order":{"id":42}}`, "o/42"},
		{`"o/{body.order.id}"`, `{"order":{"id":-42}}`, "o/-42"},
		{`"o/{body.order.id}"`, `{"order":{"id":12345678901234567890123}}`, "o/12345678901234567890123"},
		{`"o/{body.order.id}"`, `{"\u006frder":{"id":"\u0041"}}`, "o/A"},
		{`["{body.b}", "{body.a}", "fixed"]`, ` {"a":"1","b":"2"} `, "1 2 fixed"},
		{`["{body.a}", "{body.b}"]`, `{"a":"1","b":1}`, "1"},
		{`"{body.a}-{body.b}-{path}"`, `{"a":"1","b":"2"}`, "1-2-x"},
		{`"{body.id}"`, `{"id":1.0}`, "the number 1.0 has more than one spelling"},
		{`"{body.id}"`, `{"id":1e0}`, "more than one spelling"},
		{`"{body.id}"`, `{"id":-0}`, "more than one spelling"},
		{`"{body.id}"`, `{"id":""}`, "it is an empty string"},
		{`"{body.id}"`, `{"id":null}`, "null cannot name a resource"},
		{`"{body.id}"`, `{"id":true}`, "a boolean cannot"},
		{`"{body.id}"`, `{"id":["a"]}`, "a list cannot"},
		{`"{body.id}"`, `{"id":{"a":1}}`, "an object cannot"},
		{`"{body.id}"`, `{}`, "it is missing"},
		{`"{body.id}"`, `{"ID":1}`, `"ID" is another name`},
		{`"{body.id}"`, `{"id":1,"id":1}`, "given twice"},
		{`"{body.id}"`, `{"id":1,"ID":2}`, "given twice"},
		{`"{body.id}"`, `{"Id":1,"id":2}`, "given twice"},
		{`"{body.id}"`, `{"id":1,"i\u0064":2}`, "given twice"},
		{`"{body.a.id}"`, `{"a":{"id":1},"a":{}}`, "given twice"},
		{`"{body.a.id}"`, `{"a":[{"id":1}]}`, "a list stands where an object is expected"},
		{`"{body.a.id}"`, `{"a":"id"}`, "a string stands where an object"},
		{`"{body.id}"`, `["id"]`, "a list stands"},
		{`"{body.id}"`, `{"id":"\u0000"}`, "control character"},
		{`"{body.id}"`, `{"id":"` + strings.Repeat("a", 5000) + `"}`, "bytes long"},
		{`"{body.id}"`, "{\"id\":\"\xff\"}", "not valid JSON in UTF-8"},
		{`"{body.id}"`, `{"id":1}{"id":2}`, "not valid JSON"},
		{`"{body.id}"`, `{"id":1,}`, "not valid JSON"},
		{`"{body.id}"`, `{"id":01}`, "not valid JSON"},
		{`"{body.id}"`, "\ufeff{\"id\":1}", "not valid JSON"},
		{`"{body.id}"`, `id=1`, "not valid JSON"},
		{`"{body.id}"`, ``, "it is empty"},
		{`"{body.id}"`, `{"y":` + deep + `,"id":1}`, "nested too deeply"},
		{`"{body.id}"`, `{"id":1}` + strings.Repeat(" ", policies.MaxBodyKeyBytes), "larger than"},
	} {
		t.Run(tt.resource+tt.body[:min(len(tt.body), 60)], func(t *testing.T) {
			s := load(t, "policies: [{name: p, match: {path: /x}, resource: "+tt.resource+"}]").Policies
			d := s.Decide(request("POST /x", token34))
			if !d.NeedsBody || len(d.Resources) != 0 {
				t.Fatalf("decision %+v; want one that waits for the body", d)
			}
			err := d.ResolveBody([]byte(tt.body))
			if err != nil {
				_, large := errors.AsType[*policies.BatchError](err)
				_, bad := errors.AsType[*policies.BodyError](err)
				if !bad && !large || !strings.Contains(err.Error(), tt.want) || len(d.Resources) != 0 {
					t.Errorf("%v, resources %v; want a *BodyError with %q", err, d.Resources, tt.want)
				}
			} else if got := outcome(d); got != tt.want {
				t.Errorf("got %s; want %s", got, tt.want)
			}
		})
	}
}
