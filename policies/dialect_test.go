package policies_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/fenceproxy/fenceproxy/policies"
)

// told is a decision in one line: the outcome, and what else the gate is told.
func told(d policies.Decision, body string) string {
	if d.NeedsBody {
		if err := d.ResolveBody([]byte(body)); err != nil {
			return kind(err)
		}
	}
	if d.Action == policies.Reject {
		return kind(d.Err)
	}
	text := outcome(d)
	for _, u := range d.Under {
		text += fmt.Sprintf(" under %s", u)
	}
	for _, tr := range d.Trees {
		text += fmt.Sprintf(" tree %s of %s", tr.Key, tr.Prefix)
		if tr.Empty {
			text += " if empty"
		}
	}
	return text
}

func kind(err error) string {
	if _, ok := errors.AsType[*policies.UnfenceableError](err); ok {
		return "unfenceable"
	}
	if _, ok := errors.AsType[*policies.BodyError](err); ok {
		return "body error"
	}
	if _, ok := errors.AsType[*policies.BatchError](err); ok {
		return "batch"
	}
	return outcome(policies.Decision{Action: policies.Reject, Err: err})
}

type dialectRow struct {
	line, want string
	headers    []string
	body       string
}

func runDialect(t *testing.T, config string, rows []dialectRow) {
	t.Helper()
	s := load(t, config).Policies
	for _, tt := range rows {
		t.Run(strings.ReplaceAll(tt.line+strings.Join(tt.headers, " "), "/", "_"), func(t *testing.T) {
			d := s.Decide(request(tt.line, append([]string{token34}, tt.headers...)...))
			if got := told(d, tt.body); got != tt.want {
				t.Errorf("%s %v %s\n got %s (%v)\nwant %s", tt.line, tt.headers, tt.body, got, d.Err, tt.want)
			}
		})
	}
}

func destination(path string) []string { return []string{"Destination: " + path} }

