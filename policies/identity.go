package policies

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// rule is the value of an identity option.
type rule string

const (
	reject    rule = "reject"
	literal   rule = "literal"
	resolve   rule = "resolve"
	collapse  rule = "collapse"
	same      rule = "same"
	distinct  rule = "distinct"
	separator rule = "separator"
	strip     rule = "strip"
	sensitive rule = "sensitive"
	fold      rule = "fold"
	asIs      rule = "as-is"
	nfcKey    rule = "nfc-key"
	nfcOnly   rule = "reject-non-nfc"
)

// identity says how the store reads the spelling of a path. It is not changed once compiled.
type identity struct {
	dots, empties, slash, encoded, params, letters, unicode rule
	query                                                   []string // sorted
	hosts                                                   []string // virtual_host_base, lower case, sorted

	// What no option names, since it belongs to the dialect.
	buckets   bool // the first segment is a bucket, with or without a slash behind it
	documents bool // the path ends at a CouchDB document: see dialect.CouchDocument
	dosNames  bool // trailing dots and spaces, colons and short names mean other files
}

// presets are the identities of the dialects, for the stores that were tried: see README.md.
func preset(n dialect.Name) identity {
	id := identity{dots: reject, empties: reject, slash: same, encoded: reject, params: literal, letters: sensitive, unicode: asIs}
	switch n {
	case dialect.S3:
		id.encoded, id.slash, id.buckets = separator, distinct, true
	case dialect.CouchDB:
		id.encoded, id.empties, id.documents = literal, collapse, true
	case dialect.Servlet:
		id.params = strip
	case dialect.Windows:
		id.letters, id.dosNames = fold, true
	}
	return id
}

// String lists the options; equal identities have equal texts.
func (id *identity) String() string {
	text := fmt.Sprintf("dot_segments=%s empty_segments=%s trailing_slash=%s encoded_slash=%s path_params=%s case=%s unicode=%s query_identity=%s",
		id.dots, id.empties, id.slash, id.encoded, id.params, id.letters, id.unicode, strings.Join(id.query, ","))
	if len(id.hosts) > 0 {
		text += " virtual_host_base=" + strings.Join(id.hosts, ",")
	}
	for _, extra := range []struct {
		on   bool
		text string
	}{{id.buckets, " buckets"}, {id.documents, " documents"}, {id.dosNames, " dos_names"}} {
		if extra.on {
			text += extra.text
		}
	}
	return text
}

// strictSlash reports whether a path with a trailing slash is another one than that without.
func (id *identity) strictSlash() bool { return id.slash == distinct }

// strict is strictSlash for the path c.
func (id *identity) strict(c canonicalPath) bool {
	return id.slash == distinct && !(id.buckets && len(c.segments) <= 1)
}

// MaxPathLen is the length in bytes of the longest raw path that a write may have. It is more than three times the longest key,
// so that a key made of escapes alone still fits.
const MaxPathLen = 16 << 10

// target is canonical for a whole request target, and the host where that names the bucket.
func (id *identity) target(path, query, host string, buf []string) (canonicalPath, string) {
	if len(id.hosts) > 0 {
		name := hostName(host)
		bucket, reason := id.bucket(name)
		if reason != "" {
			return canonicalPath{}, reason
		}
		if bucket != "" {
			if reason := spelledOddly(host, name, bucket); reason != "" {
				return canonicalPath{}, reason
			}
			path = "/" + bucket + path
		}
	}
	c, reason := id.canonical(path, buf)
	if reason == "" && strings.IndexByte(query, '#') >= 0 {
		reason = "the target holds a raw #"
	}
	return c, reason
}

