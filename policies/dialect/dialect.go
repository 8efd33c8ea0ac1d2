package dialect

import "net/http"

// Name is the dialect of a store.
type Name string

// The dialects. Servlet and Windows differ from HTTP in the spelling of paths only.
const (
	HTTP    Name = "http"
	S3      Name = "s3"
	WebDAV  Name = "webdav"
	CouchDB Name = "couchdb"
	Servlet Name = "servlet"
	Windows Name = "windows"
)

// Names lists the dialects, HTTP first.
func Names() []Name { return []Name{HTTP, S3, WebDAV, CouchDB, Servlet, Windows} }

// Request is what a dialect looks at. Nothing in it is changed.
type Request struct {
	Method   string
	Segments []string // of the path, decoded
	Query    string   // raw
	Host     string
	Header   http.Header // with canonical keys
}

// Touch is what a request does to the object of its own path.
type Touch uint8

const (
	Object    Touch = iota // it changes that object and no other
	Nothing                // it only reads it
	Container              // it changes the bucket or database as such, and no object in it
	Tree                   // it changes the object and everything beneath it
	Anything               // it changes objects below the first Effect.Depth segments that it does not name
)

// Effect is what a request does. The zero value is a write to the object of its path.
type Effect struct {
	Reads  bool // nothing is changed anywhere
	Touch  Touch
	Depth  int      // of Anything
	Others []Target // further objects that it changes
	// Body reads further targets from the body, or returns a clause that says why it cannot. Nil if the body names none.
	Body   func(body []byte) (others []Target, reason string)
	Upload *Upload // of S3's multipart uploads
	Reason string  // a clause that says why not, for Container, Tree and Anything
}

// Target is a further object of a request.
type Target struct {
	Path string // as in a request line, without query
	Tree bool   // everything beneath it too
}

// Upload is a step of an S3 multipart upload.
type Upload struct {
	ID      string // empty where it is created
	Creates bool   // CreateMultipartUpload: the answer holds the ID
	Ends    bool   // CompleteMultipartUpload or AbortMultipartUpload
	Aborts  bool   // AbortMultipartUpload: no object changes
}

// Refusal is the error for a request that has no effect which could be told. Ambiguous means that another spelling of it has one.
type Refusal struct {
	Ambiguous bool
	Reason    string // a clause
}

// Error is the reason.
func (e *Refusal) Error() string { return e.Reason }

func ambiguous(reason string) error { return &Refusal{Ambiguous: true, Reason: reason} }

// MaxBody is the size in bytes of the largest body in which [Effect.Body] looks for targets.
const MaxBody = 8 << 20

// Effect says what a request does. Its error is a [*Refusal].
func (n Name) Effect(r *Request) (Effect, error) {
	switch n {
	case S3:
		return s3(r)
	case WebDAV:
		return webdav(r)
	case CouchDB:
		return couchdb(r)
	}
	if len(r.Header["Destination"]) > 0 {
		return Effect{}, UnreadDestination(n)
	}
	return Effect{}, nil
}

// UnreadDestination is the refusal of a Destination header by a dialect that does not read it.
func UnreadDestination(n Name) error {
	return &Refusal{Reason: "the header Destination names a second resource, which the " + string(n) + " dialect does not know how to read; " +
		"set dialect: webdav, or copy and rename with a read and a write"}
}

// Plain reports whether every write without a Destination is one to the object of its path.
func (n Name) Plain() bool { return n == HTTP || n == Servlet || n == Windows }

// Hierarchical reports whether a write to a path of this dialect may change what lies beneath it, so that every write has to be told to
// the collections above it.
func (n Name) Hierarchical() bool { return n == WebDAV }
