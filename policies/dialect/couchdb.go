package dialect

import (
	"net/url"
	"slices"
	"strings"
)

// CouchDocument is the path of a document in Apache CouchDB: /{db}/{docid}, where the id of a design or local document begins with _design/
// or _local/, with the slash escaped or not. What follows belongs to the document: an attachment bumps its revision.
//
// It returns the segments of the document, and those that follow.
func CouchDocument(segments []string) (document, rest []string) {
	if len(segments) >= 3 && (segments[1] == "_design" || segments[1] == "_local") {
		segments = append([]string{segments[0], segments[1] + "/" + segments[2]}, segments[3:]...)
	}
	if len(segments) <= 2 {
		return segments, nil
	}
	return segments[:2], segments[2:]
}

// Requests below a database that only read, although they are sent with POST.
var couchReads = []string{
	"_all_docs", "_bulk_get", "_changes", "_design_docs", "_ensure_full_commit", "_explain", "_find", "_local_docs", "_missing_revs",
	"_partition", "_revs_diff",
}

// couchdb is the HTTP API of Apache CouchDB 3, as PouchDB Server speaks it too. That one leaves the slashes of a database's name away, so what
// is written to a%2Fb is fenced as a write to ab as well.
func couchdb(r *Request) (Effect, error) {
	e, err := couchRequest(r)
	if err != nil || e.Reads || e.Touch == Nothing || len(r.Segments) == 0 || flat(r.Segments[0]) == r.Segments[0] {
		return e, err
	}
	twin := Target{Path: "/" + escapeSegment(flat(r.Segments[0])), Tree: e.Touch > Container}
	if doc, _ := CouchDocument(r.Segments); e.Touch == Object && len(doc) > 1 {
		twin.Path += "/" + escapeSegment(doc[1])
	}
	e.Others = append(e.Others, twin)
	return e, nil
}

// flat is the name of a database as PouchDB Server reads it.
func flat(db string) string { return strings.ReplaceAll(db, "/", "") }

// couchRequest is couchdb for the database's name as it stands.
func couchRequest(r *Request) (Effect, error) {
	doc, rest := CouchDocument(r.Segments)
	switch {
	case len(doc) == 2 && strings.HasPrefix(doc[1], "_design/") && len(rest) > 0 && couchRuns(rest[0]):
		return couchDesign(r, doc, rest)
	case r.Method == "GET" || r.Method == "HEAD" || r.Method == "OPTIONS":
		return Effect{}, nil // only where a policy fences reads
	case len(doc) > 0 && !databaseName(doc[0]):
		return Effect{}, ambiguous("CouchDB has no database of that name, and other stores may take it for one of another name")
	case len(doc) == 0 || strings.HasPrefix(doc[0], "_") && doc[0] != "_users":
		if len(doc) == 1 && (r.Method == "POST" && doc[0] == "_dbs_info" || (r.Method == "POST" || r.Method == "DELETE") && doc[0] == "_session") {
			return Effect{Reads: true}, nil // a session is no data
		}
		return Effect{Touch: Anything, Reason: "it is addressed to the server, not to a database"}, nil
	case len(doc) == 1:
		return couchDatabase(r, doc[0])
	}
	name := doc[1]
	switch {
	case strings.HasPrefix(name, "_design/"):
		return couchDesign(r, doc, rest)
	case strings.HasPrefix(name, "_local/") || name == "" || name[0] != '_':
		return couchDocument(r, doc)
	case r.Method == "POST" && slices.Contains(couchReads, name):
		return Effect{Reads: true}, nil
	case r.Method == "POST" && name == "_bulk_docs":
		return couchBulk(doc[0], func(body []byte) ([]string, string) { return JSONStrings(body, []string{"docs", "[]", "_id"}) }), nil
	case r.Method == "POST" && name == "_purge":
		return couchBulk(doc[0], JSONNames), nil
	case name == "_security" || name == "_revs_limit" || name == "_purged_infos_limit" || name == "_compact" || name == "_view_cleanup":
		return Effect{Touch: Container, Reason: "it changes the database itself"}, nil
	}
	return Effect{Touch: Anything, Depth: 1, Reason: "it does not say which documents it changes"}, nil
}

