package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// evidence is what the store says of itself.
type evidence struct {
	dav, s3, couch bool
	notes          []string
}

func (e *evidence) note(format string, args ...any) {
	e.notes = append(e.notes, fmt.Sprintf(format, args...))
}

// look learns what an answer tells about the store; the first that tells a kind is noted.
func (e *evidence) look(what string, got reply) {
	if v := got.header.Get("Dav"); v != "" && !e.dav {
		e.dav = true
		e.note("%s is answered with the header DAV: %s", what, clip(v))
	}
	if sign := s3Sign(got); sign != "" && !e.s3 {
		e.s3 = true
		e.note("%s is answered with %s", what, sign)
	}
	if couchAnswer(got.body) && !e.couch {
		e.couch = true
		e.note("%s is answered as CouchDB does", what)
	}
}

// s3Sign is what gives an S3 store away, or empty.
func s3Sign(got reply) string {
	for _, name := range []string{"x-amz-request-id", "x-amz-id-2"} {
		if got.header.Get(name) != "" {
			return "the header " + name
		}
	}
	has := func(text string) bool { return bytes.Contains(got.body, []byte(text)) }
	switch {
	case !bytes.HasPrefix(bytes.TrimSpace(got.body), []byte("<")):
	case got.status >= 400 && has("<Error>") && has("<Code>"):
		return "an S3 error"
	case has("<ListBucketResult") || has("<ListAllMyBucketsResult"):
		return "an S3 listing"
	}
	return ""
}

// couchAnswer reports whether a body is CouchDB's welcome or its form of an error.
func couchAnswer(body []byte) bool {
	var said struct {
		CouchDB string          `json:"couchdb"`
		Express string          `json:"express-pouchdb"`
		Error   json.RawMessage `json:"error"`
		Reason  json.RawMessage `json:"reason"`
	}
	return json.Unmarshal(body, &said) == nil && (said.CouchDB != "" || said.Express != "" || len(said.Error) > 0 && len(said.Reason) > 0)
}

// examine asks the store what it is, with requests that cannot write.
func (r *run) examine(ctx context.Context) (*evidence, error) {
	e := new(evidence)
	at := r.base + "/"
	for _, q := range []request{
		{method: http.MethodOptions, target: at},
		{method: http.MethodGet, target: "/"},
		{method: http.MethodGet, target: r.scratch},
	} {
		got, err := r.do(ctx, q)
		if err != nil {
			if ctx.Err() != nil {
				return e, ctx.Err()
			}
			return e, &SilentError{Method: q.method, Target: q.target, Err: err}
		}
		if fenced(got) {
			return e, ErrFenceproxy
		}
		e.look(q.method+" "+strings.Replace(q.target, r.scratch, r.base+"/(scratch)", 1), got)
	}
	return e, nil
}

// fenced reports whether an answer comes from a fenceproxy.
func fenced(got reply) bool { return got.header.Get("Fencing-Status") != "" }

// begin writes the first object, making folders if the store wants them, and finds out when it shows.
func (r *run) begin(ctx context.Context, e *evidence) error {
	if r.couch = e.couch; r.couch && (r.base == "" || strings.Count(r.base, "/") > 1) {
		return &ConfigError{Setting: "URL", Reason: "CouchDB keeps documents in databases, and the URL names none", Hint: "add the name of a database that the probe may use: http://HOST:5984/DATABASE"}
	}
	if e.s3 && r.base == "" {
		return &ConfigError{Setting: "URL", Reason: "an S3 store keeps objects in buckets, and the URL names none", Hint: "add the name of a bucket: http://HOST:9000/BUCKET"}
	}
	first, text := ref{target: r.path(r.fresh())}, r.text("A")
	got, err := r.put(ctx, first, text)
	if err != nil {
		return err
	}
	if fenced(got) { // reads pass through it without a trace
		return ErrFenceproxy
	}
	if !got.ok() && !r.couch && !e.s3 {
		for _, dir := range []string{r.scratch + "/", r.scratch + "/d/"} {
			made, err := r.ask(ctx, request{method: "MKCOL", target: dir}) // cleaned up as every folder is
			if err != nil {
				return err
			}
			r.folders = r.folders || made.ok()
		}
		if r.folders {
			e.note("a folder must be made with MKCOL before PUT")
			if got, err = r.put(ctx, first, text); err != nil {
				return err
			}
		}
	}
	e.look("PUT", got)
	if !got.ok() {
		return r.notTaken(first, got)
	}
	return r.measure(ctx, first, text, got)
}

// maxLate is how long the probe waits for a write to show.
const maxLate = 10 * time.Second

func (r *run) measure(ctx context.Context, at ref, text string, put reply) error {
	c := Check{ID: "visible", Shown: "GET right after PUT", Says: says(put)}
	answered := time.Now()
	for polls := 0; ; polls++ {
		now, err := r.get(ctx, at)
		if err != nil {
			return err
		}
		if now.text == text {
			if polls > 0 {
				r.late = max(time.Since(answered), 10*time.Millisecond)
			}
			break
		}
		if time.Since(answered) > min(maxLate, 2*r.timeout) {
			return r.notTaken(at, put)
		}
		if err := sleep(ctx, pollPause); err != nil {
			return err
		}
	}
	c.Verdict = "at once"
	if r.late > 0 {
		c.Verdict = fmt.Sprintf("after %s", r.late.Round(10*time.Millisecond))
	}
	r.report.Checks = append(r.report.Checks, c)
	r.report.late, r.report.async = r.late, put.status == http.StatusAccepted
	if r.report.async { // it promises nothing, so the next write may take longer than this one
		r.late = max(r.late, 100*time.Millisecond)
	}
	return nil
}

func (r *run) notTaken(at ref, got reply) error {
	e := &StoreError{Method: http.MethodPut, Target: at.target, Status: got.status, Body: gist(string(got.body))}
	switch got.status {
	case 0:
		return &SilentError{Method: e.Method, Target: e.Target, Err: fmt.Errorf("the connection ended")}
	case http.StatusUnauthorized, http.StatusForbidden:
		e.Hint = "give credentials that may write there: --user, --header 'Authorization: …', or --s3-key and --s3-secret"
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusConflict, http.StatusNotImplemented:
		e.Hint = "name a path below which the store takes PUT: an existing folder, bucket or database"
	}
	return e
}

// gist is what an error's body says: code and message of an S3 error, or its beginning.
func gist(body string) string {
	between := func(a, b string) string {
		_, rest, _ := strings.Cut(body, a)
		text, _, found := strings.Cut(rest, b)
		if !found {
			return ""
		}
		return text
	}
	if code := between("<Code>", "</Code>"); code != "" {
		return clip(code + ": " + between("<Message>", "</Message>"))
	}
	return clip(strings.TrimSpace(body))
}

// clip is the beginning of a text that the store sent.
func clip(s string) string {
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}

// says is an answer in a few words.
func says(got reply) string {
	if got.status == 0 {
		return "no answer"
	}
	text := fmt.Sprintf("%d %s", got.status, http.StatusText(got.status))
	return strings.TrimSpace(text)
}
