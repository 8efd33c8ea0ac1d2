package proxy

import (
	"bytes"
	"encoding/xml"
	"io"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// summary looks at the beginning of a store's answer while that goes by. S3 answers CompleteMultipartUpload and CopyObject with 200 before
// it knows how they end, keeps the connection alive with white space, and says in the body whether they failed
// (https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html).
type summary struct {
	head []byte // what follows leading white space, up to summaryLen bytes
}

// summary returns what looks at the answer to an S3 write, or nil: other stores say with the status how a write ended.
func (x *exchange) summary() *summary {
	if p := x.decision.Policy; p != nil && p.Dialect == dialect.S3 {
		return new(summary)
	}
	return nil
}

// look sees an answer that is there as a whole.
func (s *summary) look(body []byte) {
	if s != nil {
		_, _ = s.Write(body) // it takes everything
	}
}

// watch returns an answer at which s looks while it is read.
func (s *summary) watch(from io.ReadCloser) io.ReadCloser {
	if s == nil {
		return from
	}
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(from, s), from}
}

const summaryLen = 8 << 10

func (s *summary) Write(p []byte) (int, error) {
	n := len(p)
	if len(s.head) == 0 {
		p = bytes.TrimLeft(p, " \t\r\n")
	}
	s.head = append(s.head, p[:min(len(p), summaryLen-len(s.head))]...)
	return n, nil
}

// root returns the first element.
func (s *summary) root() (*xml.Decoder, string) {
	dec := xml.NewDecoder(bytes.NewReader(s.head))
	for {
		tok, err := dec.Token()
		if err != nil {
			return dec, ""
		}
		if start, ok := tok.(xml.StartElement); ok {
			return dec, start.Name.Local
		}
	}
}

// failed reports whether the answer is an error, whatever its status says.
func (s *summary) failed() bool {
	if s == nil {
		return false
	}
	_, name := s.root()
	return name == "Error"
}

// uploadID returns the UploadId of an InitiateMultipartUploadResult, or "".
func (s *summary) uploadID() string {
	if s == nil {
		return ""
	}
	dec, name := s.root()
	if name != "InitiateMultipartUploadResult" {
		return ""
	}
	for {
		tok, err := dec.Token()
		if err != nil {
			return ""
		}
		start, ok := tok.(xml.StartElement)
		if !ok || start.Name.Local != "UploadId" {
			continue
		}
		var id string
		if dec.DecodeElement(&id, &start) != nil {
			return ""
		}
		return id
	}
}