// databaseName reports whether a database may have this name. CouchDB permits less: no upper case, no dot, a letter in front. PouchDB Server
// takes anything, and cuts off or takes out whatever file systems dislike: db%20, db. and d*b are db to it.
func databaseName(name string) bool {
	for seg := range strings.SplitSeq(name, "/") {
		if seg == "" || seg[0] == '.' || seg[len(seg)-1] == '.' {
			return false
		}
		for i := range len(seg) {
			switch c := seg[i]; {
			case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("_$()+-.", c) >= 0:
			default:
				return false
			}
		}
	}
	return len(name) <= 238 // CouchDB's own limit
}

func couchDatabase(r *Request, db string) (Effect, error) {
	switch r.Method {
	case "POST": // a document whose id is in the body
		return couchBulk(db, func(body []byte) ([]string, string) { return JSONStrings(body, []string{"_id"}) }), nil
	case "DELETE":
		return Effect{Touch: Tree, Reason: "it deletes every document of the database"}, nil
	}
	return Effect{Touch: Container, Reason: "it changes the database itself"}, nil
}

func couchDocument(r *Request, doc []string) (Effect, error) {
	dest, given, ok := single(r, "Destination")
	switch {
	case !ok:
		return Effect{}, ambiguous("the header Destination is given more than once")
	case r.Method != "COPY" && given:
		return Effect{}, ambiguous("the header Destination belongs to COPY")
	case r.Method != "COPY":
		return Effect{}, nil
	}
	id, _, _ := strings.Cut(dest, "?")
	if strings.Contains(id, "+") {
		return Effect{}, ambiguous("the Destination holds a raw +, which some versions of CouchDB read as a space (send %2B or %20)")
	}
	id, err := url.PathUnescape(strings.Trim(id, " \t"))
	if err != nil || id == "" || id[0] == '/' || strings.Contains(id, "://") {
		return Effect{}, ambiguous("the Destination of a COPY is the id of a document, and this is none")
	}
	return Effect{Touch: Nothing, Others: couchTargets(nil, doc[0], id)}, nil
}

// couchRuns reports whether a part of a design document is a function that may write, whatever the method.
func couchRuns(name string) bool { return name == "_update" || name == "_rewrite" }

// RunsFunction reports whether some reading of a raw path is a design function that may write although the method is a safe one: CouchDB
// runs _update on GET too.
func (n Name) RunsFunction(rawPath string) bool {
	if n != CouchDB {
		return false
	}
	for range 2 {
		if strings.Contains(rawPath, "_update") || strings.Contains(rawPath, "_rewrite") {
			return true
		}
		decoded, err := url.PathUnescape(rawPath)
		if err != nil || decoded == rawPath {
			return false
		}
		rawPath = decoded
	}
	return strings.Contains(rawPath, "_update") || strings.Contains(rawPath, "_rewrite")
}

func couchDesign(r *Request, doc, rest []string) (Effect, error) {
	if len(rest) == 0 {
		return couchDocument(r, doc)
	}
	switch name := rest[0]; {
	case r.Method == "POST" && slices.Contains([]string{"_view", "_search", "_nouveau", "_show", "_list"}, name):
		return Effect{Reads: true}, nil
	case name != "" && name[0] == '_':
		return Effect{Touch: Anything, Depth: 1, Reason: "a function of the design document decides what it changes"}, nil
	}
	return Effect{}, nil
}

// couchBulk is the effect of a request to a database whose body names the documents.
func couchBulk(db string, ids func([]byte) ([]string, string)) Effect {
	return Effect{Touch: Nothing, Body: func(body []byte) ([]Target, string) {
		names, reason := ids(body)
		if reason != "" {
			return nil, reason + "; the store would make up an id, or take another one"
		}
		out := make([]Target, 0, len(names))
		for _, id := range names {
			if id == "" {
				return nil, "it holds an empty id"
			}
			out = couchTargets(out, db, id)
		}
		return out, ""
	}}
}

// couchTargets appends a document, and what it is to a store that leaves the slashes of the database's name away.
func couchTargets(to []Target, db, id string) []Target {
	to = append(to, Target{Path: "/" + escapeSegment(db) + "/" + escapeSegment(id)})
	if other := flat(db); other != db {
		to = append(to, Target{Path: "/" + escapeSegment(other) + "/" + escapeSegment(id)})
	}
	return to
}
