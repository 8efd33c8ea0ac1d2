package dialect

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// deleteObjects reads the keys of a DeleteObjects request. The document is read token by token and strictly: where parsers could differ on
// which key is meant (two Key elements, one with a comment in it, an element that is not in the API) it is refused.
func deleteObjects(bucket string, body []byte) (out []Target, reason string) {
	p := deleteParser{dec: xml.NewDecoder(bytes.NewReader(body))}
	if reason = p.document(); reason != "" {
		return nil, reason
	}
	for _, key := range p.keys {
		out = append(out, Target{Path: "/" + bucket + "/" + escapePath(key)})
	}
	return out, ""
}

type deleteParser struct {
	dec  *xml.Decoder
	keys []string
}

const badXML = "it is not the XML of DeleteObjects"

// next returns the next token that is not white space.
func (p *deleteParser) next() (xml.Token, string) {
	for {
		tok, err := p.dec.Token()
		if errors.Is(err, io.EOF) {
			return nil, ""
		}
		if err != nil {
			return nil, badXML
		}
		switch t := tok.(type) {
		case xml.CharData:
			if strings.TrimSpace(string(t)) != "" {
				return nil, badXML + ": it holds text outside of its elements"
			}
		case xml.ProcInst:
			if t.Target != "xml" {
				return nil, badXML + ": it holds a processing instruction"
			}
		case xml.StartElement, xml.EndElement:
			return xml.CopyToken(tok), ""
		default:
			return nil, badXML + ": it holds a comment or a declaration"
		}
	}
}

func (p *deleteParser) document() string {
	tok, reason := p.next()
	if start, ok := tok.(xml.StartElement); reason != "" || !ok || start.Name.Local != "Delete" {
		return or(reason, badXML)
	}
	for {
		tok, reason := p.next()
		if reason != "" {
			return reason
		}
		switch t := tok.(type) {
		case xml.EndElement:
			if tok, reason := p.next(); tok != nil || reason != "" {
				return or(reason, badXML+": something follows its end")
			}
			if len(p.keys) == 0 {
				return "it names no key"
			}
			return ""
		case xml.StartElement:
			switch t.Name.Local {
			case "Object":
				if reason := p.object(); reason != "" {
					return reason
				}
			case "Quiet":
				if _, reason := p.text("Quiet"); reason != "" {
					return reason
				}
			default:
				return fmt.Sprintf("%s: the element %.40q is not known", badXML, t.Name.Local)
			}
		default:
			return badXML
		}
	}
}

func (p *deleteParser) object() string {
	key, found := "", false
	for {
		tok, reason := p.next()
		if reason != "" {
			return reason
		}
		switch t := tok.(type) {
		case xml.EndElement:
			if key == "" {
				return "it holds an object without a key"
			}
			p.keys = append(p.keys, key)
			return ""
		case xml.StartElement:
			text, reason := p.text(t.Name.Local)
			if reason != "" {
				return reason
			}
			switch t.Name.Local {
			case "Key":
				if found {
					return "it holds an object with two keys"
				}
				key, found = text, true
			case "VersionId", "ETag", "LastModifiedTime", "Size":
			default:
				return fmt.Sprintf("%s: the element %.40q is not known", badXML, t.Name.Local)
			}
		default:
			return badXML
		}
	}
}

// text returns the text of the element that was just opened.
func (p *deleteParser) text(name string) (string, string) {
	var b strings.Builder
	for {
		tok, err := p.dec.Token()
		if err != nil {
			return "", badXML
		}
		switch t := tok.(type) {
		case xml.CharData:
			b.Write(t)
		case xml.EndElement:
			return b.String(), ""
		default:
			return "", fmt.Sprintf("%s: the element %s holds more than text", badXML, name)
		}
	}
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
