package policies_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/fenceproxy/fenceproxy/policies"
)

// options draws a set of identity options.
func options() *rapid.Generator[string] {
	pick := func(key string, values ...string) *rapid.Generator[string] {
		return rapid.Map(rapid.SampledFrom(values), func(v string) string { return key + ": " + v })
	}
	all := []*rapid.Generator[string]{
		pick("dot_segments", "reject", "resolve", "literal"), pick("empty_segments", "reject", "collapse", "literal"),
		pick("trailing_slash", "same", "distinct", "reject"), pick("encoded_slash", "reject", "separator", "literal"),
		pick("path_params", "literal", "strip", "reject"), pick("case", "sensitive", "fold"),
		pick("unicode", "as-is", "nfc-key", "reject-non-nfc"),
	}
	return rapid.Custom(func(t *rapid.T) string {
		out := make([]string, len(all))
		for i, g := range all {
			out[i] = g.Draw(t, "option")
		}
		return strings.Join(out, ", ")
	})
}

// respell escapes some bytes of a path in either hex case, which no store tells apart. Slashes and bytes with a meaning of their own
// are left alone.
func respell(t *rapid.T, path string) string {
	var b strings.Builder
	for i := 0; i < len(path); i++ {
		c := path[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 0x80 || c == '.' || c == '~'
		switch {
		case c == '%' && i+2 < len(path):
			esc := path[i : i+3]
			if rapid.Bool().Draw(t, "hex case") {
				esc = strings.ToLower(esc)
			}
			b.WriteString(esc)
			i += 2
		case letter && rapid.IntRange(0, 3).Draw(t, "escape") == 0:
			b.WriteString(fmt.Sprintf([]string{"%%%02x", "%%%02X"}[rapid.IntRange(0, 1).Draw(t, "case")], c))
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func TestHarmlessSpellingsShareAKey(t *testing.T) {
	segment := rapid.StringOfN(rapid.SampledFrom([]rune("ab.~é01%;+é")), 0, 6, -1)
	rapid.Check(t, func(t *rapid.T) {
		opts := options().Draw(t, "options")
		c, err := policies.Load("f", []byte(head+"unmatched_writes: fence\ndefaults: {identity: {"+opts+"}}"), policies.Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		var path strings.Builder
		for _, s := range rapid.SliceOfN(segment, 1, 4).Draw(t, "segments") {
			path.WriteString("/" + strings.ReplaceAll(s, "%", rapid.SampledFrom([]string{"%25", "%2F", "%2E", "%C3%A9", "%20"}).Draw(t, "escape")))
		}
		one, other := path.String(), respell(t, path.String())
		if !strings.Contains(opts, "trailing_slash: distinct") && !strings.Contains(opts, "trailing_slash: reject") && !strings.HasSuffix(one, "/") && !strings.HasSuffix(one, "%2F") && !strings.Contains(one, ";") && rapid.Bool().Draw(t, "slash") {
			other += "/"
		}
		other += rapid.SampledFrom([]string{"", "?", "?x=1", "?%zz", "?a;b"}).Draw(t, "query")
		a, b := outcome(c.Policies.Decide(request("PUT "+one, token34))), outcome(c.Policies.Decide(request("PUT "+other, token34)))
		if a != b {
			t.Fatalf("%s: %s gives %q, %s gives %q", opts, one, a, other, b)
		}
	})
}

func TestDecideNeverPanicsAndKeysAreValid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := options().Draw(t, "options")
		c, err := policies.Load("f", []byte(head+"unmatched_writes: "+rapid.SampledFrom([]string{"fence", "allow", "reject"}).Draw(t, "unmatched")+
			"\ndefaults: {identity: {"+opts+"}}\npolicies:\n- {name: a, match: {path: '/a/{x}', methods: [GET, PUT]}, resource: ['{x}', '{path}']}\n"+
			"- {name: b, match: {path: '/{y}/{z...}', query: {q: v}}, resource: '{z}', mode: observe}\n"), policies.Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		target := "/" + rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune(`a/.%25fFcC;\?#=&qv`)))).Draw(t, "target")
		r := request(rapid.SampledFrom([]string{"PUT", "GET", "OPTIONS", "x"}).Draw(t, "method")+" ", token34)
		r.Target = target
		d := c.Policies.Decide(r)
		for _, res := range d.Resources {
			if err := res.Check(); err != nil {
				t.Fatalf("%q: %v", target, err)
			}
		}
		if (d.Action == policies.Reject) != (d.Err != nil) || d.Err != nil && d.Err.Error() == "" || (d.Action == policies.Fence) != (len(d.Resources) > 0) {
			t.Fatalf("%q: inconsistent decision %+v", target, d)
		}
	})
}