// spelledOddly says why some stores would find no bucket, or another one, in a host that names one. name is how it is read here.
func spelledOddly(host, name, bucket string) string {
	rest, same := strings.CutPrefix(host, name)
	switch {
	case !same || strings.HasPrefix(rest, "."):
		return "the host names a bucket in capitals, or ends in a dot"
	case rest == ":80" || rest == ":443":
		return "the host names a bucket and a port that clients leave out"
	case strings.Contains(bucket, "."):
		return "the host names a bucket with a dot in it, which some stores cut there; name it in the path"
	}
	return ""
}

// bucket returns the name that stands before a virtual host base, or "".
func (id *identity) bucket(host string) (name, reason string) {
	for _, base := range id.hosts {
		name, found := strings.CutSuffix(host, "."+base)
		if !found {
			continue
		}
		// https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
		if len(name) < 3 || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains(name, "..") {
			return "", "the host does not name a bucket"
		}
		return name, ""
	}
	return "", ""
}

// canonical decodes a raw path once, segment by segment. The reason is a clause that says why the path is ambiguous, or empty.
// The order of the steps matters: separators are found before anything is decoded, so that an encoded slash cannot become one
// by accident; parameters are cut before dots are looked for, since "..;x" is ".." to a store that strips them.
func (id *identity) canonical(path string, buf []string) (c canonicalPath, reason string) {
	plain, reason := id.scan(path)
	if reason != "" {
		return c, reason
	}
	if !plain && id.encoded == separator {
		path = encodedSlash.Replace(path)
	}
	segs, last := buf, false
	for rest := path[1:]; !last; {
		raw := rest
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			raw, rest = rest[:i], rest[i+1:]
		} else {
			last = true
		}
		seg := raw
		if !plain || len(raw) > 0 && raw[0] == '.' {
			if seg, reason = id.segment(raw); reason != "" {
				return c, reason
			}
		}
		switch {
		case seg == "" && last:
			c.slash = true
		case seg == "" && id.empties == reject:
			return c, "the path holds an empty segment (//)"
		case seg == "" && id.empties == collapse:
		case seg == "." && id.dots == resolve:
			c.slash = last
		case seg == ".." && id.dots == resolve:
			if len(segs) == 0 {
				return c, "the path climbs above the root (..)"
			}
			segs, c.slash = segs[:len(segs)-1], last
		default:
			segs = append(segs, seg)
		}
	}
	c.segments = segs
	if id.documents {
		c.segments, c.beyond = dialect.CouchDocument(segs)
	}
	if len(segs) == 0 || id.slash == same || id.buckets && len(segs) == 1 {
		c.slash = false
	}
	if c.slash && id.slash == reject {
		return c, "the path ends in a slash"
	}
	return c, ""
}

var encodedSlash = strings.NewReplacer("%2F", "/", "%2f", "/")

// scan looks at the raw bytes. plain is true if every segment that does not start with a dot stands for itself.
func (id *identity) scan(path string) (plain bool, reason string) {
	if path == "" || path[0] != '/' {
		return false, "the target does not begin with /"
	}
	if len(path) > MaxPathLen {
		return false, fmt.Sprintf("the path is longer than %d bytes", MaxPathLen)
	}
	plain = id.letters == sensitive
	for i := 0; i < len(path); i++ {
		switch b := path[i]; {
		case b > '@' && b < '[', b >= 'a' && b <= 'z', b >= '/' && b <= '9', b == '-', b == '.', b == '_':
		case b <= ' ' || b == 0x7f:
			return false, "the path holds a raw space or control character"
		case b == '\\':
			return false, `the path holds a backslash`
		case b == '#':
			return false, "the target holds a raw #"
		case b == '%':
			plain = false
			if i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]) {
				return false, "the path holds a bad %-escape"
			}
			if path[i+1] == '2' && path[i+2]|0x20 == 'f' && id.encoded == reject {
				return false, "the path holds an encoded slash (%2F)"
			}
		case b == ';' || b == '+' || b >= 0x80:
			plain = false
		}
	}
	return plain, ""
}

