package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

const maxDepth = 256

const missing = "it is missing"

const notJSON = "it is not valid JSON in UTF-8"

// JSONStrings returns the values of a field of a JSON document: strings as they are, whole numbers as they are written. A part of the field
// that is "[]" stands for each element of a list. The reason is a clause that says why there is none; a name that is given twice in one
// object, in whatever case, is such a reason, since parsers differ on which one counts.
func JSONStrings(body []byte, field []string) (values []string, reason string) {
	w, reason := newWalk(body)
	if reason != "" {
		return nil, reason
	}
	reason = w.find(field, func(v string) { values = append(values, v) })
	if reason != "" {
		return nil, reason
	}
	if len(values) == 0 {
		return nil, "the list is empty"
	}
	return values, ""
}

// JSONNames returns the names of the object that a JSON document is.
func JSONNames(body []byte) (names []string, reason string) {
	w, reason := newWalk(body)
	if reason != "" {
		return nil, reason
	}
	if tok, _ := w.dec.Token(); tok != json.Delim('{') {
		return nil, "it is not an object"
	}
	w.depth++
	seen := map[string]bool{}
	for w.dec.More() {
		name, _ := w.dec.Token() // valid JSON has a string here
		text, _ := name.(string)
		if seen[text] {
			return nil, fmt.Sprintf("the name %q is given twice, and parsers differ on which one counts", clip(text))
		}
		seen[text] = true
		names = append(names, text)
		if reason := w.skip(); reason != "" {
			return nil, reason
		}
	}
	if len(names) == 0 {
		return nil, "it is an empty object"
	}
	return names, ""
}

// walk reads one valid JSON document token by token.
type walk struct {
	dec      *json.Decoder
	depth    int
	optional bool // a name that is not there is no reason
}

func newWalk(body []byte) (*walk, string) {
	switch {
	case len(bytes.TrimSpace(body)) == 0:
		return nil, "it is empty"
	case !utf8.Valid(body) || !json.Valid(body):
		return nil, notJSON
	}
	w := &walk{dec: json.NewDecoder(bytes.NewReader(body))}
	w.dec.UseNumber()
	return w, ""
}

// find gives the text of each value of the field to yield, or returns a clause that says why there is none. It reads on to the end of each
// object on the way, since a second key of the same name further down would be the one that most parsers take.
func (w *walk) find(field []string, yield func(string)) (reason string) {
	tok, err := w.dec.Token()
	if err != nil {
		return notJSON
	}
	if len(field) == 0 {
		value, reason := scalar(tok)
		if reason == "" {
			yield(value)
		}
		return reason
	}
	want := json.Delim('{')
	if field[0] == "[]" {
		want = '['
	}
	if tok != want {
		return "it is not there: " + kindOf(tok) + " stands where " + kindOf(want) + " is expected"
	}
	if w.depth++; w.depth > maxDepth {
		return "the body is nested too deeply"
	}
	if want == '[' {
		reason = w.each(field, yield)
	} else {
		reason = w.member(field, yield)
	}
	w.depth--
	if reason != "" {
		return reason
	}
	if _, err := w.dec.Token(); err != nil {
		return notJSON
	}
	return ""
}

func (w *walk) each(field []string, yield func(string)) string {
	for w.dec.More() {
		if reason := w.find(field[1:], yield); reason != "" {
			return reason
		}
	}
	return ""
}

func (w *walk) member(field []string, yield func(string)) string {
	reason := missing
	for found := 0; w.dec.More(); {
		name, err := w.dec.Token()
		if err != nil {
			return notJSON
		}
		key, _ := name.(string)
		if !strings.EqualFold(key, field[0]) {
			if r := w.skip(); r != "" {
				return r
			}
			continue
		}
		// Many parsers match names whatever their case, so "ID" beside "id" is a doubled name too.
		if found++; found > 1 {
			return fmt.Sprintf("the name %q is given twice, and parsers differ on which one counts", field[0])
		}
		if key != field[0] {
			reason = fmt.Sprintf("it is missing: %q is another name", clip(key))
			if r := w.skip(); r != "" {
				return r
			}
			continue
		}
		if r := w.find(field[1:], yield); r != "" {
			return r
		}
		reason = ""
	}
	if w.optional && reason == missing {
		return ""
	}
	return reason
}

// skip reads one value of any kind.
func (w *walk) skip() (reason string) {
	for level := 0; ; {
		tok, err := w.dec.Token()
		if err != nil {
			return notJSON
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			level++
		case json.Delim('}'), json.Delim(']'):
			level--
		}
		if w.depth+level > maxDepth {
			return "the body is nested too deeply"
		}
		if level == 0 {
			return ""
		}
	}
}

func scalar(tok json.Token) (value, reason string) {
	switch v := tok.(type) {
	case string:
		if v == "" {
			return "", "it is an empty string"
		}
		return v, ""
	case json.Number:
		digits := strings.TrimPrefix(v.String(), "-")
		if strings.Trim(digits, "0123456789") != "" || v == "-0" {
			return "", fmt.Sprintf("the number %s has more than one spelling; only whole numbers and strings can name a resource", clip(v.String()))
		}
		return v.String(), ""
	}
	return "", kindOf(tok) + " cannot name a resource; only strings and whole numbers can"
}

func kindOf(tok json.Token) string {
	switch tok.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case string:
		return "a string"
	case json.Number:
		return "a number"
	}
	if tok == json.Delim('[') {
		return "a list"
	}
	return "an object"
}

// clip shortens client text for a message.
func clip(s string) string {
	const limit = 200
	if len(s) > limit {
		return s[:limit] + "..."
	}
	return s
}

// JSONPatchPaths returns what the operations of a JSON Patch (RFC 6902) change: the path of each, and the from of those that move. The from
// of a copy is returned too: it is only read, and naming it costs a wait at most.
func JSONPatchPaths(body []byte) (paths []string, reason string) {
	paths, reason = JSONStrings(body, []string{"[]", "path"})
	if reason != "" {
		return nil, reason
	}
	w, _ := newWalk(body) // it was valid a moment ago
	w.optional = true
	reason = w.find([]string{"[]", "from"}, func(v string) { paths = append(paths, v) })
	if reason != "" {
		return nil, reason
	}
	return paths, ""
}
