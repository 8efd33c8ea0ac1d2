package proxy

import (
	"strconv"
	"unicode/utf8"
)

// Problem is the body of a refusal (RFC 9457).
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail"`
	Resource  string `json:"resource,omitempty"`
	Policy    string `json:"policy,omitempty"`
	Token     string `json:"token,omitempty"`
	Mark      string `json:"mark,omitempty"`
	Forwarded string `json:"forwarded"`
}

// append appends p as encoding/json would write it, indented by two spaces and without escapes for HTML. Refusing must stay cheap: a stale
// writer that does not stop repeats itself as fast as it is answered, and reflection was a tenth of what an answer cost.
func (p *Problem) append(b []byte) []byte {
	b = append(b, "{\n  \"type\": "...)
	b = appendJSONString(b, p.Type)
	b = append(b, ",\n  \"title\": "...)
	b = appendJSONString(b, p.Title)
	b = append(b, ",\n  \"status\": "...)
	b = strconv.AppendInt(b, int64(p.Status), 10)
	b = append(b, ",\n  \"detail\": "...)
	b = appendJSONString(b, p.Detail)
	for _, f := range [...]struct{ name, value string }{
		{"resource", p.Resource}, {"policy", p.Policy}, {"token", p.Token}, {"mark", p.Mark},
	} {
		if f.value != "" {
			b = append(b, ",\n  \""...)
			b = append(b, f.name...)
			b = append(b, "\": "...)
			b = appendJSONString(b, f.value)
		}
	}
	b = append(b, ",\n  \"forwarded\": "...)
	b = appendJSONString(b, p.Forwarded)
	return append(b, "\n}\n"...)
}

// appendJSONString appends s in quotes (RFC 8259 section 7). Bytes that are not UTF-8 become U+FFFD; the two line ends that JavaScript
// knows and JSON does not are escaped.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := 0 // what comes before it is in b
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= ' ' && c != '"' && c != '\\' {
				i++
				continue
			}
			b = append(b, s[from:i]...)
			switch c {
			case '"', '\\':
				b = append(b, '\\', c)
			case '\b':
				b = append(b, `\b`...)
			case '\f':
				b = append(b, `\f`...)
			case '\n':
				b = append(b, `\n`...)
			case '\r':
				b = append(b, `\r`...)
			case '\t':
				b = append(b, `\t`...)
			default:
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
			}
			i++
			from = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			b = append(b, s[from:i]...)
			b = append(b, `\ufffd`...)
			from = i + size
		case r == '\u2028' || r == '\u2029':
			b = append(b, s[from:i]...)
			b = append(b, '\\', 'u', '2', '0', '2', hex[r&0xf])
			from = i + size
		}
		i += size
	}
	return append(append(b, s[from:]...), '"')
}