func TestWebDAV(t *testing.T) {
	const tree = " tree dav/a?tree of dav/a/"
	t.Run("subtree", func(t *testing.T) {
		runDialect(t, `
defaults: {dialect: webdav, collections: subtree}
policies:
  - {name: files, match: {path: "/dav/{rest...}"}, resource: "dav/{rest}"}
  - {name: repo, match: {path: "/git/{repo}/{rest...}"}, resource: "git/{repo}"}
  - {name: one, match: {path: "/one"}, resource: "one"}
`, []dialectRow{
			{line: "PUT /dav/a/b", want: "dav/a/b under dav/a?tree under dav?tree"},
			{line: "PUT /dav/a", want: "dav/a under dav?tree"},
			{line: "PUT /dav/a/", want: "dav/a under dav?tree"},
			{line: "PROPPATCH /dav/a/b", want: "dav/a/b under dav/a?tree under dav?tree"},
			{line: "LOCK /dav/a", want: "dav/a under dav?tree tree dav/a?tree of dav/a/"},
			{line: "UNLOCK /dav/a", want: "dav/a under dav?tree"},
			{line: "MKCOL /dav/a/", want: "dav/a under dav?tree"},
			{line: "PUT /dav/a", headers: []string{"Content-Range: bytes 0-1/9"}, want: "dav/a under dav?tree"},
			{line: "PROPFIND /dav/a", want: "pass"},
			{line: "REPORT /dav/a", want: "pass"},
			{line: "DELETE /dav/a", want: "dav/a under dav?tree" + tree},
			{line: "DELETE /dav/a/", want: "dav/a under dav?tree" + tree},
			{line: "DELETE /dav/%61", want: "dav/a under dav?tree" + tree},
			{line: "DELETE /dav", want: "dav/ tree dav?tree of dav/"},
			{line: "DELETE /", want: "unfenceable"},
			{line: "MOVE /dav/a", headers: destination("/dav/b/c"), want: "dav/a dav/b/c under dav/b?tree under dav?tree" + tree + " tree dav/b/c?tree of dav/b/c/"},
			{line: "COPY /dav/z", headers: destination("/dav/a"), want: "dav/a under dav?tree" + tree},
			{line: "COPY /dav/z", headers: destination("http://store.test:9000/dav/a"), want: "dav/a under dav?tree" + tree},
			{line: "COPY /dav/z", headers: destination("https://STORE.test.:9000/dav/%61"), want: "dav/a under dav?tree" + tree},
			{line: "COPY /dav/z", headers: destination("http://other.test/dav/a"), want: "unfenceable"},
			{line: "COPY /dav/z", headers: destination("http://store.test/dav/a"), want: "unfenceable"},
			{line: "COPY /dav/z", headers: destination("ftp://store.test:9000/dav/a"), want: "unfenceable"},
			{line: "COPY /dav/z", headers: destination("http://u@store.test:9000/dav/a"), want: "unfenceable"},
			{line: "COPY /dav/z", headers: destination("//store.test:9000/dav/a"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("/dav/./a"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("/dav%2Fa"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("/dav//a"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("/dav/a?x"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("/dav/a#x"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("dav/a"), want: "ambiguous"},
			{line: "COPY /dav/z", headers: destination("/elsewhere"), want: "unmatched"},
			{line: "COPY /dav/z", headers: []string{"Destination: /dav/a", "Destination: /dav/b"}, want: "ambiguous"},
			{line: "COPY /dav/z", want: "ambiguous"},
			{line: "PUT /dav/z", headers: destination("/dav/a"), want: "dav/a dav/z under dav?tree" + tree},
			{line: "COPY /elsewhere", headers: destination("/dav/a"), want: "dav/a under dav?tree" + tree},
			{line: "MOVE /git/r/x", headers: destination("/git/r/y"), want: "git/r"},
			{line: "DELETE /git/r", want: "git/r"},
			{line: "DELETE /git/r/objects", want: "git/r"},
			{line: "MOVE /git/r/x", headers: destination("/dav/a"), want: "dav/a git/r under dav?tree" + tree},
			{line: "DELETE /one", want: "one"},
			{line: "FROB /dav/a", want: "dav/a under dav?tree"},
			{line: "BIND /dav/a", want: "unfenceable"},
			{line: "BDELETE /git/r/x", want: "git/r"},
			{line: "PUT /dav/" + strings.Repeat("a/", 2000) + "f", want: "key"},
		})
	})
	t.Run("reject", func(t *testing.T) {
		runDialect(t, `
defaults: {dialect: webdav}
policies: [{name: files, match: {path: "/{rest...}"}, resource: "{path}"}]
`, []dialectRow{
			{line: "DELETE /a", want: "a tree a?tree of a/ if empty"},
			{line: "DELETE /a/", want: "unfenceable"},
			{line: "MOVE /a", headers: destination("/b/"), want: "unfenceable"},
			{line: "PUT /a/b/c", want: "a/b/c under a/b?tree under a?tree"},
			{line: "DELETE /", want: "unfenceable"},
		})
	})
	t.Run("keys without hierarchy", func(t *testing.T) {
		runDialect(t, `
defaults: {dialect: webdav}
policies:
  - {name: users, match: {path: "/home/{user}/mail/{rest...}"}, resource: "mail of {user}"}
  - {name: files, match: {path: "/home/{user}/{rest...}"}, resource: "{rest} of {user}"}
`, []dialectRow{
			{line: "PUT /home/u/x", want: "x of u"},
			{line: "DELETE /home/u/x", want: "unfenceable"},
			{line: "DELETE /home/u/mail/x", want: "mail of u"},
			{line: "DELETE /home/u", want: "unfenceable"},
			{line: "MOVE /home/u/mail/x", headers: destination("/home/u/mail/y"), want: "mail of u"},
			{line: "MOVE /home/u/mail/x", headers: destination("/home/u/y"), want: "unfenceable"},
		})
	})
	t.Run("unmatched writes pass", func(t *testing.T) {
		runDialect(t, `
defaults: {dialect: webdav, collections: subtree}
unmatched_writes: allow
policies: [{name: files, match: {path: "/top/dav/{rest...}"}, resource: "dav/{rest}"}]
`, []dialectRow{
			{line: "PUT /x", want: "pass"},
			{line: "DELETE /top", want: "unfenceable"},
			{line: "DELETE /", want: "unfenceable"},
			{line: "DELETE /other", want: "pass"},
			{line: "MOVE /top", headers: destination("/x"), want: "unfenceable"},
			{line: "COPY /x", headers: destination("/top/dav/a"), want: "dav/a under dav?tree tree dav/a?tree of dav/a/"},
			{line: "COPY /x", headers: destination("/top"), want: "unfenceable"},
			{line: "COPY /top/dav/a", headers: destination("/x"), want: "pass"},
		})
	})
	t.Run("policies that judge differently", func(t *testing.T) {
		runDialect(t, `
defaults: {dialect: webdav, collections: subtree}
policies:
  - {name: a, match: {path: "/a/{rest...}"}, resource: "{path}"}
  - {name: b, match: {path: "/b/{rest...}"}, resource: "{path}", compare: greater}
  - {name: c, match: {path: "/c/{rest...}"}, resource: "{path}"}
  - {name: d, match: {path: "/d/{rest...}"}, resource: "{path}", mode: "off"}
`, []dialectRow{
			{line: "MOVE /a/x", headers: destination("/b/x"), want: "unfenceable"},
			{line: "MOVE /a/x", headers: destination("/c/x"), want: "a/x c/x under a?tree under c?tree tree a/x?tree of a/x/ tree c/x?tree of c/x/"},
			{line: "MOVE /d/x", headers: destination("/c/x"), want: "c/x under c?tree tree c/x?tree of c/x/"},
			{line: "DELETE /d/x", want: "pass"},
		})
	})
}

func deletes(keys ...string) string {
	text := `<?xml version="1.0"?><Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>`
	for _, k := range keys {
		text += "<Object><Key>" + k + "</Key></Object>\n"
	}
	return text + "</Delete>"
}

func TestS3(t *testing.T) {
	runDialect(t, `
defaults: {dialect: s3, max_batch: 3, identity: {virtual_host_base: [s3.test]}}
policies:
  - {name: buckets, match: {path: "/{bucket}", methods: [PUT]}, resource: "bucket:{bucket}"}
  - {name: whole, match: {path: "/whole/{key...}"}, resource: "whole"}
  - {name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}
`, []dialectRow{
		{line: "PUT /b/k", want: "b/k"},
		{line: "PUT /b/d%2Fk", want: "b/d/k"},
		{line: "PUT /b/d/", want: "b/d/"},
		{line: "PUT /b//k", want: "ambiguous"},
		{line: "PUT /b/./k", want: "ambiguous"},
		{line: "PUT /b/k?acl", want: "b/k"},
		{line: "DELETE /b/k?acl", want: "b/k"},
		{line: "DELETE /b/k?%61cl&x=%zz", want: "b/k"},
		{line: "PUT /b/k?partNumber=1&uploadId=u", want: "b/k"},
		{line: "POST /b/k?uploads", want: "b/k"},
		{line: "POST /b/k?uploadId=u", want: "b/k"},
		{line: "POST /b/k?select&select-type=2", want: "pass"},
		{line: "POST /b/k?delete", want: "unfenceable"},
		{line: "POST /b/k?uploadId=u&select&select-type=2", want: "b/k"},
		{line: "POST /b/k?select&select-type=3", want: "b/k"},
		{line: "POST /b/k?select=1&select-type=2", want: "b/k"},
		{line: "POST /b/k?select&select-type=2&x=%zz", want: "b/k"},
		{line: "PUT /b/k?select&select-type=2", want: "b/k"},
		{line: "DELETE /b/d", headers: []string{"X-Minio-Force-Delete: true"}, want: "unfenceable"},
		{line: "PUT /b/x.tar", headers: []string{"X-Amz-Meta-Snowball-Auto-Extract: true"}, want: "unfenceable"},
		{line: "POST /b/k", headers: []string{"Content-Type: multipart/form-data; boundary=x"}, want: "unfenceable"},
		{line: "PUT /b/new", headers: []string{"X-Amz-Copy-Source: /b/k"}, want: "b/new"},
		{line: "PUT /b/new?renameObject", headers: []string{"X-Amz-Rename-Source: k"}, want: "b/k b/new"},
		{line: "PUT /b/new?renameObject", headers: []string{"X-Amz-Rename-Source: /b/k"}, want: "b/b/k b/k b/new"},
		{line: "PUT /b/new?renameObject", headers: []string{"X-Amz-Rename-Source: /"}, want: "ambiguous"},
		{line: "PUT /b", want: "bucket:b"},
		{line: "PUT /b/", want: "bucket:b"},
		{line: "DELETE /b", want: "unfenceable"},
		{line: "PUT /whole?lifecycle", want: "bucket:whole"},
		{line: "DELETE /whole", want: "whole"},
		{line: "POST /whole", headers: []string{"Content-Type: multipart/form-data; boundary=x"}, want: "whole"},
		{line: "POST /b", headers: []string{"Content-Type: multipart/form-data; boundary=x"}, want: "unfenceable"},
		{line: "POST /b?delete", body: deletes("k", "d/x", "k"), want: "b/d/x b/k"},
		{line: "POST /b/?x=1&%64elete=", body: deletes("a b%&amp;c"), want: "b/a b%25&c"},
		{line: "POST /b?delete", body: deletes("1", "2", "3", "4"), want: "batch"},
		{line: "POST /b?delete", body: deletes(), want: "body error"},
		{line: "POST /b?delete", body: deletes(""), want: "body error"},
		{line: "POST /b?delete", body: deletes("a<!-- -->b"), want: "body error"},
		{line: "POST /b?delete", body: deletes("a</Key><Key>b"), want: "body error"},
		{line: "POST /b?delete", body: deletes("a") + deletes("b"), want: "body error"},
		{line: "POST /b?delete", body: "<!DOCTYPE x>" + deletes("b"), want: "body error"},
		{line: "POST /b?delete", body: `<Delete><Object><key>a</key></Object></Delete>`, want: "body error"},
		{line: "POST /b?delete", body: `{}`, want: "body error"},
		{line: "POST /b?delete", body: deletes("../x"), want: "ambiguous"},
		{line: "POST /b?x=%zz", want: "ambiguous"},
		{line: "POST /b?intelligent-tiering", want: "unfenceable"},
		{line: "PUT /", want: "unfenceable"},
	})
	s := load(t, `
defaults: {dialect: s3, identity: {virtual_host_base: [s3.test]}}
policies: [{name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}]
`).Policies
	for host, want := range map[string]string{
		"bkt.s3.test": "bkt/f", "bkt.s3.test:9000": "bkt/f", "s3.test": "unfenceable", "127.0.0.1": "unfenceable",
		// Some stores find another bucket in these, or none.
		"BKT.s3.test": "ambiguous", "bkt.S3.TEST": "ambiguous", "bkt.s3.test.": "ambiguous", "bkt.s3.test.:9000": "ambiguous", "a.bkt.s3.test": "ambiguous",
		"bkt.s3.test:80": "ambiguous", "bkt.s3.test:443": "ambiguous",
		"B_T.s3.test": "ambiguous", ".s3.test": "ambiguous", "other.test": "unfenceable",
	} {
		r := request("PUT /f", token34)
		r.Host = host
		if got := told(s.Decide(r), ""); got != want {
			t.Errorf("PUT /f of host %s = %s; want %s", host, got, want)
		}
	}
}

func TestUploadSteps(t *testing.T) {
	const policy = `
policies: [{name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}", dialect: s3, upload_token: create, abort: allow}]
`
	s := load(t, policy).Policies
	for _, tt := range []struct {
		line       string
		token      bool
		id         string
		needs      bool
		remember   bool
		want, free string
	}{
		{"POST /b/k?uploads", true, "", false, true, "b/k", ""},
		{"POST /b/k?uploads", false, "", false, false, "missing", ""},
		{"PUT /b/k?partNumber=1&uploadId=u", false, "u", true, false, "b/k", ""},
		{"PUT /b/k?partNumber=1&uploadId=u", true, "u", false, false, "b/k", ""},
		{"POST /b/k?uploadId=u", false, "u", true, false, "b/k", ""},
		{"POST /b/k?uploadId=u&uploadId=v", false, "", false, false, "missing", ""},
		{"POST /b/k?uploadId=", false, "", false, false, "missing", ""},
		{"PUT /b/k?uploadId=u", false, "", false, false, "missing", ""},
		{"DELETE /b/k?uploadId=u", false, "u", false, false, "pass", "abort: allow"},
		{"DELETE /b/k?tagging&uploadId=u", false, "", false, false, "missing", ""},
		{"DELETE /b/k?uploadId=u&x-id=AbortMultipartUpload&X-Amz-Expires=9", false, "u", false, false, "pass", "abort: allow"},
		{"DELETE /b/k?uploadId=", false, "", false, false, "missing", ""},
		{"DELETE /b/k", false, "", false, false, "missing", ""},
	} {
		var headers []string
		if tt.token {
			headers = append(headers, token34)
		}
		d := s.Decide(request(tt.line, headers...))
		if got := told(d, ""); got != tt.want || d.Unfenced != tt.free {
			t.Errorf("%s with token %v = %s, unfenced %q; want %s, %q", tt.line, tt.token, got, d.Unfenced, tt.want, tt.free)
		}
		if tt.want != "b/k" {
			continue
		}
		if d.Upload == nil && tt.id == "" && !tt.remember {
			continue
		}
		if u := d.Upload; u == nil || u.ID != tt.id || u.NeedsToken != tt.needs || u.Remember != tt.remember || u.Object != "b/k" {
			t.Errorf("%s with token %v: upload %+v; want id %q, needs token %v, remember %v", tt.line, tt.token, u, tt.id, tt.needs, tt.remember)
		}
	}
}

func TestPresignedURLsCoverTheToken(t *testing.T) {
	s := load(t, `
policies:
  - name: objects
    match: {path: "/{bucket}/{key...}"}
    resource: "{bucket}/{key}"
    dialect: s3
    require_signed_token: true
    token: {from: [{header: x-amz-meta-token}, {query: token}]}
`).Policies
	const token = "X-Amz-Meta-Token: 34"
	for target, want := range map[string]string{
		"/b/k": "b/k",
		"/b/k?X-Amz-Signature=s&X-Amz-SignedHeaders=host":                                  "malformed",
		"/b/k?X-Amz-Signature=s&X-Amz-SignedHeaders=host%3Bx-amz-meta-token":               "b/k",
		"/b/k?x-amz-signature=s&x-amz-signedheaders=x-amz-meta-tokens":                     "malformed",
		"/b/k?Signature=s&AWSAccessKeyId=A&Expires=1&X-Amz-SignedHeaders=x-amz-meta-token": "malformed",
		"/b/k?X-Amz-SignedHeaders=x-amz-meta-token&X-Amz-Algorithm=AWS4-HMAC-SHA256":       "malformed",
		"/b/k?Signature=s&AWSAccessKeyId=A&Expires=1":                                      "malformed",
		"/b/k?X-Amz-Signature=%zz&X-Amz-SignedHeaders=host":                                "malformed",
		"/b/k?x=1;X-Amz-Signature=s":                                                       "malformed",
		"/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-SignedHeaders=x-amz-meta-token;host":  "malformed", // a raw semicolon
	} {
		if got := told(s.Decide(request("PUT "+target, token)), ""); got != want {
			t.Errorf("PUT %s = %s; want %s", target, got, want)
		}
	}
	if got := told(s.Decide(request("PUT /b/k?token=34&X-Amz-Signature=s&X-Amz-SignedHeaders=host")), ""); got != "b/k" {
		t.Errorf("a token in the signed query = %s; want b/k", got)
	}
	if got := told(s.Decide(request("PUT /b/k?token=34&Signature=s&AWSAccessKeyId=A")), ""); got != "malformed" {
		t.Errorf("a token in a query that version 2 does not sign = %s; want malformed", got)
	}
}

func TestCouchDB(t *testing.T) {
	runDialect(t, `
defaults: {dialect: couchdb, max_batch: 3}
policies:
  - {name: db, match: {path: "/{db}", methods: [PUT]}, resource: "db:{db}"}
  - {name: whole, match: {path: "/whole/{doc...}"}, resource: "whole"}
  - {name: docs, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}"}
`, []dialectRow{
		{line: "PUT /db/doc", want: "db/doc"},
		{line: "PUT /db//doc/", want: "db/doc"},
		{line: "PUT /db/a%2Fb", want: "db/a%2Fb"},
		{line: "PUT /db/doc/att/more", want: "db/doc"},
		{line: "DELETE /db/doc/att?rev=1", want: "db/doc"},
		{line: "PUT /db/_design/dd", want: "db/_design%2Fdd"},
		{line: "PUT /db/_design%2Fdd", want: "db/_design%2Fdd"},
		{line: "PUT /db/_design/dd/att", want: "db/_design%2Fdd"},
		{line: "PUT /db/_local/x", want: "db/_local%2Fx"},
		{line: "POST /db/_design/dd/_view/v", want: "pass"},
		{line: "PUT /db/_design/dd/_update/f/doc", want: "unfenceable"},
		{line: "GET /db/_design/dd/_update/f/doc", want: "unfenceable"},
		{line: "GET /db/_design%2Fdd/_%75pdate/f/doc", want: "unfenceable"},
		{line: "HEAD /db/_design/dd/_rewrite/x", want: "unfenceable"},
		{line: "GET /whole/_design/dd/_update/f/doc", want: "whole"},
		{line: "GET /db/_design/dd/_view/v", want: "pass"},
		{line: "GET /db/_updates", want: "pass"},
		{line: "GET /db/my_update", want: "pass"},
		{line: "GET /db/doc/_update", want: "pass"},
		{line: "GET /db/_design/dd/notes_update.txt", want: "pass"},
		{line: "PUT /db/a+b", want: "ambiguous"},
		{line: "PUT /db/a%2Bb", want: "db/a+b"},
		{line: "POST /db/_find", want: "pass"},
		{line: "POST /db/_all_docs/queries", want: "pass"},
		{line: "PUT /db/_find", want: "unfenceable"},
		{line: "POST /db/_index", want: "unfenceable"},
		{line: "PUT /db/_security", want: "unfenceable"},
		{line: "PUT /whole/_security", want: "whole"},
		{line: "POST /whole/_index", want: "whole"},
		{line: "DELETE /whole", want: "whole"},
		{line: "DELETE /db", want: "unfenceable"},
		{line: "PUT /db", want: "db:db"},
		{line: "POST /_replicate", want: "unfenceable"},
		{line: "PUT /_replicator/x", want: "unfenceable"},
		{line: "POST /_session", want: "pass"},
		// PouchDB Server takes all of these for db.
		{line: "PUT /d%2Fb/doc", want: "d%2Fb/doc db/doc"},
		{line: "PUT /d%2Fb/_design/dd/att", want: "d%2Fb/_design%2Fdd db/_design%2Fdd"},
		{line: "PUT /d%2Fb", want: "db/ db:d%2Fb db:db"},
		{line: "DELETE /d%2Fb", want: "unfenceable"},
		{line: "POST /d%2Fb/_find", want: "pass"},
		{line: "POST /d%2Fb", body: `{"_id":"doc"}`, want: "d%2Fb/doc db/doc"},
		{line: "COPY /d%2Fb/doc", headers: destination("other"), want: "d%2Fb/other db/other"},
		{line: "DELETE /wh%2Fole", want: "unfenceable"},
		{line: "PUT /%2Fdb/doc", want: "ambiguous"},
		{line: "PUT /db%2F/doc", want: "ambiguous"},
		{line: "PUT /db./doc", want: "ambiguous"},
		{line: "PUT /db%20/doc", want: "ambiguous"},
		{line: "PUT /d*b/doc", want: "ambiguous"},
		{line: "COPY /db/doc", headers: destination("other?rev=1-a"), want: "db/other"},
		{line: "COPY /db/doc", headers: destination("a/b"), want: "db/a%2Fb"},
		{line: "COPY /db/doc", headers: destination("_design/dd"), want: "db/_design%2Fdd"},
		{line: "COPY /db/doc", headers: destination("a+b"), want: "ambiguous"},
		{line: "COPY /db/doc", headers: destination("/db/other"), want: "ambiguous"},
		{line: "COPY /db/doc", headers: destination("http://store.test:9000/db/other"), want: "ambiguous"},
		{line: "COPY /db/doc", want: "ambiguous"},
		{line: "PUT /db/doc", headers: destination("x"), want: "ambiguous"},
		{line: "POST /db", body: `{"_id":"doc","x":1}`, want: "db/doc"},
		{line: "POST /db", body: `{"x":1}`, want: "body error"},
		{line: "POST /db", body: `{"_id":"a","_id":"b"}`, want: "body error"},
		{line: "POST /db/_bulk_docs", body: `{"new_edits":false,"docs":[{"_id":"a"},{"_id":"_design/d","_deleted":true}]}`, want: "db/_design%2Fd db/a"},
		{line: "POST /db/_bulk_docs", body: `{"docs":[{"_id":"a"},{}]}`, want: "body error"},
		{line: "POST /db/_bulk_docs", body: `{"docs":[]}`, want: "body error"},
		{line: "POST /db/_bulk_docs", body: `{"docs":[{"_id":"a"}],"Docs":[{"_id":"b"}]}`, want: "body error"},
		{line: "POST /db/_bulk_docs", body: `{"docs":[{"_id":"1"},{"_id":"2"},{"_id":"3"},{"_id":"4"}]}`, want: "batch"},
		{line: "POST /db/_purge", body: `{"a":["1-x"],"b":["2-y"]}`, want: "db/a db/b"},
		{line: "POST /db/_purge", body: `{"a":[],"a":[]}`, want: "body error"},
		{line: "POST /db/_revs_diff", want: "pass"},
		{line: "POST /db", headers: []string{"Content-Encoding: gzip"}, body: `{"_id":"doc"}`, want: "body error"},
		{line: "POST /db", headers: []string{"Content-Encoding: identity"}, body: `{"_id":"doc"}`, want: "db/doc"},
	})
	if got := load(t, `policies: [{name: p, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}", dialect: couchdb}]`).Policies.Policies()[0].StaleStatus; got != 409 {
		t.Errorf("stale_status of couchdb is %d; want 409", got)
	}
}

// TestReadsBesideCouchDB: what looks like one of its functions is a read like any other under a policy of another dialect.
func TestReadsBesideCouchDB(t *testing.T) {
	runDialect(t, `
policies:
  - {name: files, match: {path: "/files/{rest...}"}, resource: "{path}"}
  - {name: docs, match: {path: "/{db}/{doc...}"}, resource: "{db}/{doc}", dialect: couchdb}
`, []dialectRow{
		{line: "GET /files/_design/dd/_update/f", want: "pass"},
		{line: "GET /files//_update", want: "pass"},
		{line: "GET /db/_design/dd/_update/f", want: "unfenceable"},
		{line: "HEAD /db/_update", want: "pass"},
	})
}

func TestServletAndWindows(t *testing.T) {
	runDialect(t, `policies: [{name: p, match: {path: "/{rest...}"}, resource: "{path}", dialect: servlet}]`, []dialectRow{
		{line: "PUT /d/f;v=1", want: "d/f"},
		{line: "PUT /d;v=1/f", want: "d/f"},
		{line: "PUT /d/f", headers: destination("/d/g"), want: "unfenceable"},
	})
	runDialect(t, `policies: [{name: p, match: {path: "/{rest...}"}, resource: "{path}", dialect: windows}]`, []dialectRow{
		{line: "PUT /D/F.TXT", want: "d/f.txt"},
		{line: "PUT /d/f.", want: "ambiguous"},
		{line: "PUT /d/f%20", want: "ambiguous"},
		{line: "PUT /d/f::$DATA", want: "ambiguous"},
		{line: "PUT /d/PROGRA~1", want: "ambiguous"},
		{line: "PUT /d/a~b", want: "d/a~b"},
		{line: `PUT /d\f`, want: "ambiguous"},
	})
}

func TestListsInTheBody(t *testing.T) {
	runDialect(t, `
policies:
  - {name: items, match: {path: /orders}, resource: "item/{body.items[].id}", max_batch: 3}
  - {name: pairs, match: {path: /pairs}, resource: ["{body.tenant}/{body.items[].id}", "tenant/{body.tenant}"]}
  - {name: patch, match: {path: /doc}, resource: "doc{body[].path}"}
`, []dialectRow{
		{line: "POST /orders", body: `{"items":[{"id":1},{"id":"b"},{"id":1}]}`, want: "item/1 item/b"},
		{line: "POST /orders", body: `{"items":[]}`, want: "body error"},
		{line: "POST /orders", body: `{"items":[{"id":1},{}]}`, want: "body error"},
		{line: "POST /orders", body: `{"items":[{"id":1,"ID":2}]}`, want: "body error"},
		{line: "POST /orders", body: `{"items":{"id":1}}`, want: "body error"},
		{line: "POST /orders", body: `{"items":[{"id":1},{"id":2},{"id":3},{"id":4}]}`, want: "batch"},
		{line: "POST /pairs", body: `{"tenant":"t","items":[{"id":1},{"id":2}]}`, want: "t/1 t/2 tenant/t"},
		{line: "PATCH /doc", body: `[{"op":"move","path":"/a","from":"/b"},{"op":"remove","path":"/c"}]`, want: "doc%2Fa doc%2Fc"},
		{
			line: "PATCH /doc", headers: []string{"Content-Type: application/json-patch+json; charset=utf-8"},
			body: `[{"op":"move","path":"/a","from":"/b"},{"op":"remove","path":"/c"}]`, want: "doc%2Fa doc%2Fb doc%2Fc",
		},
	})
}

func TestMethodOverridesAreHonoured(t *testing.T) {
	runDialect(t, `
defaults: {method_override: honour}
policies:
  - {name: deletes, match: {path: "/r/{id}", methods: [DELETE]}, resource: "deletes/{id}"}
  - {name: writes, match: {path: "/r/{id}", methods: [POST, PUT, PATCH]}, resource: "r/{id}"}
  - {name: all, match: {path: "/s/{id}"}, resource: "s/{id}"}
  - {name: strict, match: {path: "/t/{id}"}, resource: "t/{id}", method_override: reject}
`, []dialectRow{
		{line: "POST /r/1", headers: []string{"X-Http-Method-Override: put"}, want: "r/1"},
		{line: "POST /r/1", headers: []string{"X-Http-Method-Override: DELETE"}, want: "ambiguous"},
		{line: "POST /s/1", headers: []string{"X-Http-Method-Override: DELETE"}, want: "s/1"},
		{line: "GET /s/1", headers: []string{"X-Http-Method-Override: DELETE"}, want: "refused"},
		{line: "PUT /s/1", headers: []string{"X-Http-Method-Override: SEARCH"}, want: "refused"},
		{line: "POST /s/1", headers: []string{"X-Http-Method-Override: GET"}, want: "s/1"},
		{line: "POST /s/1?_method=PUT", want: "s/1"},
		{line: "POST /s/1?_method=PUT&_method=DELETE", want: "refused"},
		{line: "POST /s/1?_Method=PUT", want: "refused"},
		{line: "POST /s/1", headers: []string{"X-Http-Method-Override: a b"}, want: "refused"},
		{line: "POST /t/1", headers: []string{"X-Http-Method-Override: DELETE"}, want: "refused"},
		{line: "POST /u/1", headers: []string{"X-Http-Method-Override: DELETE"}, want: "unmatched"},
	})
}

func TestStrip(t *testing.T) {
	s := load(t, `
policies:
  - name: state
    match: {path: "/state/{rest...}"}
    resource: "{path}"
    token: {from: [{query: fencing-token, strip: true}, {basic_user: true, pattern: '\+?fence-([0-9]+)$', strip: true}]}
`).Policies
	for _, tt := range []struct{ line, auth, target, sends string }{
		{"PUT /state/a?fencing-token=34", "", "/state/a", ""},
		{"GET /state/a?fencing-token=34", "", "/state/a", ""},
		{"PUT /state/%61?x=%20&fencing%2Dtoken=34&y", "", "/state/%61?x=%20&y", ""},
		{"PUT /state/a", "fence-34:", "", "-"},
		{"PUT /state/a", "fence-34:secret", "", ":secret"},
		{"PUT /state/a", "alice+fence-34:secret", "", "alice:secret"},
		{"PUT /state/a?x=1", "alice:secret", "", ""},
		{"GET /other?fencing-token=34", "", "", ""},
	} {
		var headers []string
		if tt.auth != "" {
			headers = append(headers, "Authorization: "+basic(tt.auth))
		}
		d := s.Decide(request(tt.line, headers...))
		target, sends := "", ""
		if d.Forward != nil {
			target = d.Forward.Target
			if a := d.Forward.Authorization; a != nil {
				sends = *a
			}
		}
		want := tt.sends
		switch {
		case want == "-":
			want = ""
			if d.Forward == nil || d.Forward.Authorization == nil {
				t.Errorf("%s as %s: the user name is kept", tt.line, tt.auth)
			}
		case want != "":
			want = basic(want)
		}
		if target != tt.target || sends != want {
			t.Errorf("%s as %s: forwards %q, %q; want %q, %q", tt.line, tt.auth, target, sends, tt.target, want)
		}
	}
}

func basic(user string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(user)) }

func TestDeletesAndRenamesWithTheBucketInTheHost(t *testing.T) {
	s := load(t, `
defaults: {dialect: s3, identity: {virtual_host_base: [s3.test]}}
policies: [{name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}"}]
`).Policies
	for _, tt := range []struct{ line, header, body, want string }{
		{"POST /?delete", "", deletes("d/k"), "bkt/d/k"},
		{"PUT /new?renameObject", "X-Amz-Rename-Source: d/k", "", "bkt/d/k bkt/new"},
	} {
		r := request(tt.line, token34)
		if name, value, ok := strings.Cut(tt.header, ": "); ok {
			r.Header.Set(name, value)
		}
		r.Host = "bkt.s3.test"
		if got := told(s.Decide(r), tt.body); got != tt.want {
			t.Errorf("%s = %s; want %s", tt.line, got, tt.want)
		}
	}
	s = load(t, `
defaults: {dialect: s3}
policies: [{name: all, match: {path: "/{rest...}"}, resource: "{path}"}, {name: b, match: {path: "/{bucket}"}, resource: "{path}"}]
`).Policies
	one, two := told(s.Decide(request("PUT /b", token34)), ""), told(s.Decide(request("PUT /b/", token34)), "")
	if one != two {
		t.Errorf("/b is %s and /b/ is %s; want one key", one, two)
	}
}

func TestADestinationIsRefusedInEveryOtherDialect(t *testing.T) {
	for _, name := range []string{"http", "s3", "servlet", "windows"} {
		s := load(t, "defaults: {dialect: "+name+"}\npolicies: [{name: p, match: {path: \"/{rest...}\"}, resource: \"{path}\"}]").Policies
		if got := told(s.Decide(request("COPY /a/b", token34, "Destination: /a/c")), ""); got != "unfenceable" {
			t.Errorf("%s: COPY with a Destination = %s; want unfenceable", name, got)
		}
	}
}

func TestPoliciesThatWouldShareATreeUnseen(t *testing.T) {
	s := load(t, `
defaults: {dialect: webdav, collections: subtree}
policies:
  - {name: trees, match: {path: "/dav/{rest...}", methods: [DELETE, MOVE, COPY]}, resource: "dav/{rest}"}
  - {name: writes, match: {path: "/dav/x/{rest...}"}, resource: "dav/x/{rest}"}
`).Policies
	if got := told(s.Decide(request("DELETE /dav/", token34)), ""); got != "unfenceable" {
		t.Errorf("DELETE above a policy that has the other methods = %s; want unfenceable", got)
	}
	ps := problems(t, head+`
policies:
  - {name: dav, match: {path: "/dav/{rest...}"}, resource: "dav/{rest}", dialect: webdav}
  - {name: api, match: {path: "/api/{rest...}"}, resource: "dav/{rest}"}
`, policies.Overrides{})
	if len(ps) == 0 || !strings.Contains(ps[0].Message, "in another dialect") {
		t.Errorf("two dialects for one key: %v; want a problem", ps)
	}
	one := load(t, `policies: [{name: p, match: {path: "/{rest...}"}, resource: "{path}", dialect: webdav}]`).Policies.Policies()[0].KeyFingerprint()
	two := load(t, `policies: [{name: p, match: {path: "/{rest...}"}, resource: "{path}"}]`).Policies.Policies()[0].KeyFingerprint()
	if one == two {
		t.Error("a policy that leaves the marks of collections behind has the same fingerprint")
	}
}
