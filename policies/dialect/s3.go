package dialect

import (
	"mime"
	"slices"
	"strings"
)

// s3 is Amazon's S3 API as its compatible stores speak it. A write to a key is a write to that object whatever its query: stores disagree
// on which sub-resources they know, and one that does not know ?acl overwrites the object.
func s3(r *Request) (Effect, error) {
	ps, ok := parameters(r.Query)
	has := func(name string) bool { _, found := ps[name]; return found }
	form := r.Method == "POST" && isForm(r)
	switch {
	case r.Method == "GET" || r.Method == "HEAD" || r.Method == "OPTIONS":
		return Effect{}, nil // only where a policy fences reads
	case len(r.Segments) == 0:
		return Effect{Touch: Anything, Reason: "it names no bucket"}, nil
	case form:
		return Effect{Touch: Anything, Depth: 1, Reason: "an upload by form names its object in the form"}, nil
	case len(r.Segments) == 1 && r.Method == "POST" && !ok:
		return Effect{}, ambiguous("the query holds a bad escape or a semicolon, so that it may delete objects or not")
	case len(r.Segments) == 1 && r.Method == "POST" && has("delete"):
		bucket := escapeSegment(r.Segments[0])
		return Effect{Touch: Nothing, Body: func(body []byte) ([]Target, string) { return deleteObjects(bucket, body) }}, nil
	case len(r.Segments) == 1 && r.Method == "POST":
		return Effect{Touch: Anything, Depth: 1, Reason: "a POST to a bucket may write any of its objects"}, nil
	case len(r.Segments) == 1:
		return Effect{Touch: Container, Reason: "it changes the bucket itself"}, nil
	case r.Method == "POST" && has("delete"):
		return Effect{Touch: Anything, Depth: 1, Reason: "?delete belongs to the bucket, and some stores read it there"}, nil
	case r.Method == "POST" && ok && selects(ps):
		return Effect{Reads: true}, nil
	}
	if name := widening(r); name != "" {
		return Effect{Touch: Anything, Depth: 1, Reason: "the header " + name + " makes it a write to objects that it does not name"}, nil
	}
	e := Effect{}
	var err error
	if e.Others, err = renameSource(r); err != nil {
		return Effect{}, err
	}
	if ok {
		e.Upload = upload(r, ps)
	}
	return e, nil
}

// selects reports whether a POST is SelectObjectContent, which only reads: the query is exactly that of the API, since a store that sees
// another request in it would write.
func selects(ps map[string][]string) bool {
	kind := ps["select-type"]
	return len(ps["select"]) == 1 && ps["select"][0] == "" && len(kind) == 1 && kind[0] == "2" && only(ps, "select", "select-type")
}

// only reports whether a query holds nothing but the names, what SDKs add (x-id), and a signature.
func only(ps map[string][]string, names ...string) bool {
	for name := range ps {
		if name != "x-id" && !strings.HasPrefix(strings.ToLower(name), "x-amz-") && !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

// widening returns a header with which MinIO deletes all that begins with the key, or unpacks the body into many objects; "" for none.
func widening(r *Request) string {
	for name := range r.Header {
		if low := strings.ToLower(name); strings.HasPrefix(low, "x-minio-force-delete") || strings.HasSuffix(low, "snowball-auto-extract") {
			return name
		}
	}
	return ""
}

func isForm(r *Request) bool {
	for _, v := range r.Header["Content-Type"] {
		kind, _, err := mime.ParseMediaType(v)
		if err != nil || strings.HasPrefix(kind, "multipart/") {
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(v)), "multipart/") {
				return true
			}
		}
	}
	return false
}

// upload returns the step of a multipart upload that the request is, or nil.
func upload(r *Request, ps map[string][]string) *Upload {
	ids := ps["uploadId"]
	switch {
	case r.Method == "POST" && len(ps["uploads"]) == 1 && len(ids) == 0:
		return &Upload{Creates: true}
	case len(ids) != 1 || ids[0] == "":
		return nil
	case r.Method == "PUT" && len(ps["partNumber"]) == 1:
		return &Upload{ID: ids[0]}
	case r.Method == "POST":
		return &Upload{ID: ids[0], Ends: true}
	case r.Method == "DELETE" && only(ps, "uploadId"):
		return &Upload{ID: ids[0], Ends: true, Aborts: true}
	}
	return nil
}

// renameSource returns the object that RenameObject takes away. Its header holds a key of the same bucket, with or without the bucket in
// front; where both can be read, both are fenced.
func renameSource(r *Request) ([]Target, error) {
	source, given, ok := single(r, "X-Amz-Rename-Source")
	switch {
	case !ok:
		return nil, ambiguous("the header x-amz-rename-source is given more than once")
	case !given:
		return nil, nil
	case strings.Trim(source, "/") == "" || strings.ContainsAny(source, "?#"):
		return nil, ambiguous("the header x-amz-rename-source names no key")
	}
	bucket := escapeSegment(r.Segments[0])
	source = strings.TrimPrefix(source, "/")
	out := []Target{{Path: "/" + bucket + "/" + source}}
	if rest, found := strings.CutPrefix(source, bucket+"/"); found && rest != "" {
		out = append(out, Target{Path: "/" + bucket + "/" + rest})
	}
	return out, nil
}
