package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/fenceproxy/fenceproxy/tokenstore/fencing"
)

const s3YAML = `
defaults: {dialect: s3, token: {header: [Fencing-Token, x-amz-meta-fencing-token]}, in_doubt_hold: 300ms}
policies: [{name: objects, match: {path: "/{bucket}/{key...}"}, resource: "{bucket}/{key}", upload_token: create, abort: allow}]
`

// newS3 is an S3 server that asks for no signatures, with the bucket bkt, behind a proxy.
func newS3(t *testing.T, yaml string) *rig {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("bkt"); err != nil {
		t.Fatal(err)
	}
	return newRigWith(t, gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server(), yaml)
}

// TestS3WritesAreFencedAsTheirKey tries every way to change an object that a newer token has written.
func TestS3WritesAreFencedAsTheirKey(t *testing.T) {
	r := newS3(t, s3YAML)
	if got := r.must("PUT", "/bkt/d/k", "from B", "Fencing-Token", "34"); got.code != 200 {
		t.Fatalf("PUT with 34 = %v", got)
	}
	r.must("PUT", "/bkt/other", "mine", "Fencing-Token", "33")
	deletes := func(keys ...string) string {
		text := "<Delete>"
		for _, k := range keys {
			text += "<Object><Key>" + k + "</Key></Object>"
		}
		return text + "</Delete>"
	}
	for _, tt := range []struct {
		method, path, body string
		header             []string
		code               int
	}{
		{"PUT", "/bkt/d/k", "stale", nil, 412},
		{"PUT", "/bkt/d%2Fk", "stale", nil, 412},
		{"PUT", "/bkt/d%2fk?x-id=PutObject", "stale", nil, 412},
		{"PUT", "/bkt/%64/k", "stale", nil, 412},
		{"PUT", "/bkt//d/k", "stale", nil, 400},
		{"PUT", "/bkt/./d/k", "stale", nil, 400},
		{"PUT", "/bkt/x/../d/k", "stale", nil, 400},
		{"PUT", "/bkt/d/k?acl", "stale", nil, 412},
		{"PUT", "/bkt/d/k?tagging", "stale", nil, 412},
		{"PUT", "/bkt/d/k?torrent", "stale", nil, 412},
		{"PUT", "/bkt/d/k?versionId=1", "stale", nil, 412},
		{"DELETE", "/bkt/d/k", "", nil, 412},
		{"DELETE", "/bkt/d/k?acl", "", nil, 412},
		{"PUT", "/bkt/d/k", "", []string{"X-Amz-Copy-Source", "/bkt/other"}, 412},
		{"PUT", "/bkt/new?renameObject", "", []string{"X-Amz-Rename-Source", "/bkt/d/k"}, 412},
		{"POST", "/bkt?delete", deletes("other", "d/k"), nil, 412},
		{"POST", "/bkt/?%64elete=", deletes("d/k"), nil, 412},
		{"POST", "/bkt?delete", deletes("d/k<!-- -->"), nil, 400},
		{"POST", "/bkt", "--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nd/k\r\n--x--", []string{"Content-Type", "multipart/form-data; boundary=x"}, 403},
		{"DELETE", "/bkt", "", nil, 403},
		{"PUT", "/bkt?lifecycle", "x", nil, 403},
		{"POST", "/bkt/d/k?uploads", "", nil, 412},
	} {
		got := r.must(tt.method, tt.path, tt.body, append([]string{"Fencing-Token", "33"}, tt.header...)...)
		if got.code != tt.code || !strings.Contains(got.body, "<Error><Code>") || got.header.Get("Content-Type") != "application/xml" {
			t.Errorf("%s %s with 33 = %v; want %d and an S3 error", tt.method, tt.path, got, tt.code)
		}
		if now := r.must("GET", "/bkt/d/k", ""); now.body != "from B" {
			t.Fatalf("after %s %s with 33 the store holds %v; want B's bytes", tt.method, tt.path, now)
		}
		if now := r.must("GET", "/bkt/other", ""); now.body != "mine" {
			t.Fatalf("after %s %s with 33 the other object is %v: all or nothing", tt.method, tt.path, now)
		}
	}
	if got := r.must("POST", "/bkt?delete", deletes("d/k", "other"), "Fencing-Token", "35"); got.code != 200 {
		t.Errorf("DeleteObjects with 35 = %v", got)
	}
	for _, key := range []string{"d/k", "other"} {
		if got := r.must("GET", "/bkt/"+key, ""); got.code != 404 {
			t.Errorf("%s after DeleteObjects with 35 = %v; want 404", key, got)
		}
		if m := r.mark(fencing.Resource("bkt/" + key)); m != 35 {
			t.Errorf("mark of %s is %d; want 35", key, m)
		}
	}
}