// segment decodes one raw segment and brings it into the form that keys use.
func (id *identity) segment(raw string) (seg, reason string) {
	if id.documents && strings.Contains(raw, "+") {
		return "", "the path holds a raw +, which some versions of CouchDB read as a space (send %2B or %20)"
	}
	if head, _, found := strings.Cut(raw, ";"); found {
		switch id.params {
		case reject:
			return "", "the path holds a parameter (;)"
		case strip:
			raw = head
		default:
			if h := unescape(head); id.dots != literal && (h == "." || h == "..") {
				return "", "the path holds a dot segment with a parameter (..;)"
			}
		}
	}
	seg = unescape(raw)
	if id.params != literal && strings.Contains(seg, ";") {
		return "", "the path holds an encoded semicolon (%3B)"
	}
	if reason = badText(seg); reason != "" {
		return "", reason
	}
	if reason = id.dotted(seg); reason != "" {
		return "", reason
	}
	if id.dosNames {
		if reason = dosName(seg); reason != "" {
			return "", reason
		}
	}
	if id.unicode == nfcOnly && !norm.NFC.IsNormalString(seg) {
		return "", "the path is not in Unicode normal form C"
	}
	return id.normal(seg), ""
}

// normal applies the options on letters, which hold for query values too.
func (id *identity) normal(s string) string {
	if id.letters == fold {
		s = foldText(s)
	}
	if id.unicode == nfcKey {
		s = norm.NFC.String(s)
		if id.letters == fold { // composing can bring out a letter that folds
			s = norm.NFC.String(foldText(s))
		}
	}
	return s
}

// dotted looks for dot segments, also between literal slashes inside a segment: a store that cleans its paths after decoding
// would climb there.
func (id *identity) dotted(seg string) string {
	if id.dots == literal || !strings.Contains(seg, ".") {
		return ""
	}
	const reason = "the path holds a dot segment (. or ..)"
	if seg == "." || seg == ".." {
		if id.dots == resolve {
			return ""
		}
		return reason
	}
	if strings.Contains(seg, "/") {
		for part := range strings.SplitSeq(seg, "/") {
			if part == "." || part == ".." {
				return reason
			}
		}
	}
	return ""
}

// dosName says why Windows would open another file for a name, or that of a stream or a device of it.
func dosName(seg string) string {
	last := strings.TrimRight(seg, " .")
	switch {
	case seg == "" || seg == "." || seg == "..":
		return ""
	case last != seg:
		return "the path holds a segment that ends in a dot or a space"
	case strings.ContainsAny(seg, ":*?\"<>|"):
		return "the path holds a character that means something else to Windows"
	}
	for i := strings.IndexByte(seg, '~'); i >= 0 && i+1 < len(seg); {
		if seg[i+1] >= '0' && seg[i+1] <= '9' {
			return "the path may be a short name (~1)"
		}
		next := strings.IndexByte(seg[i+1:], '~')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return ""
}

func badText(s string) string {
	for i, r := range s {
		switch {
		case r == utf8.RuneError:
			if _, n := utf8.DecodeRuneInString(s[i:]); n <= 1 {
				return "the path is not valid UTF-8"
			}
		case r == '\\':
			return `the path holds an encoded backslash (%5C)`
		case unicode.IsControl(r):
			return "the path holds an encoded control character"
		}
	}
	return ""
}

func isHex(b byte) bool { return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'f' }

func unhex(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b | 0x20 - 'a' + 10
}

// unescape decodes %XX once and leaves bad escapes as they are.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			out = append(out, unhex(s[i+1])<<4|unhex(s[i+2]))
			i += 2
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

// foldText brings letters that differ only in case to one form. It goes through the smallest letter of the folding orbit, so that
// the long s and the Kelvin sign meet their plain forms too.
func foldText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			if 'A' <= r && r <= 'Z' {
				r += 'a' - 'A'
			}
			return r
		}
		low := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			low = min(low, next)
		}
		return unicode.ToLower(unicode.ToUpper(low))
	}, s)
}
