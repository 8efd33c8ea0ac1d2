package policies

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Ways in which a store may read a path. A lenient reading is a combination of them.
const (
	readSlash     = 1 << iota // an encoded slash separates
	readBackslash             // so does a backslash
	readStrip                 // what follows ; in a segment is dropped
	readCut                   // the path ends at NUL or #
	readCollapse              // empty segments are dropped
	readResolve               // dot segments are resolved
	readEnd
)

// overlong undoes the two-byte forms in which old decoders accepted a slash and a dot.
var overlong = strings.NewReplacer("\xc0\xaf", "/", "\xc0\xae", ".")

// readings returns every way in which some store might read the raw path: not decoded, decoded once, decoded twice, and each
// option of reading above. They decide only which policy an ambiguous path might belong to, so too many are harmless and too few
// are not. Segments come back through loosen.
func readings(path string) [][]string {
	once := unescape(path)
	twice := unescape(once)
	var out [][]string
	seen := map[string]bool{}
	for level, text := range []string{path, once, twice} {
		if level > 0 && text == path || level == 2 && text == once {
			continue
		}
		text = overlong.Replace(text)
		for mask := range readEnd {
			if mask&readSlash != 0 && level == 0 ||
				mask&readBackslash != 0 && !strings.Contains(text, `\`) ||
				mask&readStrip != 0 && !strings.Contains(text, ";") ||
				mask&readCut != 0 && !strings.ContainsAny(text, "\x00#") ||
				mask&readCollapse != 0 && !strings.Contains(text, "//") && mask&(readBackslash|readStrip) == 0 ||
				mask&readResolve != 0 && !strings.Contains(text, ".") {
				continue
			}
			segs := read(path, level, mask)
			if key := strings.Join(segs, "\x00"); !seen[key] {
				seen[key] = true
				out = append(out, segs)
			}
		}
	}
	return out
}

func read(path string, level, mask int) []string {
	split := func(s string) []string {
		if mask&readBackslash != 0 {
			s = strings.ReplaceAll(s, `\`, "/")
		}
		return strings.Split(s, "/")
	}
	decode := func(s string) string {
		for range level {
			s = unescape(s)
		}
		if level > 0 {
			s = overlong.Replace(s)
		}
		return s
	}
	cut := func(s string) string {
		if i := strings.IndexAny(s, "\x00#"); i >= 0 && mask&readCut != 0 {
			return s[:i]
		}
		return s
	}
	var raw []string
	if mask&readSlash != 0 {
		raw = split(cut(decode(path)))
	} else {
		for _, s := range split(path) {
			d := decode(s)
			raw = append(raw, split2(d, mask)...)
			if cut(d) != d {
				raw[len(raw)-1] = cut(raw[len(raw)-1])
				break
			}
		}
	}
	return shape(raw[1:], mask)
}

// split2 splits at backslashes only, those that decoding brought out included.
func split2(s string, mask int) []string {
	if mask&readBackslash == 0 {
		return []string{s}
	}
	return strings.Split(s, `\`)
}

func shape(raw []string, mask int) []string {
	segs := make([]string, 0, len(raw))
	for i, s := range raw {
		if mask&readStrip != 0 {
			s, _, _ = strings.Cut(s, ";")
		}
		switch {
		case s == "" && (i == len(raw)-1 || mask&readCollapse != 0):
		case s == "." && mask&readResolve != 0:
		case s == ".." && mask&readResolve != 0:
			segs = segs[:max(len(segs)-1, 0)]
		default:
			segs = append(segs, loosen(s))
		}
	}
	return segs
}

// loosen folds case and normal form, the widest sense in which two segments may be one.
func loosen(s string) string { return norm.NFC.String(foldText(norm.NFC.String(s))) }