var uploadIDPattern = regexp.MustCompile(`<UploadId>([^<]+)</UploadId>`)

// TestUploadTokenBindsTheStepsOfAnUpload: parts and the commit may come without a token, and are judged with that of the creation.
func TestUploadTokenBindsTheStepsOfAnUpload(t *testing.T) {
	r := newS3(t, s3YAML)
	create := func(token string) string {
		t.Helper()
		got := r.must("POST", "/bkt/k?uploads", "", "Fencing-Token", token)
		m := uploadIDPattern.FindStringSubmatch(got.body)
		if got.code != 200 || m == nil {
			t.Fatalf("create with %s = %v", token, got)
		}
		return m[1]
	}
	part := func(id, body string, header ...string) reply {
		return r.must("PUT", "/bkt/k?partNumber=1&uploadId="+id, body, header...)
	}
	complete := func(id, etag string) reply {
		return r.must("POST", "/bkt/k?uploadId="+id, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>"+etag+"</ETag></Part></CompleteMultipartUpload>")
	}
	a := create("33")
	first := part(a, "part of A")
	if first.code != 200 || first.header.Get("Fencing-Status") != "admitted" {
		t.Fatalf("part without a token = %v; want it admitted with that of the upload", first)
	}
	if got := part("nobody", "x"); got.code != 428 {
		t.Errorf("part of an upload that was never created = %v; want 428", got)
	}
	if got := r.must("PUT", "/bkt/k", "from B", "Fencing-Token", "34"); got.code != 200 {
		t.Fatalf("PUT with 34 = %v", got)
	}
	if got := complete(a, first.header.Get("ETag")); got.code != 412 {
		t.Errorf("completion of the upload of 33 after 34 = %v; want 412", got)
	}
	if got := r.must("GET", "/bkt/k", ""); got.body != "from B" {
		t.Fatalf("the store holds %v; want B's bytes", got)
	}
	if got := r.must("DELETE", "/bkt/k?uploadId="+a, ""); got.code/100 != 2 {
		t.Errorf("abort with a stale token, abort: allow = %v; want success", got)
	}
	b := create("35")
	second := part(b, "part of B")
	if got := complete(b, second.header.Get("ETag")); got.code != 200 {
		t.Fatalf("completion with 35 = %v", got)
	}
	if got := r.must("GET", "/bkt/k", ""); got.body != "part of B" {
		t.Errorf("the store holds %v; want B's part", got)
	}
	names, err := r.store.MetaNames("upload/")
	if err != nil || len(names) != 1 { // the aborted one passed unfenced, unseen; that of B has ended
		t.Errorf("uploads that are remembered: %v, %v; want that of A alone", names, err)
	}
}

// slowComplete answers as S3 does when a completion takes long: 200, white space, and then an error.
func slowComplete(body string, wait <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Query().Has("uploads") {
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>")
			return
		}
		w.WriteHeader(200)
		for range 3 {
			_, _ = io.WriteString(w, " \n")
			_ = http.NewResponseController(w).Flush()
		}
		<-wait
		_, _ = io.WriteString(w, body)
	})
}

