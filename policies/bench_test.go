package policies_test

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkDecide(b *testing.B) {
	var many strings.Builder
	many.WriteString("policies:\n")
	for i := range 100 {
		fmt.Fprintf(&many, "- {name: p%d, match: {path: '/p%d/{id}'}, resource: 'p%d/{id}'}\n", i, i, i)
	}
	for _, bb := range []struct{ name, config, target string }{
		{"simple", "policies: [{name: rides, match: {path: '/rides/{id}'}, resource: 'rides/{id}'}]", "/rides/7"},
		{"escaped", "policies: [{name: rides, match: {path: '/rides/{id}'}, resource: 'rides/{id}'}]", "/rides/a%20b%C3%A9"},
		{"builtin", "unmatched_writes: fence", "/bucket/some/longer/path/to/an/object.bin"},
		{"fold", "unmatched_writes: fence\ndefaults: {identity: {case: fold}}", "/Bucket/Some/Object.bin"},
		{"last of 100", many.String(), "/p99/7"},
		{"ambiguous in 100", many.String(), "/p99/%2e/7"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s := load(b, bb.config).Policies
			r := request("PUT "+bb.target, token34, "Content-Type: application/json", "User-Agent: curl/8", "Accept: */*", "Content-Length: 20")
			b.ReportAllocs()
			for b.Loop() {
				s.Decide(r)
			}
		})
	}
}

func BenchmarkResolveBody(b *testing.B) {
	s := load(b, "policies: [{name: p, match: {path: /x}, resource: '{body.order.id}'}]").Policies
	body := []byte(`{"customer":"acme","order":{"lines":[1,2,3],"id":"42"}}`)
	r := request("PUT /x", token34)
	b.ReportAllocs()
	for b.Loop() {
		d := s.Decide(r)
		if err := d.ResolveBody(body); err != nil {
			b.Fatal(err)
		}
	}
}
