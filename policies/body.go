package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

// MaxBodyKeyBytes is the size of the largest body from which a resource key is read.
const MaxBodyKeyBytes = 1 << 20

const maxBodyDepth = 256

// ResolveBody fills d.Resources from the JSON body of a request whose decision has NeedsBody. A field that is missing, empty,
// doubled or neither a string nor a whole number is a [*BodyError], never an empty or a guessed key. It does nothing where
// NeedsBody is false.
func (d *Decision) ResolveBody(body []byte) error {
	if !d.NeedsBody {
		return nil
	}
	bad := func(field, reason string) error {
		return &BodyError{Policy: d.Policy.Name, Field: field, Reason: reason}
	}
	switch {
	case len(body) > MaxBodyKeyBytes:
		return bad("", fmt.Sprintf("it is larger than %d bytes", MaxBodyKeyBytes))
	case len(bytes.TrimSpace(body)) == 0:
		return bad("", "it is empty")
	case !utf8.Valid(body) || !json.Valid(body):
		return bad("", "it is not valid JSON in UTF-8")
	}
	resources := append([]fencing.Resource(nil), d.known...)
	for _, wait := range d.pending {
		var key []byte
		for _, pt := range wait {
			if pt.kind != partBody {
				key = append(key, pt.text...)
				continue
			}
			w := bodyWalk{dec: json.NewDecoder(bytes.NewReader(body))}
			w.dec.UseNumber()
			value, reason := w.find(pt.field)
			if reason != "" {
				return bad("body."+strings.Join(pt.field, "."), reason)
			}
			key = appendEscaped(key, value)
		}
		r := fencing.Resource(key)
		if err := r.Check(); err != nil {
			return bad("", "the key that it gives is unusable: "+err.Error())
		}
		resources = append(resources, r)
	}
	d.Resources, d.NeedsBody = sorted(resources), false
	return nil
}

// bodyWalk reads one valid JSON document token by token.
type bodyWalk struct {
	dec   *json.Decoder
	depth int
}

// find returns the text of the field, or a clause that says why there is none. It reads on to the end of each object on the way,
// since a second key of the same name further down would be the one that most parsers take.
func (w *bodyWalk) find(field []string) (value, reason string) {
	tok, err := w.dec.Token()
	if err != nil {
		return "", "it is not valid JSON"
	}
	if len(field) == 0 {
		return scalar(tok)
	}
	if tok != json.Delim('{') {
		return "", "it is not there: " + kindOf(tok) + " stands where an object is expected"
	}
	if w.depth++; w.depth > maxBodyDepth {
		return "", "the body is nested too deeply"
	}
	reason = "it is missing"
	found := 0
	for w.dec.More() {
		name, err := w.dec.Token()
		if err != nil {
			return "", "it is not valid JSON"
		}
		key, _ := name.(string)
		if !strings.EqualFold(key, field[0]) {
			if r := w.skip(); r != "" {
				return "", r
			}
			continue
		}
		// Many parsers match names whatever their case, so "ID" beside "id" is a doubled name too.
		if found++; found > 1 {
			return "", fmt.Sprintf("the name %q is given twice, and parsers differ on which one counts", field[0])
		}
		if key != field[0] {
			reason = fmt.Sprintf("it is missing: %q is another name", clip(key))
			if r := w.skip(); r != "" {
				return "", r
			}
			continue
		}
		depth := w.depth
		if value, reason = w.find(field[1:]); reason != "" {
			return "", reason
		}
		w.depth = depth
	}
	if _, err := w.dec.Token(); err != nil {
		return "", "it is not valid JSON"
	}
	if reason != "" {
		return "", reason
	}
	return value, ""
}

// skip reads one value of any kind.
func (w *bodyWalk) skip() (reason string) {
	for level := 0; ; {
		tok, err := w.dec.Token()
		if err != nil {
			return "it is not valid JSON"
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			level++
		case json.Delim('}'), json.Delim(']'):
			level--
		}
		if w.depth+level > maxBodyDepth {
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