// TestAnErrorInsideA200EndsNoUpload: the answer's status says success, its body does not.
func TestAnErrorInsideA200EndsNoUpload(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		left       int
	}{
		{"error", `<?xml version="1.0"?><Error><Code>InternalError</Code></Error>`, 1},
		{"success", `<CompleteMultipartUploadResult/>`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			wait := make(chan struct{})
			r := newRigWith(t, slowComplete(tt.body, wait), s3YAML)
			r.must("POST", "/bkt/k?uploads", "", "Fencing-Token", "33")
			done := make(chan reply, 1)
			go func() {
				got, _ := r.do("POST", "/bkt/k?uploadId=u1", "<x/>")
				done <- got
			}()
			eventually(t, "the completion is in flight", func() bool { return r.gate.Stats().InFlight == 1 })
			higher := make(chan reply, 1)
			go func() {
				got, _ := r.do("POST", "/bkt/k?uploads", "", "Fencing-Token", "34")
				higher <- got
			}()
			eventually(t, "the higher token waits for the end of the answer", func() bool { return r.gate.Stats().Waiting == 1 })
			close(wait)
			if got := <-done; got.code != 200 || !strings.HasSuffix(got.body, tt.body) {
				t.Errorf("completion = %v; want the store's own answer", got)
			}
			if got := <-higher; got.code != 200 {
				t.Errorf("the higher token = %v; want success", got)
			}
			names, err := r.store.MetaNames("upload/")
			if err != nil || len(names) != tt.left && len(names) != tt.left+1 { // u1 is created anew by the higher token
				t.Errorf("uploads that are remembered: %v, %v", names, err)
			}
			if failed := strings.Contains(r.logs.String(), "its body is an error"); failed != (tt.left == 1) {
				t.Errorf("the log says that the answer was an error: %v\n%s", failed, r.logs)
			}
		})
	}
}

// TestMetadataNamesKeepTheirCase: clients of S3 take the case of x-amz-meta-* for their own.
func TestMetadataNamesKeepTheirCase(t *testing.T) {
	long := strings.Repeat("v", 5000) // a head that does not fit into the buffer: names are written small
	for _, tt := range []struct{ name, head, want string }{
		{"own case", "x-amz-meta-fooBar: 1\r\nX-Amz-Meta-Other: 2\r\nETag: x\r\n", "x-amz-meta-fooBar: 1|X-Amz-Meta-Other: 2|Etag: x"},
		{"long", "x-amz-meta-foo: 1\r\nX-Long: " + long + "\r\n", "x-amz-meta-foo: 1"},
		{"folded end", "x-amz-meta-foo: 1\n", "x-amz-meta-foo: 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			up := rawUpstream(t, "HTTP/1.1 200 OK\r\n"+tt.head+"Content-Length: 2\r\n\r\nok")
			r := newRig(t, up, s3YAML)
			for _, request := range []string{
				"GET /bkt/k HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
				"PUT /bkt/k HTTP/1.1\r\nHost: x\r\nFencing-Token: 34\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
			} {
				conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
				_, _ = io.WriteString(conn, request)
				head, _, _ := strings.Cut(readAll(conn), "\r\n\r\n")
				conn.Close()
				for _, want := range strings.Split(tt.want, "|") {
					if !strings.Contains(head+"\r\n", "\r\n"+want+"\r\n") {
						t.Errorf("%.3s: no line %q in\n%.300s", request, want, head)
					}
				}
			}
		})
	}
}

func readAll(r io.Reader) string {
	b, _ := io.ReadAll(bufio.NewReader(r))
	return string(b)
}

// rawUpstream answers every request with the same bytes.
func rawUpstream(t *testing.T, answer string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, answer)
		conn.Close()
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestStrippedTokens: the store never sees what the policy takes out.
func TestStrippedTokens(t *testing.T) {
	seen := make(chan string, 10)
	r := newRigWith(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.RequestURI + " " + r.Header.Get("Authorization")
	}), `
policies:
  - name: state
    match: {path: "/{rest...}"}
    resource: "{path}"
    token: {from: [{query: fence, strip: true}, {basic_user: true, pattern: '^fence-([0-9]+)$', strip: true}]}
`)
	for _, tt := range []struct {
		method, path, auth, want string
		code                     int
	}{
		{"PUT", "/s?fence=34", "", "PUT /s ", 200},
		{"GET", "/s?x=%20&fence=34", "", "GET /s?x=%20 ", 200},
		{"PUT", "/s?fence=33", "", "", 412},
		{"PUT", "/s", "Basic ZmVuY2UtMzQ6", "PUT /s ", 200},
		{"PUT", "/s", "Basic ZmVuY2UtMzM6", "", 412},
		{"PUT", "/s?fence=35", "Basic ZmVuY2UtMzQ6", "", 400},
	} {
		got := r.must(tt.method, tt.path, "x", "Authorization", tt.auth)
		if got.code != tt.code {
			t.Errorf("%s %s %s = %v; want %d", tt.method, tt.path, tt.auth, got, tt.code)
		}
		if tt.want != "" {
			if s := <-seen; s != tt.want {
				t.Errorf("the store saw %q; want %q", s, tt.want)
			}
		}
	}
	if len(seen) > 0 {
		t.Errorf("the store saw %q as well", <-seen)
	}
}
