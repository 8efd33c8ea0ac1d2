package probe

import (
	"strings"
	"unicode"
)

// foreignHost is a name that no store has (RFC 6761).
const foreignHost = "fenceproxy-probe.invalid"

// spelling is one row of the table: two ways to write a path, which some store takes for one object. dir is a raw path without a slash
// at its end, name a raw segment. Both ways stay below dir under any reading, and begin with name's first letter: CouchDB has no folders,
// so there the scratch prefix is the beginning of the name.
type spelling struct {
	id, shown string
	option    string                        // of identity; empty if none is about it
	plain     func(name string) string      // the plain name; nil for name itself
	spell     func(dir, name string) string // nil for the plain path
	flat      bool                          // it makes sense without folders, too

	absolute bool                     // sent in absolute form
	host     func(host string) string // another Host; nil for the right one; "" if there is none
}

func (s *spelling) paths(dir, name string) (plain, other string) {
	canonical := name
	if s.plain != nil {
		canonical = s.plain(name)
	}
	plain = dir + "/" + canonical
	if s.spell == nil {
		return plain, plain
	}
	return plain, s.spell(dir, name)
}

// spellings is the table. Where rows are about one thing, the plainest comes first.
func spellings() []spelling {
	after := func(text string) func(string, string) string {
		return func(dir, name string) string { return dir + "/" + name + text }
	}
	between := func(text string) func(string, string) string {
		return func(dir, name string) string { return dir + text + name }
	}
	plus := func(text string) func(string) string { return func(name string) string { return name + text } }
	return []spelling{
		{id: "dot", shown: "/d/./f.txt", option: "dot_segments", spell: between("/./")},
		{id: "dotdot", shown: "/d/x/../f.txt", option: "dot_segments", spell: between("/x/../")},
		{id: "encoded-dot", shown: "/d/%2e/f.txt", option: "dot_segments", spell: between("/%2e/")},
		{id: "encoded-dotdot", shown: "/d/x/%2e%2e/f.txt", option: "dot_segments", spell: between("/x/%2e%2e/")},
		{id: "encoded-climb", shown: "/d/x%2f..%2ff.txt", option: "dot_segments", spell: between("/x%2f..%2f")},
		{id: "empty", shown: "/d//f.txt", option: "empty_segments", spell: between("//"), flat: true},
		{id: "trailing-slash", shown: "/d/f.txt/", option: "trailing_slash", spell: after("/"), flat: true},
		{id: "encoded-slash", shown: "/d%2Ff.txt", option: "encoded_slash", spell: between("%2F")},
		{id: "escape", shown: "/d/f.tx%74", spell: func(dir, name string) string { return dir + "/" + encodeLast(name, "%") }, flat: true},
		{id: "hex-case", shown: "/d/f%7e for /d/f%7E", plain: plus("%7E"), spell: after("%7e"), flat: true},
		{id: "params", shown: "/d/f.txt;v=1", option: "path_params", spell: after(";v=1"), flat: true},
		{id: "folder-params", shown: "/d;v=1/f.txt", option: "path_params", spell: between(";v=1/")},
		{id: "query", shown: "/d/f.txt?x=1", spell: after("?x=1"), flat: true},
		{id: "case", shown: "/d/f.txT", option: "case", spell: func(dir, name string) string { return dir + "/" + flipLast(name) }, flat: true},
		{id: "nfd", shown: "/d/e%CC%81 for /d/%C3%A9", option: "unicode", plain: plus("%C3%A9"), spell: after("e%CC%81"), flat: true},
		{id: "backslash", shown: `/d\f.txt`, spell: between(`\`)},
		{id: "encoded-backslash", shown: "/d%5Cf.txt", spell: between("%5C")},
		{id: "trailing-dot", shown: "/d/f.txt.", spell: after("."), flat: true},
		{id: "trailing-space", shown: "/d/f.txt%20", spell: after("%20"), flat: true},
		{id: "double", shown: "/d/f.tx%2574", spell: func(dir, name string) string { return dir + "/" + encodeLast(name, "%25") }, flat: true},
		{id: "double-slash", shown: "/d%252Ff.txt", spell: between("%252F")},
		{id: "plus", shown: "/d/f+b for /d/f%20b", plain: plus("%20b"), spell: after("+b"), flat: true},
		{id: "absolute", shown: "http://(host)/d/f.txt", absolute: true, flat: true},
		{id: "absolute-foreign", shown: "http://(another)/d/f.txt", absolute: true, host: func(string) string { return foreignHost }, flat: true},
		{id: "host-foreign", shown: "Host: another", host: func(string) string { return foreignHost }, flat: true},
		{id: "host-case", shown: "Host: in capitals", host: capitals, flat: true},
		{id: "host-dot", shown: "Host: with a dot at its end", host: dotted, flat: true},
	}
}

// flatSlash is what takes the place of encoded-slash where a slash in a name is no folder, as in CouchDB: an encoded one belongs to the
// document's id, a plain one begins an attachment.
func flatSlash() spelling {
	return spelling{
		id: "encoded-slash", shown: "/d/f/b for /d/f%2Fb", option: "encoded_slash", flat: true,
		plain: func(name string) string { return name + "%2Fb" }, spell: func(dir, name string) string { return dir + "/" + name + "/b" },
	}
}

// encodeLast escapes the last byte of a segment.
func encodeLast(name, percent string) string {
	n := len(name) - 1
	if n >= 2 && name[n-2] == '%' { // it is an escape already
		return name
	}
	const digits = "0123456789ABCDEF"
	return name[:n] + percent + string(digits[name[n]>>4]) + string(digits[name[n]&15])
}

// flipLast changes the case of the last letter; a name without one stays as it is.
func flipLast(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		c := name[i]
		if i >= 2 && name[i-2] == '%' || i >= 1 && name[i-1] == '%' {
			continue // part of an escape
		}
		if 'a' <= c|0x20 && c|0x20 <= 'z' {
			return name[:i] + string(c^0x20) + name[i+1:]
		}
	}
	return name
}

func capitals(host string) string {
	if up := strings.ToUpper(host); up != host && strings.ContainsFunc(host, unicode.IsLetter) {
		return up
	}
	return ""
}

func dotted(host string) string {
	name, port, found := strings.Cut(host, ":")
	if strings.HasPrefix(host, "[") || name == "" || strings.Trim(name, "0123456789.") == "" {
		return "" // an address
	}
	if found {
		return name + ".:" + port
	}
	return name + "."
}

// Verdict says whether two spellings name one object.
type Verdict string

const (
	Same    Verdict = "yes"       // a write in one spelling changes what the other one gives
	Other   Verdict = "no"        // two objects
	Refused Verdict = "refused"   // the store does not take the spelling
	Unclear Verdict = "unclear"   // accepted, and found nowhere; or no clean answer
	Untried Verdict = "not tried" // it does not apply to this store or this connection
)

// sighting is what the store held after a write of a under the plain spelling and one of b under the other.
type sighting struct {
	a, b         string
	status       int     // the answer to the second write; 0 for none
	plain, other content // as read afterwards
}

// content is what a read gave.
type content struct {
	text  string
	there bool // the store gave an object
	clear bool // the store said that it has it, or that it has none
}

func (s sighting) verdict() Verdict {
	switch {
	case !s.plain.clear:
		return Unclear
	case !s.plain.there || s.plain.text != s.a:
		return Same // replaced, mixed or gone: the write reached it
	case s.other.there && s.other.text == s.b:
		return Other
	case s.status/100 != 2:
		return Refused
	}
	return Unclear
}
