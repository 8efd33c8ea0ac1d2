package proxy

import (
	"bytes"
	"encoding/xml"
	"net/http"
	"strconv"

	"github.com/fenceproxy/fenceproxy/policies/dialect"
)

// in writes the problem as clients of a dialect expect an error to look, so that they show its text and do not take it for something else.
func (p *Problem) in(n dialect.Name, b []byte) (contentType string, body []byte) {
	switch n {
	case dialect.S3:
		return "application/xml", p.s3(b)
	case dialect.WebDAV:
		return "application/xml; charset=utf-8", p.webdav(b)
	case dialect.CouchDB:
		return "application/json", p.couchdb(b)
	}
	return "application/problem+json", p.append(b)
}

// text is title and detail, for formats that have room for one text.
func (p *Problem) text() string { return p.Title + ". " + p.Detail }

// s3 is the error document of https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html. SDKs show Code and Message. The codes are
// those that they take for final where the status is: ConditionalRequestConflict and OperationAborted, which say "send it again", are not
// among them.
func (p *Problem) s3(b []byte) []byte {
	code, ok := map[int]string{
		http.StatusBadRequest: "InvalidArgument", http.StatusUnauthorized: "FencingTokenUnauthorized", http.StatusForbidden: "AccessDenied", http.StatusMethodNotAllowed: "MethodNotAllowed",
		http.StatusRequestTimeout: "RequestTimeout", http.StatusConflict: "PreconditionFailed", http.StatusLengthRequired: "MissingContentLength",
		http.StatusPreconditionFailed: "PreconditionFailed", http.StatusRequestEntityTooLarge: "EntityTooLarge",
		http.StatusPreconditionRequired: "FencingTokenRequired", http.StatusServiceUnavailable: "ServiceUnavailable",
		http.StatusInsufficientStorage: "InsufficientStorage",
	}[p.Status]
	if !ok {
		code = "FencingProxyError"
	}
	b = append(b, xml.Header+"<Error>"...)
	for _, f := range [...]struct{ name, value string }{
		{"Code", code}, {"Message", p.text()}, {"Resource", p.Resource}, {"FencingStatus", p.Type}, {"FencingPolicy", p.Policy},
		{"FencingToken", p.Token}, {"FencingMark", p.Mark}, {"Forwarded", p.Forwarded},
	} {
		if f.value != "" {
			b = append(b, "<"+f.name+">"...)
			b = appendXML(b, f.value)
			b = append(b, "</"+f.name+">"...)
		}
	}
	return append(b, "</Error>\n"...)
}

// webdav is the error element of RFC 4918 section 14.5. What it holds is in a namespace of this program.
func (p *Problem) webdav(b []byte) []byte {
	b = append(b, xml.Header+`<D:error xmlns:D="DAV:" xmlns:F="urn:fenceproxy">`...)
	for _, f := range [...]struct{ name, value string }{
		{"type", p.Type}, {"description", p.text()}, {"resource", p.Resource}, {"policy", p.Policy}, {"token", p.Token}, {"mark", p.Mark},
		{"forwarded", p.Forwarded},
	} {
		if f.value != "" {
			b = append(b, "<F:"+f.name+">"...)
			b = appendXML(b, f.value)
			b = append(b, "</F:"+f.name+">"...)
		}
	}
	return append(b, "</D:error>\n"...)
}

// couchdb is the error object of Apache CouchDB, with the members of the problem behind its own.
func (p *Problem) couchdb(b []byte) []byte {
	kind, ok := map[int]string{
		http.StatusBadRequest: "bad_request", http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusMethodNotAllowed: "method_not_allowed",
		http.StatusConflict: "conflict", http.StatusPreconditionFailed: "precondition_failed", http.StatusPreconditionRequired: "precondition_required",
		http.StatusRequestEntityTooLarge: "too_large", http.StatusServiceUnavailable: "service_unavailable",
	}[p.Status]
	if !ok {
		kind = "fencing_proxy_error"
	}
	b = append(b, `{"error":`...)
	b = appendJSONString(b, kind)
	b = append(b, `,"reason":`...)
	b = appendJSONString(b, p.text())
	b = append(b, `,"status":`...)
	b = strconv.AppendInt(b, int64(p.Status), 10)
	for _, f := range [...]struct{ name, value string }{
		{"type", p.Type}, {"resource", p.Resource}, {"policy", p.Policy}, {"token", p.Token}, {"mark", p.Mark}, {"forwarded", p.Forwarded},
	} {
		if f.value != "" {
			b = append(b, `,"`+f.name+`":`...)
			b = appendJSONString(b, f.value)
		}
	}
	return append(b, "}\n"...)
}

// appendXML appends text with all that XML gives a meaning escaped, and what it does not allow replaced.
func appendXML(b []byte, text string) []byte {
	var buf bytes.Buffer
	_ = xml.EscapeText(&buf, []byte(text)) // a buffer takes everything
	return append(b, buf.Bytes()...)
}
