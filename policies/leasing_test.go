package policies_test

import (
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

func TestWhichNamesTakeNoLease(t *testing.T) {
	const (
		seats  = `{name: seats, match: {path: "/seats/{id}"}, resource: "seats/{id}", compare: hold, token: {format: opaque}}`
		desks  = `{name: desks, match: {path: "/desks/{id}/{rest...}"}, resource: "desks/{id}", compare: hold, token: {format: opaque}}`
		puts   = `{name: puts, match: {path: "/puts/{id}", methods: [PUT]}, resource: "puts/{id}", compare: hold, token: {format: opaque}}`
		tree   = `{name: tree, match: {path: "/tree/{rest...}"}, resource: "{path}", compare: hold, token: {format: opaque}}`
		orders = `{name: orders, match: {path: /orders}, resource: "orders/{body.id}", compare: hold, token: {format: opaque}}`
		query  = `{name: query, match: {path: /q}, resource: "q/{query.id}", identity: {query_identity: [v]}, compare: hold, token: {format: opaque}}`
		raft   = `{name: raft, match: {path: "/raft/{id}"}, resource: "raft/{id}", token: {format: pair}}`
		zk     = `{name: zk, match: {path: "/zk/{id}"}, resource: "zk/{id}", token: {format: hex}}`
		rides  = `{name: rides, match: {path: "/rides/{id}"}, resource: "rides/{id}"}`
		all    = `{name: all, match: {path: "/{rest...}"}, resource: "{path}"}`
		rest   = `{name: rest, match: {path: "/{rest...}"}, resource: "{rest}"}`
		host   = `{name: host, match: {path: "/h/{id}", host: a.test}, resource: "h/{id}", compare: hold, token: {format: opaque}}`
		shelf  = `{name: shelf, match: {path: "/shelf/{kind}/{id}"}, resource: "{kind}/{id}"}`
		off    = `{name: off, match: {path: "/seats/{id}"}, resource: "seats/{id}", mode: off, compare: hold, token: {format: opaque}}`
	)
	for _, tt := range []struct {
		name, unmatched, policies string
		resource                  fencing.Resource
		want                      string // policy; "": a lease may be granted
	}{
		{"a hold", "reject", seats, "seats/7", "seats"},
		{"another resource", "reject", seats, "rides/7", ""},
		{"deeper than the template", "reject", seats, "seats/7/a", ""},
		{"not to the end", "reject", seats, "my-seats/7", ""},
		{"a slash within a value", "reject", seats, "seats/7%2Fa", "seats"},
		{"numbers", "reject", rides, "rides/7", ""},
		{"hexadecimal numbers", "reject", zk, "zk/7", ""},
		{"pairs", "reject", raft, "raft/7", "raft"},
		{"beside numbers", "reject", seats + ", " + rides, "seats/7", "seats"},
		{"by the body", "reject", orders, "orders/7", "orders"},
		{"by the query", "reject", query, "q/7?v=2", "query"},
		{"the whole path", "reject", tree, "tree/a/b", "tree"},
		{"the path of no policy", "reject", tree, "other/a", ""},
		{"a policy that is off", "reject", off, "seats/7", ""},
		{"numbers by another way", "reject", seats + ", " + shelf, "seats/7", ""},

		{"hidden from the built-in policy", "fence", seats, "seats/7", "seats"},
		{"hidden, with the rest of the path", "fence", desks, "desks/7", "desks"},
		{"the built-in policy's", "fence", seats, "rides/7", ""},
		{"another method goes to the built-in policy", "fence", puts, "puts/7", ""},
		{"no other method is fenced", "reject", puts, "puts/7", "puts"},
		{"another host goes to the built-in policy", "fence", host, "h/7", ""},
		{"a path that is refused", "fence", seats, "seats//7", ""},
		{"hidden from a catch-all", "reject", seats + ", " + all, "seats/7", "seats"},
		{"hidden from one by its rest", "reject", seats + ", " + rest, "seats/7", "seats"},
		{"behind a catch-all", "reject", all + ", " + seats, "seats/7", ""},
		{"a body that names the path of a catch-all", "reject", orders + ", " + all, "orders/7", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := load(t, "unmatched_writes: "+tt.unmatched+"\npolicies: ["+tt.policies+"]").Policies
			p := s.TakesNoLease(tt.resource)
			got := ""
			if p != nil {
				got = p.Name
			}
			if got != tt.want {
				t.Errorf("a lease on %s is refused because of %q; want %q", tt.resource, got, tt.want)
			}
		})
	}
}

// A client chooses the name; matching must not take longer than the name is long.
func TestLongNameIsMatchedInTime(t *testing.T) {
	var path, resource strings.Builder
	for i := range 26 {
		path.WriteString("/{a" + string(rune('a'+i)) + "}")
		resource.WriteString("{a" + string(rune('a'+i)) + "}")
	}
	s := load(t, `policies: [{name: p, match: {path: "`+path.String()+`"}, resource: "`+resource.String()+`x", compare: hold, token: {format: opaque}}]`).Policies
	if p := s.TakesNoLease(fencing.Resource(strings.Repeat("a", 4096))); p != nil {
		t.Errorf("refused because of %s", p.Name)
	}
}
